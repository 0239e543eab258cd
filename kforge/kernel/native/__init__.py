"""The native call: a repeated call of a Kernel in C, for the launcher `driver`; built once with the C compiler at hand.

`kernel.py` defines what a call means; call.c takes over the calls that need nothing but a known plan and leaves every
other one alone. Where it cannot be built or loaded, or with KFORGE_NATIVE=0, all calls go through Python.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from kforge.errors import KforgeError, MissingError
from kforge.kernel.build.cache import cached, content_key

NAME = "kforge_call"
SOURCE = Path(__file__).parent / "call.c"
FLAGS = ("-O2", "-shared", "-fPIC", "-std=gnu11")
MAX_ARGUMENTS = 64  # as in call.c


@lru_cache(maxsize=1)
def load() -> tuple[ModuleType | None, str]:
    """The extension module, and which it is; or None, and why. Compiles it if the cache lacks it (0.5 s)."""
    if os.environ.get("KFORGE_NATIVE") == "0":
        return None, "switched off by KFORGE_NATIVE=0"
    try:
        library = build()
        loader = importlib.machinery.ExtensionFileLoader(NAME, str(library))
        spec = importlib.util.spec_from_loader(NAME, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        _set_up(module)
    except KforgeError as error:
        return None, error.message
    except (ImportError, OSError, AttributeError, TypeError) as error:  # of another Python, or a torch with other names
        return None, f"{NAME} cannot be loaded: {error}"
    return module, f"{library}"


def build() -> Path:
    """The library for this Python, from the cache or compiled. MissingError says what is lacking."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise MissingError("the native call relies on Python's global lock, which this Python lacks")
    include = Path(sysconfig.get_paths()["include"])
    key = content_key(source=SOURCE.read_text(), python=sys.version, include=str(include), flags=FLAGS)

    def make(folder: Path) -> None:
        if not (include / "Python.h").is_file():
            raise MissingError(
                f"no Python.h in {include}", "install Python's headers (Debian: apt install python3-dev)"
            )
        names = [os.environ.get("CC") or "cc", "gcc", "clang"]
        compiler = next(filter(None, map(shutil.which, names)), None)
        if compiler is None:
            raise MissingError(f"no C compiler ({', '.join(names)})", "install gcc (Debian: apt install gcc)")
        command = [compiler, *FLAGS, f"-I{include}", str(SOURCE), "-o", f"{NAME}.so"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode:
            words = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[0]
            raise MissingError(f"{compiler} does not build the native call: {words}")

    return cached("native", key, "the native call of kernels", make) / f"{NAME}.so"


def _set_up(module: Any) -> None:
    """Hand over what call.c takes from torch; AttributeError or TypeError where this torch lacks it."""
    import torch

    from kforge.kernel.hooks import launched

    nothing = int  # a torch built for the CPU has no such functions, and no plan of it asks for a device
    module.setup(
        torch.Tensor,
        torch.nn.Parameter,
        torch.is_grad_enabled,
        getattr(torch._C, "_cuda_getDevice", nothing),
        getattr(torch._C, "_cuda_getCurrentRawStream", nothing),
        launched,
    )
