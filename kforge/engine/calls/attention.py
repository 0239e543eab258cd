"""Attention as one call of torch's, and what makes that safe: marks of what is not finite, and rows computed again.

torch's fused kernels leave out tiles that a causal mask hides, keep running maxima and give zeros where nothing is
visible, each kernel and device in its own way; attention as it is defined, two products and a softmax, gives NaN there.
So a kernel of ours looks at keys and values, a second one at queries and at the largest bias of each row, and computes
rows that are not ordinary again: scores, softmax, weights in the operands' own type, sums in single precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from kforge.engine.emit.kernelcode import KernelCode, alone, render

if TYPE_CHECKING:
    from kforge.engine.calls.vendor import CallStep, Lowering
    from kforge.engine.emit.hostcode import Host

ATTENTION = "attention"
"""The scheme of such a call."""
RESULTS = ("mended", "odd")
"""What is left beside the library's result: rows computed again, and 1 for each of them, else 0."""
RATES = {"float32": 6e13, "float16": 3.8e14, "bfloat16": 3.8e14}
"""Operations a second expected of torch's kernels on one H200, not measured; half of it for 16 bits with a bias."""
SHARES = 32
"""Marks a head: blocks that look at its keys and values."""


@dataclass(frozen=True)
class Least:
    """Small scores of a type. fill: the largest number in place of hidden scores that leaves them no weight; hidden:
    what stands for them in a bias; limit: rows whose largest bias is not above it are computed again."""

    fill: float
    hidden: float
    limit: float


_WIDE = Least(-1e9, -1e38, -1e8)
LEAST = {"float32": _WIDE, "bfloat16": _WIDE, "float16": Least(-6e4, -6e4, -3e4)}


def lowering(step: CallStep) -> Lowering:
    """The call, dense in the order that the library gives, and the kernels that mend it."""
    from kforge.engine.calls.vendor import Lowering

    facts, call, dtype = step.call.facts, step.call, step.result.dtype
    biased = facts["biased"]
    by_bias = biased and not call.keywords.get("is_causal")
    name = "attention_with_bias" if biased else "attention"
    mend = "mend_biased_rows" if biased else "mend_rows"
    options: dict[str, object] = {"heads_last": call.last, **call.keywords}
    options |= {"fill": facts["fill"]} if biased or "is_causal" in options else {}
    options |= {"safe": True} if facts["safe"] else {}
    options |= _of_bias(dtype, facts["hides"], by_bias) if biased else {"adds": True} if _adds(step) else {}
    helper = render("candidate/attention.py.j2", name=name, mend=mend, biased=biased, shares=SHARES)

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        given = [*operands, *(f"{key}={_written(value)}" for key, value in options.items())]
        return [f"{', '.join(b.name for b in step.results)} = {name}({', '.join(given)})"]

    seconds = 8e-6 + call.operations / (RATES[dtype] / (2 if by_bias and dtype != "float32" else 1))
    idea = "attention by torch's fused call"
    kernels = (
        _kernel("mark_heads", "attention_marks", f"(heads, {SHARES})", False, ("k", "v")),
        _kernel(mend, "attention_mend", "ceil_div(rows, WARPS)", biased, ("q", "k", "v")),
    )
    return Lowering(lines, seconds + 2e-5, f"{idea}, rows that are not finite again", kernels, (helper.rstrip(),))


def _adds(step: CallStep) -> bool:
    """Whether a causal mask is added to the scores instead of replacing them."""
    return bool(step.call.keywords.get("is_causal")) and not step.call.facts["replaces"]


def _of_bias(dtype: str, hides: bool, by_mask: bool) -> dict[str, object]:
    """What a bias means in numbers: hidden as it is read back."""
    import torch

    hidden = float(torch.tensor(LEAST[dtype].hidden, dtype=getattr(torch, dtype)))
    found: dict[str, object] = {"hidden": hidden} if hides else {}
    return found | {"limit": LEAST[dtype].limit} | ({} if by_mask else {"by_mask": False})


def _written(value: object) -> str:
    return f'float("{value}")' if isinstance(value, float) and not isfinite(value) else repr(value)


def _kernel(name: str, source: str, grid: str, biased: bool, strided: tuple[str, ...]) -> KernelCode:
    return alone(
        name,
        ATTENTION,
        render(f"cuda/{source}.cu.j2", name=name, biased=biased, shares=SHARES),
        (),
        {"WARPS": 8},
        grid=grid,
        block="32 * WARPS",
        tune={"WARPS": (8, 4)},
        types={"T": "k"},
        strided=strided,
    )
