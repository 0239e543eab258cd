"""From a core-ATen graph to tensors (tensors.py): sizes become symbols, operators go through the handler registry.

Sizes are unified as operators demand it. Where a literal in the graph could only be right for the captured size (a
view's width, a slice's end), that size is fixed to it and the candidate checks it at run time: a wrong guess would be
silently wrong for other shapes, a fixed size never is. An operator without a handler is `NoCandidate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kforge.engine.graph.evidence import Evidence, numbers_of
from kforge.engine.graph.ir import FLOATS, INTEGERS, REAL, Buffer, Expr, Origin
from kforge.engine.graph.strides import Layout, joined
from kforge.engine.graph.symbols import Derived, Poly, Size, product
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor, linear
from kforge.engine.switches import OURS, Switches
from kforge.errors import NoCandidate

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


class Refine(Exception):
    """A size turned out to be another: start over with what is known now."""

    def __init__(self, size: Size, value: Poly) -> None:
        super().__init__(f"{size} = {value}")
        self.size, self.value = size, value


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler (importer, meta, *args, **kwargs) for ATen operators by name, overload left out."""

    def register(function: Handler) -> Handler:
        for name in names:
            if name in HANDLERS:  # which of two stood would depend on the order of imports
                raise ValueError(f"two handlers for {name}: {HANDLERS[name].__module__} and {function.__module__}")
            HANDLERS[name] = function
        return function

    return register


@dataclass(frozen=True)
class Meta:
    """What the graph says about a node's result: torch dtype name and concrete shape (None for several results)."""

    dtype: str
    shape: tuple[int, ...]
    operator: str


@dataclass
class Graph:
    """An imported graph: its input buffers by placeholder name, its outputs, and what was learnt about sizes.

    known: sizes replaced by others or fixed. sources: where a size is read, (buffer name, dimension).
    minimum: sizes that must be at least so much, for what is read at a fixed place. seeds: pairs of numbers that
    forward draws, and the shape of what is drawn with each (dropout.py).
    """

    inputs: dict[str, Buffer]
    outputs: list[Tensor]
    known: dict[Size, Poly]
    sources: dict[Size, tuple[str, int]]
    real: str = "float"
    minimum: dict[Poly, int] = field(default_factory=dict)
    seeds: dict[Buffer, tuple[Poly, ...]] = field(default_factory=dict)
    odd: frozenset[str] = frozenset()  # inputs that were not contiguous when captured
    expanded: dict[int, tuple[Poly, ...]] = field(default_factory=dict)  # outputs that are expanded views, as computed


@dataclass
class Importer:
    """State of one pass over the graph."""

    known: dict[Size, Poly]
    evidence: Evidence
    switches: Switches = OURS
    contents: Callable[[str], Any] | None = None  # of the reference's buffers, by variable
    sources: dict[Size, tuple[str, int]] = field(default_factory=dict)
    minimum: dict[Poly, int] = field(default_factory=dict)
    made: dict[str, tuple[Poly, int, int]] = field(default_factory=dict)  # derived sizes by name
    literals: dict[Size, tuple[Any, Callable[[Any], int]]] = field(default_factory=dict)  # free sizes: node, literal
    numbers: list[tuple[Any, Poly]] = field(default_factory=list)  # nodes with a number that equals this size
    values: dict[Any, Any] = field(default_factory=dict)  # of every node
    guessed: bool = False  # something was taken to be a size because the two were equal
    ones: set[Any] = field(default_factory=set)  # sizes of one that a literal may follow
    node: Any = None
    free: int = 0
    operator: str = ""
    origin: Origin | None = None
    seeds: dict[Buffer, tuple[Poly, ...]] = field(default_factory=dict)  # pairs to draw, and for what shape
    together: dict[Any, Tensor] = field(default_factory=dict)  # what several nodes share, by what it was made for

    # sizes

    def size(self, name: str, hint: int) -> Poly:
        return self.resolve(Poly.of(Size(name, hint)))

    def free_size(self, hint: int, read: Callable[[Any], int]) -> Poly:
        """A size that only a literal gives; unified later, or left as that literal. read: finds it in the node."""
        self.free += 1
        if hint == 1:
            return Poly.of(1)
        self.literals[Size(f"free_{self.free}", hint)] = self.node, read
        self.guessed = True
        return self.size(f"free_{self.free}", hint)

    def resolve(self, poly: Poly) -> Poly:
        while any(a in self.known for a in poly.atoms()):
            poly = poly.substitute({a: self.known[a] for a in poly.atoms() if a in self.known})  # type: ignore[index]
        settled = {a: self.resolve(a.base) for a in poly.atoms() if isinstance(a, Derived)}
        settled = {a: self.derived(p, a.shift, a.step) for a, p in settled.items() if p != a.base}
        return poly.substitute(settled) if settled else poly  # type: ignore[arg-type]

    def fix(self, poly: Poly) -> None:
        """Fix every size in `poly` to its captured value."""
        for atom in sorted(poly.atoms(), key=repr):
            if isinstance(atom, Derived):
                self.fix(atom.base)
            elif isinstance(atom, Size):
                raise Refine(atom, Poly.of(atom.hint))

    def equal(self, a: Poly, b: Poly) -> Poly:
        """One size for two that an operator demands to be equal."""
        if a == b:
            return a
        if a.hint() != b.hint():
            raise NoCandidate(f"{self.operator}: sizes {a.hint()} and {b.hint()} do not match", operator=self.operator)
        for size, other in sorted(((b, a), (a, b)), key=lambda pair: -self._rank(pair[0])):
            symbol = _single(size)
            if symbol is not None and symbol not in other.atoms() and not isinstance(symbol, Derived):
                raise Refine(symbol, other)
        for left, right in _paired(a, b):
            self.equal(left, right)
        self.fix(a)
        self.fix(b)
        return a

    def at_least(self, size: Poly, least: int) -> None:
        """Demand that a size is `least` or more; the candidate checks that it is."""
        if size.constant is None and least > 0:
            self.minimum[size] = max(least, self.minimum.get(size, 0))

    def derived(self, base: Poly, shift: int, step: int) -> Poly:
        """floor((base + shift) / step) as a size of its own."""
        if base.constant is not None:
            return Poly.of((base.constant + shift) // step)
        if step == 1 and shift == 0:
            return base
        part = (base + shift).divide(Poly.of(step))
        if part is not None and len(part.terms) == 1:
            return part
        label = "_".join(a.name for a in sorted(base.atoms(), key=repr) if isinstance(a, Size))
        name, k = f"{label}_out", 2
        key = (base, shift, step)
        while self.made.setdefault(name, key) != key:
            name, k = f"{label}_out{k}", k + 1
        return Poly.of(Derived(name, (base.hint() + shift) // step, base, shift, step))

    def divide(self, size: Poly, n: int) -> Poly:
        """size / n where it is known to be a multiple of n; the candidate checks that it is."""
        part = size.divide(Poly.of(n))
        if part is not None:
            return part
        symbol = _single(size)
        if symbol is None or isinstance(symbol, Derived):
            self.fix(size)
        assert symbol is not None
        raise Refine(symbol, Poly.of(Size(f"{symbol.name}_by_{n}", symbol.hint // n)) * n)

    def broadcast(self, shapes: Sequence[tuple[Poly, ...]]) -> tuple[Poly, ...]:
        width = max((len(s) for s in shapes), default=0)
        result = []
        for axis in range(-width, 0):
            sizes = [s[axis] for s in shapes if len(s) >= -axis]
            wide = [s for s in sizes if s.hint() != 1]
            if wide:
                for s in sizes:
                    if s.hint() == 1:
                        self.fix(s)
            same = wide or [s for s in sizes if s.constant != 1] or sizes
            size = same[0]
            for other in same[1:]:
                size = self.equal(size, other)
            result.append(size)
        return tuple(result)

    def _rank(self, poly: Poly) -> int:
        """Which of two equal sizes is replaced first: free ones, then those of the later input."""
        symbol = _single(poly)
        order = {size: k for k, size in enumerate(self.sources)}
        return -1 if symbol is None else order.get(symbol, len(order))

    def axis(self, shape: Sequence[Poly], dim: int) -> int:
        """A dimension as a place in the shape; torch gives a single number one, and no kernel here has it."""
        if not shape:
            raise self.reject("a tensor without dimensions")
        return dim % len(shape)

    # tensors

    def tensor(
        self, shape: Sequence[Poly], dtype: str, at: Callable[[Context, Index, Guard], Expr], *inputs: Tensor
    ) -> Tensor:
        return Tensor(tuple(shape), dtype, at, origin=self.origin, inputs=inputs)

    def view(self, x: Tensor, shape: Sequence[Poly], back: Callable[[Index], Index]) -> Tensor:
        """The tensor whose element at i is x's element at back(i)."""
        return self.tensor(shape, x.dtype, lambda ctx, i, guard: ctx.value(x, back(i), guard), x)

    def map(self, formula: Callable[..., Expr], *operands: Any, dtype: str, compute: str | None = None) -> Tensor:
        """A pointwise result of tensors and Python scalars (None passes through), operands cast to `compute`."""
        target = compute or computing(dtype)
        tensors = [o for o in operands if isinstance(o, Tensor)]
        shape = self.broadcast([t.shape for t in tensors])

        def at(ctx: Context, index: Index, guard: Guard) -> Expr:
            scalars: list[Expr | None] = []
            for o in operands:
                if isinstance(o, Tensor):
                    scalars.append(cast(ctx, ctx.value(o, pick(index, o.shape), guard), target))
                else:
                    scalars.append(None if o is None else literal(ctx, o, target))
            return cast(ctx, formula(ctx.builder, *scalars), computing(dtype))

        result = self.tensor(shape, dtype, at, *tensors)
        result.layout = layout_of(tensors, shape)
        result.format = next((t.format for t in tensors if t.shape == shape), None)
        return result

    def check_literals(self, node: Any) -> None:
        """A number that equals a size (or its inverse or root) was probably computed from it.

        Unless a graph for another size has the same number, that size is fixed: numbers such as the 1/n of a mean
        written by hand would be wrong for other shapes. Where only other variants can tell, sizes below 8 are left as
        they are: too many numbers equal them by chance; 1 always.
        """
        numbers = numbers_of(node)
        for symbol in list(self.sources):
            size = self.resolve(Poly.of(symbol))
            if size.constant is not None or symbol.hint < (2 if self.evidence.probed else 8):
                continue
            forms = [symbol.hint, symbol.hint - 1, 1 / symbol.hint, symbol.hint**0.5, symbol.hint**-0.5]
            # a share spread over a dimension, beside what is left of one: label smoothing is e / n and 1 - e
            forms += [(1 - w) / symbol.hint for w in self.evidence.shares]
            if any(math.isclose(v, f, rel_tol=1e-12) for v in numbers for f in forms):
                others = self.evidence.nodes(node)
                same = all(numbers_of(o) == numbers for o in others)
                if same and any(self.evidence.size(o, symbol.name) != symbol.hint for o in others):
                    continue
                if not same or not self.evidence.probed:
                    self.fix(size)
                self.numbers.append((node, size))
                self.guessed = True
        for size in self._products(node) if self.evidence.probed and numbers else ():
            if any(math.isclose(v, f, rel_tol=1e-12) for v in numbers for f in (size.hint(), 1 / size.hint())):
                self.numbers.append((node, size))
                self.guessed = True

    def _products(self, node: Any) -> list[Poly]:
        """Sizes of a node's operands, how many elements they have, and how many each input has."""
        shapes: dict[str, list[Poly]] = {}
        for symbol, (name, _) in self.sources.items():
            shapes.setdefault(name, []).append(self.resolve(Poly.of(symbol)))
        values = (self.values.get(n) for n in node.all_input_nodes)
        operands = [v.shape for v in values if isinstance(v, Tensor)]
        found = [product(shape) for shape in [*shapes.values(), *operands]]
        found += [size for shape in operands for size in shape]
        return [size for size in dict.fromkeys(found) if size.constant is None and size.hint() > 1]

    def reject(self, why: str) -> NoCandidate:
        return NoCandidate(f"the engine has no kernel for {self.operator}: {why}", operator=self.operator)


def constant(imp: Importer, number: float | int | bool, dtype: str, rank: int) -> Tensor:
    """A tensor of one element with a known value."""

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        return literal(ctx, number, computing(dtype))

    return imp.tensor([Poly.of(1)] * rank, dtype, at)


def constants_of(imp: Importer, numbers: Sequence[float | int | bool], dtype: str, shape: Sequence[int]) -> Tensor:
    """A small tensor whose elements are known, the last dimension first: each use chooses among them."""
    if len(numbers) == 1:
        return constant(imp, numbers[0], dtype, len(shape))
    sizes = tuple(map(Poly.of, shape))

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b, place = ctx.builder, linear(index, sizes)
        if place.constant is not None:
            return literal(ctx, numbers[place.constant], computing(dtype))
        chosen = literal(ctx, numbers[-1], computing(dtype))
        for k in range(len(numbers) - 2, -1, -1):
            here = b.op("eq", b.index(place), b.const(k, "int64"), dtype="bool")
            chosen = b.op("where", here, literal(ctx, numbers[k], chosen.dtype), chosen, dtype=chosen.dtype)
        return chosen

    return imp.tensor(sizes, dtype, at)


def layout_of(operands: Sequence[Tensor], shape: tuple[Poly, ...]) -> Layout | None:
    """Whose strides a pointwise result takes."""
    return joined([(t.layout, t.shape) for t in operands], shape)


def _paired(a: Poly, b: Poly) -> list[tuple[Poly, Poly]]:
    """Factors of two equal products that were equal when captured, the last first: batch * channels, whichever way."""
    if len(a.terms) != 1 or len(b.terms) != 1:
        return []
    left, right = ([*map(Poly.of, m), *([Poly.of(c)] if c != 1 else [])] for ((m, c),) in (a.terms, b.terms))
    for factor in [f for f in left if f in right]:
        if factor in right:
            left.remove(factor)
            right.remove(factor)
    if len(left) != len(right):
        return []
    return [(x, y) for x in reversed(left) for y in right if x.hint() == y.hint()]


def _single(poly: Poly) -> Size | None:
    if len(poly.terms) == 1 and poly.terms[0][1] == 1 and len(poly.terms[0][0]) == 1:
        atom = poly.terms[0][0][0]
        return atom if isinstance(atom, Size) else None
    return None


def computing(dtype: str) -> str:
    """The type in which values of a torch dtype are computed."""
    return REAL if dtype in FLOATS else dtype


def cast(ctx: Context, expr: Expr, target: str) -> Expr:
    """To a computing type; to bool is `!= 0` as in torch."""
    if target == "bool" and expr.dtype != "bool":
        return ctx.builder.op("ne", expr, ctx.builder.const(0, expr.dtype), dtype="bool")
    return ctx.builder.cast(expr, target)


def literal(ctx: Context, value: Any, target: str) -> Any:
    if isinstance(value, (bool, int, float)):
        return ctx.builder.const(bool(value) if target == "bool" else value, target)
    return value


def pick(index: Index, shape: tuple[Poly, ...]) -> Index:
    """An index of the broadcast shape as an index of an operand: aligned at the right, zero where it has size one."""
    tail = index[len(index) - len(shape) :]
    return tuple(Poly() if size.constant == 1 else i for i, size in zip(tail, shape, strict=True))


def wide(axis: int) -> Callable[[Any], int]:
    """Reads the size of a dimension of a node's result."""
    return lambda node: int(node.meta["val"].shape[axis])


def common_type(operands: Sequence[Any]) -> str:
    """The computing type of a comparison's operands."""
    kinds = [computing(o.dtype) if isinstance(o, Tensor) else _kind(o) for o in operands]
    if REAL in kinds:
        return REAL
    for kind in INTEGERS:
        if kind in kinds:
            tensors = [computing(o.dtype) for o in operands if isinstance(o, Tensor)]
            return next((k for k in INTEGERS if k in tensors), kind)
    return "bool"


def _kind(value: Any) -> str:
    return "bool" if isinstance(value, bool) else "int64" if isinstance(value, int) else REAL
