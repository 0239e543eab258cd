"""The versions that a result depends on, read without importing torch, and how two machines' versions differ."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
from collections.abc import Mapping
from pathlib import Path

import kforge

NAMES = ("kforge", "torch", "python", "cuda")


def manifest() -> dict[str, str | None]:
    """kforge, torch, python and cuda of this interpreter; None for what is not here (a CPU build has no cuda)."""
    return {
        "kforge": kforge.__version__,
        "torch": _torch(),
        "python": platform.python_version(),
        "cuda": _cuda(),
    }


def differences(here: Mapping[str, str | None], wanted: Mapping[str, str | None]) -> list[str]:
    """Each version that differs, in words; empty where a result of one machine holds for the other.

    Compared are kforge and torch without a local tag (+cu130), major and minor of Python, and CUDA where both have
    one. A name that only one side gives is not compared: a newer worker may list more.
    """
    found = []
    for name in NAMES:
        mine, theirs = here.get(name), wanted.get(name)
        if mine is None or theirs is None:
            continue
        if _relevant(name, mine) != _relevant(name, theirs):
            found.append(f"{name} {mine} here, {theirs} asked for")
    return found


def _relevant(name: str, version: str) -> str:
    public = version.partition("+")[0]
    return ".".join(public.split(".")[:2]) if name in ("python", "cuda") else public


def _torch() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda() -> str | None:
    """The CUDA version that torch was built for, from its version file: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name("version.py")
    match = re.search(r"^cuda\b[^=\n]*= *'([\d.]+)'", path.read_text(), re.M) if path.is_file() else None
    return match[1] if match else None
