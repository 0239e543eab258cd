"""Masks that hide what is beyond the row's own place, by an expression of places alone or by a stored buffer."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from kforge.engine.graph.ir import Expr, walk
from kforge.engine.graph.symbols import Poly, Size

COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}
COMPUTED: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "neg": operator.neg,
    "abs": abs,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "not": operator.not_,
    "where": lambda c, a, b: a if c else b,
    "cast": lambda a: a,
}


class _Other(Exception):
    """The expression depends on more than the distance."""


def beyond(mask: Expr, row: Poly, column: Poly) -> bool:
    """Whether a mask holds exactly where the column is greater than the row, whatever the sizes are.

    Such a mask changes only at distances that its numbers name: between and beyond those it is evaluated once.
    """
    found = _by_distance(mask, row, column)
    return found is not None and all(value == (d > 0) for d, value in found.items())


def shown(mask: Expr, row: Poly, column: Poly) -> tuple[float, float] | None:
    """The least and the greatest distance of a column beyond its row where a mask holds, infinite where there is none.

    None for a mask that depends on more than the distance.
    """
    found = _by_distance(mask, row, column)
    if found is None:
        return None
    least, most = min(found), max(found)
    holds = [d for d, value in found.items() if value] or [0]
    return (-math.inf if found[least] else min(holds)), (math.inf if found[most] else max(holds))


def _by_distance(mask: Expr, row: Poly, column: Poly) -> dict[int, bool] | None:
    """What a mask is at each distance up to beyond the last at which it can change."""
    numbers = [abs(float(e.value)) for e in walk([mask]) if e.op == "const" and e.value is not None]
    offsets = [abs(c) for e in walk([mask]) if e.index is not None for m, c in e.index.terms if not m]
    finite = [n for n in [*numbers, *offsets] if n < 1 << 20]
    if len(finite) < len(numbers) + len(offsets):
        return None
    reach = int(sum(finite)) + 3
    if reach > 1 << 14:
        return None
    try:
        return {d: bool(_at(mask, row, column, d)) for d in range(-reach, reach + 1)}
    except _Other:
        return None


def _at(e: Expr, row: Poly, column: Poly, distance: int) -> Any:
    """The value where the column is `distance` beyond the row."""
    if e.op == "const":
        return e.value
    if e.op in COMPARED and all(a.op in ("index", "const") for a in e.args) and e.args[0].dtype == "int64":
        left, right = (a.index if a.index is not None else Poly.of(int(a.value or 0)) for a in e.args)
        return COMPARED[e.op](_distance(left - right, row, column, distance), 0)
    if e.op == "index" and e.index is not None:
        return _distance(e.index, row, column, distance)
    function = COMPARED.get(e.op) or COMPUTED.get(e.op)
    if function is None:
        raise _Other
    return function(*(_at(a, row, column, distance) for a in e.args))


def _distance(index: Poly, row: Poly, column: Poly, distance: int) -> int:
    (i,), (j,) = row.atoms(), column.atoms()
    step = index.coefficient(j)
    rest = index - step * (column - row)
    if step.constant is None or rest.constant is None or i in rest.atoms():
        raise _Other
    return step.constant * distance + rest.constant


def hides_the_rest(mask: Expr, row: Poly, column: Poly, value: float | bool, state: Callable[[str], Any]) -> bool:
    """Whether a mask of stored buffers has `value` where the column is beyond the row and 0 elsewhere, as captured.

    state: a buffer's value by name, None for what is no buffer.
    """
    import torch

    (i,), (j,) = row.atoms(), column.atoms()
    sizes = i.size.hint(), j.size.hint()  # type: ignore[union-attr]
    places = {i: torch.arange(sizes[0])[:, None], j: torch.arange(sizes[1])[None, :]}
    try:
        found = _everywhere(mask, places, state)
    except _Other:
        return False
    after = places[j] > places[i]
    return bool((torch.as_tensor(found) == torch.where(after, value, type(value)(0))).all())


def _everywhere(e: Expr, places: Mapping[Any, Any], state: Callable[[str], Any]) -> Any:
    """The values of an expression at all places, as a tensor."""
    import torch

    if e.op == "const":
        return torch.as_tensor(e.value)
    if e.op == "index" and e.index is not None:
        return _index(e.index, places)
    if e.op == "load" and e.buffer is not None and e.index is not None and not e.args:
        stored = state(e.buffer.name)
        if stored is None:
            raise _Other
        return stored.reshape(-1)[_index(e.index, places)]
    values = [_everywhere(a, places, state) for a in e.args]
    if e.op == "where":
        return torch.where(values[0].bool(), values[1], values[2])
    if e.op in ("and", "or", "not"):
        named: dict[str, Callable[..., Any]] = {
            "and": torch.logical_and,
            "or": torch.logical_or,
            "not": torch.logical_not,
        }
        return named[e.op](*values)
    function: Callable[..., Any] | None = COMPARED.get(e.op) or COMPUTED.get(e.op)
    if function is None:
        raise _Other
    return function(*values)


def _index(index: Poly, places: Mapping[Any, Any]) -> Any:
    """The values of an index at all places; other loops stand at zero, sizes at their captured values."""
    import torch

    total = torch.zeros((), dtype=torch.int64)
    for monomial, c in index.terms:
        term = torch.as_tensor(c)
        for atom in monomial:
            if isinstance(atom, Size):
                term = term * atom.hint
            elif atom in places:
                term = term * places[atom]
            else:
                raise _Other
        total = total + term
    return total
