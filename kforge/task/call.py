"""One set of inputs: Call, its reading from what get_inputs returned, its paths and its copies.

Inputs are pytrees; nothing here runs the user's code or looks at values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.errors import TaskError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Call:
    """Arguments of one call. args and kwargs hold pytrees of tensors, numbers, strings and None."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict, hash=False)


def call_from(value: Any, what: str) -> Call:
    """A sequence is positional, a dict is keyword; raises TaskError (`what` names who returned it)."""
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TaskError(
                f"{what} returned a dict with keys that are no names; a dict is passed as keyword arguments"
            )
        return Call((), dict(value))
    if isinstance(value, (list, tuple)):
        return Call(tuple(value))
    raise TaskError(
        f"{what} returned {_a(type(value).__name__)}; it must return a sequence (positional) or a dict (keyword)"
    )


def init_call_from(value: Any, what: str) -> Call:
    """As `call_from`, and `[args, kwargs]` (a sequence, then a dict with names as keys) is both."""
    if isinstance(value, (list, tuple)) and len(value) == 2:
        args, kwargs = value
        if isinstance(args, (list, tuple)) and isinstance(kwargs, dict) and all(isinstance(k, str) for k in kwargs):
            return Call(tuple(args), dict(kwargs))
    return call_from(value, what)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiouAEIOU' else 'a'} {noun}"


def call_leaves(call: Call, forward: Callable[..., Any] | None = None) -> list[tuple[str, Any]]:
    """Every leaf with its path, in pytree order of (args, kwargs).

    Paths are what DOMAIN and reports use: the parameter's name, then pytree keys (`x`, `state[0]`, `cfg['scale']`).
    Without `forward` (or for *args) a positional input is `args[i]`.
    """
    from torch.utils import _pytree as pytree

    names = positional_names(forward) if forward is not None else []
    leaves = []
    for i, arg in enumerate(call.args):
        root = names[i] if i < len(names) else f"args[{i}]"
        leaves += [(root + pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(arg)[0]]
    for name, arg in call.kwargs.items():
        leaves += [(name + pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(arg)[0]]
    return leaves


def positional_names(function: Callable[..., Any]) -> list[str]:
    """Names of the parameters that positional arguments fill, in order."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in inspect.signature(function).parameters.values() if p.kind in kinds]


def tree_leaves(tree: Any) -> list[tuple[str, Any]]:
    """Every leaf of an output tree with its path: `out` for a bare tensor, else `out[0]`, `out['loss']`, ..."""
    from torch.utils import _pytree as pytree

    return [("out" + pytree.keystr(path), leaf) for path, leaf in pytree.tree_flatten_with_path(tree)[0]]


def describe_call(call: Call) -> str:
    """Shapes in one line: `float32[128, 1024]; 3; None`."""
    return "; ".join(describe_leaf(leaf) for _, leaf in call_leaves(call))


def describe_leaf(leaf: Any) -> str:
    """`float32[128, 1024]` for a tensor, repr for anything else."""
    import torch

    if isinstance(leaf, torch.Tensor):
        return f"{str(leaf.dtype).removeprefix('torch.')}[{', '.join(map(str, leaf.shape))}]"
    return repr(leaf)


def clone_call(call: Call, device: torch.device | str | None = None, keep_scalars: bool = True) -> Call:
    """A deep copy, optionally on another device: strides and storage shared between inputs are kept.

    keep_scalars: 0-dim CPU tensors stay on the CPU, as torch itself mixes them with CUDA tensors.
    """
    args, kwargs = copy_tree((call.args, call.kwargs), device, keep_scalars)
    return Call(args, kwargs)


def copy_tree(tree: Any, device: torch.device | str | None = None, keep_scalars: bool = True) -> Any:
    """Copy every tensor of a pytree; views of one storage become views of one new storage."""
    import torch
    from torch.utils import _pytree as pytree

    storages: dict[tuple[int, torch.device], torch.UntypedStorage] = {}

    def copy(t: torch.Tensor) -> torch.Tensor:
        target = t.device if device is None or (keep_scalars and t.dim() == 0) else torch.device(device)
        if _is_exotic(t):
            fresh = t.detach().to(target, copy=True)
        else:
            source = t.untyped_storage()
            key = (source._cdata, target)
            if key not in storages:
                flat = torch.empty(0, dtype=torch.uint8, device=t.device).set_(source, 0, (source.nbytes(),), (1,))
                storages[key] = flat.to(target, copy=True).untyped_storage()
            fresh = torch.empty(0, dtype=t.dtype, device=target)
            fresh = fresh.set_(storages[key], t.storage_offset(), t.shape, t.stride())
        return fresh.requires_grad_() if t.requires_grad else fresh

    with torch.no_grad():
        return pytree.tree_map_only(torch.Tensor, copy, tree)


def _is_exotic(t: torch.Tensor) -> bool:
    """Tensors that are more than storage, offset, shape and strides."""
    import torch

    plain = type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided
    return not plain or t.is_quantized or t.is_conj() or t.is_neg()


def tensors(leaves: Iterable[tuple[str, Any]]) -> list[tuple[str, torch.Tensor]]:
    """The leaves that are tensors, with their paths."""
    import torch

    return [(path, leaf) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
