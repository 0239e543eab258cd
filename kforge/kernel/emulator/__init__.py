"""Runs CUDA kernels on the CPU: unmodified source compiled by g++ against headers of ours, threads as fibers.

Public: load(source, filename, kernels, ...) -> Program, Program.launch(...), Mode and current_mode; `checked` runs a
described list of launches under AddressSanitizer. Nothing heavy is imported before the first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.kernel.emulator.mode import Mode, current_mode
    from kforge.kernel.emulator.program import Program, load

__all__ = ["Mode", "Program", "current_mode", "load"]


def __getattr__(name: str) -> Any:
    if name in ("load", "Program"):
        from kforge.kernel.emulator import program as module
    elif name in ("Mode", "current_mode"):
        from kforge.kernel.emulator import mode as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)
