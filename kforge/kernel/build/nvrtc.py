"""Builds a cubin with NVRTC, through its C interface, with no driver and no GPU."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

from kforge.errors import BuildError, MissingError
from kforge.kernel.build.request import BuildRequest, Image, compiler_error
from kforge.kernel.build.toolchain import HEADERS, SHIM, Nvrtc, cuda_includes, find_nvrtc

NAME = "nvrtc"
PRELUDE = "kforge_prelude.h"
_COMPILATION_FAILED = 6


def is_available() -> tuple[bool, str]:
    """Whether NVRTC and its headers are here, and which or why not."""
    nvrtc = find_nvrtc()
    if nvrtc is None:
        return False, "no libnvrtc of a version this driver runs; install the extra kforge-cuda[cu13] (or cu12)"
    if not cuda_includes(nvrtc.version):
        return False, f"NVRTC {_dotted(nvrtc)} without CUDA headers; install nvidia-cuda-runtime of that version"
    return True, f"NVRTC {_dotted(nvrtc)}: {nvrtc.reason}"


def version() -> str:
    """Version and path-independent identity, for the cache key."""
    return f"nvrtc {_dotted(_require())}"


def options(request: BuildRequest) -> list[str]:
    """The options that enter the build and the cache key, without machine paths."""
    return [
        "--std=c++17",
        f"--gpu-architecture={request.arch}",
        "--generate-line-info",
        "--ptxas-options=-v",
        "--ptxas-options=-warn-spills",
        "--device-int128",
        "--diag-suppress=47",  # libcu++ defines INFINITY and NAN again
        "-DKFORGE_NVRTC=1",
        f"--pre-include={PRELUDE}",
        # NVRTC 13 keeps cubins of its own on disk: what comes from there has no ptxas report in its log.
        *(["--no-cache"] if _require().version >= (13, 0) else []),
    ]


def architectures() -> tuple[int, ...]:
    """The architectures it builds for, as 90 for sm_90."""
    lib, count = _library(str(_require().path)), ctypes.c_int()
    _check(lib, lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(lib, lib.nvrtcGetSupportedArchs(numbers))
    return tuple(numbers)


def compile(request: BuildRequest) -> Image:
    """Compile to a cubin; BuildError carries the compiler's first error line and its whole log."""
    nvrtc = _require()
    lib = _library(str(nvrtc.path))
    includes = [SHIM, HEADERS, *request.includes, *cuda_includes(nvrtc.version)]
    flags = options(request) + [f"--include-path={p}" for p in includes]
    program = ctypes.c_void_p()
    _check(
        lib,
        lib.nvrtcCreateProgram(ctypes.byref(program), request.text.encode(), request.filename.encode(), 0, None, None),
    )
    try:
        for kernel in request.kernels:
            _check(lib, lib.nvrtcAddNameExpression(program, kernel.encode()))
        array = (ctypes.c_char_p * len(flags))(*[f.encode() for f in flags])
        status = lib.nvrtcCompileProgram(program, len(flags), array)
        log = _read(lib, program, "nvrtcGetProgramLog").decode(errors="replace").rstrip("\0\n")
        if status == _COMPILATION_FAILED or (status and log):
            raise compiler_error(log, request)
        _check(lib, status)
        names = {}
        for kernel in request.kernels:
            lowered = ctypes.c_char_p()
            _check(lib, lib.nvrtcGetLoweredName(program, kernel.encode(), ctypes.byref(lowered)))
            names[kernel] = (lowered.value or b"").decode()
        return Image(_read(lib, program, "nvrtcGetCUBIN"), names, log, version())
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))


def preload() -> None:
    """Find and open the library and its headers now (0.1 to 0.3 s), for the processes that will be forked from this."""
    if is_available()[0]:
        _library(str(_require().path))


def _require() -> Nvrtc:
    nvrtc = find_nvrtc()
    if nvrtc is None:
        raise MissingError(is_available()[1])
    return nvrtc


def _dotted(nvrtc: Nvrtc) -> str:
    return ".".join(map(str, nvrtc.version))


@lru_cache(maxsize=2)
def _library(path: str) -> Any:
    for builtins in Path(path).parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))  # NVRTC opens it by name only; once loaded, the name is known
    lib = ctypes.CDLL(path)
    lib.nvrtcGetErrorString.restype = ctypes.c_char_p
    return lib


def _check(lib: Any, status: int) -> None:
    if status:
        raise BuildError(f"NVRTC: {lib.nvrtcGetErrorString(status).decode()}")


def _read(lib: Any, program: ctypes.c_void_p, getter: str) -> bytes:
    size = ctypes.c_size_t()
    _check(lib, getattr(lib, f"{getter}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(lib, getattr(lib, getter)(program, buffer))
    return buffer.raw[: size.value]


def include_dirs() -> list[Path]:
    """The header folders of a build, for tools that read sources."""
    nvrtc = find_nvrtc()
    return [SHIM, HEADERS, *(cuda_includes(nvrtc.version) if nvrtc else ())]
