"""Row programs that also add up their rows' elements for every column, as the gradients of a norm's parameters need.

Separate kernels would read the rows once more for the sums: layer norm's gradients then move five times their input's
bytes, in one kernel three times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod

from kforge.engine.emit.access import Access
from kforge.engine.emit.cgen import BYTES, Scope, Types
from kforge.engine.emit.kernelcode import KernelCode, row_sizes
from kforge.engine.emit.passes import plan
from kforge.engine.emit.schedules import live_values
from kforge.engine.families import Target, register
from kforge.engine.families.row_parts import BLOCK, HeldCode, moments, row_kernel
from kforge.engine.graph.ir import Program, Store

ELEMENTS = 64  # values that a thread may hold of its columns, sums included: with more, they are spilled
CLASSES = ((512, 64), (1024, 128), (2048, 256), (4096, 512))
"""(columns up to, threads of a block): eight columns a thread."""


@dataclass
class CarriedCode(HeldCode):
    """The statements for one row; sums over rows live on from row to row."""

    totals: dict[Store, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        for s in self.program.stores:
            if s.carried:
                self.totals[s] = self.names.fresh("total")
                self.memory.stores[s] = Access(s.buffer, s.index, s.index, "carried")
        self.names.taken |= {"end", *(f"{name}_out" for name in self.totals.values())}
        self.helpers.add("pack")

    def statement(self, s: Store, scope: Scope) -> str:
        if not s.carried:
            return super().statement(s, scope)
        return f"{self.totals[s]}[k][j] += {scope.text(s.value)};"

    def emit(self) -> str:
        super().emit()
        if self.sites == 1:  # with two of them, the barrier of one stands between two uses of the other
            self.lines.add("__syncthreads();  // the next row uses the partial results' memory again")
        return "\n".join(f"        {line}" if line else "" for line in str(self.lines).split("\n"))


@register("carried")
def carried(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to row programs with carried stores and rows of a known length that a block holds in registers."""
    if not any(s.carried for s in program.stores):
        return
    passes = plan(program, keep=True, pairs=moments(program))
    code = CarriedCode(program, types, row_sizes(program), passes, BLOCK)
    cols = prod(v.size.hint() for v in program.cols)
    vec = 4 if max(BYTES[b.dtype] for b in program.buffers if b.kind != "temporary") >= 4 else 8
    threads = next((threads for most, threads in CLASSES if cols <= most), 0)
    held = live_values(passes) + len(code.totals)
    if not threads or -(-cols // threads) * held > ELEMENTS:
        return
    lines = next(s.buffer.shape[0] for s in program.stores if s.carried).hint()
    items = -(-cols // (threads * vec))
    constants: dict[str, int | str] = {"BLOCK": threads, "VEC": vec, "ITEMS": items, "RESIDENT": max(1, 768 // threads)}
    extra = {
        "carried": [{"total": total, "buffer": s.buffer.name} for s, total in code.totals.items()],
        "real": types.real,
    }
    idea = "blocks take rows in turn, each row in registers, and add up what their columns give"
    kernel = row_kernel(code, f"{name}_carried", "row_carried.cu.j2", "carried", idea, constants, extra=extra)
    yield replace(
        kernel,
        grid=str(lines),
        tune={
            "BLOCK": (64, 128, 256, 512),
            "VEC": (8, 4, 2, 1),
            "ITEMS": (1, 2, 4, 8, 16, 32),
            "RESIDENT": (1, 2, 3, 4, 6),
        },
        require={**kernel.require, "ITEMS": "BLOCK * VEC * ITEMS >= cols", "RESIDENT": "BLOCK * RESIDENT <= 1024"},
    )
