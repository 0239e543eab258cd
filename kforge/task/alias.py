"""What a call does beside returning: which inputs and buffers it changes, which outputs share storage with what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.task.call import Call, call_leaves, clone_call, tensors, tree_leaves
from kforge.task.state import named_state

if TYPE_CHECKING:
    import torch

    from kforge.task.task import Task


@dataclass(frozen=True)
class Alias:
    """Output `output` lives in the storage of `source` (an input path, `state:name`, or an earlier output's path).

    offset: elements from the source's first element; shape and strides in elements.
    """

    output: str
    source: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Effects:
    """mutated: input paths; mutated_state: parameter and buffer names; aliases: in order of outputs."""

    mutated: tuple[str, ...] = ()
    mutated_state: tuple[str, ...] = ()
    aliases: tuple[Alias, ...] = ()


@dataclass(frozen=True)
class Observed:
    """One call on clones: its outputs, the inputs after it (call) and its effects."""

    outputs: Any
    call: Call
    effects: Effects


def observe(task: Task, module: torch.nn.Module, call: Call, seed: int = 0) -> Observed:
    """Run `module` on a clone of `call` and compare before and after. The module's own state does change.

    An input counts as mutated when its bits differ or an in-place torch op touched it (its version went up).
    """
    copied = clone_call(call)
    inputs = tensors(call_leaves(copied, module.forward))
    state = sorted(named_state(module).items())
    originals = tensors(call_leaves(call, module.forward))
    before = {name: (t._version, t.detach().clone()) for name, t in state}
    versions = [t._version for _, t in inputs]
    outputs = task.run(module, copied, seed=seed)
    mutated = tuple(
        path
        for (path, after), version, (_, original) in zip(inputs, versions, originals, strict=True)
        if after._version != version or not same_bits(after, original)
    )
    changed = tuple(n for n, t in state if t._version != before[n][0] or not same_bits(t, before[n][1]))
    named = [*inputs, *((f"state:{name}", t) for name, t in state)]
    return Observed(outputs, copied, Effects(mutated, changed, alias_map(outputs, named)))


def alias_map(outputs: Any, named: list[tuple[str, torch.Tensor]]) -> tuple[Alias, ...]:
    """Which output shares storage with which of `named`, else with an earlier output."""
    found = []
    sources = list(named)
    for path, output in tensors(tree_leaves(outputs)):
        for source_path, source in sources:
            if _storage(source) == _storage(output):
                offset = int(output.storage_offset()) - int(source.storage_offset())
                found.append(Alias(path, source_path, offset, tuple(output.shape), tuple(output.stride())))
                break
        sources.append((path, output))
    return tuple(found)


def _storage(t: torch.Tensor) -> int | None:
    import torch

    return t.untyped_storage()._cdata if t.layout == torch.strided else id(t)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal shape, dtype and values, NaN equal to NaN."""
    import torch

    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_floating_point() or a.is_complex():
        return bool(((a == b) | ((a != a) & (b != b))).all())
    return torch.equal(a, b)
