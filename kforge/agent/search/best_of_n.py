"""Best of n: independent attempts from scratch, none sees another."""

from __future__ import annotations

from kforge.agent.search.constants import SAMPLES
from kforge.agent.search.strategy import Selection, outcomes
from kforge.agent.search.tree import ROOT, Tree


class BestOfN:
    """n steps from the root; the engine's attempts come on top."""

    name = "best_of_n"

    def __init__(self, n: int = SAMPLES) -> None:
        self.n = n

    def select(self, tree: Tree) -> Selection | None:
        """The root, n times."""
        return Selection(ROOT) if len(outcomes(tree)) < self.n else None
