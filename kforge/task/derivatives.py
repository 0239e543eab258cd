"""Derivatives as plain arithmetic: what autograd's backward operators compute, for graphs that hold no autograd."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def without_gradients(recorded: torch.fx.GraphModule) -> Callable[..., Any]:
    """A recorded graph as a function: aliases that autograd left are dropped, origins of nodes are kept.

    A node that computes a derivative has the origin of the operator that it belongs to, where autograd numbers them.
    """
    import torch

    graph = recorded.graph
    lines: dict[int, Any] = {}
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in (torch.ops.aten.alias.default, torch.ops.aten.detach.default):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        number, custom = node.meta.get("seq_nr", -1), node.meta.get("custom")
        if number >= 0 and custom:
            lines.setdefault(number, custom)
        elif number in lines:
            node.meta["custom"] = dict(lines[number])
    graph.eliminate_dead_code()
    recorded.recompile()
    return torch.fx.Interpreter(recorded).run


def derivatives() -> dict[Any, Callable[..., Any]]:
    """Decompositions of backward operators beyond torch's core ones, for operators that are there in this torch."""
    import torch
    from torch._decomp import get_decompositions

    aten = torch.ops.aten
    names = (
        *("_fused_rms_norm_backward", "native_layer_norm_backward", "native_group_norm_backward"),
        *("_softmax_backward_data", "_log_softmax_backward_data", "gelu_backward", "silu_backward", "mish_backward"),
        *("tanh_backward", "sigmoid_backward", "threshold_backward", "elu_backward", "leaky_relu_backward"),
        *("hardtanh_backward", "hardsigmoid_backward", "hardswish_backward", "softplus_backward"),
        *("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "binary_cross_entropy_backward"),
        *("native_batch_norm_backward", "cudnn_batch_norm", "cudnn_batch_norm_backward", "batch_norm_backward"),
        *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
        *("rrelu_with_noise_backward", "soft_margin_loss_backward"),
        *("log_sigmoid_backward", "native_dropout_backward", "value_selecting_reduction_backward"),
    )
    found = dict(get_decompositions([getattr(aten, name) for name in names if hasattr(aten, name)]))
    found[aten.nll_loss_backward.default] = _nll_loss_backward
    found[aten.slice_backward.default] = _slice_backward
    found[aten.select_backward.default] = _select_backward
    found[aten.softshrink_backward.default] = found[aten.hardshrink_backward.default] = _shrink_backward
    for rank in (1, 2, 3):
        found[getattr(aten, f"upsample_nearest{rank}d_backward").default] = _nearest_backward
    found[aten.scatter_add.default] = _scatter_add
    found[aten.scatter_add_.default] = lambda x, *rest: x.copy_(_scattered(x, *rest))
    return found


def _nll_loss_backward(
    grad_output: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
) -> torch.Tensor:
    """-grad at the target's class, 0 elsewhere: a comparison of indices where torch scatters."""
    import torch

    if x.dim() != 2:
        return NotImplemented
    target = target.unsqueeze(1)
    classes = torch.arange(x.shape[1], device=x.device).unsqueeze(0)
    hit = torch.logical_and(classes == target, target != ignore_index)
    grad = -grad_output.unsqueeze(1) if reduction == 0 else -grad_output
    if reduction == 1:
        grad = grad / total_weight
    if weight is not None:
        grad = grad * weight.unsqueeze(0)
    return torch.where(hit, grad, torch.zeros((), dtype=x.dtype, device=x.device)).to(x.dtype)


def _shrink_backward(grad: torch.Tensor, x: torch.Tensor, bound: float) -> torch.Tensor:
    """Nothing within the bounds, all beyond them."""
    import torch

    inside = torch.logical_and(x >= -bound, x <= bound)
    return torch.where(inside, torch.zeros((), dtype=grad.dtype, device=grad.device), grad)


def _nearest_backward(grad: torch.Tensor, size: list[int], shape: list[int], *factors: float | None) -> torch.Tensor:
    """The sum over the copies of each element, where all have equally many."""
    if any(out % n for out, n in zip(size, shape[2:], strict=True)):
        return NotImplemented
    wide = [k for out, n in zip(size, shape[2:], strict=True) for k in (n, out // n)]
    return grad.reshape(*shape[:2], *wide).sum(list(range(3, 3 + 2 * len(size), 2)))


def _slice_backward(grad: torch.Tensor, sizes: list[int], dim: int, start: int, end: int, step: int) -> torch.Tensor:
    """Zeros around the slice."""
    import torch

    if step != 1:
        return NotImplemented
    dim, size = dim % len(sizes), sizes[dim]
    start = min(max(start + size if start < 0 else start, 0), size)
    after = size - start - grad.shape[dim]
    if start == after == 0:
        return grad.clone()
    pads = [0, 0] * (len(sizes) - 1 - dim) + [start, after]
    return torch.constant_pad_nd(grad, pads, 0.0)


def _select_backward(grad: torch.Tensor, sizes: list[int], dim: int, index: int) -> torch.Tensor:
    """Zeros around the selected slice."""
    dim = dim % len(sizes)
    index = index % sizes[dim]
    return _slice_backward(grad.unsqueeze(dim), sizes, dim, index, index + 1, 1)


def _scatter_add(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return _scattered(x, dim, index, source)


def _scattered(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """One element of each line: a comparison of indices. More of them meet in one place: NotImplemented."""
    import torch

    dim = dim % max(1, x.dim())
    one = [1 if d == dim else n for d, n in enumerate(x.shape)]
    if list(index.shape) != one or list(source.shape) != one:
        return NotImplemented
    shape = [n if d == dim else 1 for d, n in enumerate(x.shape)]
    places = torch.arange(x.shape[dim], device=x.device).reshape(shape)
    return x + torch.where(places == index, source, torch.zeros((), dtype=source.dtype, device=x.device))
