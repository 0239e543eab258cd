"""The launchers' registry: `register` adds one, `choose` takes the first that is available.

Order is by measured host cost per call (benchmarks/kernel_call.py). KFORGE_LAUNCHER names one to insist on.
"""

from __future__ import annotations

import os

from kforge.errors import MissingError, UsageError
from kforge.kernel.launchers.base import Geometry, Launcher
from kforge.kernel.launchers.cuda_core import CudaCore
from kforge.kernel.launchers.cupy import CuPy
from kforge.kernel.launchers.driver import Driver

__all__ = ["LAUNCHERS", "Driver", "Geometry", "Launcher", "choose", "get", "launchers", "register"]

LAUNCHERS: dict[str, Launcher] = {}


def register(launcher: Launcher) -> Launcher:
    """Add a launcher at the end of the order."""
    LAUNCHERS[launcher.name] = launcher
    return launcher


register(Driver())
register(CuPy())
register(CudaCore())


def launchers() -> dict[str, tuple[bool, str]]:
    """Every launcher with whether it is available, and why."""
    return {name: launcher.is_available() for name, launcher in LAUNCHERS.items()}


def get(name: str) -> Launcher:
    """A launcher by name; UsageError lists those that exist, MissingError says why it cannot be used here."""
    if name not in LAUNCHERS:
        raise UsageError(f"unknown launcher '{name}'; there are {', '.join(LAUNCHERS)}")
    usable, reason = LAUNCHERS[name].is_available()
    if not usable:
        raise MissingError(f"launcher {name} cannot be used here: {reason}")
    return LAUNCHERS[name]


def choose(clusters: bool = False, tensor_maps: bool = False) -> Launcher:
    """KFORGE_LAUNCHER, else the first available that can launch what is asked."""
    if name := os.environ.get("KFORGE_LAUNCHER"):
        if tensor_maps and not get(name).tensor_maps:
            raise UsageError(f"launcher {name} cannot pass tensor maps", "unset KFORGE_LAUNCHER, or name driver")
        return get(name)
    reasons = []
    for launcher in LAUNCHERS.values():
        usable, reason = launcher.is_available()
        if usable and (launcher.clusters or not clusters) and (launcher.tensor_maps or not tensor_maps):
            return launcher
        reasons.append(f"{launcher.name}: {reason}")
    raise MissingError("no launcher can be used here", "; ".join(reasons))
