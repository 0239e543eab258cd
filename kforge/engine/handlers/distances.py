"""Handlers of distances between vectors: cdist and dist, as vector norms of differences."""

from __future__ import annotations

import math
from typing import Any

from kforge.engine.graph.importer import HANDLERS, Importer, Meta, handles
from kforge.engine.graph.symbols import Poly
from kforge.engine.graph.tensors import Tensor
from kforge.engine.handlers.composites import op


@handles("_cdist_forward")
def _cdist(imp: Importer, meta: Meta, x: Tensor, y: Tensor, p: float, how: Any = None) -> Tensor:
    """Each vector of x against each of y: nothing of their size times their number is in memory."""
    if x.dtype != "float32" and x.dtype != "float64":
        raise imp.reject(f"vectors of {x.dtype}")
    one = Poly.of(1)
    width = imp.equal(x.shape[-1], y.shape[-1])
    left = imp.view(x, (*x.shape[:-1], one, width), lambda i: (*i[:-2], i[-1]))
    right = imp.view(y, (*y.shape[:-2], one, y.shape[-2], width), lambda i: (*i[:-3], *i[-2:]))
    gap = op(imp, "sub", left, right, dtype=meta.dtype)
    return HANDLERS["linalg_vector_norm"](imp, meta, gap, math.inf if math.isinf(p) else p, [-1])


@handles("dist")
def _dist(imp: Importer, meta: Meta, x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    return HANDLERS["linalg_vector_norm"](imp, meta, op(imp, "sub", x, y, dtype=meta.dtype), p)
