"""Named header packages for `Module(include=(...))`: each is found in an install and carries its version.

Names, not paths, are what a candidate says, so that they can go into sandbox, hash and export.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kforge.errors import BuildError
from kforge.kernel.build.toolchain import cuda_includes


@dataclass(frozen=True)
class Package:
    """Header folders with a name and a version."""

    name: str
    version: str
    folders: tuple[Path, ...]

    @property
    def key(self) -> str:
        return f"{self.name} {self.version}"


PACKAGES: dict[str, Callable[[], Package | None]] = {}


def find_package(name: str) -> Package:
    """A package by name; BuildError lists those that exist or says what to install."""
    if name not in PACKAGES:
        raise BuildError(f"unknown include package '{name}'; there are {', '.join(PACKAGES)}")
    package = PACKAGES[name]()
    if package is None:
        raise BuildError(f"include package '{name}' is not installed", f"install the package that brings {name}")
    return package


def _cutlass() -> Package | None:
    spec = importlib.util.find_spec("cutlass_library")
    for place in (spec.submodule_search_locations or []) if spec else []:
        source = Path(place) / "source"
        if (source / "include" / "cute").is_dir():
            folders = (source / "include", source / "tools" / "util" / "include")
            return Package("cutlass", importlib.metadata.version("nvidia-cutlass"), folders)
    return None


def _cccl() -> Package | None:
    folders = cuda_includes()
    if len(folders) < 2:
        return None
    header = (folders[1] / "cuda" / "std" / "__cccl" / "version.h").read_text()
    digits = [line.split()[-1] for line in header.splitlines() if line.startswith("#define CCCL_VERSION ")]
    return Package("cccl", digits[0] if digits else "unknown", folders[1:])


PACKAGES["cutlass"] = _cutlass
PACKAGES["cccl"] = _cccl
