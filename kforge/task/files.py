"""Pytrees of tensors and plain values as one file, written by torch.save and read with weights_only=True.

Only tensors, numbers, strings, None, lists, tuples and dicts cross; anything else is an error when written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kforge.errors import TaskError


def pack(tree: Any, path: Path) -> None:
    """Write a tree; tensors are detached and brought to the CPU, shared storage and strides are kept."""
    import torch

    torch.save(_plain(tree), path)


def unpack(path: Path) -> Any:
    """Read what `pack` wrote. Nothing in the file can run code."""
    import torch

    return torch.load(path, map_location="cpu", weights_only=True)


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype)):
        return value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    raise TaskError(f"a {type(value).__name__} cannot be stored in a file of tensors and plain values")
