"""The worker room: where hostile code runs. Zygote forks a Child for one candidate and one phase; Limits bound it.

Names are resolved lazily: importing the package imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.errors import ChildFailed
    from kforge.worker.client import Child
    from kforge.worker.limits import Limits
    from kforge.worker.pool import Zygote, gpu_lock
    from kforge.worker.replies import Armed, Batch, CallReply, Inspected, KernelTime, LoadReply

_HOMES = {
    "Zygote": "kforge.worker.pool",
    "gpu_lock": "kforge.worker.pool",
    "Child": "kforge.worker.client",
    "LoadReply": "kforge.worker.replies",
    "CallReply": "kforge.worker.replies",
    "Batch": "kforge.worker.replies",
    "Armed": "kforge.worker.replies",
    "KernelTime": "kforge.worker.replies",
    "Inspected": "kforge.worker.replies",
    "Limits": "kforge.worker.limits",
    "ChildFailed": "kforge.errors",
}

__all__ = [
    "Armed", "Batch", "CallReply", "Child", "ChildFailed", "Inspected", "KernelTime", "Limits", "LoadReply", "Zygote",
    "gpu_lock",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
