"""Which ways of leaving work to a library are tried for a graph, and in what order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from kforge.engine.calls.attention import ATTENTION
from kforge.engine.calls.backends import backend
from kforge.engine.calls.converted import CONVERTED
from kforge.engine.calls.precision import BY_PRECISION, MERGED, lowering
from kforge.engine.switches import Switches

if TYPE_CHECKING:
    from kforge.engine.emit.forwardcode import Plan
    from kforge.engine.graph.ir import Program
    from kforge.task import Capture

    Made = tuple[Plan, list[Program]]
    Planned = Callable[[Switches], list[Made]]


def library_plans(
    capture: Capture, arch: str, device: str, planned: Planned, seconds: Callable[[Made], float]
) -> tuple[list[Made], bool]:
    """Plans with library calls, the fastest as predicted first, and whether kernels of ours alone go before them.

    planned: the plan made this way, or none where it is refused; seconds: of a plan's own kernels.
    Convolutions are left to the library in torch's memory format, channels-last and by halves, and in other forms
    (handlers/transposed.py, flattened.py); products by the scheme of the task's precision. What is as accurate as TF32
    has no baseline on a CPU, and is for a GPU alone.
    """
    convolves = [n for n in capture.graph.nodes if str(n.target) == "aten.convolution.default"]
    multiplies = any("mm.default" in str(n.target) for n in capture.graph.nodes)
    on_gpu = device.startswith("cuda")
    scheme = BY_PRECISION[capture.precision.value]
    scheme = scheme if multiplies and (scheme == "split" or on_gpu) else ""
    plain = Switches(library=True)
    as_precise = replace(plain, scheme=scheme)
    ways = []
    if convolves:
        ways.append(plain)
    if scheme:
        ways.append(as_precise)
    if scheme == "split" and arch == "sm_90a" and (on_gpu or 3 * _work(capture, 4) <= EMULATED):
        ways.append(replace(plain, scheme=MERGED))
    if scheme == "scaled" and arch == "sm_90a":
        ways.append(replace(plain, scheme=CONVERTED))
    attends = multiplies and any("_softmax" in str(n.target) for n in capture.graph.nodes)
    if attends:
        ways += [replace(as_precise, attention=True)] + ([replace(plain, attention=True)] if scheme else [])
    if convolves and on_gpu:
        ways += [replace(as_precise, halved=True), replace(as_precise, last=True)]
    owned = bool(convolves) and on_gpu and arch == "sm_90a"
    if owned:
        ways.append(replace(as_precise, implicit=True))
    if on_gpu and any(map(_gathers, convolves)):
        gathers = replace(as_precise, gathered=True)
        ways += [gathers, replace(gathers, last=True), replace(gathers, halved=True)]
        ways += [replace(gathers, implicit=True)] if owned else []
    if shares(capture.graph.nodes, on_gpu):
        joins = replace(as_precise, joined=True)
        ways += [joins, *([replace(joins, attention=True)] if attends else [])]
    found = []
    for way in ways:
        wanted = {ATTENTION} if way.attention else set()
        any_call = way == plain or way.gathered or (way.joined and not way.attention)
        found += [m for m in planned(way) if (any_call or wanted <= _schemes(m) != {""}) and _served(m, arch)]

    def total(made: Made) -> float:
        calls = made[0].parts.calls
        return seconds(made) + sum(lowering(step, capture.precision.value).seconds for step in calls)

    own_first = all(map(_depthwise, convolves)) if convolves else not scheme and not any(map(_attends, found))
    return sorted(found, key=total), own_first


MULTIPLIED = ("mm", "addmm", "bmm", "baddbmm")
EMULATED = 100_000_000
"""Operations that the emulator multiplies in half a second."""


def own_plans(capture: Capture, arch: str, device: str, planned: Planned) -> list[Made]:
    """Plans whose products in 16 bits are kernels of ours (families/product.py), from Ampere on: whole, reduced over
    their rows by the same kernel, and in shares of the depth where that is predicted to be faster."""
    from kforge.engine.families.product import multiplies

    work, older = _work(capture, 2), processor_of(arch) < 80
    if not work or older or (not device.startswith("cuda") and work > EMULATED):
        return []
    ways = [Switches(own=True)]
    if any(map(_in_shares, _products(capture, 2))):
        ways.append(Switches(own=True, shared=True))
    found = [made for way in ways for made in planned(way) if any(map(multiplies, made[1]))]
    if any(p.reductions for made in found for p in made[1]):
        for made in planned(Switches(own=True, rowwise=True)):
            by_rows = any(multiplies(p) and p.reductions for p in made[1])
            found += [made] if by_rows and all(_covered(p, arch) for p in made[1]) else []
    return found


def _covered(program: Program, arch: str) -> bool:
    """Whether a product's program is one that a kernel of ours computes; of others the families say so themselves."""
    from kforge.engine.families.product import multiplies
    from kforge.engine.families.product_rows import only_rows, whole_rows

    by_rows = multiplies(program) and bool(program.reductions)
    return not by_rows or only_rows(program) or (arch == "sm_90a" and whole_rows(program))


def _products(capture: Capture, size: int) -> list[Any]:
    """The products whose elements have so many bytes."""
    nodes = [n for n in capture.graph.nodes if is_library(n) and n.meta["val"].dtype.itemsize == size]
    return [n for n in nodes if str(n.target).removeprefix("aten.").split(".")[0] in MULTIPLIED]


def _in_shares(node: Any) -> bool:
    """Whether the depth of a product is better divided."""
    from kforge.engine.families.product_cost import shares_for

    *batch, rows, cols = node.meta["val"].shape
    return shares_for(prod(batch), rows, cols, node.args[-2].meta["val"].shape[-1]) > 1


def _work(capture: Capture, size: int) -> int:
    """Operations of the products whose elements have so many bytes."""
    products = _products(capture, size)
    return sum(2 * n.meta["val"].numel() * n.args[-2].meta["val"].shape[-1] for n in products)


def _schemes(made: Made) -> set[str]:
    """How the library's calls of a plan differ from plain ones."""
    return {c.call.scheme or ("last" if c.call.last else "") for c in made[0].parts.calls}


def _attends(made: Made) -> bool:
    return ATTENTION in _schemes(made)


def _served(made: Made, arch: str) -> bool:
    """Whether torch has a fused kernel for each call of its attention."""
    forms = [c.call.facts["form"] for c in made[0].parts.calls if c.call.scheme == ATTENTION]
    return all(backend(form, processor_of(arch)) != "math" for form in forms)


def processor_of(arch: str) -> int:
    """The compute capability of "sm_90a" as 90."""
    return int(arch.removeprefix("sm_").rstrip("af"))


WORTHWHILE = 1_000_000_000
"""Operations of a convolution that is tried in other forms."""


def _gathers(node: Any) -> bool:
    """Whether a convolution is a transposed one, or one of few channels in three dimensions, and large."""
    from kforge.engine.handlers.flattened import MOST

    x, weight, transposed = node.args[0].meta["val"], node.args[1].meta["val"], node.args[6]
    points = x.numel() if transposed else node.meta["val"].numel()
    flat = weight.dim() == 5 and weight.shape[1:3].numel() <= MOST
    return (bool(transposed) or flat) and 2 * points * weight.shape[1:].numel() >= WORTHWHILE


def shares(nodes: Any, on_gpu: bool) -> bool:
    """Whether products of the same rows may be one; without a GPU only small ones, that the emulator can multiply."""
    from kforge.engine.handlers.joined import groups

    found = [node for group in groups(nodes) for node in group]
    work = sum(2 * n.meta["val"].numel() * n.args[-1].meta["val"].shape[0] for n in found)
    return bool(found) and (on_gpu or work <= EMULATED)


def _depthwise(node: Any) -> bool:
    groups = node.args[8]
    return bool(groups > 1 and groups == node.args[0].meta["val"].shape[1])


def is_library(node: Any) -> bool:
    """Whether a node is a product or a convolution."""
    return node.op == "call_function" and re.search(r"\.(\w*mm|convolution)\.", str(node.target)) is not None
