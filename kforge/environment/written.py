"""What fresh memory of a known pattern shows: elements never written, kernels without influence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kforge.worker.poison import unwritten

if TYPE_CHECKING:
    import torch

    from kforge.environment.expected import Expected
    from kforge.worker import CallReply

_MANY, _SAMPLE, _CONSTANTS = 64, 4096, 16  # elements of an output looked at; of these, values that a fill may bring


def shows_pattern(expected: Expected, reply: CallReply, path: str, pattern: int) -> str:
    """In words, how many elements of a wrong output hold the pattern of fresh memory; empty for none."""
    from torch.utils import _pytree as pytree

    for (name, right), got in zip(expected.leaves, pytree.tree_leaves(reply.outputs), strict=False):
        if name != path or not hasattr(got, "dtype") or got.shape != right.shape or got.dtype != right.dtype:
            continue
        if got.device != right.device:
            continue
        count = int((unwritten(got, pattern) & ~unwritten(right, pattern)).sum())
        if count and got.element_size() > 1:  # one byte may well be right
            return f"{count} of {got.numel()} elements of {path} were never written"
    return ""


def shows_both(expected: Expected, replies: tuple[CallReply, CallReply], patterns: tuple[int, int]) -> str:
    """The same for two answers to one call, each over memory of its own pattern; here a single byte counts too."""
    from torch.utils import _pytree as pytree

    first, second = (pytree.tree_leaves(reply.outputs) for reply in replies)
    for (path, _), a, b in zip(expected.leaves, first, second, strict=False):
        if not hasattr(a, "dtype") or not hasattr(b, "dtype") or (a.shape, a.device) != (b.shape, b.device):
            continue
        count = int((unwritten(a, patterns[0]) & unwritten(b, patterns[1])).sum())
        if count:
            return f"{count} of {a.numel()} elements of {path} are never written"
    return ""


def gives_back_inputs(expected: Expected) -> bool:
    """Whether the right answer repeats an input bit for bit, so that a kernel that repairs it has nothing to do."""
    import torch

    from kforge.task import call_leaves
    from kforge.task.call import tensors

    inputs = [t for _, t in tensors(call_leaves(expected.call))]
    outputs = [leaf for _, leaf in expected.leaves if isinstance(leaf, torch.Tensor)]
    return all(any(o.shape == i.shape and o.dtype == i.dtype and torch.equal(o, i) for i in inputs) for o in outputs)


def computed_elsewhere(reply: CallReply, silent: CallReply, pattern: int, given: list[torch.Tensor]) -> float | None:
    """The largest share of a floating output that is the same in a call without launches (over memory of `pattern`)
    and is neither unwritten nor copied from what was given nor made of a few constants: something else computed it.

    Looks at a sample of each output; None where nothing can be told (small outputs, no floats).
    """
    import torch

    worst: float | None = None
    for with_kernels, without in zip(_tensors(reply.outputs), _tensors(silent.outputs), strict=False):
        if _form(with_kernels) != _form(without) or not without.dtype.is_floating_point or without.numel() < _MANY:
            continue
        flat = without.reshape(-1)
        left = flat[(with_kernels.reshape(-1) == flat) & ~unwritten(without, pattern) & flat.isfinite()]
        worst, count = worst or 0.0, left.numel()
        if not count:
            continue
        taken = sample = left[:: max(1, count // _SAMPLE)]
        for values in given:
            sample = sample[~torch.isin(sample, values.to(device=sample.device, dtype=sample.dtype).reshape(-1))]
        if sample.unique().numel() > _CONSTANTS:
            worst = max(worst, count / without.numel() * sample.numel() / taken.numel())
    return worst


def largest_gap(a: CallReply, b: CallReply) -> float:
    """The largest difference between outputs of two answers, infinite where one is NaN or has another form."""
    worst = 0.0
    first, second = _tensors(a.outputs), _tensors(b.outputs)
    if [_form(x) for x in first] != [_form(y) for y in second]:
        return float("inf")
    for x, y in zip(first, second, strict=True):
        if not x.numel() or _same(x, y):
            continue
        if bool(((x != x) != (y != y)).any()):
            return float("inf")
        gap = (x - y).abs() if x.dtype.is_complex else (x.double() - y.double()).abs()
        worst = max(worst, float(gap.nan_to_num(0.0).max()))
    return worst


def same_answers(a: CallReply, b: CallReply) -> bool:
    """Whether outputs and inputs afterwards are bit for bit the same (NaN equal to NaN)."""
    first, second = (_tensors((r.outputs, r.inputs_after.args, r.inputs_after.kwargs)) for r in (a, b))
    return len(first) == len(second) and all(_same(x, y) for x, y in zip(first, second, strict=True))


def _tensors(tree: Any) -> list[torch.Tensor]:
    import torch
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _form(x: torch.Tensor) -> tuple[Any, ...]:
    return (x.shape, x.dtype, x.device)


def _same(x: torch.Tensor, y: torch.Tensor) -> bool:
    return _form(x) == _form(y) and bool(((x == y) | ((x != x) & (y != y))).all())
