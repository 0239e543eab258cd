"""Device functions that are written with kernels: their names, and values that one of them gives."""

from __future__ import annotations

from kforge.engine.graph.ir import REAL, Expr

_NAMES = (
    "load store larger smaller pairwise draw gather scan sort exchange publish fresh interleave neighbour take word "
    "message join follow lower lift complete release receive send slot shuffle_xor look_up look_back by_words under "
    "block_reduce warp_reduce column_reduce column_scan warp_scan join_lanes is_last rescale key_of index_of sigmoid "
    "divergence log_ratio x_log_x log1p_unit digamma trigamma bessel_i0 bessel_i1 bessel_i0_scaled bessel_i1_scaled "
    "greatest_divisor least_multiple mantissa_of exponent_of power_of eight_bits isnan isinf isfinite signbit"
)
FUNCTIONS = frozenset(_NAMES.split())


def argument_of_sigmoid(e: Expr, known: dict[int, str]) -> Expr | None:
    """x of 1 / (1 + e^-x), where none of its steps is in a variable already."""
    if e.op != "div" or e.dtype != REAL or not _is_one(e.args[0]):
        return None
    below = e.args[1]
    if below.op != "add" or not _is_one(below.args[0]) or below.uid in known:
        return None
    power = below.args[1]
    if power.op != "exp" or power.args[0].op != "neg" or {power.uid, power.args[0].uid} & known.keys():
        return None
    return power.args[0].args[0]


def _is_one(e: Expr) -> bool:
    return e.op == "const" and e.value == 1
