"""Tensors as functions from an index to a scalar expression: what views, broadcasting and reductions mean for a kernel.

Nothing is computed until a kernel pulls a value at an index, so a view costs an index map and never a copy. A
reduction is computed in place where the kernel's rows are its rows; elsewhere pulling it raises `Cut`, and the
partition lets an earlier kernel write it to memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kforge.engine.ir import REAL, Buffer, Builder, Expr, Origin
from kforge.engine.symbols import Poly, Var, floor_div, product, remainder

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

    kind: str  # sum | prod | max | min | argmax | argmin
    source: Tensor
    width: int
    axes: tuple[int, ...] = ()


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
    layout: Buffer | None = None  # the input whose strides torch would give the result; None: contiguous


@dataclass
class Context:
    """One kernel being built: its builder, its rows and columns, and the tensors that are in memory already."""

    builder: Builder
    rows: tuple[Var, ...] = ()
    cols: tuple[Var, ...] = ()
    materialised: dict[Tensor, Buffer] = field(default_factory=dict)
    _memo: dict[tuple[object, ...], Expr] = field(default_factory=dict)

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
        small = body.dtype not in (REAL, "int32", "int64")
        wide = self.builder.cast(body, "int32") if small else body
        if reduction.kind.startswith("arg"):
            return self.builder.reduce(reduction.kind, wide, "int64")
        return self.builder.cast(self.builder.reduce(reduction.kind, wide, wide.dtype), body.dtype)


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
    return offset


def unflatten(offset: Poly, shape: tuple[Poly, ...]) -> Index:
    """The index of a flat offset in a contiguous tensor."""
    result = []
    for axis in range(len(shape)):
        part = floor_div(offset, product(shape[axis + 1 :]))
        result.append(part if axis == 0 else remainder(part, shape[axis]))
    return tuple(result)


def from_buffer(buffer: Buffer) -> Tensor:
    """A tensor in memory, contiguous."""
    return Tensor(
        buffer.shape,
        buffer.dtype,
        lambda ctx, index, guard: ctx.builder.load(buffer, linear(index, buffer.shape), guard),
        name=buffer.name,
        buffer=buffer,
        layout=buffer if buffer.kind == "input" else None,
    )
