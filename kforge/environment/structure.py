"""Everything about an answer except its values: tree, types, dtypes, shapes, strides, aliasing, mutation, state.

Each check answers with a Problem or None; the first one found ends the case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.worker.protocol import ATTRIBUTES

if TYPE_CHECKING:
    import torch

    from kforge.environment.expected import Expected
    from kforge.worker import CallReply


@dataclass(frozen=True)
class Problem:
    """What is wrong in words; detector: name of the detector that it fires, if any; path: the output concerned."""

    message: str
    detector: str = ""
    path: str = "out"


def check_structure(expected: Expected, reply: CallReply) -> Problem | None:
    """Tree, leaves that are no tensors, then type, dtype, shape, strides of each tensor, then aliases."""
    return _tree(expected, reply) or _tensors(expected, reply) or _aliases(expected, reply)


def _tree(expected: Expected, reply: CallReply) -> Problem | None:
    from torch.utils import _pytree as pytree

    from kforge.worker.protocol import decode, encode

    leaves: list[Any] = []
    data = encode(expected.outputs, lambda t: leaves.append(t) or len(leaves) - 1, strict=False)  # type: ignore[func-returns-value]
    normal = decode(data, leaves.__getitem__)  # named tuples and mappings as the protocol brings them back
    want, got = pytree.tree_structure(normal), pytree.tree_structure(reply.outputs)
    if want != got:
        return Problem(f"returns {_shape_of(reply.outputs)} where the reference returns {_shape_of(normal)}")
    for (path, right), answer in zip(expected.leaves, pytree.tree_leaves(reply.outputs), strict=True):
        if _is_tensor(right) != _is_tensor(answer):
            return Problem(f"{path} is {_shape_of(answer)} where the reference has {_shape_of(right)}", path=path)
        if not _is_tensor(right) and answer != right and not (answer != answer and right != right):
            return Problem(f"{path} is {answer!r} where the reference has {right!r}", path=path)
    return None


def _tensors(expected: Expected, reply: CallReply) -> Problem | None:
    right = [(path, leaf) for path, leaf in expected.leaves if _is_tensor(leaf)]
    aliased = {alias.output for alias in expected.effects.aliases}  # a parameter of the reference's, say
    for (path, tensor), meta in zip(right, reply.output_metas, strict=True):
        kind, _, attributes = meta.type.partition(ATTRIBUTES)
        if kind == "Tensor" and attributes and not vars(tensor):
            return Problem(f"{path} carries attributes that the reference's does not: {attributes}", path=path)
        if kind != "Tensor":
            return Problem(f"{path} is a {meta.type}, not a torch.Tensor", "lazy_tensor", path)
        dtype = str(tensor.dtype).removeprefix("torch.")
        if meta.dtype != dtype:
            return Problem(f"{path} has dtype {meta.dtype}, the reference {dtype}", path=path)
        if meta.shape != tuple(tensor.shape):
            return Problem(f"{path} has shape {list(meta.shape)}, the reference {list(tensor.shape)}", path=path)
        if meta.requires_grad and path not in aliased and not tensor.requires_grad:
            return Problem(f"{path} requires a gradient, the reference's does not", path=path)
        if meta.device != tensor.device.type:
            return Problem(f"{path} is on {meta.device}, the reference's on {tensor.device.type}", path=path)
        if tensor.numel() and _essential(meta.strides, meta.shape) != _essential(tensor.stride(), meta.shape):
            return Problem(f"{path} has strides {meta.strides}, the reference {tensor.stride()}", path=path)
    return None


def _aliases(expected: Expected, reply: CallReply) -> Problem | None:
    """An output lies in an input's memory exactly where the reference's does, at the same offset."""
    from kforge.task import call_leaves
    from kforge.task.call import tensors

    inputs = [(path, t) for path, t in tensors(call_leaves(expected.call))]
    numbers = _input_numbers(expected)
    outputs = [path for path, leaf in expected.leaves if _is_tensor(leaf)]
    want: dict[str, tuple[int, int]] = {}
    for alias in expected.effects.aliases:
        if alias.source in numbers:
            number = numbers[alias.source]
            want[alias.output] = (number, alias.offset + int(inputs[number][1].storage_offset()))
    for i, (path, meta) in enumerate(zip(outputs, reply.output_metas, strict=True)):
        if not meta.numel:
            continue
        got = (reply.aliases[i], meta.offset) if i in reply.aliases else None
        if got is not None and path not in want:
            return Problem(f"{path} shares memory with input {inputs[got[0]][0]}; the reference's is new", path=path)
        if path in want and got != want[path]:
            return Problem(
                f"{path} does not lie where the reference's does in input {inputs[want[path][0]][0]}", path=path
            )
    return None


def _input_numbers(expected: Expected) -> dict[str, int]:
    """Input path as the effects name it -> number of the tensor in order of appearance."""
    return {path: i for i, path in enumerate(expected.input_paths)}


def check_inputs(expected: Expected, reply: CallReply) -> Problem | None:
    """Inputs that the reference leaves alone are bit for bit what they were, the memory between their elements too."""
    from kforge.task import call_leaves
    from kforge.task.call import tensors

    before = tensors(call_leaves(expected.call))
    after = tensors(call_leaves(reply.inputs_after))
    written = {expected.call_storage(path) for path in expected.effects.mutated}
    for path, (_, old), (_, new) in zip(expected.input_paths, before, after, strict=True):
        if old.untyped_storage()._cdata in written:
            continue
        if not _same_bytes(old, new):
            return Problem(
                f"input {path} is changed by the call; the reference leaves it alone", "inputs_mutated", path
            )
        if not _same_bytes(_whole(old), _whole(new)):
            message = f"writes outside input {path}: memory between its elements has changed"
            return Problem(message, "out_of_bounds", path)
    return None


def check_untouched_state(before: dict[str, torch.Tensor], reply: CallReply, changing: set[str]) -> Problem | None:
    """Parameters and buffers that the reference does not change keep their values in the candidate."""
    for name, new in reply.state_after.items():
        old = before.get(name)
        if old is None or name in changing:
            continue  # buffers of the candidate's own are free
        form = [(t.shape, t.dtype, t.device.type) for t in (old, new)]
        if form[0] != form[1] or not _same_bytes(old, new):
            return Problem(f"{name} is changed by the call; the reference leaves it alone", path=f"state:{name}")
    return None


def _is_tensor(leaf: Any) -> bool:
    import torch

    return isinstance(leaf, torch.Tensor)


def _essential(strides: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the dimensions that have more than one element: the others mean nothing."""
    return tuple(stride for stride, size in zip(strides, shape, strict=True) if size > 1)


def _whole(x: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


def _same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    import torch

    if a.dtype.is_floating_point or a.dtype.is_complex:
        same = (a == b) | ((a != a) & (b != b))
        return bool(same.all())
    if a.dtype == torch.uint8 and a.shape != b.shape:
        size = min(a.numel(), b.numel())  # a buffer may be rounded up
        return torch.equal(a[:size], b[:size])
    return torch.equal(a, b)


def _shape_of(tree: Any) -> str:
    """`(Tensor, None)`, `{'loss': Tensor}` ... for error texts."""
    if _is_tensor(tree):
        return "Tensor"
    if isinstance(tree, (list, tuple)):
        inner = ", ".join(_shape_of(item) for item in tree)
        return f"({inner})" if isinstance(tree, tuple) else f"[{inner}]"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {_shape_of(value)}" for key, value in tree.items()) + "}"
    return type(tree).__name__
