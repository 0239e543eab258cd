"""Finds compilers, headers and the driver's version on this machine; each choice comes with its reason.

Nothing here needs a GPU. NVRTC of the installed torch's CUDA major version is preferred, of a major version no newer
than the driver's.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import re
import shutil
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

DEFAULT_ARCH = "sm_90a"
SHIM = Path(__file__).parent.parent / "include"  # stand-ins for host headers, for NVRTC only
HEADERS = Path(__file__).parent.parent / "headers"  # kforge's own device headers, for every compiler


@lru_cache(maxsize=1)
def own_headers_key() -> str:
    """A hash of the shim and of kforge's own headers, for cache keys."""
    digest = hashlib.sha256()
    for folder in (SHIM, HEADERS):
        for path in sorted(p for p in folder.rglob("*") if p.is_file()):
            digest.update(f"{path.relative_to(folder)}\0{path.read_text()}\0".encode())
    return digest.hexdigest()[:16]


@dataclass(frozen=True)
class Nvrtc:
    """One NVRTC library. version: (major, minor). reason: why it was chosen."""

    path: Path
    version: tuple[int, int]
    reason: str = ""


@lru_cache(maxsize=1)
def driver_version() -> tuple[int, int] | None:
    """The newest CUDA version the installed driver runs, None without a driver."""
    try:
        libcuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    if libcuda.cuDriverGetVersion(ctypes.byref(version)):
        return None
    return version.value // 1000, version.value % 1000 // 10


def torch_cuda_version() -> tuple[int, int] | None:
    """The CUDA version of the installed torch (None: a CPU build), read without importing torch where possible."""
    text: str | None = None
    if "torch" in sys.modules:
        text = sys.modules["torch"].version.cuda
    else:
        spec = importlib.util.find_spec("torch")
        file = Path(spec.origin).parent / "version.py" if spec and spec.origin else None
        if file and file.is_file():
            match = re.search(r"^cuda\b.*=\s*'([\d.]+)'", file.read_text(), re.M)
            text = match.group(1) if match else None
    if not text:
        return None
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def wheel_roots() -> list[Path]:
    """The folders of NVIDIA's wheels (site-packages/nvidia/<package>)."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    return sorted((p for place in places for p in Path(place).iterdir() if p.is_dir()), reverse=True)


def toolkit_roots() -> list[Path]:
    """CUDA toolkits: CUDA_HOME, the one nvcc is in, /usr/local/cuda*."""
    candidates = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    roots = [Path(c) for c in candidates if c]
    if nvcc := shutil.which("nvcc"):
        roots.append(Path(nvcc).resolve().parent.parent)
    roots += sorted(Path("/usr/local").glob("cuda*"), reverse=True)
    return list(dict.fromkeys(r.resolve() for r in roots if (r / "nvvm").is_dir() or (r / "version.json").is_file()))


@lru_cache(maxsize=1)
def find_nvrtc() -> Nvrtc | None:
    """The NVRTC to build with, None if there is none that this machine can use."""
    paths: dict[Path, None] = {}
    for root in [*wheel_roots(), *toolkit_roots()]:
        for folder in ("lib", "lib64", "targets/x86_64-linux/lib"):
            paths.update((p, None) for p in sorted((root / folder).glob("libnvrtc.so.*")))
    found: dict[tuple[int, int], Path] = {}
    for path in paths:
        if (version := _nvrtc_version(path)) is not None:
            found.setdefault(version, path)
    driver, torch_version = driver_version(), torch_cuda_version()
    usable = {v: p for v, p in found.items() if driver is None or v[0] <= driver[0]}
    if not usable:
        return None
    same_major = [v for v in usable if torch_version and v[0] == torch_version[0]]
    version = torch_version if torch_version in usable else max(same_major or usable)
    reason = f"newest of {', '.join('.'.join(map(str, v)) for v in sorted(usable))}"
    if version is not None and torch_version and version[0] == torch_version[0]:
        reason = f"the CUDA major version of torch ({torch_version[0]}.{torch_version[1]})"
    if driver is not None:
        reason += f", not newer than the driver's {driver[0]}.{driver[1]}"
    assert version is not None
    return Nvrtc(usable[version], version, reason)


def _nvrtc_version(path: Path) -> tuple[int, int] | None:
    try:
        lib = ctypes.CDLL(str(path))
        major, minor = ctypes.c_int(), ctypes.c_int()
        failed = lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    except (OSError, AttributeError):
        return None
    return None if failed else (major.value, minor.value)


def find_nvcc() -> Path | None:
    """nvcc of a toolkit or on PATH."""
    for root in toolkit_roots():
        if (path := root / "bin" / "nvcc").is_file():
            return path
    found = shutil.which("nvcc")
    return Path(found) if found else None


@lru_cache(maxsize=4)
def cuda_includes(version: tuple[int, int] | None = None) -> tuple[Path, ...]:
    """Header folders of the CUDA runtime (and CCCL), of `version` if there are such, else of its major version."""
    places = [r / "include" for r in [*wheel_roots(), *toolkit_roots()]]
    places += [r / "targets/x86_64-linux/include" for r in toolkit_roots()]
    with_fp16 = [p.resolve() for p in places if (p / "cuda_fp16.h").is_file()]
    versions = {p: header_version(p) for p in dict.fromkeys(with_fp16)}
    if version is not None:
        versions = {p: v for p, v in versions.items() if v and v[0] == version[0]}
    if not versions:
        return ()

    def complete(path: Path) -> tuple[bool, bool, bool]:  # a runtime wheel alone lacks crt and CCCL
        return versions[path] == version, (path / "mma.h").is_file(), _cccl(path).is_dir()

    best = max(versions, key=complete)  # the first of equals
    folders = [best, _cccl(best)]
    if not (best / "crt").is_dir() and best.parent in wheel_roots():
        # the wheels of CUDA 12 are one folder each: runtime, crt (in nvcc's) and CCCL
        folders += [root / "include" for root in wheel_roots() if root != best.parent]
    return tuple(f for f in folders if f.is_dir())


def _cccl(include: Path) -> Path:
    return include / "cccl"


def header_version(include: Path) -> tuple[int, int] | None:
    """CUDA_VERSION or CUDART_VERSION of a header folder."""
    for header, macro in (("cuda_runtime_api.h", "CUDART_VERSION"), ("cuda.h", "CUDA_VERSION")):
        if (path := include / header).is_file():
            match = re.search(rf"#define\s+{macro}\s+(\d+)", path.read_text(errors="replace"))
            if match:
                number = int(match.group(1))
                return number // 1000, number % 1000 // 10
    return None


def target_arch(device: str | int | torch.device | None = None) -> str:
    """The architecture to build for: that of a CUDA device ("sm_90a"), DEFAULT_ARCH where there is no GPU."""
    import torch

    if device is not None and torch.device(device).type == "cpu":
        return DEFAULT_ARCH
    if not torch.cuda.is_available():
        return DEFAULT_ARCH
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"
