"""Handlers of views of a whole tensor: permutations, reshapes, expansion, reversal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kforge.engine.graph.importer import Importer, Meta, computing, handles, pick, wide
from kforge.engine.graph.ir import FLOAT8, REAL, Builder, Expr
from kforge.engine.graph.symbols import Poly, product
from kforge.engine.graph.tensors import Copied, Index, Tensor, linear, unflatten


@handles(
    "alias", "clone", "contiguous", "detach", "lift_fresh_copy", "_unsafe_view_copy", "positive", "conj", "alias_copy"
)
def same(imp: Importer, meta: Meta, x: Tensor, **_: Any) -> Tensor:
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
    """A cast; between floating types it is none, since a kernel computes in one type and rounds when it stores.

    To eight bits it is one: a reference that goes through them wants them rounded (quantised).
    """
    if meta.dtype in FLOAT8 and x.dtype != meta.dtype:
        rounding = f"to_{meta.dtype}"

        def rounded(b: Builder, v: Expr) -> Expr:
            return b.op(rounding, b.cast(v, REAL), dtype=REAL)

        return imp.map(rounded, x, dtype=meta.dtype, compute=computing(x.dtype))
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
def unsqueeze(imp: Importer, meta: Meta, x: Tensor, dim: int) -> Tensor:
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
    for d in {d % rank for d in asked}:
        if d in gone:
            imp.fix(x.shape[d])
        else:
            imp.at_least(x.shape[d], 2)  # of one element it would be gone, too
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
            imp.guessed |= hint > 1 and own.constant is None and sizes[axis] != -1
            shape.append(own)
        else:
            imp.fix(own)
            shape.append(imp.free_size(hint, wide(axis)))
    return imp.view(x, shape, lambda i: pick(i, x.shape))


@handles("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias")
def _view(imp: Importer, meta: Meta, x: Tensor, sizes: Sequence[int], *_: Any) -> Tensor:
    """Dimensions are matched in groups of equal product; one that is split into several literals is fixed."""
    if not isinstance(sizes, (list, tuple)):
        raise imp.reject(f"elements of {x.dtype} as those of {meta.dtype}")
    shape = _regroup(imp, x.shape, meta.shape, list(sizes))
    free = [size.hint() for size in dict.fromkeys(x.shape) if size.constant is None]
    imp.guessed |= any(n in sizes and free.count(n) > 1 for n in free if n > 1)  # which of two equal sizes it is
    if 1 in sizes:
        imp.ones |= {a for size in x.shape if size.hint() == 1 for a in size.atoms()}
        imp.guessed |= bool(imp.ones)

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
    imp.guessed |= whole.constant is None
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


@handles("flip")
def _flip(imp: Importer, meta: Meta, x: Tensor, dims: Sequence[int]) -> Tensor:
    turned = {d % max(1, len(x.shape)) for d in dims}
    return imp.view(x, x.shape, lambda i: tuple(x.shape[d] - 1 - v if d in turned else v for d, v in enumerate(i)))
