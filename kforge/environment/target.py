"""Where and against what a candidate is judged: target and versions, the emulator's parts, the reference's facts."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kforge
from kforge.errors import KforgeError

if TYPE_CHECKING:
    from kforge.environment.preparation import Prepared
    from kforge.kernel.emulator.mode import Kind, Mode


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


def plain_mode() -> Mode:
    """The emulator's mode for calls in a candidate's process: that of KFORGE_EMULATOR, but for AddressSanitizer.

    It must be loaded with the process; under `checked` launches are run again by the memory gate, in every plan.
    """
    from kforge.kernel.emulator.mode import Kind, Mode, current_mode

    mode = current_mode()
    return Mode(Kind.FAST, mode.order) if mode.kind is Kind.CHECKED else mode


def share_emulator(folder: Path, kinds: Collection[Kind] = ()) -> tuple[Path, ...]:
    """Link the emulator's runtime and precompiled headers, built once by the judge, into a candidate folder's cache.

    kinds: instrumented modes that must be ready besides the one in force. Compiling takes seconds, and each candidate
    has a cache of its own. Returns the folders that the candidate's process must be able to read; it cannot write
    them.
    """
    from kforge.kernel.emulator.build import prelude_folder, runtime_library, tracer_library
    from kforge.kernel.emulator.mode import Kind
    from kforge.worker.sandbox import own_folder

    wanted = [plain_mode().kind, *kinds]
    parts = [runtime_library().parent, *(prelude_folder(kind) for kind in dict.fromkeys(wanted))]
    parts += [tracer_library().parent] if Kind.TRACED in wanted else []
    shared = tuple(part.resolve() for part in parts)
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


def reference_facts(prepared: Prepared) -> dict[str, Any]:
    """What the static gate must know of the reference: its text and names, the sizes of its inputs, standing rules."""
    from kforge.environment.standing import signature_of

    task = prepared.task
    return {
        "reference_source": task.source,
        "reference_names": {"Model", "reference", getattr(task.reference, "__name__", "reference")} - {"ModelNew"},
        "shapes": given(prepared).sizes,
        "constraints": {c.name: c.value for c in task.constraints},
        "signature": signature_of(task) if any(c.name == "keep_signature" for c in task.constraints) else None,
    }


@dataclass(frozen=True)
class Given:
    """What the first variant's inputs are like: every dimension and element count; the element type of the floating
    ones, or of all, where they share one ("float" else), as CUDA spells it."""

    sizes: frozenset[int] = frozenset()
    element: str = "float"


def given(prepared: Prepared) -> Given:
    """Of the task's own inputs, looked at once: to draw them may take longer than a whole gate."""
    if prepared.given is None:
        prepared.given = _given(prepared)
    return prepared.given


def _given(prepared: Prepared) -> Given:
    from kforge.kernel.ctypes_table import element_of
    from kforge.task import call_leaves
    from kforge.task.call import tensors

    try:
        call = prepared.task.make_call(0, 0)
    except KforgeError:
        return Given()
    found = [tensor for _, tensor in tensors(call_leaves(call))]
    return Given(frozenset(int(n) for t in found for n in (*t.shape, t.numel())), element_of(found))
