"""Where a candidate is judged: the target's name and architecture, versions, what the emulator must have ready."""

from __future__ import annotations

import platform
from pathlib import Path

import kforge


def target_name(device: str) -> str:
    """ "emulator" for the CPU, else the GPU's name."""
    if device == "cpu":
        return "emulator"
    import torch

    return torch.cuda.get_device_name(device)


def target_arch(device: str) -> str:
    """The device's architecture ("sm_90a"); without a GPU the default one."""
    from kforge.kernel import target_arch as arch_of

    return arch_of(device if device != "cpu" else None)


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    import torch

    return {"kforge": kforge.__version__, "torch": torch.__version__, "python": platform.python_version()}


def share_emulator(cache: Path) -> tuple[Path, ...]:
    """Link the emulator's runtime and precompiled headers, built once by the judge, into a candidate's build cache.

    Compiling them takes seconds, and each candidate has a cache of its own. Returns the folders that the candidate's
    process must be able to read; it cannot write them.
    """
    from kforge.kernel.emulator.build import prelude_folder, runtime_library
    from kforge.kernel.emulator.mode import current_mode

    shared = (runtime_library().parent.resolve(), prelude_folder(current_mode().kind).resolve())
    home = cache / "emulator"
    home.mkdir(parents=True, exist_ok=True)
    for entry in shared:
        link = home / entry.name
        if not link.is_symlink():
            link.symlink_to(entry, target_is_directory=True)
    return shared
