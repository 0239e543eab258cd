"""From prepared source to a cubin: the compilers' registry, the cache in front of them, what each build cost.

Works with no GPU and no driver for a named architecture.
"""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from types import ModuleType

from kforge.errors import BuildError, MissingError, UsageError
from kforge.kernel.build import nvcc, nvrtc
from kforge.kernel.build.cache import cache_root, cached, content_key, is_cached, read_only_cache
from kforge.kernel.build.request import Build, BuildRequest, Resources, parse_resources
from kforge.kernel.build.toolchain import DEFAULT_ARCH, own_headers_key, target_arch

__all__ = [
    "COMPILERS",
    "DEFAULT_ARCH",
    "Build",
    "BuildRequest",
    "Resources",
    "build",
    "cache_root",
    "cached",
    "check_arch",
    "compilers",
    "content_key",
    "read_only_cache",
    "target_arch",
]

# In order of preference. Each has is_available() -> (bool, reason), version(), architectures(),
# options(request), compile(request).
COMPILERS: dict[str, ModuleType] = {nvrtc.NAME: nvrtc, nvcc.NAME: nvcc}
_ARCH = re.compile(r"sm_(\d{2,3})([af]?)")
_SUFFIX_FROM = {"": 0, "a": 90, "f": 100}
_HEADER_MISSING = re.compile(r"(could|cannot) (not )?open source file")
_in_process: dict[str, Build] = {}
_lock = threading.Lock()


def compilers() -> dict[str, tuple[bool, str]]:
    """Every compiler with whether it is available, and why."""
    return {name: module.is_available() for name, module in COMPILERS.items()}


def check_arch(arch: str) -> str:
    """`arch` itself, if the compiler that is preferred here builds for it; UsageError names those it may be.

    Nothing can be said without a compiler: then the spelling alone is checked.
    """
    match = _ARCH.fullmatch(arch)
    number, suffix = (int(match[1]), match[2]) if match else (0, "")
    name = next((name for name, module in COMPILERS.items() if module.is_available()[0]), None)
    able = COMPILERS[name].architectures() if name else (number,)
    if match and number in able and number >= _SUFFIX_FROM[suffix]:
        return arch
    listing = f"{name} builds for sm_{', sm_'.join(map(str, able))}" if name else "write for example sm_80 or sm_90a"
    raise UsageError(
        f"'{arch}' is not an architecture that can be built for here",
        f"{listing}; with a suffix from sm_90a and sm_100f on",
    )


def build(request: BuildRequest) -> Build:
    """The cubin of `request`, from the cache or compiled.

    compiler "auto": NVRTC, and nvcc where NVRTC lacks a header the source includes. BuildError with the compiler's
    log; MissingError (exit 3) when there is no compiler.
    """
    if request.compiler != "auto":
        if request.compiler not in COMPILERS:
            raise BuildError(f"unknown compiler '{request.compiler}'; there are auto, {', '.join(COMPILERS)}")
        return _build_with(COMPILERS[request.compiler], request)
    available = [m for m in COMPILERS.values() if m.is_available()[0]]
    if not available:
        raise MissingError(
            "neither NVRTC nor nvcc is here, so nothing can be built", "install the extra kforge-cuda[cu13] (or [cu12])"
        )
    for module in available:  # what an earlier process had to build with nvcc is found again
        if is_cached("cubin", _key(module, request)):
            return _build_with(module, request)
    for module in available[:-1]:
        try:
            return _build_with(module, request)
        except BuildError as error:
            if not _HEADER_MISSING.search(error.message):
                raise
    return _build_with(available[-1], request)


def _key(module: ModuleType, request: BuildRequest) -> str:
    return content_key(
        text=request.text,
        filename=request.filename,
        kernels=request.kernels,
        arch=request.arch,
        includes=request.include_keys,
        options=module.options(request),
        compiler=module.version(),
        headers=own_headers_key(),
    )


def _build_with(module: ModuleType, request: BuildRequest) -> Build:
    key = _key(module, request)
    with _lock:
        if key in _in_process:
            return _in_process[key]
    fresh = []

    def make(folder: Path) -> None:
        start = time.perf_counter()
        image = module.compile(request)
        fresh.append(time.perf_counter() - start)
        (folder / "kernel.cubin").write_bytes(image.cubin)
        (folder / "kernel.cu").write_text(request.text)
        meta = {
            "names": image.names,
            "log": image.log,
            "compiler": image.compiler,
            "seconds": fresh[0],
            "arch": request.arch,
        }
        (folder / "build.json").write_text(json.dumps(meta, indent=1))

    entry = cached("cubin", key, request.what or f"{', '.join(request.kernels)} for {request.arch}", make)
    meta = json.loads((entry / "build.json").read_text())
    figures = parse_resources(meta["log"])
    result = Build(
        path=entry / "kernel.cubin",
        arch=request.arch,
        names=meta["names"],
        resources={k: figures[s] for k, s in meta["names"].items() if s in figures},
        log=meta["log"],
        compiler=meta["compiler"],
        seconds=meta["seconds"],
        from_cache=not fresh,
    )
    with _lock:
        _in_process[key] = result
    return result
