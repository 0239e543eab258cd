"""Row code for several blocks per row: each holds or streams a share, and the shares are joined through memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kforge.engine.ir import Expr
from kforge.engine.paircode import ChunkCode, OnlineCode
from kforge.engine.passes import Pass

SLOT_BYTES = 32  # room for the largest partial result


@dataclass
class SplitCode(ChunkCode):
    """The blocks of a row run at once, hold their chunks in registers, and wait for each other at every join."""

    rounds: int = 0
    factors: dict[int, str] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    shifts: dict[int, str] = field(default_factory=dict)
    scales: dict[int, tuple[Expr, str]] = field(default_factory=dict)

    def combine(self, operation: str, value: str, neutral: str, ctype: str) -> str:
        inside = self.combine_block(operation, value, neutral, ctype)
        return self.exchange(operation, inside, neutral, ctype)

    def exchange(self, operation: str, mine: str, neutral: str, ctype: str) -> str:
        self.helpers |= {"team", "exchange", "warp_reduce"}
        shared = self.names.fresh(f"joined_{self.rounds + 1}")
        self.scratch_lines.append(f"__shared__ {ctype} {shared};")
        text = f"exchange<{operation}, {ctype}>({mine}, {neutral}, team, {self.rounds}, {shared})"
        self.rounds += 1
        return text


@dataclass
class ShareCode(OnlineCode):
    """Pure reductions: each block streams its share and the last one to finish joins all shares, in order."""

    rounds: int = 0
    states: dict[int, str] = field(default_factory=dict)
    shifts: dict[int, str] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    queue: list[tuple[str, str, str, int, Callable[[str], None]]] = field(default_factory=list)
    queues = True

    def join(self, operation: str, value: str, neutral: str, ctype: str, then: Callable[[str], None]) -> None:
        self.helpers |= {"team", "gather", "warp_reduce"}
        inside = self.combine(operation, value, neutral, ctype)
        self.lines.add(f"publish<{ctype}>({inside}, team, {self.rounds});")
        self.queue.append((operation, neutral, ctype, self.rounds, then))
        self.rounds += 1

    def flush(self) -> None:
        if not self.queue:
            return
        self.lines.blank()
        self.lines.comment("only the block that finishes last goes on: it finds the shares of all others in memory")
        self.lines.add("if (!is_last(team)) return;")
        for operation, neutral, ctype, number, then in self.queue:
            then(f"gather<{operation}, {ctype}>({neutral}, team, {number})")
        self.queue = []


def joins_once(passes: list[Pass]) -> bool:
    """True when every reduction is in the first pass and nothing is written per element."""
    return not any(p.stores for p in passes) and not any(p.reductions or p.pairs for p in passes[1:])
