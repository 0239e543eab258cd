"""Operands of convolutions in 16 bits as a kernel of ours walks over them: moved, in one pass each, and not converted.

Images lie channels last in a frame of zeros, as those of implicit.py do, filters likewise. Nothing is scaled, and sums
stay in single precision until all that follows is done. No tap is added that the convolution does not have: a zero of
a filter would make NaN of an infinity.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from kforge.engine.calls import halved
from kforge.engine.calls.implicit import OWN_RATE, Frame, form_of, on_the_host, over_places, per_place
from kforge.engine.calls.vendor import RATES, CallStep, Lowering
from kforge.engine.emit.kernelcode import Constant, KernelCode, alone, render

if TYPE_CHECKING:
    from kforge.engine.emit.hostcode import Host

FRAMED = "framed"
RESULTS = ("filters",)
"""What lies beside the images."""
LEAST = 5e-6  # seconds of a convolution that is worth the trouble
ROOM = 1.5  # by which it may be predicted to take longer than the library's: what follows is not counted


def pays(operations: int, frame: Frame, values: int) -> bool:
    """Whether a convolution is worth a try. values: of images and filters."""
    library = operations / RATES["float16"]
    zeros = frame.depth / (frame.channels * frame.taps)
    whole = frame.walked[-1] * frame.together == frame.kernel[-1]
    return whole and library > LEAST and operations * zeros / OWN_RATE < ROOM * library + seconds(frame, values)


def seconds(frame: Frame, values: int) -> float:
    """Predicted time of moving the operands."""
    return 1e-5 + values * (2 + 2 * frame.padded / frame.channels) / halved.RATE_OF_BYTES


def lowering(step: CallStep) -> Lowering:
    """The moving of both operands; filters that are parameters are moved ahead of time."""
    call, frame = step.call, step.call.facts["frame"]
    dtype = step.result.dtype
    form = form_of(frame, call.keywords)
    weight = step.operands[1]
    as_it_is = weight.shape == weight.buffer.shape and weight.order == tuple(sorted(weight.order))
    kept = weight.buffer.kind == "parameter" and as_it_is
    name = f"operands_of_{call.operator}_{form}_in_16_bits"
    names = {"images": f"frame_of_{form}", "filters": f"move_filters_{form}"}
    facts = {**per_place(frame), "padded": frame.padded, "depth": frame.depth, "taps": frame.taps}
    helper = render(
        "candidate/frames_of_convolution.py.j2",
        **on_the_host(frame, "frames"),
        name=name,
        moved=f"moved_{form}",
        operator=call.operator,
        dtype=dtype,
        kept=kept,
        names=names,
    ).rstrip()

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{', '.join(b.name for b in step.results)} = {name}({', '.join(operands)})"]

    values = sum(prod(s.hint() for s in t.shape) for t in call.operands)
    kernels = tuple(_kernel(kind, own, facts, frame) for kind, own in names.items())
    idea = f"operands of {call.operator} channels last, in a frame of zeros"
    return Lowering(lines, seconds(frame, values), idea, kernels, (helper,))


def _kernel(kind: str, name: str, facts: Mapping[str, object], frame: Frame) -> KernelCode:
    text = render(f"cuda/framed_{kind}.cu.j2", name=name, **facts)
    if kind == "filters":
        constants: dict[str, Constant] = {"BLOCK": 256}
        return alone(name, FRAMED, text, (), constants, grid="filters", block="BLOCK", types={"T": "weight"})
    return over_places(name, FRAMED, text, ("pack",), frame, types={"T": "x"})
