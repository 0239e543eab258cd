"""Tensors as functions from an index to a scalar expression: what views, broadcasting and reductions mean for a kernel.

Nothing is computed until a kernel pulls a value at an index, so a view costs an index map and never a copy. A
reduction is computed in place where the kernel's rows are its rows; elsewhere pulling it raises `Cut`, and the
partition lets an earlier kernel write it to memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kforge.engine.graph.ir import REAL, Buffer, Builder, Expr, Origin, walk
from kforge.engine.graph.rewrite import without_columns
from kforge.engine.graph.strides import Layout
from kforge.engine.graph.symbols import Poly, Var, floor_div, product, rejoin, remainder

if TYPE_CHECKING:
    from kforge.engine.calls.vendor import VendorCall

PRODUCT = "product"
"""The kind of window that is a matrix product (handlers/tensorcores.py)."""

Index = tuple[Poly, ...]
Guard = Expr | None


class Cut(Exception):
    """This tensor must be in memory before the kernel that asked for it starts."""

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor.name)
        self.tensor = tensor


@dataclass(eq=False)
class Reduction:
    """kind over the last `width` dimensions of source; the result drops them (keepdim is a view).

    axes: which dimensions of the unpermuted tensor these are, if they are not its last ones.
    """

    kind: str  # sum | prod | max | min | argmax | argmin; of a scan, whose result keeps the dimension: scan_<kind>
    source: Tensor
    width: int
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Scatter:
    """`base` with `updates` written over it, or added to it; an update is an expression that says where it goes."""

    base: Tensor
    updates: Tensor
    accumulate: bool


@dataclass(frozen=True)
class Copied:
    """A permuted input, copied only because it is not contiguous: where it is, torch gives the view itself.

    shape: what it is reshaped to afterwards, None for as it is; joined: dimensions that the reshape joins to the next.
    """

    buffer: Buffer
    order: tuple[int, ...]
    shape: Index | None = None
    joined: tuple[int, ...] = ()

    def python(self) -> str:
        """The view before it is reshaped."""
        return f"{self.buffer.name}.permute({', '.join(map(str, self.order))})"

    def condition(self) -> str:
        """When nothing is copied, in Python."""
        if self.shape is None:
            return f"{self.python()}.is_contiguous()"
        pairs = [(self.order[d], self.order[d + 1]) for d in self.joined]
        x = self.buffer.name
        return " and ".join(f"{x}.stride({a}) == {x}.stride({b}) * {x}.shape[{b}]" for a, b in pairs)


@dataclass(eq=False)
class Tensor:
    """shape in sizes, dtype as torch names it, and the value at an index."""

    shape: tuple[Poly, ...]
    dtype: str
    at: Callable[[Context, Index, Guard], Expr]
    name: str = ""
    origin: Origin | None = None
    reduction: Reduction | None = None
    inputs: tuple[Tensor, ...] = ()
    buffer: Buffer | None = None
    layout: Layout | None = None  # whose strides torch would give the result (strides.py); None: contiguous
    format: tuple[Layout, bool] | None = None  # in whose channels-last order the result is (formats.py)
    settled: bool = False  # the two are known: it is a node's own result, not made on the way to one
    vendor: VendorCall | None = None  # a library computes it: it cannot be pulled
    scatter: Scatter | None = None  # it must be in memory to be read
    copies: Copied | None = None
    exact: bool = False  # in memory it has its own dtype, also between two kernels
    factors: tuple[Tensor, Tensor] | None = None  # it is the product of these two matrices, however it is computed


def is_pulled(tensor: Tensor) -> bool:
    """Whether a kernel can compute it from its inputs; else a library does."""
    return tensor.vendor is None


def upstream(
    tensor: Tensor, stop: Collection[Tensor] = (), through: Callable[[Tensor], bool] = is_pulled
) -> list[Tensor]:
    """Tensors that `tensor` depends on, itself included, nearest first.

    stop: neither these nor what lies behind them, as of what is in memory. through: whose inputs are looked at.
    """
    seen: dict[Tensor, None] = {}
    queue = [tensor]
    while queue:
        t = queue.pop(0)
        if t not in seen and t not in stop:
            seen[t] = None
            queue.extend(t.inputs if through(t) else ())
    return list(seen)


@dataclass(frozen=True)
class Within:
    """The windows around a value: how many taps they have together, and whether each value is in one of them only."""

    taps: int = 1
    once: bool = True


@dataclass
class Context:
    """One kernel being built: its builder, its rows and columns, and the tensors that are in memory already."""

    builder: Builder
    rows: tuple[Var, ...] = ()
    cols: tuple[Var, ...] = ()
    materialised: dict[Tensor, Buffer] = field(default_factory=dict)
    within: Within = field(default_factory=lambda: Within())
    windows: dict[int, Tensor] = field(default_factory=dict)  # window expressions: which tensor each is of
    _memo: dict[tuple[object, ...], Expr] = field(default_factory=dict)
    backwards: bool | None = None  # the direction of this kernel's scans, once it has one

    def value(self, tensor: Tensor, index: Index, guard: Guard = None) -> Expr:
        """The scalar of `tensor` at `index`; loads under it are made only where `guard` holds."""
        key = (tensor, index, guard)
        found = self._memo.get(key)
        if found is None:
            if tensor in self.materialised:
                found = self.builder.load(self.materialised[tensor], linear(index, tensor.shape), guard)
            else:
                outer, self.builder.origin = self.builder.origin, tensor.origin or self.builder.origin
                found = tensor.at(self, index, guard)
                self.builder.origin = outer
            self._memo[key] = found
        return found

    def reduced(self, tensor: Tensor, index: Index) -> Expr:
        """A reduction at a row index: in place if that row is the kernel's own, else `Cut`."""
        reduction = tensor.reduction
        assert reduction is not None
        source = reduction.source
        lead, over = source.shape[: -reduction.width], source.shape[-reduction.width :]
        if squeeze(over) != tuple(v.size for v in self.cols) or not self.cols:
            raise Cut(tensor)
        loops = [Poly.of(v) for v in self.rows]
        rows = [i for i, size in zip(index, lead, strict=True) if size.constant != 1]
        if rows != [i for i in loops if i in rows]:  # the row's own, or one that several rows share
            raise Cut(tensor)
        body = self.value(source, index + spread(over, self.cols))
        self._without_windows(body, products=True)
        if (short := without_columns(self.builder, reduction.kind, body, self.cols)) is not None:
            return short
        small = body.dtype not in (REAL, "int32", "int64")
        wide = self.builder.cast(body, "int32") if small else body
        if reduction.kind.startswith("arg"):
            return self.builder.reduce(reduction.kind, wide, "int64")
        return self.builder.cast(self.builder.reduce(reduction.kind, wide, wide.dtype), body.dtype)

    def _without_windows(self, body: Expr, products: bool = False) -> None:
        """A walk over a row has no windows in it: they are in memory before. products: but for a matrix product's."""
        for e in walk([body]):
            if e.window is not None and not (products and e.window.kind == PRODUCT and self.rows):
                raise Cut(self.windows[e.uid])

    def scanned(self, tensor: Tensor, index: Index) -> Expr:
        """A running result at an index of `tensor`: in place along the kernel's columns, else `Cut`."""
        scan = tensor.reduction
        assert scan is not None
        axis = scan.axes[0] if scan.axes else len(tensor.shape) - 1
        size, at = tensor.shape[axis], index[axis]
        if len(self.cols) != 1 or self.cols[0].size != size:
            raise Cut(tensor)
        column = Poly.of(self.cols[0])
        lead = [(i, s) for d, (i, s) in enumerate(zip(index, tensor.shape, strict=True)) if d != axis]
        rows = [i for i, s in lead if s.constant != 1]
        ends = {False: column, True: size - 1 - column}
        found = [(back, at - end) for back, end in ends.items() if at - end in (Poly(), Poly.of(-1))]
        if rows != [i for i in map(Poly.of, self.rows) if i in rows] or not found:
            raise Cut(tensor)
        backwards, shift = found[0]
        if scan.kind.startswith("scan_sort") and (backwards or shift != Poly()):
            raise Cut(tensor)  # every position may hold any element: there is no other order
        if self.backwards not in (None, backwards):
            raise Cut(tensor)
        self.backwards = backwards
        own = (*(i for i, _ in lead), ends[backwards])
        body = self.value(scan.source, own)
        self._without_windows(body)
        small = body.dtype not in (REAL, "int32", "int64")
        wide = self.builder.cast(body, "int32") if small else body
        kind = scan.kind.removeprefix("scan_")
        if kind.startswith(("arg", "sort")):
            return self.builder.scan(kind, wide, ends[backwards] + shift, "int64")
        return self.builder.cast(self.builder.scan(kind, wide, ends[backwards] + shift, wide.dtype), body.dtype)


def squeeze(shape: tuple[Poly, ...]) -> tuple[Poly, ...]:
    """The sizes that are not one."""
    return tuple(s for s in shape if s.constant != 1)


def spread(shape: tuple[Poly, ...], variables: tuple[Var, ...]) -> Index:
    """Loop variables as an index into `shape`, zero where the size is one."""
    left = iter(variables)
    return tuple(Poly() if size.constant == 1 else Poly.of(next(left)) for size in shape)


def linear(index: Index, shape: tuple[Poly, ...]) -> Poly:
    """The offset of an index in a contiguous tensor."""
    offset = Poly()
    for i, size in zip(index, shape, strict=True):
        offset = offset * size + i
    return rejoin(offset)


def unflatten(offset: Poly, shape: tuple[Poly, ...]) -> Index:
    """The index of a flat offset in a contiguous tensor."""
    result = []
    for axis in range(len(shape)):
        part = floor_div(offset, product(shape[axis + 1 :]))
        result.append(part if axis == 0 else remainder(part, shape[axis]))
    return tuple(result)


def from_buffer(buffer: Buffer) -> Tensor:
    """A tensor in memory, dense, its dimensions in the buffer's order."""
    order = buffer.order or range(len(buffer.shape))
    shape = tuple(buffer.shape[d] for d in order)
    return Tensor(
        buffer.shape,
        buffer.dtype,
        lambda ctx, index, guard: ctx.builder.load(buffer, linear(tuple(index[d] for d in order), shape), guard),
        name=buffer.name,
        buffer=buffer,
        layout=buffer if buffer.kind == "input" else None,
    )
