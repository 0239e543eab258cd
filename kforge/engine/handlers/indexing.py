"""Handlers of operators that read or write at given places: gather, embedding, scatter, index_put, parts replaced.

A scattered result is its base, written by one kernel, and updates written over it by the next: no two updates of an
overwriting form may name one place (torch promises nothing then), those of an accumulating form are joined to what is
there with atomics. Their order differs from run to run as it does in torch; where it matters, there is no candidate
under the constraint `deterministic`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kforge.engine.graph.importer import Importer, Meta, cast, computing, handles, literal, pick
from kforge.engine.graph.ir import ORDERED, Expr, Program
from kforge.engine.graph.linear import product_at_diagonal
from kforge.engine.graph.symbols import Poly, Value
from kforge.engine.graph.tensors import Context, Cut, Guard, Index, Scatter, Tensor, linear
from kforge.engine.graph.viewing import index_places
from kforge.engine.handlers.composites import cast_to
from kforge.errors import NoCandidate

ATOMIC = ("float32", "float64", "int32", "int64")
HALVES = ("float16", "bfloat16")

Places = Callable[[Context, Index, Guard], Index]
"""Where an element of what is scattered goes."""


def position(ctx: Context, indices: Tensor, at: Index, limit: Poly, guard: Guard, wrap: bool) -> Poly:
    """An index tensor's element as a position; negative ones count from the end where torch lets them."""
    value = cast(ctx, ctx.value(indices, at, guard), "int64")
    if value.op == "index" and value.index is not None:
        return value.index
    if value.op == "const":
        return Poly.of(int(value.value or 0))
    if wrap:
        b = ctx.builder
        moved = b.op("add", value, b.index(limit), dtype="int64")
        value = b.op("where", b.op("lt", value, b.const(0, "int64"), dtype="bool"), moved, value, dtype="int64")
    return Poly.of(Value(value, limit))


@handles("gather")
def _gather(imp: Importer, meta: Meta, x: Tensor, dim: int, indices: Tensor, **_: Any) -> Tensor:
    d = imp.axis(x.shape, dim)
    for axis in range(len(x.shape)):
        if axis != d and x.shape[axis].hint() == indices.shape[axis].hint():
            imp.equal(x.shape[axis], indices.shape[axis])
        elif axis != d:  # fewer indices than there are elements: no relation holds for other sizes
            imp.fix(x.shape[axis])
            imp.fix(indices.shape[axis])

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        place = position(ctx, indices, index, x.shape[d], guard, wrap=False)
        return ctx.value(x, (*index[:d], place, *index[d + 1 :]), guard)

    return imp.tensor(indices.shape, meta.dtype, at, x, indices)


@handles("embedding")
def _embedding(imp: Importer, meta: Meta, weight: Tensor, indices: Tensor, *_: Any, **__: Any) -> Tensor:
    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        place = position(ctx, indices, index[:-1], weight.shape[0], guard, wrap=False)
        return ctx.value(weight, (place, index[-1]), guard)

    return imp.tensor((*indices.shape, weight.shape[1]), meta.dtype, at, weight, indices)


@handles("index_select")
def _index_select(imp: Importer, meta: Meta, x: Tensor, dim: int, indices: Tensor) -> Tensor:
    d = imp.axis(x.shape, dim)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        place = position(ctx, indices, (index[d],), x.shape[d], guard, wrap=False)
        return ctx.value(x, (*index[:d], place, *index[d + 1 :]), guard)

    return imp.tensor((*x.shape[:d], indices.shape[0], *x.shape[d + 1 :]), meta.dtype, at, x, indices)


@handles("index")
def _index(imp: Importer, meta: Meta, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Index tensors broadcast together (viewing.py: where their dimensions stand)."""
    places = [d for d, t in enumerate(indices) if t is not None]
    used = [t for t in indices if t is not None]
    if any(t.dtype == "bool" for t in used):
        raise imp.reject("a mask as index gives a size that depends on data")
    shared = imp.broadcast([t.shape for t in used])
    first, _ = index_places(x, indices)
    others = [d for d in range(len(x.shape)) if d not in places]
    kept = [x.shape[d] for d in others]
    shape = (*kept[:first], *shared, *kept[first:])

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        own = index[first : first + len(shared)]
        rest = dict(zip(others, (*index[:first], *index[first + len(shared) :]), strict=True))
        for d, t in zip(places, used, strict=True):
            rest[d] = position(ctx, t, pick(own, t.shape), x.shape[d], guard, wrap=True)
        return ctx.value(x, tuple(rest[d] for d in range(len(x.shape))), guard)

    return imp.tensor(shape, meta.dtype, at, x, *used)


def scattered(
    imp: Importer,
    meta: Meta,
    base: Tensor,
    places: Places,
    shape: Sequence[Poly],
    source: Any,
    accumulate: bool,
    how: str = "add",
) -> Tensor:
    """`base` with source[i] written at places(ctx, i, guard) for every i of `shape`; source: a tensor or a number.

    accumulate: joined to what is there, as `how` says: add, mul, max, min. Halves are joined in single precision.
    """
    if accumulate and base.dtype in HALVES:
        wide = scattered(imp, meta, cast_to(imp, base, "float32"), places, shape, source, True, how)
        return cast_to(imp, wide, base.dtype)
    if accumulate and base.dtype not in ATOMIC:
        raise imp.reject(f"accumulating in {base.dtype}, for which there are no atomics")
    target = computing(base.dtype)

    def update(ctx: Context, index: Index, guard: Guard) -> Expr:
        if isinstance(source, Tensor):
            value = cast(ctx, ctx.value(source, pick(index, source.shape), guard), target)
        else:
            value = literal(ctx, source, target)
        where = ctx.builder.index(linear(places(ctx, index, guard), base.shape))
        return ctx.builder.op(f"{how}_at" if accumulate else "set_at", where, value, dtype=target)

    updates = Tensor(
        tuple(shape), base.dtype, update, "updates", inputs=(source,) if isinstance(source, Tensor) else ()
    )

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        raise Cut(result)

    result = imp.tensor(base.shape, base.dtype, at, base, updates)
    result.scatter = Scatter(base, updates, accumulate)
    return result


def _alike(imp: Importer, s: Poly, t: Poly) -> None:
    """Sizes that torch lets differ: one where they are equal, fixed where not."""
    if s.hint() == t.hint():
        imp.equal(s, t)
    else:
        imp.fix(s)
        imp.fix(t)


def scatter_places(imp: Importer, x: Tensor, dim: int, indices: Tensor, source: Any) -> Places:
    """Along `dim`, element i of a source (a tensor or a number) goes to indices[i].

    Of the other dimensions, and of those of the source, an index tensor may have fewer elements.
    """
    if not x.shape or not indices.shape:
        raise imp.reject("tensors without dimensions")
    d = dim % len(x.shape)
    for axis in range(len(x.shape)):
        if axis != d:
            _alike(imp, x.shape[axis], indices.shape[axis])
    if isinstance(source, Tensor):
        for s, t in zip(source.shape, indices.shape, strict=True):
            _alike(imp, s, t)

    def places(ctx: Context, index: Index, guard: Guard) -> Index:
        return (*index[:d], position(ctx, indices, index, x.shape[d], guard, wrap=False), *index[d + 1 :])

    return places


def row_places(imp: Importer, x: Tensor, dim: int, indices: Tensor, source: Tensor) -> tuple[Places, list[Poly]]:
    """Along `dim`, row k of a source goes to row indices[k]; with the shape of the source."""
    d = imp.axis(x.shape, dim)
    shape = [imp.equal(s, t) if k != d else t for k, (s, t) in enumerate(zip(x.shape, source.shape, strict=True))]
    shape[d] = imp.equal(indices.shape[0], source.shape[d])

    def places(ctx: Context, index: Index, guard: Guard) -> Index:
        return (*index[:d], position(ctx, indices, (index[d],), x.shape[d], guard, wrap=False), *index[d + 1 :])

    return places, shape


@handles("scatter", "scatter_add")
def _scatter(imp: Importer, meta: Meta, x: Tensor, dim: int, indices: Tensor, source: Any, **keywords: Any) -> Tensor:
    """Along one dimension; what of the source lies beyond the index tensor is not written."""
    if keywords.get("reduce") is not None:
        raise imp.reject(f"reduce={keywords['reduce']!r}")
    places = scatter_places(imp, x, dim, indices, source)
    return scattered(imp, meta, x, places, indices.shape, source, "scatter_add" in meta.operator)


@handles("index_add")
def _index_add(
    imp: Importer, meta: Meta, x: Tensor, dim: int, indices: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    if alpha != 1:
        raise imp.reject(f"alpha={alpha}")
    places, shape = row_places(imp, x, dim, indices, source)
    return scattered(imp, meta, x, places, shape, source, True)


@handles("index_put", "_unsafe_index_put")
def _index_put(
    imp: Importer, meta: Meta, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """Index tensors as for reading; a mask writes a single value wherever it is true."""
    dims = [d for d, t in enumerate(indices) if t is not None]
    used = [t for t in indices if t is not None]
    if len(used) == 1 and used[0].dtype == "bool":
        return _masked_put(imp, meta, x, dims[0], used[0], values, accumulate)
    if any(t.dtype == "bool" for t in used):
        raise imp.reject("masks beside indices")
    shared = imp.broadcast([t.shape for t in used])
    first = dims[0] if dims == list(range(dims[0], dims[0] + len(dims))) else 0
    others = [d for d in range(len(x.shape)) if d not in dims]
    kept = [x.shape[d] for d in others]
    shape = (*kept[:first], *shared, *kept[first:])
    imp.broadcast([shape, values.shape])

    def places(ctx: Context, index: Index, guard: Guard) -> Index:
        own = index[first : first + len(shared)]
        found = dict(zip(others, (*index[:first], *index[first + len(shared) :]), strict=True))
        for d, t in zip(dims, used, strict=True):
            found[d] = position(ctx, t, pick(own, t.shape), x.shape[d], guard, wrap=True)
        return tuple(found[d] for d in range(len(x.shape)))

    return scattered(imp, meta, x, places, shape, values, accumulate)


def _masked_put(
    imp: Importer, meta: Meta, x: Tensor, first: int, mask: Tensor, values: Tensor, accumulate: bool
) -> Tensor:
    """x where the mask is false, the one value where it is true: nothing is scattered."""
    if accumulate or any(s.hint() != 1 for s in values.shape):
        raise imp.reject("a mask as index whose values depend on how many are true")
    rank = len(mask.shape)
    for d in range(rank):
        imp.equal(x.shape[first + d], mask.shape[d])
    tail = [Poly.of(1)] * (len(x.shape) - first - rank)
    wide = imp.view(mask, (*mask.shape, *tail), lambda i: i[:rank])
    one = imp.view(values, (), lambda i: tuple(Poly() for _ in values.shape))
    target = computing(x.dtype)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        true = cast(ctx, ctx.value(wide, pick(index, wide.shape), guard), "bool")
        chosen = (cast(ctx, ctx.value(one, (), guard), target), ctx.value(x, index, guard))
        return ctx.builder.op("where", true, *chosen, dtype=target)

    return imp.tensor(x.shape, x.dtype, at, wide, one, x)


@handles("select_scatter")
def _select_scatter(imp: Importer, meta: Meta, x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    """One slice of x replaced."""
    d = dim % len(x.shape)
    imp.at_least(x.shape[d], index + 1 if index >= 0 else -index)
    place = Poly.of(index) if index >= 0 else x.shape[d] + index
    for s, t in zip((*x.shape[:d], *x.shape[d + 1 :]), source.shape, strict=True):
        imp.equal(s, t)
    target = computing(meta.dtype)

    def at(ctx: Context, i: Index, guard: Guard) -> Expr:
        b = ctx.builder
        inside = b.op("eq", b.index(i[d]), b.index(place), dtype="bool")
        outside = b.op("not", inside, dtype="bool")
        both = [c if guard is None else b.op("and", guard, c, dtype="bool") for c in (inside, outside)]
        new = cast(ctx, ctx.value(source, (*i[:d], *i[d + 1 :]), both[0]), target)
        return b.op("where", inside, new, ctx.value(x, i, both[1]), dtype=target)

    return imp.tensor(x.shape, meta.dtype, at, x, source)


@handles("diagonal", "diagonal_copy")
def _diagonal(imp: Importer, meta: Meta, x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view along two dimensions at once, which becomes the last dimension."""
    rank = len(x.shape)
    one, two = dim1 % rank, dim2 % rank
    if (rank, offset) == (2, 0) and (short := product_at_diagonal(imp, x)) is not None:
        return short
    rows, cols = x.shape[one], x.shape[two]
    low, high = max(0, -offset), max(0, offset)
    if rows == cols and offset == 0:
        length = rows
    else:
        imp.fix(rows)
        imp.fix(cols)
        length = Poly.of(meta.shape[-1])
    keep = [d for d in range(rank) if d not in (one, two)]

    def back(i: Index) -> Index:
        place: list[Poly] = [Poly()] * rank
        for d, v in zip(keep, i[:-1], strict=True):
            place[d] = v
        place[one], place[two] = i[-1] + low, i[-1] + high
        return tuple(place)

    return imp.view(x, (*(x.shape[d] for d in keep), length), back)


@handles("diagonal_scatter")
def _diagonal_scatter(
    imp: Importer, meta: Meta, x: Tensor, source: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """x with one diagonal replaced."""
    rank = len(x.shape)
    one, two = dim1 % rank, dim2 % rank
    imp.fix(x.shape[one])
    imp.fix(x.shape[two])
    low, high = max(0, -offset), max(0, offset)
    target = computing(meta.dtype)

    def at(ctx: Context, i: Index, guard: Guard) -> Expr:
        b = ctx.builder
        on = b.op("eq", b.index(i[one] + high), b.index(i[two] + low), dtype="bool")
        off = b.op("not", on, dtype="bool")
        inside, outside = (c if guard is None else b.op("and", guard, c, dtype="bool") for c in (on, off))
        own = (*(v for d, v in enumerate(i) if d not in (one, two)), i[one] - low)
        new = cast(ctx, ctx.value(source, own, inside), target)
        return b.op("where", on, new, ctx.value(x, i, outside), dtype=target)

    return imp.tensor(x.shape, meta.dtype, at, x, source)


def check_order(programs: Sequence[Program], deterministic: bool) -> None:
    """NoCandidate where results would depend on the order of atomics although the task wants the same bits each run."""
    joins = (s for p in programs for s in p.stores if s.value.op in ORDERED)
    floats = (s.buffer.dtype.startswith("float") for s in joins)
    if deterministic and any(floats):
        why = "sums of floats by atomics differ from run to run, and the task asks for a deterministic result"
        raise NoCandidate(why, operator="accumulating scatter")


@handles("masked_scatter", "embedding_renorm")
def _refused(imp: Importer, meta: Meta, *_: Any, **__: Any) -> Tensor:
    """Where each element goes depends on all before it, or weights change as they are read."""
    raise imp.reject("its result depends on the order of the elements")
