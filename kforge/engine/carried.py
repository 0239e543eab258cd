"""Sums down the columns, taken along by the kernel that has the rows at hand (gradients of a norm's weight and bias).

A program that walks rows and a later one that sums over those rows for every column would read the same elements twice.
Here each block of the first adds up what it sees of every column and leaves one line of partial sums; the later program
sums these lines, which are few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.engine.coalescing import substitute
from kforge.engine.emit.access import access_of
from kforge.engine.graph.ir import REAL, Buffer, Builder, Expr, Program, Store, walk
from kforge.engine.graph.symbols import Poly, Var

if TYPE_CHECKING:
    from kforge.engine.partition import Partition

LINES = 396
"""Of partial sums, one a block: three blocks of 256 threads on each of 132 multiprocessors. As many for few rows, since
the sizes at hand say nothing of others; blocks without a row leave zeros."""


def pair_of(programs: Sequence[Program]) -> tuple[Program, Program] | None:
    """A program over rows and the one that sums over its rows, where the first can do both."""
    for k, first in enumerate(programs):
        for later in programs[k + 1 :]:
            if _fits(first, later) and _after(programs, first, later):
                return first, later
    return None


def _fits(first: Program, later: Program) -> bool:
    """Whether `later` is made of sums over the rows of `first`, each for one of its columns of a known number."""
    if len(first.rows) != 1 or len(first.cols) != 1 or len(later.rows) != 1 or len(later.cols) != 1:
        return False
    turned = (later.rows[0].size, later.cols[0].size) == (first.cols[0].size, first.rows[0].size)
    plain = first.cols[0].size.constant is not None and not first.scans and not first.in_place
    if not turned or not plain or not first.reductions or not later.reductions:
        return False
    if any(s.once or s.below is not None for s in first.stores) or not all(s.per_row for s in later.stores):
        return False
    for r in later.reductions:
        inner = walk([r.args[0]])
        if r.kind != "sum" or r.dtype != REAL or any(e.op in ("reduce", "scan", "window") for e in inner):
            return False
        for e in inner:
            if e.op == "load":
                assert e.index is not None and e.buffer is not None
                if access_of(e.index, e.buffer, later.rows[0], e.args[0] if e.args else None).kind == "scalar":
                    return False
    outside = walk((s.value for s in later.stores), into_reductions=False)
    written = {s.buffer for s in first.stores}
    return not any(e.op == "load" and e.buffer in written for e in outside)


def _after(programs: Sequence[Program], first: Program, later: Program) -> bool:
    """Whether what `later` reads is there when `first` starts, or made by `first`."""
    between = programs[programs.index(first) + 1 : programs.index(later)]
    made = {s.buffer for p in between for s in p.stores}
    return not any(e.buffer in made for e in later.loads)


def carry(builder: Builder, parts: Partition) -> bool:
    """Let the first of a pair take the sums of the second along; False where there is no such pair."""
    found = pair_of(parts.programs)
    if found is None or parts.steps:
        return False
    first, later = found
    row, column = first.rows[0], first.cols[0]
    mapping = {later.rows[0]: Poly.of(column), later.cols[0]: Poly.of(row)}
    values = {(s.buffer, s.index): s.value for s in first.stores}

    def known(e: Expr, args: tuple[Expr, ...]) -> Expr | None:
        """What the first program has just computed, instead of a load of it."""
        if e.op != "load" or e.buffer is None or e.index is None:
            return None
        return values.get((e.buffer, e.index.substitute(dict(mapping.items()))))

    sums = list(later.reductions)
    bodies = tuple(Store(later.stores[0].buffer, Poly(), r.args[0], per_row=False) for r in sums)
    carried = substitute(builder, replace(later, stores=bodies), dict(mapping), made=known).stores
    shape = (Poly.of(LINES), column.size)
    taken = {b.name for p in parts.programs for b in p.buffers}
    names = [next(n for n in _numbered("column_sums") if n not in taken and not taken.add(n)) for _ in sums]  # type: ignore[func-returns-value]
    partials = [Buffer(name, "float32", shape, "temporary") for name in names]
    line = Var("c0", Poly.of(LINES))
    joined = {
        r.uid: builder.reduce("sum", builder.load(b, Poly.of(line) * column.size + Poly.of(later.rows[0])), REAL)
        for r, b in zip(sums, partials, strict=True)
    }
    last = substitute(builder, later, {}, made=lambda e, args: joined.get(e.uid))
    last = replace(last, cols=(line,))
    needed = {e.buffer for p in parts.programs if p not in found for e in p.loads} | set(parts.outputs)
    stores = [s for s in first.stores if s.buffer in needed or s.buffer not in parts.temporaries]
    stores += [
        Store(b, Poly.of(column), s.value, per_row=False, carried=True) for b, s in zip(partials, carried, strict=True)
    ]
    both = replace(first, stores=tuple(stores))
    parts.programs[:] = [both if p is first else last if p is later else p for p in parts.programs]
    used = {b for p in parts.programs for b in p.buffers}
    parts.temporaries[:] = [b for b in [*parts.temporaries, *partials] if b in used]
    return True


def _numbered(wish: str) -> list[str]:
    return [wish, *(f"{wish}_{k}" for k in range(2, 100))]
