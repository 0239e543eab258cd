"""Builds kernels for the host: finds g++ and NVIDIA's headers, keeps a precompiled prelude and the runtime library.

Three cached parts, each named by the hash of all that went into it: the runtime (once), the prelude (once per set of
flags), and one library per source. Keys are computed without running the compiler, because a candidate's run phase
may not execute anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from kforge.errors import BuildError, EmulatorError, MissingError
from kforge.kernel.build.cache import NO_SPACE, cached, content_key, is_cached, no_room
from kforge.kernel.build.toolchain import cuda_includes
from kforge.kernel.emulator.debuginfo import write_symbols
from kforge.kernel.emulator.mode import Kind
from kforge.kernel.emulator.source import GPU_ONLY_HEADERS, Translation, insert_constants, translate

_HERE = Path(__file__).parent
INCLUDE = _HERE / "include"
RUNTIME = _HERE / "runtime"
COMMON_FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-w",
    "-fvisibility=hidden",
    "-fno-gnu-unique",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fsigned-char",
)
KIND_FLAGS = {
    # An access at an address that is no multiple of its type's alignment stops the launch, as a GPU does.
    Kind.FAST: ("-O1", "-fsanitize=alignment"),
    Kind.CHECKED: (
        *("-O1", "-g1", "-fno-omit-frame-pointer"),
        *("-fsanitize=address,alignment", "-fsanitize-recover=address,alignment"),
    ),
    # Without tree-sra a float4 stays one access. g++ does not instrument a struct that a call returns into memory or
    # takes from there, so everything is inlined.
    Kind.TRACED: (
        *("-finline-functions", "-finline-small-functions", "--param=early-inlining-insns=5000"),
        *("--param=max-inline-insns-single=5000", "--param=max-inline-insns-auto=5000"),
        *("--param=inline-unit-growth=5000", "--param=large-function-growth=5000"),
        *("--param=large-stack-frame-growth=5000", "--param=inline-min-speedup=0"),
        *("-O1", "-g1", "-fno-tree-sra", "-fsanitize=thread"),
        *("--param=tsan-instrument-func-entry-exit=0", "--param=tsan-distinguish-volatile=1"),
    ),
}
_LONGEST_S = 110.0  # of one run of the compiler; a build as a whole is given 120 (environment/processes.py)
_COMPILER_HINT = "install g++ (Debian: apt install g++), or name another in KFORGE_CXX"
_ERROR_LINE = re.compile(r"^(.*?:\d+(?::\d+)?): (?:fatal )?error: (.*)$", re.M)


@dataclass(frozen=True)
class Toolchain:
    """The host compiler, what identifies it, and the header folders of CUDA."""

    compiler: str
    identity: str
    includes: tuple[Path, ...]


@lru_cache(maxsize=1)
def toolchain() -> Toolchain:
    """MissingError names what to install when there is no g++ or no CUDA headers."""
    name = os.environ.get("KFORGE_CXX", "g++")
    compiler = shutil.which(name)
    if compiler is None:
        raise MissingError(f"the emulator needs a C++ compiler and {name} is not here", _COMPILER_HINT)
    includes = cuda_includes()
    if not includes:
        raise MissingError(
            "the emulator needs NVIDIA's headers (cuda_fp16.h) and finds none",
            "install the extra kforge-cuda[cu13] (or [cu12]), or a CUDA toolkit",
        )
    real = Path(compiler).resolve()
    stat = real.stat()
    return Toolchain(compiler, f"{real} {stat.st_size} {stat.st_mtime_ns}", includes)


@lru_cache(maxsize=1)
def _own_sources() -> str:
    files = sorted(p for folder in (INCLUDE, RUNTIME) for p in folder.rglob("*") if p.is_file())
    return content_key(**{str(p.relative_to(_HERE)): p.read_text() for p in files})


def _key(**parts: object) -> str:
    tools = toolchain()
    return content_key(compiler=tools.identity, cuda=[str(p) for p in tools.includes], own=_own_sources(), **parts)


def _flags(kind: Kind) -> list[str]:
    """Of a build. Where the compiler can (g++ 12), a variable without initial value holds a pattern, no lucky zero."""
    number = re.search(r"g\+\+-(\d+)$", toolchain().identity.split(" ")[0])  # it may not be run to ask for it
    fill = ["-ftrivial-auto-var-init=pattern"] if kind is Kind.FAST and number and int(number[1]) >= 12 else []
    return [*COMMON_FLAGS, *KIND_FLAGS[kind], *fill]


def _include_flags() -> list[str]:
    return [f"-I{INCLUDE / 'shadow'}", f"-I{INCLUDE}", *(f"-isystem{p}" for p in toolchain().includes)]


def _compile(arguments: Sequence[str], folder: Path, tool: str | None = None) -> subprocess.CompletedProcess[str]:
    command, env = [tool or toolchain().compiler, *arguments], {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            env=env,
            check=False,
            timeout=_LONGEST_S,
        )
    except subprocess.TimeoutExpired as late:
        raise BuildError(
            f"g++ came to no end within {_LONGEST_S:g} s",
            "what macros, includes, templates or unrolled loops make of the source may double at every level",
        ) from late
    except OSError as error:  # no program of this machine
        raise MissingError(f"{command[0]} does not run: {error.strerror}", _COMPILER_HINT) from error
    if done.returncode and NO_SPACE in done.stderr:
        raise no_room(folder)
    return done


def require_compiler() -> None:
    """MissingError unless the host compiler turns a program of ours into a library; nothing is cached."""
    with tempfile.TemporaryDirectory(prefix="kforge-cxx-") as folder:
        (Path(folder) / "probe.cpp").write_text("#include <cmath>\nint probe() { return 0; }\n")
        out = _compile(["-std=c++17", "-fPIC", "-shared", "probe.cpp", "-o", "probe.so"], Path(folder))
        if out.returncode or not (Path(folder) / "probe.so").is_file():
            raise _broken(out, "does not compile")


def _broken(out: subprocess.CompletedProcess[str], what: str) -> MissingError:
    """What to say where our own text does not compile: the compiler is broken, or none that we know."""
    words = next(iter(out.stderr.strip().splitlines()), f"exit status {out.returncode}")
    return MissingError(f"the C++ compiler {toolchain().compiler} {what}: {words}", _COMPILER_HINT)


def _shared_library(name: str, folder: Path, what: str) -> Path:
    """The C++ files of a folder as one library, compiled once."""
    # Kernels reach the runtime's few thread-local bytes by a fixed offset, so these must lie in the static block.
    flags = [*(f for f in COMMON_FLAGS if f != "-w"), "-ftls-model=initial-exec"]

    def make(target: Path) -> None:
        # One translation unit: the standard headers are parsed once.
        lines = [f'#include "{p}"\n' for p in sorted(folder.glob("*.cpp"))]
        (target / f"{name}.cpp").write_text("".join(lines))
        product = ["-O2", "-shared", "-pthread", f"{name}.cpp", "-o", f"lib{name}.so"]
        out = _compile([*flags, *_include_flags(), *product], target)
        if out.returncode or not (target / f"lib{name}.so").is_file():
            require_compiler()
            raise _broken(out, f"does not compile {what}")

    return cached("emulator", f"{name}-" + _key(flags=flags), what, make) / f"lib{name}.so"


def runtime_library() -> Path:
    """The scheduler: a shared library that all kernels are linked to at load time."""
    return _shared_library("kforge_emulator", RUNTIME, "the emulator's runtime")


def tracer_library() -> Path:
    """The race detector of mode traced, loaded after the runtime."""
    return _shared_library("kforge_tracer", RUNTIME / "trace", "the emulator's race detector")


def prelude_folder(kind: Kind) -> Path:
    """A folder with kforge_emulator_prelude.h and its precompiled form for these flags (0.25 s less in each build)."""
    flags = _flags(kind)

    def make(folder: Path) -> None:
        (folder / "kforge_emulator_prelude.h").write_text('#include "kforge_emulator/prelude.h"\n')
        header = ["-x", "c++-header", "kforge_emulator_prelude.h", "-o", "kforge_emulator_prelude.h.gch"]
        out = _compile([*flags, *_include_flags(), *header], folder)
        if out.returncode or not (folder / "kforge_emulator_prelude.h.gch").is_file():
            require_compiler()
            raise _broken(out, "does not compile the emulator's headers with this CUDA")

    return cached("emulator", _prelude_key(kind, flags), "the emulator's prelude", make)


def has_prelude(kind: Kind) -> bool:
    """Whether that of a mode has been made, which takes seconds."""
    return is_cached("emulator", _prelude_key(kind, _flags(kind)))


def _prelude_key(kind: Kind, flags: list[str]) -> str:
    return f"prelude-{kind.value}-" + _key(flags=flags)


@dataclass(frozen=True)
class Library:
    """A built source: where it is, and what the source pass found out about it."""

    path: Path
    runtime: Path
    translation: Translation
    kind: Kind
    tracer: Path | None = None


def build_library(
    source: str,
    filename: str,
    kernels: Sequence[str],
    defines: Mapping[str, str | int],
    types: Mapping[str, str],
    includes: Sequence[Path],
    kind: Kind,
) -> Library:
    """The library for `kernels` of `source`, from the cache or compiled. BuildError points at the user's lines."""
    lines = [f"#define {n} {v}" for n, v in defines.items()] + [f"using {n} = {v};" for n, v in types.items()]
    near = Path(filename).parent if Path(filename).is_absolute() else None
    translation = translate(insert_constants(source, filename, lines), filename, kernels, includes, near)
    if header := GPU_ONLY_HEADERS.search("\n".join([source, *translation.headers.values()])):
        raise EmulatorError(
            f"{filename} includes <{header[1]}>, which the emulator cannot run", "judge it on a GPU", header[1]
        )
    flags = _flags(kind)
    key = _key(text=translation.text, headers=translation.headers, flags=flags)

    def make(folder: Path) -> None:
        prelude = prelude_folder(kind)
        (folder / "kernel.cpp").write_text(translation.text)
        for name, text in translation.headers.items():
            (folder / name).write_text(text)
        search = [f"-I{prelude}", "-I.", *_include_flags(), *(f"-I{p}" for p in includes)]
        unit = ["-include", "kforge_emulator_prelude.h", "-c", "kernel.cpp", "-o", "kernel.o"]
        out = _compile([*flags, f"-fdebug-prefix-map={folder}=.", *search, *unit], folder)
        if out.returncode:
            _raise_build_error(out.stderr)
        linked = _compile(["-shared", "kernel.o", "-o", "kernel.so"], folder)
        if linked.returncode:
            _raise_build_error(linked.stderr)
        (folder / "kernel.o").unlink()
        if kind is Kind.TRACED:
            write_symbols(folder / "kernel.so", _compile)

    what = f"{', '.join(kernels)} of {filename} for the emulator ({kind.value})"
    with ThreadPoolExecutor(2) as pool:  # on a cold machine the runtime compiles beside the prelude
        runtime = pool.submit(runtime_library)
        tracer = pool.submit(tracer_library) if kind is Kind.TRACED else None
        entry = cached("emulator", key, what, make)
        return Library(entry / "kernel.so", runtime.result(), translation, kind, tracer.result() if tracer else None)


def _raise_build_error(log: str) -> None:
    first = _ERROR_LINE.search(log)
    if first is None:  # no line of a source: the compiler itself may be what fails
        require_compiler()
    message = f"{first[1]}: {first[2]}" if first else (log.strip().splitlines() or ["g++ failed"])[-1]
    raise BuildError(message, "the emulator compiles kernels with g++; the log has every line", log)
