"""What a candidate is compared with: ways to run the reference that cost the user one line. A registry of makers.

Each takes the task's inputs as given and returns the reference's strides; what it converts, it converts inside its
time (CONTRACTS 5).
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from kforge.errors import UsageError

Maker = Callable[[Any], Callable[..., Any]]


class Captured:
    """A callable that replays CUDA graphs of its own: the timer's graph wrapper leaves it alone."""

    captures_itself = True

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


def _eager(module: Any) -> Callable[..., Any]:
    return module  # type: ignore[no-any-return]


def _compiled(mode: str | None) -> Maker:
    def make(module: Any) -> Callable[..., Any]:
        import torch

        if hasattr(module, "own_forward"):  # of a pair: autograd runs around the compiled forward
            own = MethodType(type(module).__mro__[1].forward, module)  # type: ignore[attr-defined]
            module.own_forward = torch.compile(own, mode=mode, dynamic=False)
            return Captured(module) if mode == "reduce-overhead" else module
        compiled = torch.compile(module, mode=mode, dynamic=False)
        return Captured(compiled) if mode == "reduce-overhead" else compiled

    return make


def _channels_last(inner: Maker) -> Maker:
    """Weights converted once, inputs in every call (and outputs back: see `with_strides_of`)."""

    def make(module: Any) -> Callable[..., Any]:
        import torch
        from torch.utils import _pytree as pytree

        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        for parameter in module.parameters():
            if parameter.dim() in formats:
                parameter.data = parameter.data.to(memory_format=formats[parameter.dim()])
        fn = inner(module)

        def convert(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.dim() in formats and leaf.is_floating_point():
                return leaf.contiguous(memory_format=formats[leaf.dim()])
            return leaf

        def call(*args: Any, **kwargs: Any) -> Any:
            args, kwargs = pytree.tree_map(convert, (args, kwargs))
            return fn(*args, **kwargs)

        return _like(fn, call)

    return make


def _like(fn: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    return Captured(call) if getattr(fn, "captures_itself", False) else call


def with_strides_of(fn: Callable[..., Any], reference: Any, outputs: Any) -> Callable[..., Any]:
    """`fn` returning tensors whose dimensions lie in memory in the order of the reference's outputs.

    reference, outputs: what reference and `fn` returned for one and the same call. `fn` itself where they agree.
    """
    import torch
    from torch.utils import _pytree as pytree

    wanted = [_order(leaf) for leaf in pytree.tree_leaves(reference)]
    if [_order(leaf) for leaf in pytree.tree_leaves(outputs)] == wanted:
        return fn

    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten(fn(*args, **kwargs))
        for i, order in enumerate(wanted):
            if order is not None and isinstance(leaves[i], torch.Tensor):
                inverse = sorted(range(len(order)), key=order.__getitem__)
                leaves[i] = leaves[i].permute(order).contiguous().permute(inverse)
        return pytree.tree_unflatten(leaves, spec)

    return _like(fn, call)


def _order(leaf: Any) -> tuple[int, ...] | None:
    """Dimensions from the slowest to the fastest; None for what is no tensor or not dense."""
    import torch

    if not isinstance(leaf, torch.Tensor):
        return None
    strides = leaf.stride()
    order = tuple(sorted(range(leaf.dim()), key=lambda d: (-strides[d], d)))
    return order if leaf.permute(order).is_contiguous() else None


_PLAIN: dict[str, Maker] = {
    "eager": _eager,
    "compile_default": _compiled(None),
    "compile_reduce_overhead": _compiled("reduce-overhead"),
    "compile_max_autotune": _compiled("max-autotune-no-cudagraphs"),  # its graph is the timer's graph wrapper
}
_SUFFIX = "_channels_last"
BASELINES: dict[str, Maker] = _PLAIN | {name + _SUFFIX: _channels_last(maker) for name, maker in _PLAIN.items()}
DECIDING = ("eager", "compile_default")  # these decide "no room" and a provisional verdict (CONTRACTS 5)


def ladder(*, convolution: bool) -> tuple[str, ...]:
    """The names that a task is compared with; channels-last where there are convolutions of 4-D or 5-D inputs."""
    return tuple(name for name in BASELINES if convolution or not name.endswith(_SUFFIX))


def make_baseline(name: str, module: Any) -> Callable[..., Any]:
    """A callable with the reference's parameters. Compilation happens in its first call, which the caller makes.

    module: the baseline's own copy of the reference, which it may convert. "graph" is a wrapper of the timer and no
    baseline of its own. UsageError names what exists.
    """
    if name not in BASELINES:
        raise UsageError(f"unknown baseline {name!r}", f"available: {', '.join(BASELINES)}")
    return BASELINES[name](module)


def find_object(spec: str, what: str = "--baseline") -> Any:
    """The object that "package.module:name" or "path/to/file.py:name" names. UsageError says which part is missing."""
    import importlib
    import importlib.util
    import sys
    from pathlib import Path

    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise UsageError(f"{what} {spec!r} has no name", "write package.module:function or file.py:function")
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise UsageError(f"{what}: no file {place}")
        found = importlib.util.spec_from_file_location(f"kforge_user_{path.stem}", path)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
    else:
        try:
            module = importlib.import_module(place)
        except ImportError as error:
            raise UsageError(f"{what}: cannot import {place}: {error}") from error
    if not hasattr(module, name):
        raise UsageError(f"{what}: {place} has no {name!r}")
    return getattr(module, name)
