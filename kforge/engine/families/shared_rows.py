"""Sums over rows that all need the same vector: a block takes several rows, and the vector crosses L2 once for them.

With a block a row, a product of a 2,048 x 1,048,576 matrix and a vector reads from L2 twice what it reads from memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from kforge.engine.emit.access import reads_across
from kforge.engine.emit.cgen import BYTES, Types
from kforge.engine.emit.kernelcode import KernelCode, row_sizes
from kforge.engine.emit.passes import plan
from kforge.engine.emit.rowscode import RowsCode, few_of
from kforge.engine.emit.splitcode import joins_once
from kforge.engine.families import Target, register
from kforge.engine.families.row_parts import STREAM, row_kernel
from kforge.engine.graph.ir import REAL, Program, walk


@register("shared_rows")
def shared_rows(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to sums in one pass with a load along the columns that is the same in every row, or every few rows."""
    few = few_of(program) is not None
    if not program.reductions or not (few or len(program.rows) == 1) or len(program.cols) != 1:
        return
    if reads_across(program):
        return
    passes = plan(program, keep=False)
    plain = all(r.kind == "sum" and r.dtype == REAL for r in program.reductions)
    walks = any(e.op in ("scan", "window") for e in walk(s.value for s in program.stores))
    if not plain or not joins_once(passes) or walks:
        return
    kernel = rows_of(program, types, name)
    rows, cols = (max(1, prod(v.size.hint() for v in group)) for group in (program.rows, program.cols))
    if kernel is not None and rows >= target.multiprocessors * 2 and cols >= 1024:
        yield kernel


def rows_of(program: Program, types: Types, name: str) -> KernelCode | None:
    """The kernel, or None where nothing is shared or something is read in another way than along the columns."""
    sizes = row_sizes(program)
    few = few_of(program)
    many = next((v.size for v in program.rows if v != few), None)
    if few is not None and many is not None and many.constant is None:
        sizes.add("many", many)
    code = RowsCode(program, types, sizes, plan(program, keep=False), STREAM)
    loads = code.passes[0].fresh
    along = [e for e in loads if code._is_vector(e)]
    if len(along) != len(loads) or any(e.args for e in loads):
        return None
    if any(set(program.rows) <= e.variables() for e in along if few is not None):
        return None
    if few is None and len({code._moves_with_row(e) for e in along}) != 2:
        return None
    vec = 4 if max(BYTES[b.dtype] for b in program.buffers) >= 4 else 8
    constants: dict[str, int | str] = {"BLOCK": 256, "VEC": vec, "ROWS": 4 if few is None else 2}
    idea = "several rows per block, which share what does not depend on the row"
    kernel = row_kernel(code, f"{name}_rows", "row_rows.cu.j2", "rows", idea, constants)
    if few is not None:
        count = f"rows // {few.size.constant}"
        return replace(kernel, grid=f"ceil_div({count}, ROWS)", tune=TUNE | {"ROWS": (2, 4, 1)})
    return replace(kernel, grid="ceil_div(rows, ROWS)", tune=TUNE, tuned=BY_ROWS)


TUNE: dict[str, tuple[int | str, ...]] = {"BLOCK": (256, 512, 128), "VEC": (8, 4, 2, 1), "ROWS": (4, 2, 8, 1)}
BY_ROWS: tuple[tuple[str, dict[str, int | str]], ...] = (
    ("rows >= 2048", {"ROWS": 4}),
    ("rows >= 1024", {"BLOCK": 512, "ROWS": 2}),
    ("True", {"BLOCK": 512, "ROWS": 1}),
)
"""Blocks enough for all multiprocessors: fewer rows a block where there are fewer rows."""
