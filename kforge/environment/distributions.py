"""Value distributions and special values of the input plan: what is done to a task's own floating inputs.

A registry of functions `(tensor, generator) -> tensor` that keep shape, dtype and device and do not write x.
Integer and boolean inputs are only ever redrawn by the task itself. Sources: knowledge/inputs.md 23, 24, 27.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


DISTRIBUTIONS: Mapping[str, Transform] = {
    "x1": lambda x, generator: x,
    "x3": _scaled(3.0),
    "x0.01": _scaled(0.01),
    "x-1": _scaled(-1.0),
    "mixed": _mixed,
    "low": _low,
    "offset": _offset,
    "exact01": _exact01,
    "heavy": _heavy,
    "outlier": _outlier,
}


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


SPECIALS: Mapping[str, Transform] = {
    "none": lambda x, generator: x,
    "nan": _planted(float("nan")),
    "inf": _planted(float("inf"), float("-inf")),
    "negative_zero": _planted(-0.0, 0.0),
    "denormal": _planted(1e-40, -1e-42),
}
