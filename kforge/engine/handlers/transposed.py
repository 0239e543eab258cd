"""Transposed convolutions as ordinary ones: each result gathers what reaches it (the sub-pixel form).

Along a dimension with stride s, results at places of equal remainder u mod s, u = place + padding, need the same taps:
t with t * dilation = u modulo s. Those of one remainder in each dimension are a convolution of stride 1 of the whole
input with these taps turned round; the kernel that follows reads each result from its own. No product is added that
the transposed convolution does not have, so that infinities and NaN spread alike. Libraries compute ordinary
convolutions well where their transposed ones, in three dimensions above all, are far from the machine's rate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product as every
from math import gcd, prod
from typing import Any

from kforge.engine.calls.vendor import VendorCall
from kforge.engine.graph.importer import Importer
from kforge.engine.graph.ir import REAL, Expr
from kforge.engine.graph.symbols import Poly, floor_div, remainder
from kforge.engine.graph.tensors import Context, Guard, Index, Tensor

Convolve = Callable[[VendorCall, tuple[Poly, ...]], Tensor]
"""A convolution of stride 1 and the shape of its result -> the result, computed as the plan has it."""
MOST = 27  # convolutions that one transposed one is taken apart into


@dataclass(frozen=True)
class Placing:
    """Where the taps of a transposed convolution go, a number for each dimension. extra: the output padding."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    extra: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Phase:
    """Results of one remainder along one dimension: place q * stride + remainder - padding for q = 0, 1, ...

    taps: which of the filter's they need, in the order of the turned filter; dilation: between their inputs; padding:
    of the convolution, both sides; shift: q + shift is the place in its result.
    """

    taps: tuple[int, ...]
    dilation: int
    padding: int
    shift: int


def phases(kernel: int, stride: int, padding: int, dilation: int, extra: int) -> list[Phase] | None:
    """The phases of a dimension, one for each remainder; None where one has no taps. extra: the output padding."""
    found = []
    for rest in range(stride):
        taps = [t for t in range(kernel) if (t * dilation - rest) % stride == 0]
        if not taps:
            return None
        step = dilation // gcd(stride, dilation)  # inputs between two of these taps
        first = (rest - taps[-1] * dilation) // stride  # of the inputs for q, relative to q
        least = -(-(padding - rest) // stride)  # the first q that there is a result for
        beyond = (dilation * (kernel - 1) + extra - padding - rest) // stride  # the last one, beyond the last input
        wide = max(0, -first - least, beyond + first + step * (len(taps) - 1))
        found.append(Phase(tuple(reversed(taps)), step, wide, first + wide))
    return found


def gathered(
    imp: Importer,
    x: Tensor,
    weight: Tensor,
    bias: Sequence[Tensor],
    how: Placing,
    dtype: str,
    convolve: Convolve,
) -> Tensor | None:
    """The result of a transposed convolution of x (n, c, ...) by convolutions of stride 1; None where it has no such.

    bias: what the library adds in 16 bits, if anything. A value is each one of a few tensors'.
    """
    stride, padding, dilation, extra, groups = how.stride, how.padding, how.dilation, how.extra, how.groups
    rank = len(stride)
    for size in weight.shape:
        imp.fix(size)
    kernel = [s.hint() for s in weight.shape[2:]]
    axes = [phases(*each) for each in zip(kernel, stride, padding, dilation, extra, strict=True)]
    if prod(stride) > MOST:
        return None
    known = [axis for axis in axes if axis is not None]
    if len(known) < rank:
        return None
    channels = weight.shape[1].hint() * groups
    outer = zip(x.shape[2:], stride, padding, dilation, extra, kernel, strict=True)
    sizes = [length * s + (d * (k - 1) + e + 1 - s - 2 * p) for length, s, p, d, e, k in outer]
    shape = (x.shape[0], Poly.of(channels), *sizes)
    parts: dict[tuple[int, ...], tuple[Tensor, tuple[int, ...]]] = {}
    for rests in every(*map(range, stride)):
        chosen = [axis[rest] for axis, rest in zip(known, rests, strict=True)]
        turned = _turned(imp, weight, chosen, groups)
        keywords: dict[str, Any] = {}
        for key, values, default in (
            ("padding", tuple(c.padding for c in chosen), 0),
            ("dilation", tuple(c.dilation if len(c.taps) > 1 else 1 for c in chosen), 1),
        ):
            if any(v != default for v in values):
                keywords[key] = values[0] if len(set(values)) == 1 else values
        if groups != 1:
            keywords["groups"] = groups
        inner = [
            length + (2 * c.padding - c.dilation * (len(c.taps) - 1))
            for length, c in zip(x.shape[2:], chosen, strict=True)
        ]
        work = 2 * prod(s.hint() for s in (x.shape[0], *inner)) * prod(s.hint() for s in turned.shape)
        call = VendorCall(f"conv{rank}d", (x, turned, *bias), keywords, work)
        result = convolve(call, (x.shape[0], Poly.of(channels), *inner))
        parts[rests] = result, tuple(c.shift for c in chosen)
    return _together(imp, parts, shape, stride, padding, dtype)


def _turned(imp: Importer, weight: Tensor, chosen: Sequence[Phase], groups: int) -> Tensor:
    """Filters (out, in / groups, ...) of some taps of filters (in, out / groups, ...)."""
    inputs, outputs = (s.hint() for s in weight.shape[:2])
    own = inputs // groups

    def back(index: Index) -> Index:
        channel, part, *spots = index
        group = floor_div(channel, Poly.of(outputs)) if groups > 1 else Poly()
        places = []
        for spot, phase in zip(spots, chosen, strict=True):
            step = phase.taps[1] - phase.taps[0] if len(phase.taps) > 1 else 0
            places.append(spot * step + phase.taps[0])
        return (group * own + part, channel - group * outputs, *places)

    shape = (Poly.of(outputs * groups), Poly.of(own), *(Poly.of(len(c.taps)) for c in chosen))
    result = imp.view(weight, shape, back)
    result.name = f"{weight.name or 'filters'}_turned"
    return result


def _together(
    imp: Importer,
    parts: dict[tuple[int, ...], tuple[Tensor, tuple[int, ...]]],
    shape: tuple[Poly, ...],
    stride: Sequence[int],
    padding: Sequence[int],
    dtype: str,
) -> Tensor:
    """Each result from the convolution that has it."""

    def place(index: Index, shifts: tuple[int, ...]) -> Index:
        moved = zip(index[2:], stride, padding, shifts, strict=True)
        return (*index[:2], *(floor_div(o + p, Poly.of(s)) + shift for o, s, p, shift in moved))

    if len(parts) == 1:
        ((only, shifts),) = parts.values()
        return imp.view(only, shape, lambda i: place(i, shifts))

    def at(ctx: Context, index: Index, guard: Guard) -> Expr:
        b = ctx.builder
        chosen: Expr | None = None
        for rests, (part, shifts) in parts.items():
            here: Guard = None
            for o, s, p, rest in zip(index[2:], stride, padding, rests, strict=True):
                if s > 1:
                    test = b.op("eq", b.index(remainder(o + p, Poly.of(s))), b.const(rest, "int64"), dtype="bool")
                    here = test if here is None else b.op("and", here, test, dtype="bool")
            assert here is not None
            both = here if guard is None else b.op("and", guard, here, dtype="bool")
            value = ctx.value(part, place(index, shifts), both)
            chosen = value if chosen is None else b.op("where", here, value, chosen, dtype=REAL)
        assert chosen is not None
        return chosen

    return imp.tensor(shape, dtype, at, *(part for part, _ in parts.values()))
