"""What all schedules of rows are written from: styles of walking a row, the code of rows held or streamed, the kernel
around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod

from kforge.engine.emit.cgen import BYTES
from kforge.engine.emit.kernelcode import KernelCode, parameters, render, template_types
from kforge.engine.emit.merging import Merged, find_pairs
from kforge.engine.emit.naming import Names
from kforge.engine.emit.paircode import ChunkCode, OnlineCode
from kforge.engine.emit.passes import Pass
from kforge.engine.emit.reducing import SLOT_BYTES
from kforge.engine.emit.rowbase import Style
from kforge.engine.emit.rowcode import RowCode
from kforge.engine.emit.splitcode import SplitCode
from kforge.engine.graph.ir import Expr, Program
from kforge.engine.graph.symbols import Var

PER_THREAD = 32  # elements that a thread holds in registers at most

WARP = Style(threads="32", thread="lane", tiled=False, combine="warp", scratch=False)
BLOCK = Style(threads="BLOCK", thread="threadIdx.x", tiled=False, combine="block", scratch=True)
STREAM = Style(threads="BLOCK", thread="threadIdx.x", tiled=True, combine="block", scratch=True, column="long long")
CHUNK = replace(BLOCK, first="first", end="end", writer="rank == 0 && threadIdx.x == 0")
SHARE = replace(STREAM, first="first", end="end")
THREAD = Style(
    threads="SPLIT",
    thread="part",
    tiled=True,
    combine="columns",
    scratch=True,
    column="long long",
    writer="part == 0 && active",
)


@dataclass
class HeldCode(ChunkCode):
    """The chunk is the whole row: nothing is exchanged."""

    row_loads_first = True

    states: dict[int, str] = field(default_factory=dict)
    shifts: dict[int, str] = field(default_factory=dict)
    factors: dict[int, str] = field(default_factory=dict)
    scales: dict[int, tuple[Expr, str]] = field(default_factory=dict)
    count = "cols"

    def after_loads(self, p: Pass, outside: Names) -> None:
        super().after_loads(p, outside)
        if p is self.passes[0]:
            self.load_early(gathered=True)

    def exchange(self, operation: str, mine: str, neutral: str, ctype: str) -> str:
        return mine


@dataclass
class StreamCode(OnlineCode):
    row_loads_first = True  # else the row's last thread waits for them when all others are done

    states: dict[int, str] = field(default_factory=dict)
    shifts: dict[int, str] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)


def captured(loops: tuple[Var, ...]) -> int:
    return prod(v.size.hint() for v in loops)


def moments(program: Program) -> list[Merged]:
    """Means with their deviations; a maximum and its exponentials are cheaper in two passes over registers."""
    return [pair for pair in find_pairs(program) if pair.kind == "moments"]


def widest(program: Program) -> int:
    return max([BYTES[b.dtype] for b in program.buffers if "float" in b.dtype] or [4])


def row_kernel(
    code: RowCode,
    name: str,
    template_file: str,
    schedule: str,
    idea: str,
    constants: dict[str, int | str],
    workspace: bool = False,
    extra: Mapping[str, object] | None = None,
) -> KernelCode:
    """Render one schedule's template around the emitted body; extra: what else this template needs."""
    program, types, sizes = code.program, code.types, code.sizes
    code.prologue()
    body = code.emit()
    scratch = "\n".join(f"    {line}" for line in code.scratch_lines)
    size_types = {s: "long long" if s in ("rows", "cols") else "int" for s in sizes.params}
    if code.style.column == "int":
        size_types["cols"] = "int"
    element_types = template_types(program, types)
    text = render(
        f"cuda/{template_file}",
        name=name,
        types=element_types,
        parameters=parameters(program, types, size_types, ("unsigned char* workspace",) if workspace else ()),
        scratch=scratch,
        body=body,
        bytes=SLOT_BYTES * getattr(code, "rounds", 0),
        slot=reduce(_larger, code.element_sizes()) if isinstance(code, SplitCode) else "",
        ragged=code.ragged,
        **(extra or {}),
    )
    inner = program.cols[-1]
    edge = next((s for s, p in sizes.params.items() if p == inner.size), None) or str(inner.size.constant)
    return KernelCode(
        name=name,
        program=program,
        schedule=schedule,
        idea=idea,
        text=text,
        template=(*element_types, *constants),
        helpers=frozenset(code.helpers),
        sizes=dict(sizes.params),
        grid="rows",
        block="BLOCK",
        constants=constants,
        tune={"VEC": (8, 4, 2, 1)},
        require={"VEC": code.memory.condition(types, sizes, edge, code.ragged)},
        size_types=size_types,
    )


def _larger(a: str, b: str) -> str:
    return f"({a} > {b} ? {a} : {b})"
