"""Which of torch's kernels serves a call of `scaled_dot_product_attention` on a GPU, by torch's documented conditions.

Where neither the flash kernel nor the memory-efficient one takes the operands, torch computes products and a softmax
by separate operators, the scores in memory: slower than what the engine would write, so that no such call is made.
"""

from __future__ import annotations

from dataclasses import dataclass

HALVES = ("float16", "bfloat16")
FLASH_DEPTH = 256  # features of a head that the flash kernel takes at most
ALIGNED = 8  # to whose multiple the features of 16 bits are padded; of 32 bits 4 would do


@dataclass(frozen=True)
class Form:
    """What a call looks like. depth, width: features of queries and keys, and of values; masked: with a bias; grouped:
    heads that share keys and values are left to the call; square: as many queries as keys, as captured.
    """

    dtype: str
    depth: int
    width: int
    masked: bool = False
    causal: bool = False
    square: bool = True
    grouped: bool = False


def backend(form: Form, processor: int = 90) -> str:
    """ "flash", "efficient" or "math". processor: compute capability, 90 for sm_90."""
    aligned = form.depth % ALIGNED == 0 == form.width % ALIGNED
    if not aligned or (form.masked and form.causal) or (form.dtype == "bfloat16" and processor < 80):
        return "math"
    fits = form.depth == form.width <= FLASH_DEPTH and form.dtype in HALVES and processor >= 80
    if fits and not form.masked and (form.square or not form.causal):
        return "flash"
    return "efficient" if not form.grouped and form.dtype in (*HALVES, "float32") and processor >= 50 else "math"
