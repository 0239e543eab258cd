"""Value distributions and special values of the input plan: what is done to a task's own floating inputs.

A registry of functions `(tensor, generator) -> tensor` that keep shape, dtype and device and do not write x.
Integer inputs are only ever redrawn by the task itself, boolean ones too but for `false_rows`. Sources:
knowledge/inputs.md 23, 24, 27.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Transform = Callable[["torch.Tensor", "torch.Generator"], "torch.Tensor"]


def _random(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Uniform [0, 1) numbers in x's shape, drawn on the CPU so that a seed means the same on every device."""
    import torch

    return torch.rand(x.shape, generator=generator, dtype=torch.float32).to(x.device)


def _scaled(factor: float) -> Transform:
    return lambda x, generator: x * factor


def _mixed(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random signs: an identity shortcut on non-negative samples ends here."""
    return (x.abs() * ((_random(x, generator) < 0.5).to(x.dtype) * 2 - 1)).to(x.dtype)


def _offset(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Shifted by 100 with spread 0.01: E[x^2] - E[x]^2 cancels."""
    return (x.double() * 0.01 + 100.0).to(x.dtype)


def _low(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Shifted by -200, far below zero: a maximum that starts at 0 instead of -infinity ends here."""
    return (x.double() - 200.0).to(x.dtype)


def _low_rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Every second row 1000 lower, the first among them: rows that share a maximum or start at 0 end here."""
    import torch

    if x.dim() < 2:
        return (x.double() - 1000.0).to(x.dtype)
    rows = torch.arange(x.shape[:-1].numel(), device=x.device).view(*x.shape[:-1], 1)
    return (x.double() - 1000.0 * (rows % 2 == 0)).to(x.dtype)


def _exact01(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Zeros and ones only: sums are exact, so a half-precision baseline has no rounding to hide behind."""
    return (_random(x, generator) < 0.5).to(x.dtype)


def _heavy(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Heavy tails: each value times 1/u, capped at 1000 (half types overflow at 65504)."""
    return (x * (1.0 / _random(x, generator).clamp_min(1e-3))).to(x.dtype)


def _outlier(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One element 1000 times the largest of the others."""
    import torch

    if x.numel() == 0:
        return x
    y = x.clone(memory_format=torch.contiguous_format)
    place = int(torch.randint(x.numel(), (1,), generator=generator))
    y.view(-1)[place] = (x.abs().max().clamp_min(1.0) * 1000).clamp_max(6e4)
    return y


def _huge(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """x1e5; x300 for float16, which overflows at 65504: sums in it, exponentials without a maximum end here."""
    import torch

    return x * (300.0 if x.dtype is torch.float16 else 1e5)


def _edges(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Outliers at the edges of rows and tiles, at most one a row: a loop that ends too early misses the maximum."""
    if x.numel() == 0:
        return x
    high = float((x.abs().max().clamp_min(1.0) * 1000).clamp_max(6e4))
    y, rows, cols = _as_rows(x)
    for row, col in _places(rows, cols, generator, one_a_row=True):
        y[row, col] = high
    return y.view(x.shape)


def _as_rows(x: torch.Tensor) -> tuple[torch.Tensor, int, int]:
    """A contiguous copy as a matrix of rows along the last dimension."""
    import torch

    cols = x.shape[-1] if x.dim() else 1
    y = x.clone(memory_format=torch.contiguous_format).view(-1, cols)
    return y, y.shape[0], cols


def _places(
    rows: int, cols: int, generator: torch.Generator, one_a_row: bool = False, most: int = 24
) -> list[tuple[int, int]]:
    """(row, column) pairs that meet each edge of a row and of a column at least once where there is room."""
    import torch

    def edges(n: int) -> list[int]:
        marks = (n - 1, 0, 31, 32, 63, 64, 127, 128, 255, 256, 1023, 1024, n // 2)
        return list(dict.fromkeys(m for m in marks if 0 <= m < n))

    shift = int(torch.randint(64, (1,), generator=generator))
    down, across = edges(rows), edges(cols)
    pairs = [(down[(i + shift) % len(down)], col) for i, col in enumerate(across)]
    pairs += [(row, across[(i + shift) % len(across)]) for i, row in enumerate(down)]
    if one_a_row:  # rows beside the edges take what the edges have no room for
        spare = [r for r in range(rows) if r not in down]
        pairs += [(row, across[i % len(across)]) for i, row in enumerate(spare[: len(across)])]
        pairs = list({row: (row, col) for row, col in reversed(pairs)}.values())
    return pairs[:most] if not one_a_row else pairs


DISTRIBUTIONS: Mapping[str, Transform] = {
    "x1": lambda x, generator: x,
    "x3": _scaled(3.0),
    "x0.01": _scaled(0.01),
    "x-1": _scaled(-1.0),
    "mixed": _mixed,
    "low": _low,
    "low_rows": _low_rows,
    "offset": _offset,
    "exact01": _exact01,
    "heavy": _heavy,
    "outlier": _outlier,
    "edges": _edges,
    "x1e5": _huge,
    "channels": lambda x, generator: x,  # scales are shared between inputs: see channel_scales
}


def channel_scales(inputs: Sequence[torch.Tensor], generator: torch.Generator) -> list[torch.Tensor]:
    """Per-channel scales 2^U(-16, 16), powers of two, along the last dimension of the first input.

    On a further input that has a dimension of that size elsewhere than last (the other operand of a product) they are
    inverted there; inputs with it last are left alone. 2^U(-6, 6) for half types, which overflow at 65504.
    """
    import torch

    if not inputs or not inputs[0].dim():
        return list(inputs)
    first = inputs[0]
    width = 6 if first.dtype is torch.float16 else 16
    power = torch.randint(-width, width + 1, (first.shape[-1],), generator=generator)
    scale = torch.exp2(power.double()).to(first.device)
    scaled = [(first.double() * scale).to(first.dtype)]
    for x in inputs[1:]:
        dims = [d for d in range(x.dim() - 1) if x.shape[d] == len(scale)]
        if not dims or (x.shape[-1] == len(scale) and x.dim() != first.dim()):
            scaled.append(x)
            continue
        shape = [1] * x.dim()
        shape[dims[-1]] = len(scale)
        scaled.append((x.double() / scale.view(shape)).to(x.dtype))
    return scaled


def _planted(*values: float) -> Transform:
    """These values at a handful of random places of the tensor, at least one each where it has room."""

    def plant(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        import torch

        if x.numel() == 0:
            return x
        y = x.clone(memory_format=torch.contiguous_format)
        places = torch.randint(x.numel(), (3 * len(values),), generator=generator)
        for i, place in enumerate(places.tolist()):
            y.view(-1)[place] = values[i % len(values)]
        return y

    return plant


def _at_edges(*values: float) -> Transform:
    """These values in turn at the edges of rows, columns and tiles."""

    def plant(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if x.numel() == 0:
            return x
        y, rows, cols = _as_rows(x)
        for i, (row, col) in enumerate(_places(rows, cols, generator)):
            y[row, col] = values[i % len(values)]
        return y.view(x.shape)

    return plant


def _pairs_in_rows(value: float) -> Transform:
    """Two of one value in a row, in rows at the edges: near each other, a warp apart, and at both ends."""

    def plant(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if x.numel() == 0:
            return x
        y, rows, cols = _as_rows(x)
        for row, (a, b) in zip((0, 1, 2, 3, rows - 1), ((0, 1), (0, 32), (3, 35), (0, -1), (1, -1)), strict=True):
            for col in (a, b):
                if row < rows:
                    y[row, col % cols] = value
        return y.view(x.shape)

    return plant


def _first_row(value: float) -> Transform:
    """The whole first row of this value."""

    def plant(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if x.numel() == 0:
            return x
        y, _, _ = _as_rows(x)
        y[0] = value
        return y.view(x.shape)

    return plant


def _half_kept(first: bool) -> Transform:
    """One half of the elements as given, the other in reverse: who knows some fixed values knows no answer by them."""

    def plant(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        import torch

        y = x.clone(memory_format=torch.contiguous_format)
        flat, half = y.view(-1), x.numel() // 2
        moved = flat[half:] if first else flat[:half]
        moved.copy_(moved.flip(0))
        return y

    return plant


def _false_rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The first row of a mask all false, the last all true."""
    if x.numel() == 0:
        return x
    y, _, _ = _as_rows(x)
    y[-1] = True
    y[0] = False
    return y.view(x.shape)


SPECIALS: Mapping[str, Transform] = {
    "none": lambda x, generator: x,
    "nan": _planted(float("nan")),
    "inf": _planted(float("inf"), float("-inf")),
    "negative_zero": _planted(-0.0, 0.0),
    "denormal": _planted(1e-40, -1e-42),
    "nan_edges": _at_edges(float("nan")),
    "inf_edges": _at_edges(float("inf"), float("-inf")),
    "round": _at_edges(0.5, 1.0, 0.0, -0.5, -1.0, 2.0),  # where comparisons with constants are decided
    "two_nans": _pairs_in_rows(float("nan")),
    "minus_inf_row": _first_row(float("-inf")),
    "first_half": _half_kept(True),
    "second_half": _half_kept(False),
    "false_rows": _false_rows,
    "domain_edges": lambda x, generator: x,  # inputs that DOMAIN gives a range: see inside_range
}
HALVES = ("first_half", "second_half")  # they meet the task's own inputs, and nothing else
MASKS = ("false_rows",)  # what is done to boolean inputs


def inside_range(x: torch.Tensor, low: float, high: float, generator: torch.Generator) -> torch.Tensor:
    """Uniform in [low, high], with both ends, at the edges of rows among other places."""
    import math

    import torch

    if not x.numel() or not (math.isfinite(low) and math.isfinite(high)):
        return x
    y = (_random(x, generator).double() * (high - low) + low).clamp(low, high)
    y = y.round() if not x.dtype.is_floating_point else y
    y = _at_edges(low, high)(y, generator)
    converted = y.to(x.dtype)
    if not x.dtype.is_floating_point:
        return converted.clamp(math.ceil(low), math.floor(high))
    beyond = (converted.double() < low) | (converted.double() > high)  # rounded past an end that the dtype cannot hold
    return torch.where(beyond, x, converted)
