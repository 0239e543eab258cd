"""Which ways of leaving work to a library are tried for a graph, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kforge.engine.calls.precision import BY_PRECISION, lowering

if TYPE_CHECKING:
    from kforge.engine.emit.forwardcode import Plan
    from kforge.engine.graph.ir import Program
    from kforge.task import Capture

    Made = tuple[Plan, list[Program]]


def library_plans(
    capture: Capture, device: str, planned: Callable[..., list[Made]], seconds: Callable[[Made], float]
) -> tuple[list[Made], bool]:
    """Plans with library calls, the fastest as predicted first, and whether kernels of ours alone go before them.

    planned: a plan with some switches of the importer, or none where it is refused; seconds: of a plan's own kernels.
    Convolutions are left to the library in torch's memory format, channels-last and by halves; products by the scheme
    of the task's precision. What is as accurate as TF32 has no baseline on a CPU, and is for a GPU alone.
    """
    convolves = [n for n in capture.graph.nodes if "convolution" in str(n.target)]
    multiplies = any("mm.default" in str(n.target) for n in capture.graph.nodes)
    on_gpu = device.startswith("cuda")
    scheme = BY_PRECISION[capture.precision.value]
    scheme = scheme if multiplies and (scheme == "split" or on_gpu) else ""
    switches: list[Mapping[str, Any]] = []
    if convolves:
        switches.append({})
    if scheme:
        switches.append({"scheme": scheme})
    if convolves and on_gpu:
        switches += [{"halved": True, "scheme": scheme}, {"last": True, "scheme": scheme}]
    found = []
    for switch in switches:
        made = planned(library=True, **switch)
        found += [m for m in made if not switch or any(c.call.scheme or c.call.last for c in m[0].parts.calls)]

    def total(made: Made) -> float:
        calls = made[0].parts.calls
        return seconds(made) + sum(lowering(step, capture.precision.value).seconds for step in calls)

    own_first = all(map(_depthwise, convolves)) if convolves else not scheme
    return sorted(found, key=total), own_first


def _depthwise(node: Any) -> bool:
    groups = node.args[8]
    return bool(groups > 1 and groups == node.args[0].meta["val"].shape[1])


def is_library(node: Any) -> bool:
    """Whether a node is a product or a convolution."""
    return node.op == "call_function" and any(w in str(node.target) for w in ("mm", "convolution"))
