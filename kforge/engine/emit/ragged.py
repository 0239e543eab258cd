"""Rows of sizes that no vector divides: they begin anywhere in memory, and are walked by memory's vectors.

A row's first and last vector are then in part another row's. Elements outside of the row are left out of everything;
the vectors in between move as ever. With single elements instead, odd rows reached 0.6 of the floor, of two bytes less.
"""

from __future__ import annotations

from math import prod

from kforge.engine.emit.access import Access, access_of
from kforge.engine.emit.merging import find_pairs
from kforge.engine.graph.ir import SCATTERS, Program, walk
from kforge.engine.graph.symbols import Poly

LEAST = 256  # columns from which it is worth the tests


def place_of_row(program: Program) -> Poly | None:
    """Where a row begins, in all that is read and written along it; None where that differs, or is not so simple."""
    if len(program.cols) != 1 or program.in_place or program.scans:
        return None
    inner = program.cols[0]
    values = walk(s.value for s in program.stores)
    if any(e.op in SCATTERS or e.op in ("draw", "window") for e in values):
        return None
    found: list[Access] = []
    for e in program.loads:
        assert e.index is not None and e.buffer is not None
        found.append(access_of(e.index, e.buffer, inner, e.args[0] if e.args else None))
        if e.args and inner in e.variables():
            return None
    for s in program.stores:
        if s.once or s.below is not None:
            return None
        if not s.per_row:
            found.append(access_of(s.index, s.buffer, inner))
    bases = {a.base for a in found if a.kind == "vector" and (not program.rows or a.base.terms)}
    written = all(
        a.base in bases for a in found if a.kind == "vector" and any(s.buffer is a.buffer for s in program.stores)
    )
    return next(iter(bases)) if len(bases) == 1 and written else None


def is_ragged(program: Program, vec: int, split: bool = False) -> bool:
    """Whether rows are walked so: the captured size is no multiple of `vec`. split: by several blocks that hold it."""
    cols = prod(v.size.hint() for v in program.cols)
    if cols < LEAST or cols % vec == 0 or place_of_row(program) is None:
        return False
    return not (split and any(pair.kind == "moments" for pair in find_pairs(program)))
