"""Do two sides compute the same? A coarse look, enough to see stale values, empty graphs and wrong baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.task.call import Call


def other_values(call: Call) -> Call:
    """The same shapes with other values: every tensor reversed, floats scaled by 3/4."""
    import torch
    from torch.utils import _pytree as pytree

    from kforge.task.call import clone_call

    other = clone_call(call)

    def change(tensor: Any) -> Any:
        values = tensor.flip(list(range(tensor.dim())))
        return tensor.copy_(values * 0.75 if tensor.is_floating_point() else values)

    pytree.tree_map_only(torch.Tensor, change, (other.args, other.kwargs))
    return other


def agree(left: Any, right: Any) -> bool:
    """Equal trees, floats within 1 % of the largest value: enough to see whether a graph computes at all."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, shape = pytree.tree_flatten(left)
    others, other_shape = pytree.tree_flatten(right)
    if shape != other_shape:
        return False
    for a, b in zip(leaves, others, strict=True):
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            if a != b:
                return False
        elif (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
            return False
        elif a.is_floating_point() and a.numel():
            scale = float(a.double().abs().nan_to_num(posinf=0.0).max())
            if not torch.allclose(a.double(), b.double(), rtol=0.01, atol=0.01 * scale, equal_nan=True):
                return False
        elif not torch.equal(a, b):
            return False
    return True
