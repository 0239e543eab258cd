"""Which programs slide one window along their loops, and what that window is made of."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.engine.emit.windowcode import taps_of
from kforge.engine.graph.ir import Expr, Program, Reach, Store, Window, walk
from kforge.engine.graph.symbols import Poly, Quotient, Remainder, Tap, Value, Var

MOST = 64  # taps of a dimension: additions in sequence to one accumulator


@dataclass(frozen=True)
class Line:
    """One dimension of the tile: outputs at `var` read from var * stride - padding + tap * dilation."""

    var: Var
    reach: Reach
    taps: int
    stride: int
    padding: int

    @property
    def dilation(self) -> int:
        return self.reach.step

    @property
    def extent(self) -> int:
        """From the first to the last place of one window."""
        return (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True)
class Sliding:
    """A program's one window, taken apart: value (of the operand's element) times weight (of the tap), or value alone.

    fixed: dimensions of size one. outer: loops that no window moves along.
    """

    window: Expr
    lines: tuple[Line, ...]
    fixed: tuple[Reach, ...]
    outer: tuple[Var, ...]
    value: Expr
    weight: Expr | None

    @property
    def free(self) -> tuple[Tap, ...]:
        """Loops over channels."""
        assert self.window.window is not None
        return self.window.window.free

    @property
    def taps(self) -> int:
        """Terms of one result."""
        assert self.window.window is not None
        return taps_of(self.window.window)


def sliding_of(program: Program) -> Sliding | None:
    """The window of a program, where this family has a kernel for it."""
    windows = {e.uid: e for e in walk(s.value for s in program.stores) if e.op == "window"}
    if len(windows) != 1 or program.rows or not program.cols:
        return None
    (e,) = windows.values()
    window = e.window
    assert window is not None
    if window.kind not in ("sum", "max") or e.level > 1:
        return None
    lines, fixed = [], []
    for r in window.reaches:
        if (r.tap.size.constant or MOST + 1) > MOST:
            return None
        found = _line(r, program.cols)
        if found is not None:
            lines.append(found)
        elif r.tap.size.constant == 1 and not r.checked and r.start.constant is not None:
            fixed.append(r)
        else:
            return None
    own = [line.var for line in lines]
    if not lines or own[-1] != program.cols[-1] or len(set(own)) != len(own):
        return None
    split = _split(e, window)
    if split is None or not all(_along(s, own[-1]) for s in program.stores):
        return None
    value, weight = split
    at = lines[-1].reach.at
    for load in walk([value]):
        if load.op == "load" and not _readable(load, at):
            return None
    if weight is not None and any(load.op == "load" and load.args for load in walk([weight])):
        return None
    outer = tuple(v for v in program.cols if v not in own)
    return Sliding(e, tuple(lines), tuple(fixed), outer, value, weight)


def _line(r: Reach, cols: tuple[Var, ...]) -> Line | None:
    """start = stride * var - padding, or None."""
    if r.divisor != 1 or r.step < 1 or r.tap.size.constant is None:
        return None
    moving = [(m, c) for m, c in r.start.terms if m]
    offset = next((c for m, c in r.start.terms if not m), 0)
    if len(moving) != 1 or len(moving[0][0]) != 1 or moving[0][1] < 1 or offset > 0:
        return None
    var = moving[0][0][0]
    if not isinstance(var, Var) or var not in cols:
        return None
    return Line(var, r, r.tap.size.constant, moving[0][1], -offset)


def _split(e: Expr, window: Window) -> tuple[Expr, Expr | None] | None:
    body = e.args[0]
    taps = {r.tap for r in window.reaches}
    places = {r.at for r in window.reaches}
    if not taps & body.variables():
        return body, None
    if body.op != "mul" or window.kind != "sum":
        return None
    for value, weight in (body.args, body.args[::-1]):
        if not taps & value.variables() and not places & weight.variables():
            return value, weight
    return None


def _along(s: Store, inner: Var) -> bool:
    return s.index.coefficient(inner).constant == 1 and not _opaque(s.index, inner)


def _opaque(index: Poly, var: Var) -> bool:
    """Whether a variable hides inside a quotient, a remainder or a gathered position."""
    for atom in index.atoms():
        if isinstance(atom, (Quotient, Remainder)) and var in atom.top.atoms() | atom.bottom.atoms():
            return True
        if isinstance(atom, Value) and var in atom.expr.variables():  # type: ignore[attr-defined]
            return True
    return False


def _readable(load: Expr, at: Var) -> bool:
    assert load.index is not None
    if load.args:
        return False
    return at not in load.variables() or (load.index.coefficient(at).constant == 1 and not _opaque(load.index, at))
