"""Functions of torch that look at values only to refuse some of them: how they are traced, where no values are.

The reference itself always runs with its checks; the inputs that it refuses are not judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@contextmanager
def unchecked_distributions() -> Iterator[None]:
    """torch.distributions do not look at their arguments, unless an object's own validate_args says so."""
    from torch.distributions import Distribution

    before = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


def unchecked(function: Any) -> Any:
    """What computes the same as one of torch's functions without a look at its values; most functions themselves."""
    return _counterparts().get(function, function)


@cache
def _counterparts() -> dict[Any, Callable[..., Any]]:
    import torch

    owners = (torch, torch.Tensor)
    table: dict[Any, Callable[..., Any]] = {o.quantile: partial(_quantile, o.quantile, False) for o in owners}
    table |= {o.nanquantile: partial(_quantile, o.nanquantile, True) for o in owners}
    return table | {torch.nn.functional.gaussian_nll_loss: _gaussian_nll_loss}


def _gaussian_nll_loss(
    input: torch.Tensor,
    target: torch.Tensor,
    var: torch.Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """Half of log(var) + (input - target)^2 / var, and log(2 pi) where `full`; torch refuses a negative variance."""
    import torch

    if not isinstance(var, torch.Tensor):
        var = torch.ones_like(input) * var
    elif var.shape == input.shape[:-1] and var.shape != input.shape:
        var = var.unsqueeze(-1)
    if var.shape not in (input.shape, (*input.shape[:-1], 1)) or reduction not in ("none", "mean", "sum"):
        return torch.nn.functional.gaussian_nll_loss(
            input, target, var, full, eps, reduction
        )  # torch says what is wrong
    var = var.clone()
    with torch.no_grad():  # the bound is no part of the derivative
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _quantile(
    function: Callable[..., Any],
    ignore_nan: bool,
    input: torch.Tensor,
    q: torch.Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    **more: Any,
) -> torch.Tensor:
    """As ATen computes it: ranks in the sorted lines, rounded or interpolated. On a CPU, some torch read q's values."""
    import torch

    fits = isinstance(q, torch.Tensor) or 0 <= q <= 1
    known = interpolation in ("linear", "lower", "higher", "midpoint", "nearest") and not more
    if not fits or not known or not input.is_floating_point() or input.numel() == 0:
        return function(input, q, dim, keepdim, interpolation=interpolation, **more)  # torch says what it does not take
    if not isinstance(q, torch.Tensor):
        q = torch.scalar_tensor(q, dtype=input.dtype, device=input.device)
    elif q.dim() > 1 or q.dtype != input.dtype or q.numel() == 0:
        return function(input, q, dim, keepdim, interpolation=interpolation)
    lines = input.reshape(-1) if dim is None or input.dim() == 0 else input.movedim(dim, -1)
    values = lines.sort(-1).values
    if ignore_nan:
        ranks = q * (values.isnan().logical_not().sum(-1, keepdim=True) - 1)
        ranks = ranks.masked_fill(ranks < 0, 0)
    else:
        last = values.shape[-1] - 1
        ranks = (q * last).expand(*values.shape[:-1], max(1, q.numel()))
        ranks = ranks.masked_fill(values.isnan().any(-1, keepdim=True), last)
    if interpolation in ("lower", "higher", "nearest"):
        ranks = {"lower": torch.floor, "higher": torch.ceil, "nearest": torch.round}[interpolation](ranks)
    found = values.gather(-1, ranks.long())
    if interpolation in ("linear", "midpoint"):
        weights = torch.full_like(ranks, 0.5) if interpolation == "midpoint" else ranks - ranks.long()
        found = found.lerp(values.gather(-1, ranks.ceil().long()), weights)
    found = found.movedim(-1, 0) if q.dim() else found.squeeze(-1)
    if not keepdim or input.dim() == 0:
        return found
    if dim is None:
        return found.reshape(*q.shape, *[1] * input.dim())
    return found.unsqueeze(q.dim() + dim % input.dim())
