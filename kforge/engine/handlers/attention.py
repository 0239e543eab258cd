"""Attention in a graph: softmax(scale q k' + bias) v as torch's own fused call, whichever way the reference writes it.

The second product asks whether its left operand is a softmax of the first one's result. Scores are taken apart as
factor * product + summand, with elements that are hidden (masked_fill, where) beside; what does not come apart so is no
attention, and stays two products with a kernel between them. Operands keep the strides they have; a summand is written
by a kernel of ours, rows padded as the library wants them; heads that several queries share are not copied where it
takes them so. What torch's own call computes differently where not all is finite, and in rows without a visible key, is
marked and computed again (calls/attention.py). torch's own attention of 16-bit operands is captured in single
precision; it is called in 16 bits, as torch's kernels compute it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

from kforge.engine.calls.attention import ATTENTION, LEAST, RESULTS
from kforge.engine.calls.backends import Form, backend
from kforge.engine.calls.vendor import VendorCall, as_view, vendor_tensor
from kforge.engine.graph.importer import Importer, Meta
from kforge.engine.graph.ir import REAL, Buffer, Builder, Expr
from kforge.engine.graph.rewrite import simplify
from kforge.engine.graph.symbols import Poly, Quotient, Var, product
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor, unflatten, upstream
from kforge.engine.handlers.bands import beyond, hides_the_rest
from kforge.engine.handlers.composites import reduce
from kforge.engine.handlers.scores import Scores, loops_of, number_of, probe, same_elements, scores_of, take_apart

DTYPES = ("float32", "float16", "bfloat16")
MOVED = {"view", "expand", "clone", "_unsafe_view", "reshape", "alias", "detach", "_to_copy", "permute", "unsqueeze"}
MOVED |= {"squeeze"}
GROUP = 8  # elements to whose multiple rows of operands and of a bias are padded


def attention(imp: Importer, meta: Meta, weights: Tensor, v: Tensor) -> Tensor | None:
    """The product weights @ v of an attention as one call; None where it is none, or one that the call cannot take."""
    if not imp.switches.attention or meta.dtype not in DTYPES or v.dtype != meta.dtype:
        return None
    node = imp.node
    found = _softmax(node.args[0])
    if found is None or all(map(_of_torchs_own, node.graph.nodes)):
        return None
    softmax, given, safe = found
    x, normalised = imp.values[softmax.args[0]], imp.values[given]
    if softmax.args[1] % len(x.shape) != len(x.shape) - 1 or not same_elements(weights, normalised):
        return None
    scores = scores_of(x)
    if scores is None:
        return None
    return _call(imp, meta, scores, v, safe, _narrow(node) if _is_own(node) else meta.dtype)


def _of_torchs_own(node: Any) -> bool:
    """Whether a node is a part of torch's own attention, a view, or computes nothing."""
    return node.op != "call_function" or _name(node) in MOVED or _is_own(node)


def _is_own(node: Any) -> bool:
    """Whether a node is a part of torch's own attention."""
    written = [str(source.target) for source in (node.meta.get("from_node") or [])[-1:]]
    return any("scaled_dot_product" in t for t in written)


def _narrow(node: Any) -> str:
    """The type of the operands that torch's own attention makes single precision of, else the node's own."""
    found: set[Any] = set()
    queue, seen = [node], {node}
    while queue:
        for source in queue.pop().all_input_nodes:
            if source in seen or not _is_own(source):
                continue
            seen.add(source)
            given = source.args[0].meta["val"].dtype if _name(source) == "_to_copy" else None
            if given is not None and given.is_floating_point and given.itemsize == 2:
                found.add(given)
            else:
                queue.append(source)
    chosen = found.pop() if len(found) == 1 else node.meta["val"].dtype
    return str(chosen).removeprefix("torch.")


def _softmax(node: Any) -> tuple[Any, Any, bool] | None:
    """The softmax that a node is a view of, the node whose values are its weights, and whether an empty row is zero."""
    while node.op == "call_function" and _name(node) in MOVED:
        node = node.args[0]
    if node.op != "call_function":
        return None
    if _name(node) == "where" and "_safe_softmax" in str(node.meta.get("original_aten", "")):
        inner = node.args[2]
        return (inner, node, True) if _name(inner) == "_softmax" else None
    return (node, node, False) if _name(node) == "_softmax" else None


def _name(node: Any) -> str:
    return str(node.target).removeprefix("aten.").split(".")[0]


def _call(imp: Importer, meta: Meta, scores: Scores, v: Tensor, safe: bool, dtype: str) -> Tensor | None:
    """dtype: of the operands, as the call has them."""
    given = scores.product.vendor
    assert given is not None
    lead = scores.lead
    batch = product(lead[:-1]) if len(lead) > 1 else product(lead)
    heads = lead[-1] if len(lead) > 1 else Poly.of(1)
    queries, keys = scores.tensor.shape[-2:]
    flat = len(meta.shape) == 2  # of single matrices
    if flat != (len(scores.product.shape) == 2) or (flat and product(lead).constant != 1):
        return None
    if not flat:
        imp.equal(product(lead), scores.product.shape[0])
        imp.equal(scores.product.shape[0], v.shape[0])
    left, right = given.operands
    imp.fix(left.shape[-1])
    imp.fix(v.shape[-1])
    depth, width = left.shape[-1].hint(), v.shape[-1].hint()
    imp.equal(keys, v.shape[-2])
    padded = -(-max(depth, width) // GROUP) * GROUP

    def matrix(x: Tensor, rows: Poly, columns: int, turned: bool, name: str) -> Tensor:
        """(batch, heads, rows, padded) of a stack of matrices."""

        def back(i: Index) -> Index:
            place = (i[3], i[2]) if turned else (i[2], i[3])
            return place if flat else (i[0] * heads + i[1], *place)

        result = imp.view(x, (batch, heads, rows, Poly.of(columns)), back)
        result.dtype, result.name = dtype, name
        return result

    q, first = _without_scale(matrix(left, queries, depth, False, "queries"))
    k, second = _without_scale(matrix(right, keys, depth, True, "keys"))
    values = matrix(v, keys, width, False, "values")
    scale = float(f"{scores.factor * first * second:.15g}")  # of its two roots
    q, k, values = (_padded(imp, t, padded) for t in (q, k, values))
    keywords: dict[str, object] = {"scale": scale}
    causal = _is_causal(scores, batch, heads, imp.contents)
    if causal is not None:
        keywords["is_causal"] = True
    biased = causal in (None, "stored") and (scores.summand is not None or scores.hidden is not None)
    by_mask = biased and causal is None
    form = Form(dtype, padded, padded, by_mask, causal is not None, queries.hint() == keys.hint())
    if backend(form) == "math":
        return None
    flash = backend(form) == "flash"
    share = _shared(k, values, heads) if flash else 1
    if share > 1:
        k, values = (_every(imp, t, share) for t in (k, values))
        keywords["enable_gqa"] = True
    operands = [q, k, values]
    hides = biased and scores.hidden is not None
    if biased:
        operands += _bias(imp, scores, batch, heads, dtype, hides, causal is not None)
    fill = scores.fill if scores.hidden is not None else -math.inf
    operations = 4 * prod(meta.shape) // width * keys.hint() * padded // (2 if causal is not None else 1)
    last = not flash or _heads_last(q)
    call = VendorCall("scaled_dot_product_attention", tuple(operands), keywords, operations, last=last)
    call.scheme, call.along = ATTENTION, True
    call.facts = {"form": replace(form, grouped=share > 1), "fill": fill, "safe": safe}
    call.facts = {**call.facts, "biased": biased, "hides": hides, "replaces": causal == "hidden"}
    shape = (batch, heads, queries, Poly.of(width))
    result = _results(imp, call, (*shape[:3], Poly.of(padded)), shape, dtype)
    result.dtype = meta.dtype
    if flat:
        return imp.view(result, (queries, shape[3]), lambda i: (Poly(), Poly(), *i))
    together = (scores.product.shape[0], queries, shape[3])
    return imp.view(result, together, lambda i: (*unflatten(i[0], (batch, heads)), *i[1:]))


def _results(imp: Importer, call: VendorCall, full: tuple[Poly, ...], shape: tuple[Poly, ...], dtype: str) -> Tensor:
    """What the call gives; of marked rows, what was computed again."""
    name = imp.node.name

    def stored(i: Index) -> Index:
        return (i[0], i[2], i[1], i[3]) if call.last else i

    inner = stored(full)
    attended = vendor_tensor(inner, dtype, call, name, imp.origin)
    call.labels = RESULTS
    mended = vendor_tensor(inner, dtype, call, name, imp.origin)
    odd = vendor_tensor(full[:3], "int32", call, name, imp.origin)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        marked = b.op("ne", ctx.value(odd, index[:3], guard), b.const(0, "int32"), dtype="bool")
        both = marked if guard is None else b.op("and", guard, marked, dtype="bool")
        place = stored(index)
        return b.op("where", marked, ctx.value(mended, place, both), ctx.value(attended, place, guard), dtype=REAL)

    return imp.tensor(shape, dtype, at, attended, mended, odd)


def _without_scale(x: Tensor) -> tuple[Tensor, float]:
    """An operand without a number that it is multiplied by, and that number."""
    value = probe(x, loops_of(x.shape), {})
    number = _factor(value)
    if number is None:
        return x, 1.0

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        value = ctx.value(x, index, guard)
        if _factor(value) != number:  # its product is in memory already
            return ctx.builder.op("div", value, ctx.builder.const(number, REAL), dtype=REAL)
        return value.args[0] if value.args[1].op == "const" else value.args[1]

    return Tensor(x.shape, x.dtype, at, x.name, x.origin, inputs=(x,)), number


def _factor(e: Expr) -> float | None:
    if e.op != "mul":
        return None
    number = number_of(e.args[0]) or number_of(e.args[1])
    return number if number and math.isfinite(number) else None


def _padded(imp: Importer, x: Tensor, columns: int) -> Tensor:
    """(..., columns) with zeros behind x's own."""
    own = x.shape[-1]
    if own.constant == columns:
        return x

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        within = b.op("lt", b.index(index[-1]), b.index(own), dtype="bool")
        both = within if guard is None else b.op("and", guard, within, dtype="bool")
        return b.op("where", within, ctx.value(x, index, both), b.const(0.0, REAL), dtype=REAL)

    result = imp.tensor((*x.shape[:-1], Poly.of(columns)), x.dtype, at, x)
    result.name = x.name
    return result


def _is_causal(scores: Scores, batch: Poly, heads: Poly, state: Any) -> str | None:
    """How the one mask hides the keys after the query's own place: "hidden", "added", by a buffer "stored"; or None."""
    row, column = (Poly.of(Var(name, size)) for name, size in zip("ij", scores.tensor.shape[-2:], strict=True))
    ready = {scores.product: scores.stand_in}
    first = [Poly() if s.constant == 1 else Poly.of(Var(n, s)) for n, s in zip("bh", (batch, heads), strict=True)]
    value = probe(scores.tensor, scores.index(first[0], first[1], row, column), ready)
    parts = take_apart(value, scores.stand_in, Builder(simplify))
    if parts is None:
        return None
    if parts.summand is None and parts.hidden is not None:
        if beyond(parts.hidden, row, column):
            return "hidden"
        return "stored" if state and hides_the_rest(parts.hidden, row, column, True, state) else None
    mask = parts.summand
    if parts.hidden is not None or mask is None:
        return None
    if mask.op != "where":
        return "stored" if state and hides_the_rest(mask, row, column, -math.inf, state) else None
    yes, no = number_of(mask.args[1]), number_of(mask.args[2])
    if (yes, no) == (-math.inf, 0.0):
        return "added" if beyond(mask.args[0], row, column) else None
    shown = Builder().op("not", mask.args[0], dtype="bool")
    return "added" if (yes, no) == (0.0, -math.inf) and beyond(shown, row, column) else None


def _shared(k: Tensor, v: Tensor, heads: Poly) -> int:
    """How many neighbouring heads read the same keys and values."""
    for bottom in _bottoms(k):
        if heads.divide(Poly.of(bottom)) is not None and bottom in _bottoms(v):
            return bottom
    return 1


def _bottoms(x: Tensor) -> list[int]:
    """By what the head's number is divided wherever it occurs, and nothing else."""
    index = loops_of(x.shape)
    head = index[1]
    value = probe(x, index, {})
    if not head.terms or value.op != "load" or value.index is None:
        return []
    atoms = {a for m, _ in value.index.terms for a in m}
    over = [a.bottom.constant or 0 for a in atoms if isinstance(a, Quotient) and a.top == head]
    (variable,) = head.atoms()
    return over if len(over) == 1 and over[0] > 1 and variable not in atoms else []


def _every(imp: Importer, x: Tensor, share: int) -> Tensor:
    """One of each `share` heads."""
    heads = x.shape[1].divide(Poly.of(share))
    assert heads is not None
    result = imp.view(x, (x.shape[0], heads, *x.shape[2:]), lambda i: (i[0], i[1] * share, *i[2:]))
    result.name = x.name
    return result


def _bias(
    imp: Importer, scores: Scores, batch: Poly, heads: Poly, dtype: str, hides: bool, causal: bool
) -> list[Tensor]:
    """Of each row the largest value, and what is added to the scores, its rows padded.

    hides: hidden elements have a number of their own, LEAST.hidden, which tells them from infinities that are added.
    causal: the mask is taken for a causal one, and rows in which it is not have a largest value of NaN.
    """
    queries, keys = scores.tensor.shape[-2:]
    moving = _moving(scores, batch, heads)
    moving[2] |= causal
    width = imp.derived(keys, GROUP - 1, GROUP) * GROUP if keys.constant is None else None
    padded = width if width is not None else Poly.of(-(-keys.hint() // GROUP) * GROUP)
    shape = tuple(s if m else Poly.of(1) for s, m in zip((batch, heads, queries), moving, strict=True))
    others = tuple(t for t in _beside(scores.tensor, scores.product))

    def unlike(b: Builder, index: Index, summand: Expr | None, hidden: Expr | None) -> Expr:
        after = b.op("gt", b.index(index[3]), b.index(index[2]), dtype="bool")
        if hidden is not None:
            return b.op("ne", b.cast(hidden, "int32"), b.cast(after, "int32"), dtype="bool")
        assert summand is not None
        wanted = b.op("where", after, b.const(-math.inf, REAL), b.const(0.0, REAL), dtype=REAL)
        return b.op("ne", summand, wanted, dtype="bool")

    def value(behind: float, shown: float, compared: bool) -> Callable[[Context, Index, Guard], Expr]:
        def at(ctx: Context, index: Index, guard: Guard) -> Expr:
            b = ctx.builder
            within = b.op("lt", b.index(index[3]), b.index(keys), dtype="bool") if padded != keys else None
            both = within if guard is None else guard if within is None else b.op("and", guard, within, dtype="bool")
            summand, hidden = scores.parts(ctx, scores.index(*index), both)
            result = summand or b.const(0.0, REAL)
            if hidden is not None:
                result = b.op("where", hidden, b.const(shown, REAL), result, dtype=REAL)
            if compared:
                other = unlike(b, index, summand, hidden)
                result = b.op("where", other, b.const(math.nan, REAL), result, dtype=REAL)
            return result if within is None else b.op("where", within, result, b.const(behind, REAL), dtype=REAL)

        return at

    hidden = LEAST[dtype].hidden if hides else -math.inf
    bias = imp.tensor((*shape, padded), dtype, value(0.0, hidden, False), *others)
    bias.name = "bias"
    visible = imp.tensor((*shape, padded), "float32", value(-math.inf, -math.inf, causal), *others)
    largest = reduce(imp, "max", visible, -1, False, "float32")
    largest.name = "largest"
    return [largest, bias]


def _moving(scores: Scores, batch: Poly, heads: Poly) -> list[bool]:
    """Whether the summand and what is hidden depend on the batch, the head and the row."""
    shape = (batch, heads, *scores.tensor.shape[-2:])
    index = loops_of(shape)
    value = probe(scores.tensor, scores.index(*index), {scores.product: scores.stand_in})
    parts = take_apart(value, scores.stand_in, Builder(simplify))
    assert parts is not None
    used = {v for e in (parts.summand, parts.hidden) if e is not None for v in e.variables()}
    return [bool(i.atoms() & used) for i in index[:3]]


def _beside(x: Tensor, left_out: Tensor) -> list[Tensor]:
    """What x depends on, without one tensor: all that may be in memory before it."""
    return [t for t in upstream(x, (left_out,)) if t is not x and left_out not in upstream(t)]


def _heads_last(q: Tensor) -> bool:
    """Whether queries lie as (batch, queries, heads, ...), and so what torch's kernels for 16 bits give; its other
    kernels always give that.
    """
    ready: dict[Tensor, Buffer] = {}
    probe(q, loops_of(q.shape), ready)
    view = as_view(Builder(simplify), q, ready, strided=True)
    if view is None:
        return False
    return view.strides[2].hint() > view.strides[1].hint() if view.strides else view.order == (0, 2, 1, 3)


__all__ = ["attention"]
