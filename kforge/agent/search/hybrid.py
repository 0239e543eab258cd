"""Hybrid: the engine's best first, without a model; then another strategy goes on from there with the model."""

from __future__ import annotations

from kforge.agent.search.constants import ENGINE_STALE, GAIN
from kforge.agent.search.mcts import MCTS
from kforge.agent.search.strategy import ENGINE, Selection, Strategy, cost
from kforge.agent.search.tree import ROOT, Tree


class Hybrid:
    """The engine is asked until it has nothing more, ENGINE_STALE attempts brought no gain, or one is right untimed."""

    name = "hybrid"

    def __init__(self, then: Strategy | None = None) -> None:
        self.then = then or MCTS()

    def select(self, tree: Tree) -> Selection | None:
        """The root for the engine, then what the second strategy selects, without the engine."""
        if ENGINE not in tree.steps.exhausted and not engine_done(tree):
            return Selection(ROOT)
        selection = self.then.select(tree)
        if selection is None:
            return None
        return Selection(selection.node, selection.exemplars, selection.direction, selection.avoid, skip=(ENGINE,))


def engine_done(tree: Tree) -> bool:
    """Whether the engine's further attempts are unlikely to help."""
    best, since = None, 0
    for node in tree.nodes.values():
        if node.proposer != ENGINE or node.status is None:
            continue
        if node.verified and (best is None or cost(node) * GAIN < best):
            best, since = cost(node), 0
            if node.ms is None:
                return True
        elif best is not None:
            since += 1
    return since >= ENGINE_STALE
