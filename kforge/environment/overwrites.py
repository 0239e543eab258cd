"""Whether a reference writes one place twice: torch leaves open which value stays there, so nothing can be judged.

Scatter, index_put and index_copy with repeated indices. A task's own indices may be distinct where those of a derived
shape, or of an expanded layout, are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

WORDS = "its indices name a place twice, where torch leaves open which value stays"


class Overwrites(TorchDispatchMode):
    """Around a call of the reference. found: whether an operator wrote one place twice."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        repeats = REPEATS.get(str(func).removeprefix("aten."))
        if repeats is not None:
            self.found = self.found or repeats(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _along(x: Any, dim: int, index: Any, *_: Any, **__: Any) -> bool:
    """Whether an index repeats along this dimension."""
    if index.dim() == 0 or index.shape[dim] < 2:
        return False
    ordered = index.sort(dim).values
    return bool((ordered.diff(dim=dim) == 0).any())


def _copied(x: Any, dim: int, index: Any, *_: Any, **__: Any) -> bool:
    return _along(x, 0, index)


def _put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, *_: Any, **__: Any) -> bool:
    """Whether integer indices name a place twice (masks do not)."""
    import torch

    numbers = [i for i in indices if i is not None and i.dtype is not torch.bool]
    if accumulate or len(numbers) < sum(i is not None for i in indices):
        return False
    places = torch.stack([i.reshape(-1) for i in torch.broadcast_tensors(*numbers)]) if numbers else torch.empty(1, 0)
    return bool(places.unique(dim=1).shape[1] < places.shape[1]) if places.numel() else False


REPEATS: dict[str, Callable[..., bool]] = {
    "scatter.src": _along,
    "scatter_.src": _along,
    "index_copy.default": _copied,
    "index_copy_.default": _copied,
    "index_put.default": _put,
    "index_put_.default": _put,
    "_index_put_impl_.default": _put,
    "_unsafe_index_put.default": _put,
}
