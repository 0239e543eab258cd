"""Products of which only a band is read: what lies above or below a diagonal is hidden before it is used.

The library multiplies strips of columns with the rows that reach into the band; the rest of the result is not written.
Nothing changes in what is: each element is the same sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING

from kforge.engine.calls.vendor import CallStep, Lowering
from kforge.engine.graph.ir import Buffer, Expr, walk
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.handlers.bands import shown

if TYPE_CHECKING:
    from kforge.engine.emit.hostcode import Host
    from kforge.engine.partition import Partition

Band = tuple[float, float]
"""The least and the greatest distance of a column beyond its row that is read."""
LEAST = 1024  # columns of a product that is taken in strips
ALL: Band = (-inf, inf)


def find_bands(parts: Partition) -> None:
    """Note on each product which band of it the kernels read."""
    for step in parts.calls:
        columns = step.result.shape[-1].hint()
        kept = {b for call in parts.calls for b in call.read} | {v.buffer for v in parts.views.values()}
        if step.call.operator not in ("mm", "bmm") or step.result in kept or columns < LEAST:
            continue
        needs = [_need(s.value, step.result, {}) for p in parts.programs for s in p.stores]
        found = [n for n in needs if n is not None]
        if found and (band := _union(found)) != ALL:
            step.call.facts = {**step.call.facts, "band": band}


def _union(bands: list[Band]) -> Band:
    return min(low for low, _ in bands), max(high for _, high in bands)


def _need(e: Expr, product: Buffer, known: dict[int, Band | None]) -> Band | None:
    """The band of a product that an expression depends on; None where it does not at all."""
    if e.uid not in known:
        known[e.uid] = ALL if e.op == "load" and e.buffer is product else None
        below = [n for n in _parts(e, product, known) if n is not None]
        if below:
            known[e.uid] = _union([*below, *([ALL] if known[e.uid] else [])])
    return known[e.uid]


def _parts(e: Expr, product: Buffer, known: dict[int, Band | None]) -> Iterator[Band | None]:
    if e.op == "where":
        condition = e.args[0]
        yield _need(condition, product, known)
        for arm, holds in ((e.args[1], True), (e.args[2], False)):
            need = _need(arm, product, known)
            yield None if need is None else _within(need, condition, holds, arm, product)
        return
    for a in e.args:
        yield _need(a, product, known)


def _within(need: Band, condition: Expr, holds: bool, arm: Expr, product: Buffer) -> Band | None:
    """What of a band is needed where a condition holds, or where it does not."""
    place = _place(arm, product)
    if place is None:
        return need
    mask = condition if holds else Expr("not", (condition,), "bool", -1)
    band = shown(mask, *place)
    if band is None:
        return need
    low, high = max(need[0], band[0]), min(need[1], band[1])
    return (low, high) if low <= high else None


def _place(e: Expr, product: Buffer) -> tuple[Poly, Poly] | None:
    """Row and column of the product that are loaded, the same wherever it is: each a loop of the kernel."""
    found = {v.index for v in walk([e]) if v.op == "load" and v.buffer is product}
    index = found.pop() if len(found) == 1 else None
    if index is None:
        return None
    loops = [a for a in index.atoms() if isinstance(a, Var)]
    rows = [v for v in loops if index.coefficient(v) == product.shape[-1]]
    columns = [v for v in loops if index.coefficient(v).constant == 1]
    if len(rows) != 1 or len(columns) != 1:
        return None
    row, column = Poly.of(rows[0]), Poly.of(columns[0])
    rest = index - row * product.shape[-1] - column
    return (row, column) if not {rows[0], columns[0]} & rest.atoms() else None


IN_BAND = '''\
def strips(columns, rows, low, high):
    """Slices of rows and of columns that cover all places with low <= column - row <= high."""
    width = max(256, columns // 8 // 64 * 64)
    for first in range(0, columns, width):
        last = min(first + width, columns)
        top, end = max(0, first - high), min(rows, last - low)
        if top < end:
            yield slice(top, end), slice(first, last)'''
PRODUCT_IN_BAND = '''\
def product_in_band(a, b, low, high):
    """a @ b where low <= column - row <= high; the rest is not written."""
    result = torch.empty((*a.shape[:-1], b.shape[-1]), dtype=a.dtype, device=a.device)
    multiply = torch.mm if a.dim() == 2 else torch.bmm
    for rows, columns in strips(b.shape[-1], a.shape[-2], low, high):
        multiply(a[..., rows, :], b[..., columns], out=result[..., rows, columns])
    return result'''


def written(band: Band) -> str:
    """Two numbers as Python."""
    return ", ".join(f'float("{d}")' if abs(d) == inf else str(int(d)) for d in band)


def share(step: CallStep) -> float:
    """Of the whole product, what strips compute."""
    rows, columns = (s.hint() for s in step.result.shape[-2:])
    low, high = step.call.facts["band"]
    width = max(256, columns // 8 // 64 * 64)
    done = 0
    for first in range(0, columns, width):
        last = min(first + width, columns)
        done += max(0, min(rows, last - low) - max(0, first - high)) * (last - first)
    return done / (rows * columns)


def lowering(step: CallStep, whole: Lowering) -> Lowering:
    """The library's product by strips. whole: how it is computed in one."""

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{step.result.name} = product_in_band({', '.join(operands)}, {written(step.call.facts['band'])})"]

    seconds = 4e-5 + whole.seconds * share(step)
    return Lowering(lines, seconds, f"torch.{step.call.operator} of what is read", helpers=(IN_BAND, PRODUCT_IN_BAND))


OF_BAND = '''\
def product_with_band(a, b, low, high, left):
    """a @ b where the left operand, or the right one, is zero but for low <= column - row <= high: by strips."""
    result = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    size, depth = a.shape[0] if left else b.shape[1], a.shape[1]
    width = max(256, size // 8 // 64 * 64)
    for first in range(0, size, width):
        last = min(first + width, size)
        begin, end = (first + low, last + high) if left else (first - high, last - low)
        begin, end = max(0, begin), min(depth, end)
        strip = result[first:last] if left else result[:, first:last]
        if begin >= end:
            strip.zero_()
        elif left:
            torch.mm(a[first:last, begin:end], b[begin:end], out=strip)
        else:
            torch.mm(a[:, begin:end], b[begin:end, first:last], out=strip)
    return result'''


def operand_lowering(step: CallStep, whole: Lowering) -> Lowering:
    """The library's product with a banded operand, by strips. whole: how it is computed in one."""
    side, band = step.call.facts["operand_band"]
    left = side == "left"

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{step.result.name} = product_with_band({', '.join(operands)}, {written(band)}, left={left})"]

    size, depth = step.result.shape[0 if left else 1].hint(), step.call.operands[0].shape[1].hint()
    low, high = band if left else (-band[1], -band[0])
    width, done = max(256, size // 8 // 64 * 64), 0.0
    for first in range(0, size, width):
        last = min(first + width, size)
        done += max(0.0, min(depth, last + high) - max(0, first + low)) * (last - first)
    seconds = 4e-5 + whole.seconds * done / (size * depth)
    return Lowering(lines, seconds, "torch.mm of what is not zero", helpers=(OF_BAND,))
