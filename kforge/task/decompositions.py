"""How operators are decomposed in captured graphs: torch's table, but for what torch decomposes into something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def decompositions() -> Any:
    """A new table: operator -> function."""
    import torch

    table = torch.export.default_decompositions()
    table[torch.ops.aten.multilabel_margin_loss_forward.default] = _multilabel_margin_loss_forward
    return table


def _multilabel_margin_loss_forward(
    input: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of max(0, 1 - x[target] + x[other]) over a row's targets and its other elements, over its length.

    Targets end at the first -1; torch's own decomposition goes on with element 0. A NaN is no loss.
    """
    import torch

    x, t = (v.reshape(1, -1) if v.dim() < 2 else v for v in (input, target))
    count = x.shape[1]
    place = torch.arange(count, device=x.device)
    end = torch.where(t == -1, place, count).amin(1, keepdim=True)
    named = place < end
    is_target = (place == torch.where(named, t, -1).unsqueeze(-1)).any(1)
    gap = 1 - x.gather(1, torch.where(named, t, 0)).unsqueeze(-1) + x.unsqueeze(1)
    counts = named.unsqueeze(-1) & is_target.unsqueeze(1).logical_not() & (gap > 0)
    loss = torch.where(counts, gap, 0).sum((1, 2)) / count
    if reduction or input.dim() < 2:
        loss = loss.mean() if reduction == 1 else loss.sum()
    return loss, is_target.to(x.dtype).reshape(target.shape)
