"""Handlers of operators that move elements without computing: views, slices, concatenation, constants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kforge.engine.graph.importer import Importer, Meta, cast, computing, handles, literal, pick
from kforge.engine.graph.ir import Expr
from kforge.engine.graph.symbols import Poly, largest, never_negative, product
from kforge.engine.graph.tensors import Context, Copied, Guard, Index, Tensor, linear, unflatten

END = 1 << 62


@handles(
    "alias", "clone", "contiguous", "detach", "lift_fresh_copy", "_unsafe_view_copy", "positive", "conj", "alias_copy"
)
def _same(imp: Importer, meta: Meta, x: Tensor, **_: Any) -> Tensor:
    result = imp.view(x, x.shape, lambda i: i)
    result.layout = x.layout
    result.copies = _copied(imp, x)
    return result


def _copied(imp: Importer, x: Tensor) -> Copied | None:
    """The input and the order of its dimensions that .contiguous() copies, where it copies a permuted input."""
    import torch

    node = imp.node
    if node is None or node.kwargs.get("memory_format") is not torch.contiguous_format:
        return None
    source = x.inputs[0].buffer if len(x.inputs) == 1 else None
    permuted = node.args[0]
    if source is None or source.kind != "input" or "permute" not in str(permuted.target):
        return None
    return Copied(source, tuple(d % len(x.shape) for d in permuted.args[1]))


@handles("_to_copy", "to", "convert_element_type")
def _to_copy(imp: Importer, meta: Meta, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """A cast; between floating types it is none, since a kernel computes in one type and rounds when it stores."""
    return imp.map(lambda b, v: v, x, dtype=meta.dtype, compute=computing(x.dtype))


@handles("permute")
def _permute(imp: Importer, meta: Meta, x: Tensor, dims: Sequence[int]) -> Tensor:
    order = [d % len(x.shape) for d in dims]

    def back(i: Index) -> Index:
        return tuple(i[order.index(axis)] for axis in range(len(order)))

    return imp.view(x, [x.shape[d] for d in order], back)


@handles("transpose")
def _transpose(imp: Importer, meta: Meta, x: Tensor, a: int, b: int) -> Tensor:
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return _permute(imp, meta, x, order)


@handles("t")
def _t(imp: Importer, meta: Meta, x: Tensor) -> Tensor:
    return _transpose(imp, meta, x, 0, 1) if len(x.shape) == 2 else x


@handles("unsqueeze")
def _unsqueeze(imp: Importer, meta: Meta, x: Tensor, dim: int) -> Tensor:
    d = dim % (len(x.shape) + 1)
    shape = (*x.shape[:d], Poly.of(1), *x.shape[d:])
    return imp.view(x, shape, lambda i: i[:d] + i[d + 1 :])


@handles("squeeze")
def _squeeze(imp: Importer, meta: Meta, x: Tensor, dims: int | Sequence[int] | None = None) -> Tensor:
    rank = len(x.shape)
    if not rank:
        return imp.view(x, (), lambda i: i)
    asked = range(rank) if dims is None else [dims] if isinstance(dims, int) else dims
    gone = {d % rank for d in asked if x.shape[d % rank].hint() == 1}
    for d in gone:
        imp.fix(x.shape[d])
    keep = [d for d in range(rank) if d not in gone]

    def back(i: Index) -> Index:
        return tuple(i[keep.index(d)] if d in keep else Poly() for d in range(rank))

    return imp.view(x, [x.shape[d] for d in keep], back)


@handles("expand")
def _expand(imp: Importer, meta: Meta, x: Tensor, sizes: Sequence[int], **_: Any) -> Tensor:
    shape = []
    lead = len(meta.shape) - len(x.shape)
    for axis, hint in enumerate(meta.shape):
        own = x.shape[axis - lead] if axis >= lead else Poly.of(1)
        if own.hint() == hint:
            shape.append(own)
        else:
            imp.fix(own)
            shape.append(imp.free_size(hint))
    return imp.view(x, shape, lambda i: pick(i, x.shape))


@handles("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias")
def _view(imp: Importer, meta: Meta, x: Tensor, sizes: Sequence[int], *_: Any) -> Tensor:
    """Dimensions are matched in groups of equal product; one that is split into several literals is fixed."""
    shape = _regroup(imp, x.shape, meta.shape, list(sizes))

    result = imp.view(x, shape, lambda i: unflatten(linear(i, tuple(shape)), x.shape))
    joined = _joined([s.hint() for s in x.shape], list(meta.shape))
    if x.copies is not None and x.copies.shape is None and joined:
        result.copies = replace(x.copies, shape=tuple(shape), joined=joined)
        for size in x.shape:  # with sizes of one torch may give a view that is not contiguous
            if size.hint() > 1:
                imp.at_least(size, 2)
    return result


def _joined(source: list[int], target: list[int]) -> tuple[int, ...]:
    """Which dimensions a reshape joins to the one after them; none where it splits any."""
    found, d = [], 0
    for size in target:
        if d == len(source):
            return ()
        whole, first = source[d], d
        while whole < size and d + 1 < len(source):
            d += 1
            whole *= source[d]
        if whole != size:
            return ()
        found += list(range(first, d))
        d += 1
    return tuple(found) if d == len(source) else ()


def _regroup(imp: Importer, source: tuple[Poly, ...], target: tuple[int, ...], asked: list[int]) -> list[Poly]:
    shape: list[Poly] = []
    s = t = 0
    if 0 in target:
        raise imp.reject("a view of an empty tensor")
    while s < len(source) or t < len(target):
        if t == len(target) or (s < len(source) and source[s].hint() == 1 and target[t] != 1):
            imp.fix(source[s])
            s += 1
            continue
        if s == len(source) or (target[t] == 1 and source[s].hint() != 1):
            shape.append(Poly.of(1))
            t += 1
            continue
        first_s, first_t = s, t
        left, right = source[s].hint(), target[t]
        s, t = s + 1, t + 1
        while left != right:
            if left < right:
                left, s = left * source[s].hint(), s + 1
            else:
                right, t = right * target[t], t + 1
        shape += _group(imp, source[first_s:s], target[first_t:t], asked[first_t:t])
    return shape


def _group(imp: Importer, sizes: tuple[Poly, ...], targets: tuple[int, ...], asked: list[int]) -> list[Poly]:
    whole = product(sizes)
    if len(targets) == 1:
        return [whole]
    factors = [Poly.of(a) for monomial, _ in whole.terms for a in monomial] if len(whole.terms) == 1 else []
    hints = [f.hint() for f in factors]
    if sorted(hints) == sorted(targets) and len(set(hints)) == len(hints):
        return [factors[hints.index(h)] for h in targets]
    if -1 in asked and len(factors) == 1 and whole.terms[0][1] == 1:
        place = asked.index(-1)
        rest = whole.hint() // targets[place]
        symbol = whole.terms[0][0][0]
        part = imp.size(f"{symbol!r}_by_{rest}", targets[place])
        imp.equal(whole, part * rest)
    if -1 in asked:
        place = asked.index(-1)
        part_of = whole.divide(Poly.of(whole.hint() // targets[place]))
        if part_of is not None:
            return [part_of if k == place else Poly.of(h) for k, h in enumerate(targets)]
    imp.fix(whole)
    return [Poly.of(h) for h in targets]


@handles("slice")
def _slice(
    imp: Importer, meta: Meta, x: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    d = dim % len(x.shape)
    size = x.shape[d]
    first, last = start or 0, END if end is None else end
    if first == 0 and step == 1 and last > END // 2:
        return _same(imp, meta, x)
    if step == 1 and size.constant is None:
        edges = _fractions(imp, size, d, meta.shape[d])
        if edges is not None:
            shift, width = edges
            shape = (*x.shape[:d], width, *x.shape[d + 1 :])
            return imp.view(x, shape, lambda i: (*i[:d], i[d] + shift, *i[d + 1 :]))
    ends = last > END // 2
    if step == 1 and size.constant is None and (first >= 0 or last < 0 or ends) and _written_so(imp, size):
        begin = size + first if first < 0 else Poly.of(first)
        stop = size if ends else size + last if last < 0 else Poly.of(last)
        imp.at_least(size, max(-first, first - min(last, 0), 0 if ends else last))
        shape = (*x.shape[:d], stop - begin, *x.shape[d + 1 :])
        return imp.view(x, shape, lambda i: (*i[:d], i[d] + begin, *i[d + 1 :]))
    if (first < 0 or last < END // 2) and size.constant is None:
        imp.fix(size)  # a literal end or a start from the end: right for this size only
    if size.constant is None:
        if step != 1:
            imp.fix(size)
        imp.at_least(size, first)
        width = size - first
    else:
        width = Poly.of(meta.shape[d])
        first = max(0, first + size.constant) if first < 0 else first
    shape = (*x.shape[:d], width, *x.shape[d + 1 :])
    return imp.view(x, shape, lambda i: (*i[:d], i[d] * step + first, *i[d + 1 :]))


def _written_so(imp: Importer, size: Poly) -> bool:
    """Whether a slice's literals are the user's own, not worked out from the size: 1, -1, or the same for another."""
    here = tuple(imp.node.args[2:4])
    others = imp.evidence.nodes(imp.node)
    d = imp.node.args[1] if len(imp.node.args) > 1 else 0
    varied = any(int(o.args[0].meta["val"].shape[d]) != size.hint() for o in others)
    same = all(tuple(o.args[2:4]) == here for o in others)
    return same and (varied or all(a in (None, 0, 1, -1) or a > END // 2 for a in here))


def _slice_bounds(node: Any, d: int) -> tuple[int, int]:
    """Start and end of a slice node, within the size."""
    size = int(node.args[0].meta["val"].shape[d])
    arguments = [*node.args[2:], *[None] * 3]
    start, end, _ = slice(arguments[0], arguments[1]).indices(size)
    return start, end


def _fractions(imp: Importer, size: Poly, d: int, width: int) -> tuple[Poly, Poly] | None:
    """Start and width of a slice as parts of the size, where the other variants prove them to be."""
    start, end = _slice_bounds(imp.node, d)
    n = imp.evidence.parts(imp.node, lambda o: _slice_bounds(o, d), lambda o: int(o.args[0].meta["val"].shape[d]))
    if n is None or end - start != width:
        return None
    part = imp.divide(size, n)
    unit = size.hint() // n
    return part * (start // unit), part * (width // unit)


def _pieces(imp: Importer, size: Poly, widths: list[int], read: Callable[[Any], tuple[int, ...]], d: int) -> list[Poly]:
    """Widths of a split: parts of the size where the other variants prove it, else fixed."""
    if size.constant is None:
        n = imp.evidence.parts(imp.node, read, lambda o: int(o.args[0].meta["val"].shape[d]))
        if n is not None:
            part = imp.divide(size, n)
            return [part * (w // (size.hint() // n)) for w in widths]
        imp.fix(size)
    return [Poly.of(w) for w in widths]


@handles("select")
def _select_one(imp: Importer, meta: Meta, x: Tensor, dim: int, index: int) -> Tensor:
    d = dim % len(x.shape)
    imp.at_least(x.shape[d], index + 1 if index >= 0 else -index)
    at = Poly.of(index) if index >= 0 else x.shape[d] + index
    return imp.view(x, x.shape[:d] + x.shape[d + 1 :], lambda i: (*i[:d], at, *i[d:]))


@handles("split_with_sizes")
def _split(imp: Importer, meta: Meta, x: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    d = dim % len(x.shape)
    pieces = _pieces(imp, x.shape[d], list(sizes), lambda n: tuple(n.args[1]), d)
    parts, start = [], Poly()
    for width in pieces:
        shape = (*x.shape[:d], width, *x.shape[d + 1 :])
        parts.append(imp.view(x, shape, lambda i, s=start: (*i[:d], i[d] + s, *i[d + 1 :])))  # type: ignore[misc]
        start += width
    return parts


@handles("flip")
def _flip(imp: Importer, meta: Meta, x: Tensor, dims: Sequence[int]) -> Tensor:
    turned = {d % len(x.shape) for d in dims}
    return imp.view(x, x.shape, lambda i: tuple(x.shape[d] - 1 - v if d in turned else v for d, v in enumerate(i)))


def _below(ctx: Context, index: Poly, limit: Poly) -> Expr:
    top = largest(index)
    if top is not None and never_negative(limit - 1 - top):
        return ctx.builder.const(True, "bool")
    if index.constant is not None and limit.constant is not None:
        return ctx.builder.const(index.constant < limit.constant, "bool")
    return ctx.builder.op("lt", ctx.builder.index(index), ctx.builder.index(limit), dtype="bool")


def _both(ctx: Context, guard: Guard, condition: Expr) -> Guard:
    if condition.op == "const":
        return guard
    return condition if guard is None else ctx.builder.op("and", guard, condition, dtype="bool")


@handles("cat")
def _cat(imp: Importer, meta: Meta, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Pieces chosen by position; loads of a piece happen only inside it."""
    parts = [t for t in tensors if t.shape != () and not (len(t.shape) == 1 and t.shape[0].constant == 0)]
    d = dim % len(parts[0].shape)
    for other in parts[1:]:
        for axis in range(len(parts[0].shape)):
            if axis != d:
                imp.equal(parts[0].shape[axis], other.shape[axis])
    for t in parts:
        if t.shape[d].hint() == 1:
            imp.fix(t.shape[d])
    width = parts[0].shape[d]
    for t in parts[1:]:
        width = width + t.shape[d]
    shape = (*parts[0].shape[:d], width, *parts[0].shape[d + 1 :])
    target = computing(meta.dtype)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        def piece(k: int, start: Poly, guard: Guard) -> Expr:
            own = (*index[:d], index[d] - start, *index[d + 1 :])
            end = start + parts[k].shape[d]
            if k == len(parts) - 1:
                return cast(ctx, ctx.value(parts[k], own, guard), target)
            inside = _below(ctx, index[d], end)
            if inside.op == "const":
                return cast(ctx, ctx.value(parts[k], own, guard), target) if inside.value else piece(k + 1, end, guard)
            outside = ctx.builder.op("not", inside, dtype="bool")
            here = cast(ctx, ctx.value(parts[k], own, _both(ctx, guard, inside)), target)
            return ctx.builder.op("where", inside, here, piece(k + 1, end, _both(ctx, guard, outside)), dtype=target)

        return piece(0, Poly(), guard)

    return imp.tensor(shape, meta.dtype, at, *parts)


@handles("stack")
def _stack(imp: Importer, meta: Meta, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    return _cat(imp, meta, [_unsqueeze(imp, meta, t, dim) for t in tensors], dim)


@handles("full", "zeros", "ones", "empty_like_full")
def _full(imp: Importer, meta: Meta, sizes: Sequence[int], value: Any = None, **_: Any) -> Tensor:
    value = value if value is not None else (1 if ".ones" in meta.operator else 0)
    shape = [imp.free_size(int(s)) for s in sizes]
    return imp.tensor(shape, meta.dtype, lambda ctx, i, guard: literal(ctx, value, computing(meta.dtype)))


@handles("scalar_tensor")
def _scalar(imp: Importer, meta: Meta, value: Any, **_: Any) -> Tensor:
    return imp.tensor((), meta.dtype, lambda ctx, i, guard: literal(ctx, value, computing(meta.dtype)))


@handles("full_like", "zeros_like", "ones_like")
def _full_like(imp: Importer, meta: Meta, x: Tensor, value: Any = None, **_: Any) -> Tensor:
    value = value if value is not None else (1 if "ones_like" in meta.operator else 0)
    return imp.tensor(x.shape, meta.dtype, lambda ctx, i, guard: literal(ctx, value, computing(meta.dtype)))


@handles("arange", "iota")
def _arange(imp: Importer, meta: Meta, *args: Any, **kwargs: Any) -> Tensor:
    start, step = kwargs.get("start", 0), kwargs.get("step", 1)
    if ".arange.start" in meta.operator:
        start, step = args[0], args[2] if len(args) > 2 else 1
    if not isinstance(start, int) or not isinstance(step, int):
        raise imp.reject("a fractional start or step")

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        return cast(ctx, ctx.builder.index(index[0] * step + start), computing(meta.dtype))

    return imp.tensor([imp.free_size(meta.shape[0])], meta.dtype, at)


@handles("triu", "tril")
def _triangle(imp: Importer, meta: Meta, x: Tensor, diagonal: int = 0) -> Tensor:
    upper = "triu" in meta.operator

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        row, col = ctx.builder.index(index[-2] + diagonal), ctx.builder.index(index[-1])
        inside = ctx.builder.op("ge" if upper else "le", col, row, dtype="bool")
        zero = literal(ctx, 0, computing(meta.dtype))
        return ctx.builder.op("where", inside, ctx.value(x, index, _both(ctx, guard, inside)), zero, dtype=zero.dtype)

    return imp.tensor(x.shape, meta.dtype, at, x)
