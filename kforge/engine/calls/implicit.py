"""Convolutions at TF32's accuracy by a product of ours: operands in halves, one pass each, then all else in one kernel.

Images are written channels last, in whole steps of 64 channels, and in a frame of zeros. There the operand of each tap
is the same matrix (places x channels) that many rows further on, so that its tiles come by tensor copies as those of
any matrix (families/convolution.py); what the places of the frame would give is not stored. Guards, scales and the
mending of what halves cannot hold are those of halved.py, but sums stay in single precision: the error is that of TF32.

Of up to 32 channels 8, 16 or 32 lie in memory, and a step of 64 takes neighbouring taps of a line together: they lie
one behind the other, lines of the matrix overlap. Taps beyond the filter's count as zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from kforge.engine.calls import halved
from kforge.engine.calls.vendor import CallStep, Lowering
from kforge.engine.emit.kernelcode import Constant, KernelCode, alone, render

if TYPE_CHECKING:
    from kforge.engine.emit.hostcode import Host

IMPLICIT = "implicit"
RESULTS = ("images", "filters", "units", "marks")
"""What the conversion leaves beside the single-precision results of marked images and filters."""
STEP = 64  # channels that are multiplied at once
DEEP_RATE = 8e13  # of the library's in three dimensions, with TF32
OWN_RATE = 5e14  # operations a second of this kernel on an H200, zeros included; expected, not measured


@dataclass(frozen=True)
class Frame:
    """A convolution of stride 1 as a walk over images in a frame: sizes outermost first, all of one rank.

    wider: by how much a line of the frame is longer than a line of the result.
    """

    kernel: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    channels: int
    wider: int

    @property
    def padded(self) -> int:
        """Channels as they lie in memory: whole steps, or a part of one."""
        if self.channels > STEP // 2 or self.kernel[-1] == 1 or self.dilation[-1] > 1:
            return -(-self.channels // STEP) * STEP
        return max(8, 1 << (self.channels - 1).bit_length())

    @property
    def together(self) -> int:
        """Neighbouring taps of a line in one step."""
        return max(1, STEP // self.padded)

    @property
    def parts(self) -> int:
        """Steps of one tap's channels."""
        return max(1, self.padded // STEP)

    @property
    def walked(self) -> tuple[int, ...]:
        """The filter's size in taps that are taken together."""
        return (*self.kernel[:-1], -(-self.kernel[-1] // self.together))

    @property
    def depth(self) -> int:
        """Of the product: what is multiplied for one sum, zeros included."""
        return prod(self.walked) * self.parts * STEP

    @property
    def taps(self) -> int:
        return prod(self.kernel)

    @property
    def deep(self) -> tuple[int, ...]:
        """By how much the frame is larger than the result, in each dimension."""
        reach = [d * (k - 1) for d, k in zip(self.dilation, self.kernel, strict=True)]
        return (*reach[:-1], self.wider)


def pays(operations: int, frame: Frame, values: int) -> bool:
    """Whether a convolution is worth a try. values: of input and filters."""
    zeros = frame.depth / (frame.channels * frame.taps)
    expected = operations * zeros / OWN_RATE + seconds(frame, values)
    return operations / (halved.TF32_RATE if len(frame.kernel) < 3 else DEEP_RATE) > max(halved.LEAST, expected)


def seconds(frame: Frame, values: int) -> float:
    """Predicted time of the conversion."""
    return 3e-5 + values * (4 + 2 * frame.padded / frame.channels) / halved.RATE_OF_BYTES


def lowering(step: CallStep) -> Lowering:
    """The conversion of both operands, and the mending before the product."""
    call, frame = step.call, step.call.facts["frame"]
    rank = len(frame.kernel)
    form = halved._form(frame.kernel, call.keywords)
    name = f"operands_of_{call.operator}_{form}"
    three = {k: halved._three(getattr(frame, k), fill) for k, fill in (("kernel", 1), ("padding", 0), ("dilation", 1))}
    facts = {
        **three,
        "stride": (1, 1, 1),
        "transposed": False,
        "last": False,
        "taps": frame.taps,
        "padded": frame.padded,
        "wide": frame.walked[-1] * frame.together,
        "depth": frame.depth,
    }
    names = {"images": f"frame_images_{form}", "filters": f"halve_filters_{form}", "outputs": f"mend_outputs_{form}"}
    reach = [d * (k - 1) for d, k in zip(frame.dilation, frame.kernel, strict=True)]
    sizes = [f"x.shape[{2 + k}]" for k in range(rank)]
    ones = ", 1" * (3 - rank)
    out = [_sum(s, 2 * p - r) for s, p, r in zip(sizes, frame.padding, reach, strict=True)]
    around = [_sum(s, 2 * p - r + e) for s, p, r, e in zip(sizes, frame.padding, reach, frame.deep, strict=True)]
    helper = render(
        "candidate/operands_of_convolution.py.j2",
        name=name,
        operator=call.operator,
        out=", ".join(out),
        frame=", ".join(around),
        padded=frame.padded,
        depth=frame.depth,
        overlapping=frame.together > 1,
        frame_values=" * ".join(f"({size})" if " " in size else size for size in around),
        small=halved.SMALL,
        x_sizes=ones + "".join(f", {size}" for size in sizes),
        frame_sizes=ones + "".join(f", x_halves.shape[{1 + k}]" for k in range(rank)),
        y_sizes=ones + "".join(f", full.shape[{2 + k}]" for k in range(rank)),
        keywords="".join(f", {key}={value!r}" for key, value in call.keywords.items()),
        names=names,
    ).rstrip()

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{', '.join(b.name for b in step.results)} = {name}({', '.join(operands)})"]

    values = sum(prod(s.hint() for s in t.shape) for t in call.operands)
    kernels = tuple(_kernel(kind, own, facts, frame) for kind, own in names.items())
    idea = f"operands of {call.operator} in halves, one pass each"
    return Lowering(lines, seconds(frame, values), idea, kernels, (helper,))


def _sum(text: str, more: int) -> str:
    return f"{text} {'-' if more < 0 else '+'} {abs(more)}" if more else text


def _kernel(kind: str, name: str, facts: Mapping[str, object], frame: Frame) -> KernelCode:
    if kind != "images":
        return halved._kernel(kind, name, facts, STEP)
    channels = min(STEP, frame.padded)
    constants: dict[str, Constant] = {"BLOCK": 256, "CHANNELS": channels, "POINTS": min(256, 4096 // channels)}
    return alone(
        name,
        IMPLICIT,
        render("cuda/halves_images_padded.cu.j2", name=name, **facts),
        ("pack", "halves", "counted"),
        constants,
        grid="(ceil_div(frame_d * frame_h * frame_w, POINTS) * ceil_div(padded, CHANNELS), images)",
        block="BLOCK",
        tune={"POINTS": (256, 128, 64, 32)},
    )
