"""Chains of products in the order that costs least: (A B) C as A (B C), and the other way round."""

from __future__ import annotations

from typing import Any

from kforge.engine.calls import chains
from kforge.engine.calls.vendor import VendorCall, vendor_tensor
from kforge.engine.graph.importer import Importer, Meta
from kforge.engine.graph.ir import REAL, Expr
from kforge.engine.graph.symbols import Poly
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor


def chain(imp: Importer, meta: Meta, a: Tensor, b: Tensor) -> Tensor | None:
    """a @ b where one of them is a product that nothing else wants, in another order; None where that gains nothing.

    Conditions: single precision; half of the operations or fewer. For what is not finite see calls/chains.py.
    """
    if meta.dtype != "float32":
        return None
    left, right = imp.node.args[-2:]
    for first, node, own in ((True, left, a), (False, right, b)):
        if own.factors is None or own.vendor is None or not _alone(node, imp.node):
            continue
        x, y, z = (*own.factors, b) if first else (a, *own.factors)
        sizes = x.shape[0].hint(), x.shape[1].hint(), y.shape[1].hint(), z.shape[1].hint()
        written, other = (chains.work(sizes, which) for which in (not first, first))
        if written < chains.LEAST or other * chains.GAIN > written:
            continue
        for s, t in ((x.shape[1], y.shape[0]), (y.shape[1], z.shape[0])):
            imp.equal(s, t)
        call = VendorCall("mm", (x, y, z), operations=other, scheme=chains.CHAIN, facts={"right": first})
        return _result(imp, call, (x.shape[0], z.shape[1]))
    return None


def _result(imp: Importer, call: VendorCall, shape: tuple[Poly, Poly]) -> Tensor:
    """What the library gives, or what was multiplied as written."""
    call.labels, name = chains.RESULTS, imp.node.name
    result, mended = (vendor_tensor(shape, "float32", call, name, imp.origin) for _ in range(2))
    odd = vendor_tensor((Poly.of(1),), "int32", call, name, imp.origin)

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        marked = b.op("ne", ctx.value(odd, (Poly(),), guard), b.const(0, "int32"), dtype="bool")
        both = marked if guard is None else b.op("and", guard, marked, dtype="bool")
        return b.op("where", marked, ctx.value(mended, index, both), ctx.value(result, index, guard), dtype=REAL)

    return imp.tensor(shape, "float32", at, result, mended, odd)


def _alone(node: Any, user: Any) -> bool:
    """Whether a node is a product that only one other node wants."""
    product = node.op == "call_function" and str(node.target) == "aten.mm.default"
    return bool(product and list(node.users) == [user] and node.meta["val"].dtype == user.meta["val"].dtype)
