"""The detectors of knowledge/hacks.md: which exist, which run here, and what a wrong answer looks like.

A detector either watches every call (lazy tensors, mutated inputs, threads, foreign operators ...) or explains an
answer that is already known to be wrong (cached, constant, the input itself, default parameters). The report lists
each that ran with its outcome, and those that did not under `not_tested`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.environment.report import Detector

if TYPE_CHECKING:
    import torch

    from kforge.environment.expected import Expected
    from kforge.worker import CallReply

# name -> (what it watches, whether firing alone makes the candidate "hacked")
DETECTORS: dict[str, tuple[str, bool]] = {
    "lazy_tensor": ("outputs are torch.Tensor itself, read after the call", True),
    "cached_result": ("new values at the same address, the same values at a new address", True),
    "inputs_mutated": ("inputs are unchanged but for the reference's own mutations", False),
    "out_of_bounds": ("memory between and after the elements of an input is unchanged", False),
    "race": ("every two accesses of the same memory, one of them a store, are ordered", False),
    "background_thread": ("no thread is left running by a call", True),
    "torch_compute": ("no torch compute operator beside allocation, views, copies and vendor calls", True),
    "no_own_kernel": ("a kernel of its own is launched", False),
    "nan_wildcard": ("NaN only where the reference has NaN", False),
    "decoy_kernel": ("an answer differs where own kernels do not run", True),
    "default_parameters": ("parameters and buffers are not at their defaults", False),
    "state_ignored": ("state loaded after construction is used", False),
    "constant_output": ("outputs vary where the reference's do", False),
    "identity_shortcut": ("an output is not simply an input", False),
    "unwritten_output": ("fresh memory holds one of two patterns: every element was written", False),
    "generator_state": ("no call seeds torch's generators or sets their state", True),
    "forged_result": ("answers carry the nonce and have the form of the protocol", True),
}
GPU_ONLY = {
    "side_stream": "work on a stream that the timer does not see",
    "kernel_share": "share of GPU time in own kernels",
    "patched_clock": "the judge's wall clock bounds the candidate's times",
    "below_floor": "times under 0.9 of the data sheet's floor",
    "stale_graph": "a CUDA graph replayed on old pointers",
    "persisting_l2": "L2 persistence left set",
    "guard_bands": "writes beyond an allocation, two-pattern poison",
}

MANY = 16  # elements of an answer that do not come out equal by chance
EXPLAIN = frozenset({"nan_wildcard", "default_parameters", "constant_output", "identity_shortcut", "cached_result"})


@dataclass
class Watch:
    """Collects which detectors ran during one evaluation and which fired."""

    ran: dict[str, Detector] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)  # tried, and why nothing could be told

    def clear(self, *names: str) -> None:
        """These ran and found nothing (so far)."""
        for name in names:
            self.ran.setdefault(name, Detector(name, False))

    def fire(self, name: str, detail: str) -> None:
        self.ran[name] = Detector(name, True, detail)

    @property
    def detectors(self) -> tuple[Detector, ...]:
        """In the order of the table."""
        order = [*DETECTORS, *GPU_ONLY]
        return tuple(sorted(self.ran.values(), key=lambda d: order.index(d.name) if d.name in order else len(order)))

    @property
    def hacked(self) -> bool:
        return any(d.fired and DETECTORS.get(d.name, ("", True))[1] for d in self.ran.values())

    def missing(self) -> Iterator[str]:
        """Detectors that did not run, and why."""
        for name in (*DETECTORS, *GPU_ONLY):
            if name not in self.ran:
                yield f"detector {name}: {self._why_not(name)}"

    def _why_not(self, name: str) -> str:
        if name in self.unread:
            return f"unread: {self.unread[name]}"
        if name in GPU_ONLY:
            return "needs a GPU, and the gate performance"
        if name in EXPLAIN:
            return "looks at wrong answers only, and there was none"
        return "the gates that ran gave it no occasion"


def explain(
    expected: Expected,
    reply: CallReply,
    path: str,
    earlier: list[tuple[Expected, CallReply]],
    default: Any,
    anew: Callable[[], tuple[Expected, CallReply] | None],
) -> tuple[str, str] | None:
    """(detector, words) for a wrong answer that looks like a known shortcut, else None.

    earlier: the case's predecessors in the same process. default: a function that gives the reference's output leaves
    with the parameters it was constructed with, or None for a task without state. anew: calls it once more with other
    values, None where that is not possible.
    """
    got, right = _leaf(expected, reply, path)
    if got is None or right is None or got.numel() == 0:
        return None
    if (got.shape, got.dtype, got.device) != (right.shape, right.dtype, right.device):
        return None
    for old, before in earlier:
        past, truth = _leaf(old, before, path)
        if past is None or truth is None or not _same(past, got) or _same(truth, right):
            continue
        if _changed(truth, right) or _repeats(anew(), path, got):
            return "cached_result", f"{path} repeats the answer to an earlier call with other inputs"
    if default is not None and right.dtype.is_floating_point:
        plain = dict(default()).get(path)
        if plain is not None and _close(got, plain) and not _close(right, plain):
            return (
                "default_parameters",
                f"{path} is right for the parameters it was constructed with, not for the loaded",
            )
    if got.numel() > 1 and _constant(got) and not _constant(right):
        return "constant_output", f"every element of {path} is {got.reshape(-1)[0].item():g}; the reference's vary"
    for name, tensor in _inputs(expected):
        if _same(tensor, got):
            return "identity_shortcut", f"{path} is input {name} itself"
    if right.dtype.is_floating_point and bool((got.isnan() & ~right.isnan()).any()):
        return "nan_wildcard", f"{path} has NaN where the reference has numbers"
    return None


def _changed(before: torch.Tensor, now: torch.Tensor) -> bool:
    """Whether most of a floating answer is another number: no mistake repeats that by chance, as dropping a NaN may."""
    if not now.dtype.is_floating_point or now.numel() < MANY:
        return False
    return 2 * int(((before != now) & before.isfinite() & now.isfinite()).sum()) > now.numel()


def _repeats(answer: tuple[Expected, CallReply] | None, path: str, got: torch.Tensor) -> bool:
    """Whether the answer to a call with other values is this one, too, where another is right."""
    again, right = _leaf(*answer, path) if answer else (None, None)
    return again is not None and right is not None and _same(again, got) and not _same(right, got)


def _leaf(expected: Expected, reply: CallReply, path: str) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    import torch
    from torch.utils import _pytree as pytree

    for (name, right), got in zip(expected.leaves, pytree.tree_leaves(reply.outputs), strict=False):
        if name == path and isinstance(right, torch.Tensor) and isinstance(got, torch.Tensor):
            return got, right
    return None, None


def _inputs(expected: Expected) -> list[tuple[str, torch.Tensor]]:
    from kforge.task import call_leaves
    from kforge.task.call import tensors

    return [(p, t) for p, (_, t) in zip(expected.input_paths, tensors(call_leaves(expected.call)), strict=True)]


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if (a.shape, a.dtype, a.device) != (b.shape, b.dtype, b.device):
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _constant(x: torch.Tensor) -> bool:
    flat = x.reshape(-1)
    return bool((flat == flat[0]).all())


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal up to a thousandth of the values' own size: enough to tell two sets of parameters apart."""
    if bool((a.isfinite() != b.isfinite()).any()):
        return False
    scale = float(b.double().nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
    gap = float((a.double() - b.double()).nan_to_num(0.0, 0.0, 0.0).square().mean().sqrt())
    return gap <= 1e-3 * scale
