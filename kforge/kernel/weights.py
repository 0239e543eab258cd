"""Weights derived ahead of time: computed once per state of a parameter, and again when it changed."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.compiler import is_compiling

from kforge.errors import LaunchError

T = TypeVar("T")
_cache: dict[int, tuple[weakref.ref[torch.Tensor], dict[Hashable, tuple[tuple, Any]]]] = {}
_anew = 0  # how many `anew` are open


def prepared(param: torch.Tensor, fn: Callable[[torch.Tensor], T]) -> T:
    """`fn(param)` without gradients, computed again only after `param` moved or was written.

    A write is seen through the tensor's version counter, which in-place operations, optimisers and load_state_dict
    advance; writes through `.data` do not, and are unsupported. An inference tensor has no version: it is prepared on
    each call, as it is inside torch.compile. The result must not be written. Two functions count as one if they have
    the same code, defaults and captured values. LaunchError when it would be computed during CUDA graph capture, where
    it would hold nothing before the first replay.
    """
    if is_compiling() or param.is_inference() or _anew:
        with torch.no_grad():
            return fn(param)
    state = (param.data_ptr(), param._version, param.dtype, param.device, param.shape, param.stride())
    key = id(param)
    entry = _cache.get(key)
    if entry is None or entry[0]() is not param:
        entry = _cache[key] = (weakref.ref(param, lambda _: _cache.pop(key, None)), {})
    results = entry[1]
    identity = _identity(fn)
    known = results.get(identity)
    if known is not None and known[0] == state:
        return known[1]
    if param.is_cuda and torch.cuda.is_current_stream_capturing():
        raise LaunchError(
            "a prepared weight would have to be computed during CUDA graph capture", "call the module once before it"
        )
    with torch.inference_mode(False), torch.no_grad():
        value = fn(param)
    results[identity] = (state, value)
    return value


@contextmanager
def anew() -> Iterator[None]:
    """Derive weights in every call, graph captures included, and keep nothing: a call costs all that it costs."""
    global _anew
    _anew += 1
    try:
        yield
    finally:
        _anew -= 1


def held() -> bool:
    """Whether this process holds derived weights."""
    return any(results for _, results in _cache.values())


def _identity(fn: Callable[..., Any]) -> Hashable:
    """A lambda written in `forward` is a new object on each call, but the same code."""
    code = getattr(fn, "__code__", None)
    if code is None:
        return fn
    captured = tuple(cell.cell_contents for cell in getattr(fn, "__closure__", None) or ())
    values = tuple(v if v.__hash__ else id(v) for v in (*captured, *(getattr(fn, "__defaults__", None) or ())))
    return (code, values)
