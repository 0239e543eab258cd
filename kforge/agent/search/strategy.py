"""What a strategy is: it reads the tree and says what to work on next. Shared readings of the tree live here.

A strategy keeps no state of its own: the same tree gives the same selection, so that a resumed run goes on as it would
have. Random draws come from a generator seeded by the run's seed and the number of the step.
"""

from __future__ import annotations

import math
import random
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from kforge.agent.search.constants import RETRIES
from kforge.agent.search.tree import ROOT, Node, Tree

ENGINE = "engine"  # the proposer that needs no parent


@dataclass(frozen=True)
class Selection:
    """The attempt to start from (0: from scratch), others to show, the direction to take ("": free) and to avoid.

    skip: proposers that are not asked while there is another.
    """

    node: int
    exemplars: tuple[int, ...] = ()
    direction: str = ""
    avoid: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As it is written into the log."""
        return asdict(self)

    @staticmethod
    def read(data: dict[str, Any]) -> Selection:
        """From the log."""
        names = ("exemplars", "avoid", "skip")
        return Selection(data["node"], direction=data["direction"], **{name: tuple(data[name]) for name in names})


class Strategy(Protocol):
    """One rule of search. select: what to work on next, None to give up; it may prune nodes of the tree."""

    name: str

    def select(self, tree: Tree) -> Selection | None: ...


def draws(tree: Tree) -> random.Random:
    """The random numbers of the step that comes next."""
    return random.Random(f"{tree.steps.seed}:{len(tree.steps.history)}")


def outcomes(tree: Tree) -> list[list[Node]]:
    """What each step brought that was not the engine's, in order; a step that brought nothing new is an empty list."""
    steps = [(number, step) for number, step in enumerate(tree.steps.history) if step["proposer"] != ENGINE]
    made: dict[int, list[Node]] = {number: [] for number, _ in steps}
    for node in list(tree.nodes.values())[1:]:
        if node.step in made and node.proposer != ENGINE:
            made[node.step].append(node)
    return list(made.values())


def cost(node: Node) -> float:
    """What is minimised: the time in ms, infinite where there is none."""
    return node.ms if node.ms is not None else math.inf


def repair(tree: Tree) -> Selection | None:
    """The last attempt, if it failed and no more than RETRIES in a row did."""
    last = tree.nodes[max(tree.nodes)]
    if last.id == ROOT or not last.failed or last.pruned:
        return None
    chain = 0
    for node in tree.path(last.id):
        if not node.failed:
            break
        chain += 1
    return Selection(last.id) if chain <= RETRIES else None
