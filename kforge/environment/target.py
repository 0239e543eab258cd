"""Where a candidate is judged: the target's name and architecture, versions, what the emulator must have ready."""

from __future__ import annotations

import platform
import shutil
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


def share_emulator(folder: Path) -> tuple[Path, ...]:
    """Link the emulator's runtime and precompiled headers, built once by the judge, into a candidate folder's cache.

    Compiling them takes seconds, and each candidate has a cache of its own. Returns the folders that the candidate's
    process must be able to read; it cannot write them.
    """
    from kforge.kernel.emulator.build import prelude_folder, runtime_library
    from kforge.kernel.emulator.mode import current_mode
    from kforge.worker.sandbox import own_folder

    shared = (runtime_library().parent.resolve(), prelude_folder(current_mode().kind).resolve())
    folder.mkdir(parents=True, exist_ok=True)
    home = own_folder(folder, "cache", "kforge", "emulator")
    for entry in shared:
        link = home / entry.name
        if link.is_symlink() and link.readlink() == entry:
            continue
        if link.is_dir() and not link.is_symlink():  # a *build* put its own in place
            shutil.rmtree(link)
        link.unlink(missing_ok=True)
        link.symlink_to(entry, target_is_directory=True)
    return shared
