"""Memory formats: which operators give their result in channels-last order where the operand has it.

Pointwise results take their operand's strides (Tensor.layout). Operators on images ask for less: only whether the
operand looks channels-last. The candidate looks at what it was given and reorders its result where torch's would be.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kforge.engine.graph.ir import Buffer
from kforge.engine.graph.strides import Layout
from kforge.engine.graph.tensors import Tensor

IMAGES = {
    "max_pool2d": 4,
    "max_pool2d_with_indices": 4,
    "max_pool3d_with_indices": 5,
    "avg_pool2d": 4,
    "_adaptive_avg_pool2d": 4,
    "adaptive_max_pool2d": 4,
    "upsample_nearest2d": 4,
    "upsample_nearest3d": 5,
    "upsample_bilinear2d": 4,
    "upsample_bicubic2d": 4,
    "upsample_trilinear3d": 5,
    "_upsample_nearest_exact2d": 4,
    "_upsample_nearest_exact3d": 5,
    "_upsample_bilinear2d_aa": 4,
    "_upsample_bicubic2d_aa": 4,
    "max_unpool2d": 4,
}
"""Operators whose result follows an operand of so many dimensions."""
ANY_RANK = {"convolution", "conv2d", "conv3d", "constant_pad_nd"}
ANY_RANK |= {f"_native_batch_norm_legit{form}" for form in ("", "_functional", "_no_training")}
ON_CPU = {"reflection_pad2d", "reflection_pad3d", "replication_pad2d", "replication_pad3d", "roll"}
ON_CPU |= {"native_group_norm"}
SHUFFLES = {"channel_shuffle", "native_channel_shuffle", "pixel_shuffle", "pixel_unshuffle"}
"""Those that follow on the CPU, and give contiguous results on a GPU; shuffles are views and copies in a graph."""
ROWS = {"max_pool1d_with_indices", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d"}
"""Those that torch computes as images of height one."""
ROWS_ON_GPU = {"max_pool1d"}

RMS_NORMS = {"rms_norm", "_fused_rms_norm"}
CONTIGUOUS = {"tril", "triu", "baddbmm"} | RMS_NORMS
"""Composites of pointwise operators whose result is contiguous whatever the operand is; but RMS norm on a CPU."""

DENSE = "dense"  # kind of an input whose strides of dimensions of size one do not count
Format = tuple[Layout, bool]
"""What a result follows; True where both are images of height one without that dimension."""


def follow(node: Any, result: Any) -> None:
    """Note on a node's result which input's format it follows."""
    names = _composites(node)
    value = node.meta.get("val")
    device = getattr(value[0] if isinstance(value, (tuple, list)) and value else value, "device", None)
    on_cpu = device is not None and device.type == "cpu"
    any_rank, rows = ANY_RANK | (ON_CPU if on_cpu else set()), ROWS | (set() if on_cpu else ROWS_ON_GPU)
    if on_cpu and names & SHUFFLES and isinstance(result, Tensor):
        source = _source(result, 4) if len(result.shape) == 4 else None
        result.format = None if source is None else source[0]
        return
    if "view" in str(node.target):  # of all elements as one row
        return
    for t in result if isinstance(result, (tuple, list)) else (result,):
        if not isinstance(t, Tensor):
            continue
        rank = len(t.shape)
        if names & CONTIGUOUS:
            source = _source(t, rank) if on_cpu and names & RMS_NORMS and rank in (4, 5) else None
            t.layout, t.format = None, None if source is None else source[0]
            continue
        if names & rows and rank == 3:
            source = _source(t, 3)
            t.format = None if source is None else (source[0][0], True)
        elif any(IMAGES.get(n) == rank for n in names) or (names & any_rank and rank in (4, 5)):
            source = _source(t, rank)
            t.format = None if source is None else source[0]
            if source is not None and any(n.startswith("_native_batch_norm") for n in names):
                t.format = _of_batch_norm(node, t, *source, on_cpu)


def _of_batch_norm(node: Any, result: Tensor, found: Format, as_given: bool, on_cpu: bool) -> Format | None:
    """On a CPU dense channels-last counts, too, where no operator between has put the strides of an input in order; on
    a GPU without weights the strides are the operand's."""
    if on_cpu:
        given = found[0]
        return (replace(given, kind=DENSE), False) if isinstance(given, Buffer) and as_given else found
    if node.args[1] is None:
        result.layout = found[0]
        return None
    return found


def _composites(node: Any) -> set[str]:
    """The operators that a node is or is a part of, overloads left out."""
    found = [str(node.meta.get("original_aten", "")), str(node.target)]
    found += [str(source.target) for source in (node.meta.get("from_node") or [])[-1:]]
    return {text.removeprefix("aten.").split(".")[0] for text in found}


def _source(t: Tensor, rank: int) -> tuple[Format, bool] | None:
    """The format of the first operand above of so many dimensions; whether it has an input's strides as they are.

    None where it is contiguous, whatever it was made of."""
    seen: set[int] = set()
    while t.inputs and id(t) not in seen:
        seen.add(id(t))
        t = t.inputs[0]
        if len(t.shape) == rank and t.format is not None:
            return t.format, t.buffer is not None
        if len(t.shape) == rank and t.layout is not None:
            return (t.layout, False), True
        if len(t.shape) == rank and t.settled:
            return None
    return None
