"""Tools that tell why: the profile of a candidate in at most three findings, and what the baseline compiles to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kforge.agent.tools.files import numbered
from kforge.agent.tools.judging import find
from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import Toolbox, clip


@tool
def profile(box: Toolbox, candidate: str = "current") -> str:
    """Why a candidate is as fast as it is: which limit binds, how near it is, and at most three findings with their
    evidence, the lines they point to, what to do and what it should gain.

    candidate: "current" (your folder), "parent", "best", the number of an attempt, or a digest.
    """
    return clip(profile_text(box.bench.profile(find(box, candidate))), box.limits.result)


def profile_text(data: Mapping[str, Any]) -> str:
    """The object of `kforge profile --json` in words."""
    parts = [f"profile of {data['candidate']} on {data['target']} ({data['arch']})", roofline_line(data["roofline"])]
    parts += [_kernel_line(kernel) for kernel in data["kernels"]]
    parts.append(data["for_model"] or "no tool found a fault")
    if data.get("left_out"):
        parts.append(f"{data['left_out']} more of less weight")
    parts += [f"missing: {row['source']}: {row['reason']}" for row in data["missing"]]
    return "\n".join(part for part in parts if part)


def roofline_line(roofline: Mapping[str, Any]) -> str:
    """Which limit binds, the floor and what is left above it."""
    if roofline.get("bound") is None:
        return "roofline: unknown, nothing could be counted"
    words = f"roofline: {roofline['bound']} bound, floor {roofline['floor_ms']:.4g} ms"
    words += f" on {roofline['ceilings']} ({roofline['source']})"
    if roofline["bound"] == "latency" and roofline.get("launch_ms"):
        words += f", which is less than one launch ({roofline['launch_ms'] * 1e3:.3g} us)"
    if roofline.get("headroom_over_launch") is not None:
        words += f", headroom {roofline['headroom_over_launch']:.2f}x (the faster baseline over one launch)"
    elif roofline.get("headroom") is not None:
        words += f", headroom {roofline['headroom']:.2f}x over the faster baseline"
    elif roofline.get("headroom_reason"):
        words += f", headroom unknown: {roofline['headroom_reason']}"
    if roofline.get("achieved") is not None and roofline.get("headroom_over_launch") is None:
        words += f", the candidate achieves {roofline['achieved']:.0%} of the floor"
    return words + (": no room, keep PyTorch" if roofline.get("no_room") else "")


def _kernel_line(kernel: Mapping[str, Any]) -> str:
    words = [f"kernel {kernel['name']}"]
    if kernel.get("us") is not None:
        words.append(f"{kernel['us']:.4g} us")
    for name, unit in (("grid", ""), ("block", ""), ("registers", ""), ("spill_bytes", " B"), ("shared", " B")):
        if kernel.get(name) is not None:
            value = kernel[name]
            shown = " x ".join(map(str, value)) if isinstance(value, (list, tuple)) else f"{value}{unit}"
            words.append(f"{name.removesuffix('_bytes')} {shown}")
    if kernel.get("occupancy") is not None:
        words.append(f"occupancy {kernel['occupancy']:.0%} (limited by {kernel.get('occupancy_limit')})")
    return ", ".join(words)


@tool
def baseline_source(box: Toolbox, first_line: int = 1, lines: int = 300) -> str:
    """What torch.compile makes of the reference: Inductor's output code, which your kernel competes with.

    first_line: the line to begin at, from 1.
    lines: how many lines.
    """
    return numbered(box.bench.baseline_source(), "baseline", first_line, lines, box.limits.page)
