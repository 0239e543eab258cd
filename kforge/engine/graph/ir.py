"""The engine's intermediate form: typed scalar expressions over an iteration space, and the kernels made of them.

An expression is evaluated at one point of a space of rows and columns. What depends on a column is per element, what
depends only on the row (reductions included) is per row, the rest is a scalar. Expressions are shared, never copied:
one `Builder` makes them all and equal ones are one object, which is common subexpression elimination.

Element types are torch's names ("float32", "int64", "bool"); "real" is the type the kernel computes floats in
(float, or double for float64 tasks).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from kforge.engine.graph.symbols import Poly, Quotient, Remainder, Tap, Value, Var

REAL = "real"
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
SCATTERS = ("set_at", "add_at", "mul_at", "max_at", "min_at")  # a stored value that says where it goes: (place, value)
ORDERED = ("add_at", "mul_at")  # of floats the last bits depend on the order
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")  # read, moved and cast to; nothing is computed in them
FLOATS = ("float32", "float16", "bfloat16", "float64", *FLOAT8)


@dataclass(frozen=True)
class Buffer:
    """A tensor in memory as a kernel sees it: an input, an output or a temporary between two kernels.

    dtype is torch's name. order: its dimensions as they lie in memory, outermost first, where that is another order.
    """

    name: str
    dtype: str
    shape: tuple[Poly, ...]
    kind: str  # input | parameter | output | temporary
    order: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Reach:
    """One dimension of a window: a tap reads at (start + step * tap) / divisor, where that is an integer.

    checked: a tap counts only where `at` lies in [0, end); otherwise it always does. stretches: instead of so many taps
    there is one for every place from `start` up to `end`, which data gives.
    """

    tap: Tap
    at: Tap
    start: Poly
    step: int
    end: Poly
    checked: bool
    divisor: int = 1
    stretches: bool = False


@dataclass(frozen=True)
class Window:
    """The taps over which a window reduction walks. free: loops without a place of their own (channels), outermost.

    flat: for argmax, the position of a tap as torch numbers it.
    """

    kind: str  # sum | max | argmax
    free: tuple[Tap, ...]
    reaches: tuple[Reach, ...]
    flat: Poly | None = None

    @property
    def polys(self) -> list[Poly]:
        """Every index and size in it."""
        found = [p for r in self.reaches for p in (r.start, r.end, r.tap.size, r.at.size)]
        return found + [t.size for t in self.free] + ([] if self.flat is None else [self.flat])

    def map(self, poly: Callable[[Poly], Poly]) -> Window:
        """The same with every index replaced."""
        reaches = tuple(replace(r, start=poly(r.start), end=poly(r.end)) for r in self.reaches)
        return replace(self, reaches=reaches, flat=None if self.flat is None else poly(self.flat))


@dataclass(eq=False)
class Expr:
    """One scalar. `op` is const, index, load, reduce, scan, window, cast or a name of the operator table.

    A scan is the running result over the columns up to the position `index`: c forwards, size - 1 - c backwards, one
    less than that where the own element is left out.
    """

    op: str
    args: tuple[Expr, ...]
    dtype: str
    uid: int
    value: float | int | bool | None = None  # const
    index: Poly | None = None  # index, load, scan
    buffer: Buffer | None = None  # load
    kind: str = ""  # reduce, scan
    window: Window | None = None
    origin: Origin | None = None

    def __repr__(self) -> str:
        return f"e{self.uid}"

    @property
    def level(self) -> int:
        """How many windows a window stands in, itself included."""
        assert self.window is not None
        return max(t.level for t in (*self.window.free, *(r.tap for r in self.window.reaches)))

    def variables(self) -> frozenset[Var]:
        """The loop variables this expression depends on; a reduction binds its columns."""
        found = getattr(self, "_variables", None)
        if found is None:
            found = frozenset().union(*(a.variables() for a in self.args)) if self.args else frozenset()
            if self.index is not None:
                found |= _poly_variables(self.index)
            if self.op == "reduce":
                found = frozenset(v for v in found if not v.name.startswith("c"))
            if self.window is not None:
                found |= frozenset().union(*(_poly_variables(p) for p in self.window.polys))
                found = frozenset(v for v in found if not isinstance(v, Tap) or v.level < self.level)
            self._variables = found
        return found


@dataclass(frozen=True)
class Origin:
    """Where an expression comes from: file name, line, and the name assigned on that line (or '')."""

    file: str
    line: int
    name: str = ""
    text: str = ""


def _poly_variables(poly: Poly) -> frozenset[Var]:
    found: frozenset[Var] = frozenset()
    for atom in poly.atoms():
        if isinstance(atom, Var):
            found |= {atom}
        elif isinstance(atom, Value):
            found |= atom.expr.variables()  # type: ignore[attr-defined]
    return found


def index_values(poly: Poly) -> Iterator[Expr]:
    """The expressions inside an index (gathered positions)."""
    for atom in sorted(poly.atoms(), key=repr):
        if isinstance(atom, Value):
            yield atom.expr  # type: ignore[misc]
        elif isinstance(atom, (Quotient, Remainder)):
            yield from ()


def walk(roots: Iterable[Expr], into_reductions: bool = True) -> list[Expr]:
    """All expressions under the roots, operands before users."""
    order: list[Expr] = []
    seen: set[int] = set()
    stack = [(r, False) for r in reversed(list(roots))]
    while stack:
        expr, done = stack.pop()
        if done:
            order.append(expr)
            continue
        if expr.uid in seen:
            continue
        seen.add(expr.uid)
        stack.append((expr, True))
        if expr.op == "reduce" and not into_reductions:
            continue
        below = list(expr.args)
        if expr.index is not None:
            below += list(index_values(expr.index))
        if expr.window is not None:
            below += [v for p in expr.window.polys for v in index_values(p)]
        stack.extend((a, False) for a in reversed(below))
    return order


def is_element(e: Expr, cols: tuple[Var, ...]) -> bool:
    """True when the value depends on the column."""
    return any(v in cols for v in e.variables())


def runs_backwards(scan: Expr) -> bool:
    """True when a scan starts at the last column."""
    assert scan.index is not None
    return any(c < 0 for monomial, c in scan.index.terms if any(isinstance(a, Var) for a in monomial))


class Builder:
    """Makes expressions. `simplify(builder, op, args, dtype)` may answer with another expression (rewrite.py)."""

    def __init__(self, simplify: Callable[..., Expr | None] | None = None) -> None:
        self._table: dict[tuple[object, ...], Expr] = {}
        self._simplify = simplify
        self.origin: Origin | None = None

    def _intern(self, key: tuple[object, ...], **fields: object) -> Expr:
        found = self._table.get(key)
        if found is None:
            found = Expr(uid=len(self._table), origin=self.origin, **fields)  # type: ignore[arg-type]
            self._table[key] = found
        return found

    def const(self, value: float | int | bool, dtype: str) -> Expr:
        if dtype == REAL:
            value = float(value)
        return self._intern(("const", repr(value), dtype), op="const", args=(), dtype=dtype, value=value)

    def index(self, poly: Poly) -> Expr:
        """An index as an int64 value."""
        if poly.constant is not None:
            return self.const(poly.constant, "int64")
        return self._intern(("index", poly), op="index", args=(), dtype="int64", index=poly)

    def load(self, buffer: Buffer, index: Poly, guard: Expr | None = None) -> Expr:
        """The element at a linear index, as a computing type; where `guard` is false nothing is read."""
        dtype = REAL if buffer.dtype in FLOATS else buffer.dtype
        args = () if guard is None else (guard,)
        key = ("load", buffer, index, args)
        return self._intern(key, op="load", args=args, dtype=dtype, index=index, buffer=buffer)

    def reduce(self, kind: str, body: Expr, dtype: str) -> Expr:
        return self._intern(("reduce", kind, body), op="reduce", args=(body,), dtype=dtype, kind=kind)

    def scan(self, kind: str, body: Expr, position: Poly, dtype: str) -> Expr:
        """The running sum, product, extreme or its index of `body` over the columns, up to `position`."""
        key = ("scan", kind, body, position)
        return self._intern(key, op="scan", args=(body,), dtype=dtype, kind=kind, index=position)

    def window(self, window: Window, body: Expr, dtype: str) -> Expr:
        """`body` over the taps of a window."""
        return self._intern(("window", window, body), op="window", args=(body,), dtype=dtype, window=window)

    def op(self, name: str, *args: Expr, dtype: str) -> Expr:
        if self._simplify is not None:
            better = self._simplify(self, name, args, dtype)
            if better is not None:
                return better
        return self._intern((name, args, dtype), op=name, args=args, dtype=dtype)

    def cast(self, expr: Expr, dtype: str) -> Expr:
        """`expr` in another computing type."""
        return expr if expr.dtype == dtype else self.op("cast", expr, dtype=dtype)


@dataclass(frozen=True)
class Store:
    """buffer[index] = value, per element or per row; `once`: by one thread of the whole grid.

    carried: what a block has of all its rows is added up in one line of the buffer, a line a block (carried.py).
    """

    buffer: Buffer
    index: Poly
    value: Expr
    per_row: bool
    once: bool = False
    below: Poly | None = None  # only the columns below are written
    carried: bool = False


@dataclass(frozen=True)
class Program:
    """One kernel: stores over rows x cols. No reduction and no rows means a pointwise kernel.

    rows, cols: loop variables, outermost first. summary: a formula in the user's terms, one line per result.
    """

    name: str
    rows: tuple[Var, ...]
    cols: tuple[Var, ...]
    stores: tuple[Store, ...]
    summary: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = field(default=())

    @property
    def reductions(self) -> tuple[Expr, ...]:
        """Every reduction, operands first."""
        return tuple(e for e in walk(s.value for s in self.stores) if e.op == "reduce")

    @property
    def scans(self) -> tuple[Expr, ...]:
        """Every running result, operands first."""
        return tuple(e for e in walk(s.value for s in self.stores) if e.op == "scan")

    @property
    def loads(self) -> tuple[Expr, ...]:
        return tuple(e for e in walk(s.value for s in self.stores) if e.op == "load")

    @property
    def in_place(self) -> bool:
        """True when a buffer is both read and written: no thread may do another's work over again."""
        return any(e.buffer == s.buffer for e in self.loads for s in self.stores)

    @property
    def indices(self) -> list[Poly]:
        """Every place that is stored to or read, and what windows are made of."""
        found = [s.index for s in self.stores]
        for e in walk(s.value for s in self.stores):
            if e.index is not None:
                found.append(e.index)
            if e.window is not None:
                found += e.window.polys
        return found

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Inputs in order of first use, then outputs."""
        found = dict.fromkeys(e.buffer for e in self.loads if e.buffer is not None)
        found.update(dict.fromkeys(s.buffer for s in self.stores))
        return tuple(found)
