"""Convolutions at TF32's accuracy by a product of ours: operands in halves, one pass each, then all else in one kernel.

Images are written channels last, in whole steps of 64 channels, and in a frame of zeros. There the operand of each tap
is the same matrix (places x channels) that many rows further on, so that its tiles come by tensor copies as those of
any matrix (families/convolution.py); what the places of the frame would give is not stored. Guards, scales and the
mending of what halves cannot hold are those of halved.py, but sums stay in single precision: the error is that of TF32.

Of up to 32 channels 8, 16 or 32 lie in memory, and a step of 64 takes neighbouring taps of a line together: they lie
one behind the other, lines of the matrix overlap. Taps beyond the filter's count as zeros.

Where a convolution steps over places, a line of the frame has all places of one step, one behind the other: a tap reads
the channels of one of these, some lines further on, and no product is added that the convolution does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

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
    """A convolution as a walk over images in a frame: sizes outermost first, all of one rank.

    wider: by how much a line of the frame is longer than a line of the result.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    channels: int
    wider: int

    @property
    def padded(self) -> int:
        """Channels as they lie in memory: whole steps, or a part of one."""
        apart = self.kernel[-1] == 1 or self.dilation[-1] > 1 or self.stepping
        if self.channels > STEP // 2 or apart:
            return -(-self.channels // STEP) * STEP
        return max(8, 1 << (self.channels - 1).bit_length())

    @property
    def stepping(self) -> bool:
        """Whether places of the frame are further apart than those of the image."""
        return any(s > 1 for s in self.stride)

    @property
    def phases(self) -> tuple[int, ...]:
        """Places of the image in one of the frame: remainders modulo the stride, up to the largest that a tap reads."""
        each = zip(self.kernel, self.dilation, self.stride, strict=True)
        return tuple(1 + max(t * d % s for t in range(k)) for k, d, s in each)

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
        return (*self.reach[:-1], self.wider)

    @property
    def reach(self) -> tuple[int, ...]:
        """How many places of the frame the last tap is from the first, in each dimension."""
        each = zip(self.dilation, self.kernel, self.stride, strict=True)
        return tuple(d * (k - 1) // s for d, k, s in each)


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
    form = form_of(frame, call.keywords)
    name = f"operands_of_{call.operator}_{form}"
    facts = {
        **per_place(frame),
        "transposed": False,
        "last": False,
        "taps": frame.taps,
        "padded": frame.padded,
        "wide": frame.walked[-1] * frame.together,
        "depth": frame.depth,
    }
    names = {"images": f"frame_images_{form}", "filters": f"halve_filters_{form}", "outputs": f"mend_outputs_{form}"}
    out = [_out(frame, axis, f"x.shape[{2 + axis}]", 0) for axis in range(rank)]
    helper = render(
        "candidate/operands_of_convolution.py.j2",
        **on_the_host(frame, "x_halves"),
        name=name,
        operator=call.operator,
        out=", ".join(out),
        small=halved.SMALL,
        y_sizes=_three_sizes("full", 2, rank),
        keywords="".join(f", {key}={value!r}" for key, value in call.keywords.items()),
        names=names,
    ).rstrip()

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{', '.join(b.name for b in step.results)} = {name}({', '.join(operands)})"]

    values = sum(prod(s.hint() for s in t.shape) for t in call.operands)
    kernels = tuple(_kernel(kind, own, facts, frame) for kind, own in names.items())
    idea = f"operands of {call.operator} in halves, one pass each"
    return Lowering(lines, seconds(frame, values), idea, kernels, (helper,))


def form_of(frame: Frame, keywords: Mapping[str, object]) -> str:
    """What tells a convolution's operands from those of others of a candidate, as a part of names."""
    return f"{halved._form(frame.kernel, keywords)}_{frame.padded}_channels"


def per_place(frame: Frame) -> dict[str, tuple[int, ...]]:
    """What the kernels know of a frame, for three dimensions."""
    fills = {"kernel": 1, "stride": 1, "padding": 0, "dilation": 1, "phases": 1}
    return {key: halved._three(getattr(frame, key), fill) for key, fill in fills.items()}


def on_the_host(frame: Frame, held: str) -> dict[str, object]:
    """What the host writes of the frame of images `x`. held: the variable that has the images in it."""
    around = [_out(frame, axis, f"x.shape[{2 + axis}]", more) for axis, more in enumerate(frame.deep)]
    rank = len(frame.kernel)
    return {
        "frame": ", ".join(around),
        "frame_values": " * ".join(f"({size})" if " " in size else size for size in around),
        "x_sizes": _three_sizes("x", 2, rank),
        "frame_sizes": _three_sizes(held, 1, rank),
        "values": frame.padded * prod(frame.phases),
        "padded": frame.padded,
        "depth": frame.depth,
        "overlapping": frame.together > 1,
    }


def over_places(name: str, schedule: str, text: str, helpers: tuple[str, ...], frame: Frame, **more: Any) -> KernelCode:
    """The kernel of one pass that moves images into a frame. more: as KernelCode has it."""
    channels, lines = min(STEP, frame.padded), "padded"
    if prod(frame.phases) > 1:
        lines = f"{prod(frame.phases)} * padded"
    constants: dict[str, Constant] = {"BLOCK": 256, "CHANNELS": channels, "POINTS": min(256, 4096 // channels)}
    return alone(
        name,
        schedule,
        text,
        helpers,
        constants,
        grid=f"(ceil_div(frame_d * frame_h * frame_w, POINTS) * ceil_div({lines}, CHANNELS), images)",
        block="BLOCK",
        tune={"POINTS": (256, 128, 64, 32)},
        **more,
    )


def _three_sizes(tensor: str, first: int, rank: int) -> str:
    """Arguments of a launch: the sizes of a tensor from dimension `first` on, as of three dimensions."""
    return ", 1" * (3 - rank) + "".join(f", {tensor}.shape[{first + k}]" for k in range(rank))


def _out(frame: Frame, axis: int, size: str, more: int) -> str:
    """A size of the result, and what is more of it."""
    reach, step = frame.dilation[axis] * (frame.kernel[axis] - 1), frame.stride[axis]
    less = 2 * frame.padding[axis] - reach
    if step == 1:
        return _sum(size, less + more)
    return _sum(f"({_sum(size, less - 1)}) // {step}", 1 + more)


def _sum(text: str, more: int) -> str:
    return f"{text} {'-' if more < 0 else '+'} {abs(more)}" if more else text


def _kernel(kind: str, name: str, facts: Mapping[str, object], frame: Frame) -> KernelCode:
    if kind != "images":
        return halved._kernel(kind, name, facts, STEP)
    text = render("cuda/halves_images_padded.cu.j2", name=name, **facts)
    return over_places(name, IMPLICIT, text, ("pack", "halves", "counted"), frame)
