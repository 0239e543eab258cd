"""What is right for one case: the baseline's answer, its fp64 value, what a call leaves behind. Data of the judge's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.environment.acceptance import nu_bound
from kforge.errors import KforgeError

if TYPE_CHECKING:
    import torch

    from kforge.environment.ties import Inner
    from kforge.task import Call, Effects, Task


class Skip(Exception):
    """The case is not used for this task, and why in words (it is listed in the report)."""


@dataclass(frozen=True)
class Expected:
    """What is right for one case. Tensors belong to the judge and are never written.

    call: the inputs, their tensors' paths in input_paths. leaves: baseline outputs with their paths. exact: per leaf
    the fp64 value, None where it is no floating tensor. inputs_after and state_after: what the baseline leaves behind;
    exact_inputs, exact_state: fp64 values of what it changes. inner: intermediate values for discrete outputs. then:
    the second of two successive calls.
    """

    call: Call
    outputs: Any
    leaves: tuple[tuple[str, Any], ...]
    exact: tuple[torch.Tensor | None, ...]
    inputs_after: Call
    exact_inputs: dict[str, torch.Tensor]
    effects: Effects
    state_after: dict[str, torch.Tensor]
    exact_state: dict[str, torch.Tensor]
    seed: int
    input_paths: tuple[str, ...] = ()
    inner: dict[str, Inner] = field(default_factory=dict)
    then: Expected | None = None

    def call_storage(self, path: str) -> int:
        """Identity of the storage that an input lies in, by its path."""
        from kforge.task import call_leaves
        from kforge.task.call import tensors

        number = self.input_paths.index(path)
        return int(tensors(call_leaves(self.call))[number][1].untyped_storage()._cdata)

    @property
    def nbytes(self) -> int:
        """Bytes this holds: inputs, outputs and their fp64 values."""
        import torch
        from torch.utils import _pytree as pytree

        tree = (self.call.args, self.call.kwargs, self.outputs, self.exact, self.inputs_after.args, self.exact_state)
        own = sum(t.numel() * t.element_size() for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor))
        return own + (self.then.nbytes if self.then else 0)


def exact_of(baseline: Any, wide: Any, call: Call) -> torch.Tensor | None:
    import torch

    if not isinstance(baseline, torch.Tensor) or not isinstance(wide, torch.Tensor):
        return None
    if baseline.dtype.is_complex:
        return torch.view_as_real(wide.to(torch.complex128).resolve_conj())
    return wide.to(torch.float64) if baseline.dtype.is_floating_point else None


def fp64_baseline(leaf: Any, exact: torch.Tensor | None, call: Call) -> Any:
    """For fp64 outputs reference and fp64 are one: the baseline's error is then n units of rounding."""
    import torch
    from torch.utils import _pytree as pytree

    if exact is None or leaf.dtype is not torch.float64:
        return leaf
    sizes = [t.numel() for t in pytree.tree_leaves((call.args, call.kwargs)) if isinstance(t, torch.Tensor)]
    terms = max([8, *(n // max(1, leaf.numel()) for n in sizes)])
    moved = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device=leaf.device)
    return moved.copy_(nu_bound(exact, terms))


def nonfinite_share(expected: Expected) -> float:
    """The largest share of NaN and infinities in any floating output of the baseline."""
    import torch

    shares = [
        float((~torch.isfinite(leaf)).double().mean())
        for (_, leaf), exact in zip(expected.leaves, expected.exact, strict=True)
        if exact is not None and exact.numel()
    ]
    return max(shares, default=0.0)


def rejected(task: Task, variant: int, error: Exception, where: str = "") -> KforgeError:
    """The plain inputs of a variant fail: that is the task's."""
    from kforge.task.usercode import as_error

    what = f"the reference rejects the inputs of variant {variant}{where}:"
    return error if isinstance(error, KforgeError) else as_error(error, task.path, what)


def first_line(error: BaseException) -> str:
    """What an error says, in one line."""
    if isinstance(error, KforgeError):
        return error.message
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"
