"""A simple prediction of time from bytes and schedule, and the policy that ranks options by it.

The trained policy replaces `heuristic` behind the same Protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from kforge.engine.access import reads_across
from kforge.engine.cgen import BYTES
from kforge.engine.ir import Buffer
from kforge.engine.kernelcode import KernelCode

COPY_BYTES_PER_SECOND = 4.3e12  # one H200, read + written
LAUNCH_SECONDS = 3e-6
SHARE = {"pointwise": 0.99, "warp": 0.98, "block": 0.97, "split": 0.87, "share": 0.9, "thread": 0.85, "stream": 0.64}
"""Share of the copy rate that a schedule reaches where it fits (measured; thread and share are guesses)."""

UNCOALESCED = 0.125  # one float used of each sector of eight


@dataclass(frozen=True)
class Option:
    """Kernels for every program of a task, in launch order; each choice lists what covers other shapes after it."""

    choices: list[Sequence[KernelCode]]

    @property
    def seconds(self) -> float:
        return sum(predict(choice[0]) for choice in self.choices)

    @property
    def gain(self) -> float:
        """Expected factor over one kernel per operator, each reading and writing its operands once."""
        operators = sum(max(1, len(choice[0].program.origins)) for choice in self.choices)
        return round(max(1.0, operators * 0.8), 2)


class Policy(Protocol):
    """Orders options, the most promising first."""

    def rank(self, options: list[Option]) -> list[Option]: ...


class Heuristic:
    """By predicted time; ties keep the families' own order."""

    def rank(self, options: list[Option]) -> list[Option]:
        return sorted(options, key=lambda o: o.seconds)


heuristic = Heuristic()


def size_in_bytes(buffer: Buffer) -> int:
    return BYTES[buffer.dtype] * prod(s.hint() for s in buffer.shape)


def predict(code: KernelCode) -> float:
    """Seconds on the reference GPU: bytes over the schedule's share of the copy rate, plus a launch."""
    traffic = sum(size_in_bytes(b) for b in code.program.buffers)
    share = SHARE.get(code.schedule, 0.6)
    if code.schedule != "thread" and code.program.reductions and reads_across(code.program):
        share *= UNCOALESCED
    return LAUNCH_SECONDS + traffic / (COPY_BYTES_PER_SECOND * share)
