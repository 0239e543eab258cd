"""What tells the plans of a task apart: each asks for the same results in another way (calls/alternatives.py)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Switches:
    """A way of planning a task; without any, kernels of ours compute all that they can.

    library: what a library computes is left to it, even where a family of ours could. scheme: how products in single
    precision are computed where that pays (calls/precision.py), '' for the library's own way. attention: attention is
    torch's call (handlers/attention.py). joined: products of the same rows are one (handlers/joined.py).

    Of convolutions: last: the library gets channels-last operands. halved: those at TF32's accuracy are computed by
    halves, where that pays (calls/halved.py). implicit: they are kernels of ours (handlers/implicit.py). gathered: they
    are computed in other forms (handlers/transposed.py, flattened.py).

    Of products in 16 bits: own: they are kernels of ours (handlers/tensorcores.py). shared: their depth is divided
    where that pays. rowwise: rows of them are reduced by the same kernel (families/product_rows.py).

    Of kernels: apart: results of rows are kernels of their own (apart.py). carried: sums over rows are taken along by
    another one (carried.py).
    """

    library: bool = False
    scheme: str = ""
    attention: bool = False
    joined: bool = False
    last: bool = False
    halved: bool = False
    implicit: bool = False
    gathered: bool = False
    own: bool = False
    shared: bool = False
    rowwise: bool = False
    apart: bool = False
    carried: bool = False


OURS = Switches()
