"""Convolutions at TF32's accuracy by halves: input and filters converted in one pass each, the convolution a library's.

A half has TF32's ten bits of mantissa. Filters are scaled by powers of two so that the magnitudes of each sum to less
than 8, images keep their scale: with magnitudes below 2^12 no result can overflow. Larger ones, and images or filters
whose small values (two standard deviations of their exponents below the mean) are under 2^-16, are marked in the same
pass and computed again in single precision on the device. What halves cost beside is the rounding of results, 2^-12 of
each: with that the error is about 1.25 of TF32's on data of mixed signs; data and filters of one sign fail the
acceptance rule, and the judge refuses the candidate there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from kforge.engine.calls.vendor import CallStep, Lowering
from kforge.engine.emit.hostcode import Host
from kforge.engine.emit.kernelcode import Constant, KernelCode, alone, render

HALVED = "halved"
ROOM = 26  # binary orders that a half holds with all its bits, from the largest value to small ones that matter
SMALL = 8_000_000_000  # operations of a convolution that is left to the library in torch's own format at run time
LEAST_EXPONENT = -16  # of small values that matter, unscaled
RESULTS = ("halves", "units", "marks")
"""What the scheme leaves beside the single-precision results of marked images and filters."""
TF32_RATE, HALF_RATE = 1.7e14, 5.5e14  # operations a second: TF32 in torch's own memory format, halves channels-last
RATE_OF_BYTES = 3.5e12
LEAST = 2e-4  # seconds of a convolution that is worth the trouble


def pays(operations: int, values: int) -> bool:
    """Whether a convolution of so many operations is predicted to gain. values: of input and filters."""
    return operations / TF32_RATE > max(LEAST, operations / HALF_RATE + 6 * values / RATE_OF_BYTES + 3e-5)


def worthwhile(operations: int) -> bool:
    """Whether a convolution of so many operations may be worth another memory format."""
    return operations / TF32_RATE > LEAST / 2


def lowering(step: CallStep) -> Lowering:
    """The convolution by halves; its kernels know stride, padding, dilation and the filters' size."""
    call = step.call
    transposed, last = "transpose" in call.operator, call.last
    rank = len(step.result.shape) - 2
    kernel = tuple(s.hint() for s in call.operands[1].shape[2:])
    form = _form(kernel, call.keywords) + ("_transposed" if transposed else "")
    name = f"{call.operator.replace('conv', 'convolution')}_of_halves_{_form(kernel, call.keywords)}"
    stride = _three(_each(call.keywords.get("stride", 1), rank), 1)
    facts = {
        "transposed": transposed,
        "last": last,
        "taps": prod(kernel),
        "kernel": _three(kernel, 1),
        "stride": stride,
        "padding": _three(_each(call.keywords.get("padding", 0), rank), 0),
        "dilation": _three(_each(call.keywords.get("dilation", 1), rank), 1),
    }
    taps = "x".join(map(str, kernel)) + ("_transposed" if transposed else "")
    names = {
        "images": "halve_images" if last else "halve_signals",
        "filters": f"halve_filters_{taps}",
        "outputs": f"mend_outputs_{form}",
    }
    ones = ", 1" * (3 - rank)
    helper = render(
        "candidate/convolution_of_halves.py.j2",
        name=name,
        operator=call.operator,
        transposed=transposed,
        last=last,
        small=SMALL * (1 if transposed else prod(stride)),
        first=", ".join(map(str, (0, rank + 1, *range(1, rank + 1)))),
        back=", ".join(map(str, (0, *range(2, rank + 2), 1))),
        keywords="".join(f", {key}={value!r}" for key, value in call.keywords.items()),
        x_sizes=f"{ones}, *x.shape[2:]",
        y_sizes=f"{ones}, *full.shape[2:]",
        names=names,
    ).rstrip()

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{', '.join(b.name for b in step.results)} = {name}({', '.join(operands)})"]

    values = sum(prod(s.hint() for s in t.shape) for t in call.operands)
    seconds = call.operations / HALF_RATE + 6 * values / RATE_OF_BYTES + 3e-5
    seconds -= 4 * prod(s.hint() for s in step.result.shape) / RATE_OF_BYTES  # counted as read, but almost never is
    channels = min(64, max(2, 1 << (call.operands[0].shape[1].hint() - 1).bit_length()))
    kernels = tuple(_kernel(kind, name, facts, channels) for kind, name in names.items())
    return Lowering(lines, seconds, f"torch.{call.operator} on halves, with TF32's mantissa", kernels, (helper,))


def _each(value: Any, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else tuple(value)


def _three(values: Sequence[int], fill: int) -> tuple[int, ...]:
    """One number for each of three dimensions, the missing ones first."""
    return (fill,) * (3 - len(values)) + tuple(values)


def _form(kernel: Sequence[int], keywords: Mapping[str, object]) -> str:
    """What tells a convolution from others of a candidate, as a part of names: 3x3_stride_2_padding_1."""
    parts = ["x".join(map(str, kernel))]
    for key, value in keywords.items():
        parts += [key, *map(str, value if isinstance(value, tuple) else (value,))]
    return "_".join(parts)


def _kernel(kind: str, name: str, facts: Mapping[str, Any], channels: int) -> KernelCode:
    constants: dict[str, Constant] = {"BLOCK": 256}
    tune: dict[str, tuple[Constant, ...]] = {}
    require: dict[str, str] = {}
    grid = "filters"
    source = f"halves_{kind}"
    if kind == "images" and facts["last"]:
        source = "halves_images_last"
        constants = {"BLOCK": 256, "CHANNELS": channels, "POINTS": min(256, 4096 // channels), "VEC": 2}
        tune = {"VEC": (2, 1)}
        require = {"VEC": "channels % VEC == 0"}
        grid = "(ceil_div(points, POINTS) * ceil_div(channels, CHANNELS), images)"
    elif kind == "images":
        constants = {"BLOCK": 256, "ITEMS": 4, "VEC": 4}
        tune = {"BLOCK": (256, 128, 512), "ITEMS": (4, 8, 2), "VEC": (4, 2, 1)}
        require = {"VEC": "aligned(x, 4 * VEC) and aligned(halves, 2 * VEC) and size % VEC == 0"}
        grid = "(ceil_div(size, BLOCK * ITEMS * VEC), images)"
    elif kind == "outputs":
        grid = "(64, images)"
    text = render(f"cuda/{source}.cu.j2", name=name, least=LEAST_EXPONENT, **{"padded": 0, **facts})
    helpers = ("pack", "halves", "counted")
    return alone(name, HALVED, text, helpers, constants, grid=grid, block="BLOCK", tune=tune, require=require)
