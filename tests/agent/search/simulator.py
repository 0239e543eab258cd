"""A seeded world to search in: for tests only. It says nothing about any GPU, model or strategy."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kforge.agent.attempts import Attempt
from kforge.agent.control import Control
from kforge.agent.proposers import Context
from kforge.agent.search.tree import Tree, first_line
from kforge.environment.report import Gate, Report, Speedup, Status, Verdict
from kforge.kernel.candidate import Candidate

BASELINE = 1.0  # ms


def candidate(text: str, proposer: str = "model", idea: str = "") -> Candidate:
    """A candidate that is nothing but a text."""
    return Candidate("op_kforge.py", {"op_kforge.py": text}, proposer=proposer, idea=idea)


def report(
    made: Candidate, ms: float | None, *, status: Status = Status.VERIFIED, failure: str = "", no_room: bool = False
) -> Report:
    """A report with this time; the baseline takes BASELINE."""
    timed = ms is not None and status is Status.VERIFIED
    return Report(
        task="op.py",
        candidate=made.digest,
        status=status,
        verdict=Verdict.SAME if timed else Verdict.UNTIMED,
        plan="quick",
        target="simulator",
        gates=() if status is Status.VERIFIED else (Gate("correctness", False, failure or "wrong\nin detail"),),
        speedup=Speedup("eager", BASELINE / ms, (0.0, 9.0), 0.01) if timed and ms else None,
        times_ms={"candidate": ms, "eager": BASELINE} if timed and ms else {},
        no_room=no_room,
    )


@dataclass
class World:
    """A Judge: each text has a fate that depends on the seed and on what it was made from."""

    seed: int = 0
    evaluations: int = 30
    timed: bool = True
    failing: float = 0.3
    tree: Tree = field(default_factory=Tree)
    control: Control = field(default_factory=Control)
    log: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    die_after: int | None = None  # events; what comes then is lost

    def spent(self) -> str:
        """By the number of judged attempts."""
        judged = sum(kind == "evaluated" for kind, _ in self.log)
        return "spent" if judged >= self.evaluations else ""

    def event(self, kind: str, /, **data: Any) -> None:
        """Into the log."""
        if self.die_after is not None and len(self.log) >= self.die_after:
            raise Killed
        self.log.append((kind, data))

    def evaluate(
        self, candidate: Candidate, plan: str = "quick", parent: int | None = None, direction: str = ""
    ) -> Attempt:
        """As the workbench does it: known candidates are not judged again."""
        known = self.tree.find(candidate.digest)
        if known is not None and known.status is not None:
            return Attempt(known, candidate, self._report(candidate, known.parent or 0))
        node = self.tree.add(parent or 0, candidate, direction)
        if known is None:
            self.event(
                "proposed",
                candidate=candidate.digest,
                proposer=candidate.proposer,
                idea=candidate.idea,
                expected_gain=candidate.expected_gain,
                node=node.id,
                parent_node=node.parent,
                direction=direction,
            )
        found = self._report(candidate, node.parent or 0)
        self.tree.record(node.id, found, BASELINE)
        self.event(
            "evaluated",
            candidate=candidate.digest,
            node=node.id,
            status=found.status.value,
            verdict=found.verdict.value,
            plan=plan,
            speedup=node.speedup,
            ms=node.ms,
            reward=node.reward,
            failure=first_line(found.failure),
        )
        return Attempt(node, candidate, found)

    def _report(self, made: Candidate, parent: int) -> Report:
        rng = random.Random(f"{self.seed}:{made.digest}")
        if rng.random() < self.failing:
            return report(made, None, status=Status.WRONG)
        above = self.tree.nodes[parent].ms or 1.5 * BASELINE
        return report(made, above * math.exp(rng.gauss(-0.02, 0.25)) if self.timed else None)


class Killed(BaseException):
    """The process is no more."""


class Refiner:
    """Proposes the k-th child of the selected attempt, at most `limit` in all."""

    def __init__(self, name: str = "model", limit: int = 10**6, directions: tuple[str, ...] = ("a", "b", "c")) -> None:
        self.name, self.limit, self.directions = name, limit, directions

    def propose(self, context: Context) -> Candidate | None:
        """None where the limit is reached."""
        tree = context.bench.tree
        own = [node for node in tree.nodes.values() if node.proposer == self.name and node.status is not None]
        if len(own) >= self.limit:
            return None
        tried = sum(tree.nodes[id].status is not None for id in context.parent.children)
        place = len(own) if self.name == "engine" else f"{context.parent.candidate}/{tried}"
        return candidate(f"{self.name} {place}", self.name, idea=f"idea {place}, in detail")


def rebuilt(log: list[tuple[str, Mapping[str, Any]]]) -> Tree:
    """The tree that a log tells of."""
    tree = Tree()
    for kind, data in log:
        tree.apply(kind, data)
    return tree
