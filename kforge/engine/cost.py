"""A simple prediction of time from bytes and schedule, and the policy that ranks options by it.

The trained policy replaces `heuristic` behind the same Protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from kforge.engine.calls.vendor import Lowering
from kforge.engine.emit.access import crossing, reads_across
from kforge.engine.emit.cgen import BYTES
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.graph.ir import Buffer, Program

COPY_BYTES_PER_SECOND = 4.3e12  # one H200, read + written
LAUNCH_SECONDS = 3e-6
SHARE = {"pointwise": 0.99, "warp": 0.98, "block": 0.97, "split": 0.87, "share": 0.9, "thread": 0.85, "stream": 0.64}
SHARE |= {"broadcast": 0.97, "reduce": 0.95, "block_reduce": 0.72, "split_reduce": 0.7, "carried": 0.8}
SHARE |= {"columns": 0.92, "strips": 0.93, "held": 0.95, "rows": 0.98, "transpose": 0.9}
SHARE |= {"scan_warp": 0.96, "scan_either": 0.95, "scan": 0.9, "ahead": 0.94, "look_back": 0.65, "scan_thread": 0.7}
SHARE |= {"scan_columns": 0.5, "sort_warp": 0.4, "sort": 0.26, "top": 0.6}
SHARE |= {
    "window": 0.9,
    "columns_first": 0.91,
    "columns_then": 0.85,
    "lanes": 0.88,
    "taps": 0.3,
    "bags": 0.7,
    "gather": 0.9,
    "scattered": 0.6,
}
"""Share of the copy rate that a schedule reaches where it fits (measured; thread and share are guesses)."""

ELEMENTS = {"pointwise", "scattered", "gather", "broadcast"}  # each thread has neighbours of the result
DOWN = {"thread", "columns", "strips", "held", "scan_thread", "scan_columns"}  # read along the rows
WARPS_A_ROW = {
    "warp": 1,
    "block": 8,
    "stream": 8,
    "reduce": 4,
    "block_reduce": 8,
    "columns": 1 / 8,
    "thread": 1 / 8,
    "scan": 8,
    "ahead": 8,
}
WARPS_AT_ONCE = 264 * 8  # that stream rows and keep the memory of an H200 busy
CACHE_BYTES = 40e6  # of the second-level cache that what streams through leaves to the rest
UNCOALESCED = 0.125  # one float used of each sector of eight


@dataclass(frozen=True)
class Option:
    """Kernels for every program of a task, in launch order; each choice lists what covers other shapes after it."""

    choices: list[Sequence[KernelCode]]
    calls: Sequence[Lowering] = ()

    @property
    def seconds(self) -> float:
        return sum(predict(chosen(choice)) for choice in self.choices) + sum(call.seconds for call in self.calls)

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


def chosen(choice: Sequence[KernelCode]) -> KernelCode:
    """The kernel of a choice that the captured sizes get."""
    return next((code for code in choice if covers(code)), choice[-1])


def covers(code: KernelCode) -> bool:
    """Whether a kernel's limit admits the captured sizes."""
    return prod(v.size.hint() for v in code.program.cols) <= code.most


def shared_bytes(program: Program) -> int:
    """Bytes of the operands that move with the inner of two loops and not with the outer one."""
    if len(program.cols) != 2:
        return 0
    outer, inner = program.cols
    found = {e.buffer for e in program.loads if inner in e.variables() and outer not in e.variables()}
    return sum(size_in_bytes(b) for b in found if b is not None)


def predict(code: KernelCode) -> float:
    """Seconds on the reference GPU: bytes over the schedule's share of the copy rate, plus a launch."""
    if code.seconds:
        return code.seconds
    traffic = sum(size_in_bytes(b) for b in code.program.buffers)
    share = SHARE.get(code.schedule, 0.6)
    if code.schedule not in DOWN and (code.program.reductions or code.program.scans) and reads_across(code.program):
        share *= UNCOALESCED
    if code.schedule in ELEMENTS and crossing(code.program) is not None:
        share *= UNCOALESCED
    if code.schedule == "pointwise" and traffic > CACHE_BYTES:  # what rows share has left the cache by the next one
        traffic += (code.program.cols[0].size.hint() - 1) * shared_bytes(code.program)
    if code.schedule in WARPS_A_ROW:  # few rows leave multiprocessors idle, and those at work with few loads under way
        warps = max(1, prod(v.size.hint() for v in code.program.rows)) * WARPS_A_ROW[code.schedule]
        share *= min(1.0, warps / WARPS_AT_ONCE)
    launches = 2 if code.zeroed else 1  # its workspace is cleared by a launch of its own
    return launches * LAUNCH_SECONDS + traffic / (COPY_BYTES_PER_SECOND * share)
