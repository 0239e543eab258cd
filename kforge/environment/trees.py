"""Changing the tensors of a call while its tree, and which of them are one object, stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kforge.task import Call


def map_tensors(
    call: Call, function: Callable[[str, torch.Tensor], torch.Tensor], forward: Callable[..., Any] | None = None
) -> Call:
    """`call` with `function(path, tensor)` in place of every tensor; one object that occurs twice stays one object."""
    import torch
    from torch.utils import _pytree as pytree

    from kforge.task import Call, call_leaves

    done: dict[int, Any] = {}
    leaves = []
    for path, leaf in call_leaves(call, forward):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in done:
                done[id(leaf)] = function(path, leaf)
            leaf = done[id(leaf)]
        leaves.append(leaf)
    args, kwargs = pytree.tree_unflatten(leaves, pytree.tree_structure((call.args, call.kwargs)))
    return Call(args, kwargs)


def leaf_tensors(call: Call) -> list[torch.Tensor]:
    """The tensors of a call in order of appearance."""
    from kforge.task import call_leaves
    from kforge.task.call import tensors

    return [t for _, t in tensors(call_leaves(call))]
