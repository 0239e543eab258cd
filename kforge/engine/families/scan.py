"""Running results along rows: one read, one write, the running results carried from tile to tile.

A warp takes a short row, a block a longer one; where neighbouring rows are neighbours in memory, a thread takes a row
and several warps share its columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kforge.engine.emit.access import Memory, reads_across
from kforge.engine.emit.cgen import Types
from kforge.engine.emit.kernelcode import KernelCode, row_sizes
from kforge.engine.emit.passes import plan
from kforge.engine.emit.reducing import SLOT_BYTES
from kforge.engine.emit.scancode import ColumnScanCode, ColumnTilesCode, LookBackCode, ScanCode
from kforge.engine.families import Target, register
from kforge.engine.families.row_parts import BLOCK, THREAD, captured, row_kernel, widest
from kforge.engine.graph.ir import Program

WARP_COLUMNS = 512
LONG = 8192  # columns from which a row may have several blocks
FEW_ROWS = 8  # for each multiprocessor: with fewer, a block per row leaves it waiting
THREADS_ENOUGH = 16384  # rows from which threads that each walk down one are faster than blocks for tiles
MOST_PLACES = 2**31 - 1
SHARED_BYTES = 46 << 10  # of the 48 KB that a kernel may declare

WARP_ROW = replace(BLOCK, threads="32", thread="lane", tiled=True, combine="warp", scratch=False, column="long long")
BLOCK_ROW = replace(BLOCK, tiled=True, column="long long")
COLUMN_ROW = replace(THREAD)


@register("scan")
def scan(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to programs with at least one scan that sort nothing."""
    if not program.scans or any(e.kind.startswith("sort") for e in program.scans):
        return
    if reads_across(program):
        if not program.in_place:  # lanes beyond the last row take that one, too
            tiles = _column_tiles(program, types, name)
            thread = _thread(program, types, name)
            if tiles is None:
                yield thread
            else:
                yield from (replace(thread, limit=f"rows >= {THREADS_ENOUGH}"), tiles)
        yield _block(program, types, name, ahead=False)
        return
    if captured(program.cols) <= WARP_COLUMNS:
        yield _warp(program, types, name)
    look_back = _look_back(program, types, name)
    if look_back is not None:
        few = f"rows < {FEW_ROWS * target.multiprocessors} and cols > {LONG}"
        idea = "running results carried from tile to tile, by one block per row or, of few long rows, per tile"
        yield replace(look_back, schedule="scan_either", limit=few, idea=idea)
    first = not _single_elements(program, types)
    yield _block(program, types, name, ahead=first)
    yield _block(program, types, name, ahead=not first)
    if look_back is not None:
        yield look_back


def _warp(program: Program, types: Types, name: str, ahead: bool = False) -> KernelCode:
    code = ScanCode(program, types, row_sizes(program), plan(program, keep=False), WARP_ROW, ahead=ahead)
    vec = 4 if widest(program) >= 4 else 8
    items = next((i for i in (1, 2, 4) if 32 * vec * i >= captured(program.cols)), 4)
    constants: dict[str, int | str] = {"BLOCK": 128, "VEC": vec, "ITEMS": items}
    idea = "one warp per row, running results in registers"
    kernel = row_kernel(code, f"{name}_warp", "row_scan_warp.cu.j2", "scan_warp", idea, constants)
    return replace(
        kernel,
        grid="ceil_div(rows, BLOCK // 32)",
        tune={"BLOCK": (128, 256), "VEC": (8, 4, 2, 1), "ITEMS": (4, 2, 1, 8)},
        require={**kernel.require, "BLOCK": _fits(code)},
        tuned=tuple((f"cols <= {32 * vec * i}" if i < 4 else "True", {"ITEMS": i}) for i in (1, 2, 4)),
        limit=f"cols <= {WARP_COLUMNS}",
    )


def _block(program: Program, types: Types, name: str, ahead: bool, lines_up: bool | None = None) -> KernelCode:
    """lines_up: as ScanCode; where it is not said, for elements that move one by one."""
    passes, aligned = plan(program, keep=False), _single_elements(program, types) if lines_up is None else lines_up
    narrow = _moves_by_one(program)
    style = replace(BLOCK_ROW, column="Column<WIDE>", end="end") if narrow else BLOCK_ROW
    code = ScanCode(program, types, row_sizes(program), passes, style, ahead=ahead, lines_up=aligned)
    vec = 4 if widest(program) >= 4 else 8
    tuned: tuple[tuple[str, dict[str, int | str]], ...] = ()
    if _single_elements(program, types):
        constants: dict[str, int | str] = {"BLOCK": 64, "VEC": 1, "ITEMS": 16}
    else:
        block, items = (512, 8 // vec) if ahead else (256, 16 // vec)
        if any(e.kind == "logsumexp" for e in program.scans):
            block = 256
        constants = {"BLOCK": block, "VEC": vec, "ITEMS": items}
        small = [b for b in (128, 256) if b < block]
        tuned = (
            ("cols % 2 == 1", {"BLOCK": 128, "VEC": 1, "ITEMS": 16}),
            (f"cols % {vec} != 0", {"BLOCK": 128, "VEC": 2, "ITEMS": 8}),
            *[(f"cols <= {b * vec * items}", dict[str, int | str](BLOCK=b)) for b in small],
            ("True", {"BLOCK": block}),
        )
    tune: dict[str, tuple[int | str, ...]] = {"BLOCK": (256, 512, 128, 64), "VEC": (8, 4, 2, 1)}
    tune["ITEMS"] = (4, 2, 8, 16, 1)
    require = {"BLOCK": _fits(code)}
    if narrow:
        _count_in_32_bits(code, constants, tune, require)
    idea = "one block per row, tile by tile, running results carried along"
    label = "ahead" if ahead else "scan"
    if ahead:
        idea += ", the next tile loaded meanwhile"
    kernel = row_kernel(code, f"{name}_{label}", "row_scan.cu.j2", label, idea, constants, extra={"wide": narrow})
    require = {**kernel.require, **require}
    return replace(kernel, tune=tune, require=require, tuned=tuned)


def _moves_by_one(program: Program) -> bool:
    """Whether a column never stands in a product, which 32 bits might not hold."""
    indices = [s.index for s in program.stores] + [e.index for e in program.loads if e.index is not None]
    return all(p.coefficient(program.cols[-1]).constant in (-1, 0, 1) for p in indices)


def _single_elements(program: Program, types: Types) -> bool:
    """Whether loads and stores cannot both be aligned, whatever the sizes: one is a place off the other."""
    condition = Memory.of(program, program.cols[-1]).condition(types, row_sizes(program), "cols")
    return "1 % VEC == 0" in re.split(" and ", condition)


def _look_back(program: Program, types: Types, name: str) -> KernelCode | None:
    """One read and one write of rows that are too few to keep the GPU busy with a block each."""
    if program.reductions or any(s.per_row for s in program.stores):
        return None
    narrow = _moves_by_one(program)
    style = replace(BLOCK_ROW, column="Column<WIDE>", end="end") if narrow else BLOCK_ROW
    code = LookBackCode(program, types, row_sizes(program), plan(program, keep=False), style)
    vec = 4 if widest(program) >= 4 else 8
    constants: dict[str, int | str] = {"BLOCK": 256, "VEC": vec, "ITEMS": 16 // vec}
    tune: dict[str, tuple[int | str, ...]] = {"BLOCK": (256, 512, 128), "VEC": (8, 4, 2, 1), "ITEMS": (4, 2, 8, 16)}
    require = {"BLOCK": _fits(code)}
    if narrow:
        _count_in_32_bits(code, constants, tune, require)
    idea = "one block per tile of a row, each looking back at the results of those before it"
    extra = {"wide": narrow}
    file = "row_scan_tiles.cu.j2"
    kernel = row_kernel(code, f"{name}_tiles", file, "look_back", idea, constants, workspace=True, extra=extra)
    blocks = "ceil_div(cols, BLOCK * VEC * ITEMS)"
    return replace(
        kernel,
        grid=f"rows * {blocks}",
        tune=tune,
        require={**kernel.require, **require},
        tuned=(("cols % 2 == 1", {"VEC": 1, "ITEMS": 16}), ("True", {})),
        workspace=f"rows * {blocks} * {SLOT_BYTES * code.rounds} + 4",
        zeroed=True,
    )


def _count_in_32_bits(
    code: ScanCode,
    constants: dict[str, int | str],
    tune: dict[str, tuple[int | str, ...]],
    require: dict[str, str],
) -> None:
    """Columns as int wherever they fit, as a constant WIDE decides."""
    code.helpers.add("column_type")
    constants["WIDE"] = 0
    tune["WIDE"] = (0, 1)
    require["WIDE"] = f"WIDE == 1 or cols <= {MOST_PLACES - (1 << 17)}"


def _column_tiles(program: Program, types: Types, name: str) -> KernelCode | None:
    """One read and one write, in the order in which memory lies, however few the rows are."""
    if program.reductions or any(s.per_row for s in program.stores):
        return None
    code = ColumnTilesCode(program, types, row_sizes(program), plan(program, keep=False), THREAD)
    constants: dict[str, int | str] = {"SPLIT": 8, "VEC": 1, "ITEMS": 8}
    idea = "one thread per row and one block per tile of its columns, which looks at the results of those before it"
    kernel = row_kernel(
        code, f"{name}_columns", "row_scan_columns.cu.j2", "scan_columns", idea, constants, workspace=True
    )
    tiles = "ceil_div(cols, SPLIT * ITEMS)"
    return replace(
        kernel,
        grid=f"ceil_div(rows, 32) * {tiles}",
        block="32 * SPLIT",
        tune={"SPLIT": (8, 16, 4), "ITEMS": (8, 4, 16)},
        require={"SPLIT": f"cols <= {MOST_PLACES}"} if _places(program) else {},
        workspace=f"rows * {tiles} * {code.rounds} + 4",
        zeroed=True,
    )


def _fits(code: ScanCode) -> str:
    """Single elements are turned around in shared memory, of which there must be enough; places are held as int."""
    scans = len(code.program.scans)
    room = f"(VEC > 1 or BLOCK * ITEMS * {code.value_bytes() * scans} * 33 <= {SHARED_BYTES * 32})"
    return f"{room} and cols <= {MOST_PLACES}" if _places(code.program) else room


def _places(program: Program) -> bool:
    return any(e.kind.startswith("arg") for e in program.scans)


def _thread(program: Program, types: Types, name: str) -> KernelCode:
    code = ColumnScanCode(program, types, row_sizes(program), plan(program, keep=False), COLUMN_ROW)
    rows = captured(program.rows)
    split = 1 if rows >= 1 << 18 else 4 if rows >= THREADS_ENOUGH else 8
    constants: dict[str, int | str] = {"SPLIT": split, "VEC": 1, "ITEMS": 8}
    idea = "one thread per row, since neighbouring rows are neighbours in memory, running results carried down"
    kernel = row_kernel(code, f"{name}_thread", "row_scan_thread.cu.j2", "scan_thread", idea, constants)
    return replace(
        kernel,
        grid="ceil_div(rows, 32)",
        block="32 * SPLIT",
        tune={"SPLIT": (4, 8, 16, 2, 1), "ITEMS": (8, 4, 16)},
        require={"SPLIT": f"cols <= {MOST_PLACES}"} if _places(program) else {},
    )
