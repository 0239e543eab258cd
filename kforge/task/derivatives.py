"""Derivatives as plain arithmetic: what autograd's backward operators compute, for graphs that hold no autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
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
        *("_fused_rms_norm_backward", "native_layer_norm_backward"),
        *("_softmax_backward_data", "_log_softmax_backward_data", "gelu_backward", "silu_backward", "mish_backward"),
        *("tanh_backward", "sigmoid_backward", "threshold_backward", "elu_backward", "leaky_relu_backward"),
        *("hardtanh_backward", "hardsigmoid_backward", "hardswish_backward", "softplus_backward"),
        *("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward", "binary_cross_entropy_backward"),
        *("cudnn_batch_norm", "cudnn_batch_norm_backward", "batch_norm_backward"),
        *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
        *("rrelu_with_noise_backward", "soft_margin_loss_backward"),
        *("log_sigmoid_backward", "native_dropout_backward", "value_selecting_reduction_backward"),
    )
    found = dict(get_decompositions([getattr(aten, name) for name in names if hasattr(aten, name)]))
    found[aten.nll_loss_backward.default] = _nll_loss_backward
    found[aten.native_group_norm_backward.default] = _group_norm_backward
    found[aten.native_batch_norm.default] = _tracked_batch_norm
    found[aten.native_batch_norm_backward.default] = _batch_norm_backward
    found[aten.convolution_backward.default] = _convolution_backward
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


def _tracked_batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Running statistics that the operator writes in passing, as copies that a graph can show."""
    import torch

    if not training or mean is None or variance is None:
        return NotImplemented
    functional = torch.ops.aten._native_batch_norm_legit_functional.default
    result, own, rstd, next_mean, next_variance = functional(x, weight, bias, mean, variance, True, momentum, eps)
    mean.copy_(next_mean)
    variance.copy_(next_variance)
    return result, own, rstd


def _batch_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_variance: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor | None,
    training: bool,
    eps: float,
    wanted: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    """By means over each channel, whose divisors follow the sizes; torch's own form holds them as numbers."""
    if not training:
        assert running_mean is not None and running_variance is not None
        mean, rstd = running_mean, (running_variance + eps).rsqrt()
    assert mean is not None and rstd is not None
    others = [0, *range(2, x.dim())]

    def along(t: torch.Tensor) -> torch.Tensor:
        return t.reshape(1, -1, *(1 for _ in range(2, x.dim())))

    up = grad.to(rstd.dtype)
    normed = (x.to(rstd.dtype) - along(mean)) * along(rstd)
    scale = along(rstd if weight is None else rstd * weight.to(rstd.dtype))
    own = up
    if training:
        own = up - up.mean(others, keepdim=True) - normed * (up * normed).mean(others, keepdim=True)
    return (
        (own * scale).to(x.dtype) if wanted[0] else None,
        (up * normed).sum(others).to(x.dtype if weight is None else weight.dtype) if wanted[1] else None,
        up.sum(others).to(x.dtype if weight is None else weight.dtype) if wanted[2] else None,
    )


def _group_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    batch: int,
    channels: int,
    places: int,
    groups: int,
    wanted: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    """As a layer norm's over each group; a channel's gradients are sums of what is at hand there.

    Torch's own form sums each channel of each image first, which takes four kernels more.
    """

    dtype, share, rest = x.dtype, channels // groups, x.shape[2:]
    up, values = grad.to(rstd.dtype), x.to(rstd.dtype)

    def grouped(t: torch.Tensor) -> torch.Tensor:
        return t.reshape(batch, groups, share, *rest)

    def alike(t: torch.Tensor, *shape: int) -> torch.Tensor:
        return t.reshape(*shape, *(1 for _ in rest))

    normed = (grouped(values) - alike(mean, batch, groups, 1)) * alike(rstd, batch, groups, 1)
    below = grouped(up if weight is None else up * alike(weight.to(rstd.dtype), 1, channels))
    inner = list(range(2, below.dim()))
    even, along = below.mean(inner, keepdim=True), (below * normed).mean(inner, keepdim=True)
    own = alike(rstd, batch, groups, 1) * (below - even - normed * along)
    shift, scale = (t.reshape(batch, groups, 1).expand(-1, -1, share).reshape(batch, channels) for t in (mean, rstd))
    by_channel = (values - alike(shift, batch, channels)) * alike(scale, batch, channels)
    others = [0, *range(2, x.dim())]
    return (
        own.reshape(x.shape).to(dtype) if wanted[0] else None,
        (up * by_channel).sum(others).to(dtype) if wanted[1] else None,
        up.sum(others).to(dtype) if wanted[2] else None,
    )


TAPS = 25  # of a depthwise filter, each of which is a sum over the images
TERMS = 64  # of one result of another filter, at most


def _convolution_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: list[int] | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
    wanted: list[bool],
) -> tuple[torch.Tensor | None, ...]:
    """Of depthwise convolutions, and of those with few terms a result: other filters' gradients are a library's.

    The input's is a transposed convolution; the filter's are sums of products of shifted images and upstream gradients.
    """
    import torch

    rank, sizes = x.dim() - 2, list(weight.shape[2:])
    taps = math.prod(sizes)
    depthwise = groups > 1 and weight.shape[1] == 1 and taps <= TAPS
    few = groups == 1 and rank == 2 and weight.shape[1] * taps <= TERMS
    if transposed or len(stride) != rank or not (depthwise or few):
        return NotImplemented
    forms = list(zip(sizes, stride, padding, dilation, strict=True))
    spans = [(o - 1) * s + 1 for o, s in zip(grad.shape[2:], stride, strict=True)]
    own, of_weight = None, None
    if wanted[0]:
        ends = [n - (w - 2 * p + d * (k - 1)) for n, w, (k, _, p, d) in zip(x.shape[2:], spans, forms, strict=True)]
        own = torch.ops.aten.convolution(grad, weight, None, stride, padding, dilation, True, ends, groups)
    of_bias = grad.sum([0, *range(2, x.dim())]) if wanted[2] else None
    if wanted[1] and depthwise:
        wide = torch.constant_pad_nd(x, [n for p in reversed(padding) for n in (p, p)], 0.0) if any(padding) else x
        each = grad.unflatten(1, (groups, -1))
        parts = []
        for shifts in product(*map(range, sizes)):
            seen = wide
            for k, (shift, span, (_, s, _, d)) in enumerate(zip(shifts, spans, forms, strict=True)):
                seen = torch.ops.aten.slice.Tensor(seen, k + 2, shift * d, shift * d + span, s)
            parts.append((each * seen.unsqueeze(2)).sum([0, *range(3, each.dim())]).flatten())
        of_weight = torch.stack(parts, 1).reshape(weight.shape)
        of_bias = each.sum([0, *range(3, each.dim())]).flatten() if wanted[2] else None  # by the same kernel
    elif wanted[1]:
        seen = torch.ops.aten.im2col(x, sizes, dilation, padding, stride)
        of_weight = (grad.flatten(2).unsqueeze(2) * seen.unsqueeze(1)).sum((0, 3)).reshape(weight.shape)
    return own, of_weight, of_bias


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
