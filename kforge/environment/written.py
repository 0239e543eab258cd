"""What fresh memory of a known pattern shows: elements never written, kernels without influence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.worker.poison import unwritten

if TYPE_CHECKING:
    from kforge.environment.preparation import Expected
    from kforge.worker import CallReply


def shows_pattern(expected: Expected, reply: CallReply, path: str, pattern: int) -> str:
    """In words, how many elements of a wrong output hold the pattern of fresh memory; empty for none."""
    from torch.utils import _pytree as pytree

    for (name, right), got in zip(expected.leaves, pytree.tree_leaves(reply.outputs), strict=False):
        if name != path or not hasattr(got, "dtype") or got.shape != right.shape or got.dtype != right.dtype:
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
        if not hasattr(a, "dtype") or not hasattr(b, "dtype") or a.shape != b.shape:
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
    return all(any(o.shape == i.shape and torch.equal(o, i) for i in inputs) for o in outputs)


def same_answers(a: CallReply, b: CallReply) -> bool:
    """Whether outputs and inputs afterwards are bit for bit the same (NaN equal to NaN)."""
    import torch
    from torch.utils import _pytree as pytree

    def parts(reply: CallReply) -> list[torch.Tensor]:
        after = reply.inputs_after
        found = pytree.tree_leaves((reply.outputs, after.args, after.kwargs))
        return [t for t in found if isinstance(t, torch.Tensor)]

    def same(x: torch.Tensor, y: torch.Tensor) -> bool:
        return x.shape == y.shape and x.dtype == y.dtype and bool(((x == y) | ((x != x) & (y != y))).all())

    return all(same(x, y) for x, y in zip(parts(a), parts(b), strict=True))
