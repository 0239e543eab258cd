"""What a candidate is made of: Kernel and Module, their builds, launches, and the emulator on CPU tensors.

    from kforge.kernel import Kernel, Module, prepared, philox

Everything is imported on first use, so that importing this package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.kernel.build import compilers as compilers
    from kforge.kernel.build import read_only_cache as read_only_cache
    from kforge.kernel.build import target_arch as target_arch
    from kforge.kernel.hooks import build_only as build_only
    from kforge.kernel.hooks import kernels as kernels
    from kforge.kernel.hooks import launches as launches
    from kforge.kernel.hooks import overrides as overrides
    from kforge.kernel.kernel import Kernel as Kernel
    from kforge.kernel.module import Module as Module
    from kforge.kernel.random import philox as philox
    from kforge.kernel.report import kernel_report as kernel_report
    from kforge.kernel.report import static_report as static_report
    from kforge.kernel.tensor_map import TensorMap as TensorMap
    from kforge.kernel.weights import prepared as prepared

_HOMES = {
    "Kernel": "kernel",
    "Module": "module",
    "prepared": "weights",
    "philox": "random",
    "TensorMap": "tensor_map",
    "overrides": "hooks",
    "launches": "hooks",
    "build_only": "hooks",
    "kernels": "hooks",
    "read_only_cache": "build",
    "target_arch": "build",
    "compilers": "build",
    "static_report": "report",
    "kernel_report": "report",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kforge.kernel' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"kforge.kernel.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
