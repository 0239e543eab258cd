"""Greedy refinement: always from the best attempt so far; a failed attempt is repaired first."""

from __future__ import annotations

from kforge.agent.search.constants import PATIENCE
from kforge.agent.search.strategy import ENGINE, Selection, repair
from kforge.agent.search.tree import ROOT, Tree


class Greedy:
    """Gives up after PATIENCE attempts (the engine's not counted) since the best one."""

    name = "greedy"

    def select(self, tree: Tree) -> Selection | None:
        """The failed last attempt while it may be repaired, else the best, else the root."""
        best = tree.best
        since = [n for n in tree.nodes.values() if n.id > (best.id if best else ROOT) and n.proposer != ENGINE]
        if best is not None and len(since) >= PATIENCE:
            return None
        return repair(tree) or Selection(best.id if best else ROOT)
