"""Beam search as KernelOPT has it: the best four, four plans each, at most four repairs a plan, five iterations."""

from __future__ import annotations

import math

from kforge.agent.search.constants import BEAM, GAIN, ITERATIONS, PLANS, RETRIES, STALE_ITERATIONS
from kforge.agent.search.strategy import ENGINE, Selection, cost, outcomes
from kforge.agent.search.tree import Node, Tree

UNTIMED = 1e30  # ms


class Beam:
    """Stops after two iterations without gain. The first beam are the engine's best attempts, or the reference."""

    name = "beam"

    def __init__(self, iterations: int = ITERATIONS, stale: int = STALE_ITERATIONS) -> None:
        self.iterations, self.stale = iterations, stale

    def select(self, tree: Tree) -> Selection | None:
        """Goes through the steps so far as the search went; where they end is what comes next."""
        steps = iter(outcomes(tree))
        pool = [node for node in tree.nodes.values() if node.proposer == ENGINE and node.verified]
        stale = 0
        for _ in range(self.iterations):
            before = best_of(pool)
            for node in sorted(pool, key=lambda n: (cost(n), n.id))[:BEAM] or [tree.root]:
                for _ in range(PLANS):
                    at = node
                    for _ in range(1 + RETRIES):
                        made = next(steps, None)
                        if made is None:
                            return Selection(at.id)
                        right = [n for n in made if n.verified]
                        pool += right
                        if right or not made:
                            break
                        at = made[-1]  # failed: repaired from where it stands
            stale = 0 if best_of(pool) * GAIN < before else stale + 1
            if stale == self.stale:
                return None
        return None


def best_of(pool: list[Node]) -> float:
    """The least time; UNTIMED where none was timed, so that the first right attempt is a gain over none at all."""
    return min((node.ms if node.ms is not None else UNTIMED for node in pool), default=math.inf)
