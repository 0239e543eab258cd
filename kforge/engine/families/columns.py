"""Reductions over outer dimensions: rows are neighbours in memory, columns are not, whatever lies between them.

A warp reads 32 neighbouring rows at a time. Where there are too few rows to fill the GPU and they are only reduced,
BLOCKS blocks share a strip of rows, and the last one to finish joins what they have, always in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from kforge.engine.emit.access import Memory, access_of, reads_across
from kforge.engine.emit.cgen import BYTES, Sizes, Types
from kforge.engine.emit.columncode import ColumnCode, HeldColumns, RowsAbreast
from kforge.engine.emit.kernelcode import KernelCode, row_sizes
from kforge.engine.emit.merging import find_pairs
from kforge.engine.emit.passes import Pass, plan
from kforge.engine.emit.reducing import SLOT_BYTES
from kforge.engine.emit.schedules import live_values
from kforge.engine.emit.splitcode import joins_once
from kforge.engine.families import Target, register
from kforge.engine.families.row_parts import PER_THREAD, THREAD, row_kernel
from kforge.engine.graph.ir import Program, walk

HELD = replace(THREAD, tiled=False, end="end")
THREADS = 2048  # a multiprocessor


@register("columns")
def columns(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to programs whose rows lie side by side in memory."""
    if not program.reductions or not program.rows or not reads_across(program):
        return
    rows, cols = (max(1, prod(v.size.hint() for v in group)) for group in (program.rows, program.cols))
    passes = plan(program, keep=False, pairs=find_pairs(program))
    few = rows * 16 < target.multiprocessors * THREADS and rows * cols > 1 << 18
    halves = max(BYTES[b.dtype] for b in program.buffers if b.kind != "output") <= 2
    several = halves and abreast(program, passes)
    if few and joins_once(passes):
        yield strips(program, types, name, target, team=True, several=several)
    if not joins_once(passes) and cols <= min(512 if halves else 2048, held_columns(program)):
        yield held(program, types, name, halves)
    yield strips(program, types, name, target, team=False, several=several)


def abreast(program: Program, passes: list[Pass]) -> bool:
    """Whether a thread can take several neighbouring rows at once: one pass, each load along the rows or the same for
    all."""
    if not joins_once(passes) or any(p.pairs for p in passes):
        return False
    last = program.rows[-1]
    for e in walk(r.args[0] for r in program.reductions):
        if e.op == "load" and e.index is not None:
            along = e.index.coefficient(last).constant == 1 and not e.args
            if set(program.rows) & e.variables() and not along:
                return False
    return True


def held_columns(program: Program) -> int:
    """How many columns a block of 16 lanes holds in registers; of halves, which need 64 lanes, a quarter of that.

    None where there is not room for the fewest that a thread takes.
    """
    items = PER_THREAD // live_values(_held_passes(program))
    return 64 * items if items >= min(c[3] for c in HELD_CLASSES) else 0


def _held_passes(program: Program) -> list[Pass]:
    return plan(program, keep=True, pairs=[pair for pair in find_pairs(program) if pair.kind == "moments"])


def held(program: Program, types: Types, name: str, halves: bool = False) -> KernelCode:
    """Read once, whatever is done with it: every thread holds ITEMS columns of its row.

    halves: elements of two bytes, of which 32 neighbours are half a line of memory.
    """
    passes = _held_passes(program)
    sizes = row_sizes(program)
    walks = HeldColumns.walks(program)
    code = HeldColumns(program, types, sizes, passes, replace(HELD, column="int") if walks else HELD)
    items = PER_THREAD // live_values(passes)
    several = len(program.rows) > 1
    if several:
        code.helpers.add("index")
    classes = [c for c in (HALVES_CLASSES if halves else HELD_CLASSES) if c[3] <= items]
    cols = prod(v.size.hint() for v in program.cols)
    _, lanes, split, own = next((c for c in classes if cols <= c[0]), classes[-1])
    constants: dict[str, int | str] = {"LANES": lanes, "SPLIT": split, "VEC": 1, "ITEMS": own}
    tune: dict[str, tuple[int | str, ...]] = {"LANES": (32, 16, 64, 128, 8), "SPLIT": (1, 2, 4, 8, 16, 32, 64)}
    tune["ITEMS"] = tuple(i for i in (4, 8, 16, 32) if i <= items)
    require = {"SPLIT": f"SPLIT * {items} >= cols", "ITEMS": "SPLIT * ITEMS >= cols", "LANES": "LANES * SPLIT <= 1024"}
    if several:
        constants["WIDE"], tune["WIDE"] = 0, (0, 1)
        require["WIDE"] = "WIDE == 1 or rows + LANES <= 4294967295"
    if walks:
        constants["FULL"], tune["FULL"] = 1, (1, 0)
        require["FULL"] = "FULL == 0 or (SPLIT * ITEMS == cols and rows % LANES == 0)"
    idea = "neighbouring threads take neighbouring rows, whose columns they hold in registers"
    extra = {"team": False, "wide": several, "outer": "cols", "several": False, "column": code.style.column}
    kernel = row_kernel(code, f"{name}_held", "row_columns.cu.j2", "held", idea, constants, extra=extra)
    return replace(
        kernel,
        grid="ceil_div(rows, LANES)",
        block="LANES * SPLIT",
        tune=tune,
        require=require,
        tuned=tuple((f"cols <= {limit}", {"LANES": n, "SPLIT": k, "ITEMS": i}) for limit, n, k, i in classes),
        limit=f"cols <= {(16 if halves else 64) * items}",
    )


HELD_CLASSES = (
    (16, 128, 1, 16),
    (32, 128, 2, 16),
    (64, 64, 4, 16),
    (128, 32, 8, 16),
    (256, 32, 16, 16),
    (512, 16, 32, 16),
    (512, 32, 16, 32),
    (1024, 16, 32, 32),
    (1024, 16, 64, 16),
    (2048, 16, 64, 32),
)
"""(columns up to, LANES, SPLIT, ITEMS): blocks of 128 to 1,024 threads, several of them a multiprocessor."""

HALVES_CLASSES = (
    (16, 128, 1, 16),
    (32, 128, 2, 16),
    (64, 64, 4, 16),
    (128, 64, 8, 16),
    (256, 64, 16, 16),
    (256, 64, 8, 32),
    (512, 32, 16, 32),
)
"""The same for two bytes: 32 lanes read what 16 do of four, half a line of memory."""


def strips(program: Program, types: Types, name: str, target: Target, team: bool, several: bool = False) -> KernelCode:
    """The kernel; team: several blocks a strip of rows; several: VEC rows a thread."""
    passes = plan(program, keep=False, pairs=find_pairs(program))
    rows, outer, sizes = prod(v.size.hint() for v in program.rows), program.cols[0].size, row_sizes(program)
    if len(program.cols) > 1 and outer.constant is None:
        sizes.add("cols_0", outer)
    code = (RowsAbreast if several else ColumnCode)(program, types, sizes, passes, THREAD, team=team)
    divided = len(program.rows) > 1
    if divided:
        code.helpers.add("index")
    wide = max(BYTES[b.dtype] for b in program.buffers if b.kind != "output") >= 4
    lanes = 256 if program.rows[-1].size.hint() >= 256 else 64
    constants: dict[str, int | str] = {"LANES": lanes, "SPLIT": 4, "VEC": 1, "ITEMS": 8 if wide else 16}
    tune: dict[str, tuple[int | str, ...]] = {
        "LANES": (64, 128, 256, 512, 32),
        "SPLIT": (16, 8, 4, 2, 1),  # where too many threads are asked for, fewer come next
        "ITEMS": (8, 16, 4),
    }
    require: dict[str, str] = {}
    if several:
        constants |= {"LANES": 64, "VEC": 4, "ITEMS": 8}
        tune["VEC"] = (4, 2, 8, 1)
        require["VEC"] = along_rows(program, types, sizes)
    if divided:
        constants["WIDE"], tune["WIDE"] = 0, (0, 1)
        require["WIDE"] = "WIDE == 1 or rows + LANES * VEC <= 4294967295"
    if team:
        each = 4 if several else 1
        lanes = max(32, min(64 if several else 128, 1 << (rows // each - 1).bit_length()))
        constants |= {"LANES": lanes, "SPLIT": 4}
        strip_count = max(1, -(-rows // (lanes * each)))
        resident = target.multiprocessors * THREADS // (lanes * 4)
        blocks = max(1, min(resident // strip_count, outer.hint() // 32 or 1, 1024))
        constants["BLOCKS"] = blocks
        tune["BLOCKS"] = tuple(dict.fromkeys((blocks, max(1, blocks // 2), blocks * 2)))
    idea = "neighbouring threads take neighbouring rows, which are neighbours in memory"
    idea += "; several blocks share the columns" if team else ""
    schedule = "strips" if team else "columns"
    extra = {"team": team, "wide": divided, "outer": code.scope.index(outer, True), "several": several}
    extra["column"] = "long long"
    kernel = row_kernel(
        code, f"{name}_{schedule}", "row_columns.cu.j2", schedule, idea, constants, workspace=team, extra=extra
    )
    most = 1024 if code.sites < 2 else max(256, 2048 // code.sites)  # what they exchange fits 48 KB of shared memory
    require["SPLIT"] = f"LANES * SPLIT{' * VEC' if several else ''} <= {2 * most if several else most}"
    if team:
        lanes = min(lanes, most)
        own = {**kernel.constants, "LANES": lanes, "SPLIT": max(1, min(4, most // lanes))}
        kernel = replace(kernel, constants=own)
    per_row = SLOT_BYTES * code.rounds
    return replace(
        kernel,
        grid="ceil_div(rows, LANES * VEC) * BLOCKS" if team else "ceil_div(rows, LANES * VEC)",
        block="LANES * SPLIT",
        tune=tune,
        require=require,
        tuned=() if team or several else SPLITS,
        workspace=f"ceil_div(rows, LANES * VEC) * (LANES * VEC * BLOCKS * {per_row} + 4)" if team else "",
        zeroed=team,
    )


def along_rows(program: Program, types: Types, sizes: Sizes) -> str:
    """The condition under which VEC neighbouring rows are VEC neighbours in memory, aligned; holds for VEC = 1."""
    last = program.rows[-1]
    memory = Memory(last)
    for e in program.loads:
        assert e.index is not None and e.buffer is not None
        if last in e.variables() and any(c in e.variables() for c in program.cols):
            memory.loads[e.uid] = access_of(e.index, e.buffer, last)
    edge = next((n for n, p in sizes.params.items() if p == last.size), None) or str(last.size.constant)
    return memory.condition(types, sizes, edge)


SPLITS: tuple[tuple[str, dict[str, int | str]], ...] = (
    ("rows >= 65536", {"LANES": 256, "SPLIT": 4}),
    ("rows >= 16384", {"LANES": 64, "SPLIT": 8}),
    ("True", {"LANES": 32, "SPLIT": 16}),
)
"""Threads enough to fill the multiprocessors: more of them share the columns of a row where there are fewer rows."""
