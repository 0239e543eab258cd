"""One lesson: what an attempt tried, expected and achieved, and why it failed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kforge.agent.directions import tried
from kforge.agent.memory.keys import Key
from kforge.environment.report import Status

if TYPE_CHECKING:
    from kforge.agent.search.tree import Node, Tree
    from kforge.environment.report import Report
    from kforge.kernel.candidate import Candidate

# KernelOPT: an outcome is worth keeping from a gain of 1.05 or a loss of 1.20.
GAIN, LOSS = 1.05, 1.20
BETTER = 1.01  # ours: what counts as success of a direction, above the noise of a quick timing
SOURCE = 20_000  # characters of a hack's sources that are kept


class Outcome(StrEnum):
    """How an attempt ended, over its parent."""

    GAIN = "gain"
    LOSS = "loss"
    SAME = "same"
    RIGHT = "right"  # and untimed
    FAILED = "failed"
    HACKED = "hacked"
    NOTE = "note"  # not an attempt: what a model or a person wants remembered


SHOWN = (Outcome.GAIN, Outcome.LOSS, Outcome.FAILED, Outcome.HACKED, Outcome.NOTE)  # the others only count


@dataclass(frozen=True)
class Lesson:
    """text: what was tried. expected, gain: factors over the parent, None where unsaid or untimed. why: what failed.

    time in seconds since the epoch; id and time are given by the memory. source: of a hack.
    """

    family: str
    shape_class: str
    chip: str
    direction: str
    outcome: str
    text: str
    expected: float | None = None
    gain: float | None = None
    why: str = ""
    run: str = ""
    candidate: str = ""
    source: str = ""
    time: float = 0.0
    id: int = 0

    @property
    def success(self) -> bool | None:
        """Right, and better than its parent where that was timed; None for a note."""
        if self.outcome == Outcome.NOTE:
            return None
        if self.outcome in {Outcome.FAILED, Outcome.HACKED}:
            return False
        return self.gain is None or self.gain >= BETTER

    def __str__(self) -> str:
        """One line for a prompt or a person."""
        what = tried(self.direction, self.text)
        expected = f", expected {self.expected:.2f}x" if self.expected is not None else ""
        achieved = f" {self.gain:.2f}x" if self.gain is not None else ""
        why = f" ({self.why})" if self.why else ""
        return f"{what}{expected}: {self.outcome}{achieved}{why}"


def lesson_of(
    key: Key, tree: Tree, node: Node, report: Report, candidate: Candidate, run: str = "", hacked: str = ""
) -> Lesson:
    """The lesson of a judged attempt. gain is over its parent's time; over the judge's baseline where that has none."""
    fired = ", ".join(detector.name for detector in report.detectors if detector.fired) or hacked
    cheated = report.status is Status.HACKED
    gain = _gain(tree, node)
    source = source_of(candidate) if cheated else ""
    return Lesson(
        key.family,
        key.shape_class,
        key.chip,
        direction=node.direction,
        outcome=Outcome.HACKED if cheated else outcome(report.status, gain),
        text=node.idea,
        expected=node.expected_gain,
        gain=gain,
        why=f"{fired}: {node.failure}" if cheated and fired else node.failure,
        run=run,
        candidate=node.candidate,
        source=source[:SOURCE],
    )


def source_of(candidate: Candidate) -> str:
    """All files of a candidate as one text."""
    return "\n".join(candidate.files[name] for name in sorted(candidate.files))


def outcome(status: Status, gain: float | None) -> Outcome:
    """By KernelOPT's thresholds. What was built and cannot run here taught nothing but that it builds: right."""
    if status not in {Status.VERIFIED, Status.BUILT}:
        return Outcome.FAILED
    if gain is None:
        return Outcome.RIGHT
    return Outcome.GAIN if gain >= GAIN else Outcome.LOSS if gain <= 1 / LOSS else Outcome.SAME


def _gain(tree: Tree, node: Node) -> float | None:
    if not node.verified or node.ms is None:
        return None
    above = tree.nodes[node.parent].ms if node.parent is not None else None
    return above / node.ms if above is not None else node.speedup
