"""Builds a cubin with nvcc, where NVRTC cannot (host headers, CUTLASS)."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

from kforge.errors import BuildError, MissingError
from kforge.kernel.build.request import BuildRequest, Image, compiler_error, parse_resources
from kforge.kernel.build.toolchain import HEADERS, find_nvcc, header_version

NAME = "nvcc"
# What nvcc says when it is the host compiler that is missing, does not run or is too new.
_HOST_COMPILER = re.compile(r"^nvcc fatal\s*:.*host compiler.*$|unsupported (GNU|clang) version", re.M)
_HOST_HINT = "install g++ (Debian: apt install g++), or name another in NVCC_CCBIN"


def is_available() -> tuple[bool, str]:
    """Whether nvcc is here, and which or why not."""
    path = find_nvcc()
    if path is None:
        return False, "no nvcc on PATH, in CUDA_HOME or /usr/local/cuda; install a CUDA toolkit"
    return True, f"{version()} at {path}"


def version() -> str:
    """The compiler's release, for the cache key."""
    return _release(_require())


def options(request: BuildRequest) -> list[str]:
    """The options that enter the build and the cache key, without machine paths."""
    return ["-std=c++17", f"-arch={request.arch}", "-lineinfo", "-cubin", "-Xptxas=-v", "-Xptxas=-warn-spills"]


@lru_cache(maxsize=1)
def architectures() -> tuple[int, ...]:
    """The architectures it builds for, as 90 for sm_90."""
    command = [str(_require()), "--list-gpu-code"]
    listed = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False).stdout
    return tuple(map(int, re.findall(r"^sm_(\d+)$", listed, re.M)))


def compile(request: BuildRequest) -> Image:
    """Compile to a cubin; BuildError carries the compiler's first error line and its whole log."""
    nvcc = _require()
    # A host-side reference instantiates a template, which nvcc would otherwise leave out of the cubin.
    instances = [k for k in request.kernels if "<" in k]
    references = "".join(f"void* kforge_instance_{i} = (void*)&{k};\n" for i, k in enumerate(instances))
    with tempfile.TemporaryDirectory(prefix="kforge-nvcc-") as folder:
        source, cubin = Path(folder) / Path(request.filename).with_suffix(".cu").name, Path(folder) / "out.cubin"
        source.write_text(f"{request.text}\n{references}")
        includes = [f"-I{p}" for p in (HEADERS, *request.includes)]
        command = [str(nvcc), *options(request), *includes, "-o", str(cubin), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=folder)
        log = (done.stdout + done.stderr).replace(f"{folder}/", "")
        if done.returncode:
            if _HOST_COMPILER.search(log):
                raise MissingError(f"nvcc cannot use its host compiler: {log.strip().splitlines()[0]}", _HOST_HINT)
            raise compiler_error(log, request)
        return Image(cubin.read_bytes(), _symbols(request, log), log, version())


def _require() -> Path:
    path = find_nvcc()
    if path is None:
        raise MissingError(is_available()[1])
    return path


@lru_cache(maxsize=2)
def _release(path: Path) -> str:
    """Found without running nvcc, since a candidate's run phase may execute nothing."""
    real = path.resolve()
    found = header_version(real.parent.parent / "include")
    release = ".".join(map(str, found)) if found else "of an unknown release"
    return f"nvcc {release} ({real.stat().st_size} bytes)"


def _symbols(request: BuildRequest, log: str) -> dict[str, str]:
    """Name expression -> symbol, by demangling the entry functions that ptxas listed."""
    symbols = list(parse_resources(log))
    plain = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True).stdout.splitlines()
    demangled = {re.sub(r"\s+", "", p.removeprefix("void ")): s for p, s in zip(plain, symbols, strict=True)}
    names = {}
    for kernel in request.kernels:
        wanted = re.sub(r"\s+", "", kernel)
        matches = [s for p, s in demangled.items() if p == wanted or p.startswith(f"{wanted}(")]
        if len(matches) != 1:
            raise BuildError(f"nvcc built no single kernel '{kernel}'", f"it built {', '.join(plain)}", log)
        names[kernel] = matches[0]
    return names
