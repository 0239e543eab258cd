"""What a row of compute_rows.py counts for: its class, whether it is plain or has an epilogue, and the goals' summary.

A goal is reached by the median and the geometric mean of the plain rows and those with an epilogue; what is rewritten
or degenerate is told apart and counts for none. A gain is torch's fastest way of a row over ours.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.task import Capture

CONVOLUTION, ATTENTION, NARROW = "convolution", "attention", "narrow"
HALVES, TF32, STRICT = "halves", "tf32", "strict"
MOVES = re.compile(
    r"aten\.(view|permute|t|transpose|expand|clone|_unsafe_view|reshape|alias|detach|unsqueeze|squeeze|slice|select)\."
)
PRODUCT = re.compile(r"aten\.(mm|addmm|bmm|baddbmm|convolution|_int_mm|_scaled_mm|_grouped_mm)\.")
LIBRARY = re.compile(r"torch\.(\w*mm|matmul|conv\w*)\(|scaled_dot_product|channels_last_conv|of_(two_)?halves")
OWN = re.compile(r"\b(wgmma|mma)\b")
DEFAULT = ("eager", "compile", "compile_tuned")  # ways in torch's own memory format


@dataclass(frozen=True)
class Goal:
    """Rows of a class, plain or with an epilogue, and the gain they are to reach.

    over: which of torch's ways count, all if none; needs: a part of the name of a way that a row must have.
    """

    name: str
    of: str
    gain: float
    kinds: tuple[str, ...] = ("plain", "epilogue")
    over: tuple[str, ...] = ()
    needs: str = ""


GOALS = (
    Goal("strict single precision", STRICT, 2.5),
    Goal("TF32", TF32, 1.4),
    Goal("TF32 with an epilogue", TF32, 1.5, ("epilogue",)),
    Goal("convolution, over the best layout", CONVOLUTION, 1.5, needs="channels_last"),
    Goal("convolution, over the default layout", CONVOLUTION, 2.5, over=DEFAULT),
    Goal("16 bits with an epilogue", HALVES, 1.15, ("epilogue",)),
    Goal("attention", ATTENTION, 1.2),
    Goal("narrow operands", NARROW, 1.0),
)


def class_of(captured: Capture, precision: str) -> str:
    """Which goals a reference counts for; "" where it has no product."""
    nodes = [n for n in captured.module.graph.nodes if n.op == "call_function"]
    products = [n for n in nodes if PRODUCT.match(f"{n.target}.")]
    values = [n.meta.get("val") for n in captured.module.graph.nodes if n.op == "placeholder"]
    dtypes = {str(v.dtype) for v in values if hasattr(v, "dtype")}
    if any("convolution" in str(n.target) for n in products):
        return CONVOLUTION
    if len(products) > 1 and any("softmax" in str(n.target) for n in nodes):
        return ATTENTION
    if any("int8" in d or "float8" in d for d in dtypes):
        return NARROW
    if not products:
        return ""
    if any("float16" in d for d in dtypes):
        return HALVES
    return STRICT if precision == "highest" else TF32


def class_by_name(row: dict[str, Any]) -> str:
    """The class of a row that was recorded without one."""
    name, dtypes = row["workload"], {dtype for _, dtype in row.get("inputs", [])}
    for prefix, of in (("conv", CONVOLUTION), ("attention", ATTENTION)):
        if name.startswith(prefix):
            return of
    if any("int8" in d or "float8" in d for d in dtypes):
        return NARROW
    if any("float16" in d for d in dtypes):
        return HALVES
    return STRICT if row.get("precision", "highest") == "highest" else TF32


def kind_of(captured: Capture, candidate: Candidate | None, degenerate: bool) -> str:
    """plain: a product and nothing else; epilogue: more than that; rewritten: no product is computed as one."""
    if degenerate:
        return "degenerate"
    nodes = [n for n in captured.module.graph.nodes if n.op == "call_function"]
    products = [n for n in nodes if PRODUCT.match(f"{n.target}.")]
    convolves = any("convolution" in str(n.target) for n in products)
    if candidate is not None and products and not convolves:
        text = "\n".join(candidate.files.values())
        if not LIBRARY.search(text) and not OWN.search(text):
            return "rewritten"
    biases = sum("addmm" in str(n.target) for n in products)
    others = [n for n in nodes if n not in products and not MOVES.match(f"{n.target}.")]
    return "plain" if len(products) - biases <= 1 and not others else "epilogue"


Gain = Callable[[dict[str, Any], tuple[str, ...]], float | None]


def summary(found: list[dict[str, Any]], gain_of: Gain) -> None:
    """A line for each goal that has rows. gain_of(row, ways that count, all if none): None without a result."""
    for goal in GOALS:
        own = [
            r for r in found if r.get("class", class_by_name(r)) == goal.of and r.get("kind", "epilogue") in goal.kinds
        ]
        own = [r for r in own if any(goal.needs in name for name in r.get("ways", ("",)))]
        gains = [g for r in own if (g := gain_of(r, goal.over)) is not None]
        if gains:
            mean, middle = statistics.geometric_mean(gains), statistics.median(gains)
            reached = "reached" if min(mean, middle) >= goal.gain else "missed"
            far = sum(g >= goal.gain for g in gains)
            print(
                f"{goal.name:38} geomean {mean:.2f} median {middle:.2f} of {len(gains)} rows ({len(own) - len(gains)} "
                f"without a result), {far} at the goal of {goal.gain}: {reached}"
            )
