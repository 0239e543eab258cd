"""Memory layouts of the input plan: the same values at other strides and offsets (knowledge/inputs.md 1-4).

A registry of functions `tensor -> tensor`; one that does not apply returns its argument itself. Only `expanded`
changes values (a stride of 0 repeats them): expected outputs are computed from the transformed inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Layout = Callable[["torch.Tensor"], "torch.Tensor"]
VECTOR = 8  # elements; no load of 16 bytes has more of half precision


def _as_given(x: torch.Tensor) -> torch.Tensor:
    """As the task makes it: contiguous, unless op.py itself hands over something else."""
    return x


def _strided(x: torch.Tensor) -> torch.Tensor:
    """Every second element of a last dimension twice as wide; what lies between is poisoned with large values."""
    if x.dim() == 0:
        return x
    wide = _poisoned(x, (*x.shape[:-1], 2 * x.shape[-1]))
    view = wide[..., ::2]
    view.copy_(x)
    return view


def _sliced(x: torch.Tensor) -> torch.Tensor:
    """Rows 3 elements apart, the last dimension dense; with more dimensions their strides are whole vectors."""
    if x.dim() == 0:
        return x
    row = x.shape[-1] + 3
    if x.dim() < 3 or x.numel() == 0:
        view = _poisoned(x, (*x.shape[:-1], row))[..., : x.shape[-1]]
    else:
        plane = -(-x.shape[-2] * row // VECTOR) * VECTOR
        view = _poisoned(x, (*x.shape[:-2], plane)).unfold(-1, x.shape[-1], row)[..., : x.shape[-2], :]
    view.copy_(x)
    return view


def _apart(x: torch.Tensor) -> torch.Tensor:
    """Slices of the first dimension one element apart: its stride alone is no multiple of a vector, the address is."""
    import torch

    if x.dim() < 2 or x.numel() == 0:
        return x
    inner = x[0].numel()
    wide = _poisoned(x, (x.shape[0], inner + (2 if inner % 2 else 1)))  # an odd number of elements
    strides = torch.empty(x.shape[1:], device="meta").stride()
    view = wide.as_strided(x.shape, (wide.stride(0), *strides))
    view.copy_(x)
    return view


def _offset(x: torch.Tensor) -> torch.Tensor:
    """Contiguous, one element past an aligned address: breaks vector loads."""
    if x.numel() == 0:
        return x
    view = _poisoned(x, (x.numel() + 1,))[1:].view(x.shape)
    view.copy_(x)
    return view


def _transposed(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.dim() >= 2 else x


def _expanded(x: torch.Tensor) -> torch.Tensor:
    """The first slice of dimension 0 repeated by stride 0."""
    return x[:1].clone().expand(x.shape) if x.dim() >= 1 and x.shape[0] > 1 else x


def _dense_permuted(x: torch.Tensor) -> torch.Tensor:
    """Dimensions stored in reverse order, as `permute` leaves them; dense, but contiguous in no format."""
    if x.dim() < 3:
        return x
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def _channels_last(x: torch.Tensor) -> torch.Tensor:
    import torch

    if x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    return x.contiguous(memory_format=torch.channels_last_3d) if x.dim() == 5 else x


def _poisoned(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A buffer whose every element would be noticed if it were read: 1e4 (or the most there is) for floats, else 1."""
    import torch

    fill = min(1e4, torch.finfo(x.dtype).max) if x.dtype.is_floating_point or x.dtype.is_complex else 1
    return torch.full(shape, fill, dtype=x.dtype, device=x.device)


LAYOUTS: Mapping[str, Layout] = {
    "contiguous": _as_given,
    "strided": _strided,
    "sliced": _sliced,
    "apart": _apart,
    "offset": _offset,
    "transposed": _transposed,
    "expanded": _expanded,
    "dense_permuted": _dense_permuted,
    "channels_last": _channels_last,
}
