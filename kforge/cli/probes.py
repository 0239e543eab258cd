"""The probes of `kforge doctor`: each finds one tool by running or loading it, never by guessing from a name.

A probe returns a Tool and does not raise; add one by writing a function and entering it in PROBES.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tool:
    """One tool: found or not, its version, where it is or why it is missing, why it matters, what works without."""

    name: str
    found: bool
    version: str
    detail: str
    why: str
    without: str


@dataclass(frozen=True)
class _Found:
    version: str = ""
    detail: str = ""


@dataclass(frozen=True)
class _Missing:
    reason: str


_Probe = Callable[[], "_Found | _Missing"]


def _run(argv: Sequence[str], seconds: float = 10) -> str | None:
    """Both streams of a program that ended well; None when it is absent, fails or takes too long."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _version(text: str) -> str:
    """The first number with a dot in a program's own description of itself."""
    match = re.search(r"\d+\.\d+(?:\.\d+)*", text)
    return match[0] if match else ""


def _bundled(name: str) -> str | None:
    """A program that came with an NVIDIA wheel or a toolkit rather than on PATH."""
    from kforge.kernel.build.toolchain import toolkit_roots, wheel_roots

    folders = [str(root / "bin") for root in (*wheel_roots(), *toolkit_roots())]
    return shutil.which(name, path=os.pathsep.join(folders))


def _program(name: str, *arguments: str, release: str = "") -> _Probe:
    """A program on PATH, in an NVIDIA wheel or in a CUDA toolkit; `release`: pattern before its version."""

    def probe() -> _Found | _Missing:
        path = shutil.which(name) or _bundled(name)
        if path is None:
            return _Missing("not on PATH, in no NVIDIA wheel, in no toolkit")
        text = _run([path, *(arguments or ("--version",))])
        if text is None:
            return _Missing(f"{path} does not run")
        match = re.search(release + r"\s*v?(\d+(?:\.\d+)+)", text, re.IGNORECASE) if release else None
        return _Found(match[1] if match else _version(text), path)

    return probe


def _package(module: str, *distributions: str) -> _Probe:
    """A Python package, found without importing it."""

    def probe() -> _Found | _Missing:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            spec = None
        if spec is None:
            return _Missing(f"the package {distributions[0] if distributions else module} is not installed")
        for name in distributions or (module,):
            try:
                return _Found(importlib.metadata.version(name), "")
            except importlib.metadata.PackageNotFoundError:
                continue
        return _Found("", "version unknown")

    return probe


def _python() -> _Found | _Missing:
    return _Found(platform.python_version(), sys.executable)


def _driver() -> _Found | _Missing:
    from kforge.kernel.build.toolchain import driver_version

    version = driver_version()
    if version is None:
        return _Missing("libcuda.so.1 cannot be loaded")
    text = Path("/proc/driver/nvidia/version")
    detail = text.read_text().splitlines()[0] if text.is_file() else ""
    release = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", detail)
    return _Found(release[0] if release else "", f"runs CUDA up to {version[0]}.{version[1]}")


def _torch() -> _Found | _Missing:
    if importlib.util.find_spec("torch") is None:
        return _Missing("the package torch is not installed")
    import torch

    return _Found(torch.__version__, f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build")


def _gpu() -> _Found | _Missing:
    if importlib.util.find_spec("torch") is None:
        return _Missing("torch is needed to see it")
    import torch

    if not torch.cuda.is_available():
        why = "torch is a CPU build" if torch.version.cuda is None else "torch finds none it can use"
        return _Missing(why)
    names = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    detail = ", ".join(f"{p.name} (sm_{p.major}{p.minor}, {p.total_memory / 1e9:.0f} GB)" for p in names)
    return _Found(str(len(names)), detail)


def _nvrtc() -> _Found | _Missing:
    # Asked of the module that builds, so that doctor cannot say something else than what is used.
    from kforge.kernel.build.toolchain import driver_version, find_nvrtc

    nvrtc = find_nvrtc()
    if nvrtc is None:
        driver = driver_version()
        newest = "" if driver is None else f" of a version that the driver runs (up to CUDA {driver[0]}.{driver[1]})"
        return _Missing(f"no libnvrtc in an NVIDIA wheel or a toolkit{newest}")
    return _Found(".".join(map(str, nvrtc.version)), f"{nvrtc.path} ({nvrtc.reason})")


def _headers() -> _Found | _Missing:
    from kforge.kernel.build.toolchain import cuda_includes, find_nvrtc, header_version

    nvrtc = find_nvrtc()
    folders = cuda_includes(nvrtc.version if nvrtc else None)
    if not folders:
        return _Missing("no cuda_fp16.h of NVRTC's version in an NVIDIA wheel or a toolkit")
    lacking = [name for name in ("mma.h", "cooperative_groups.h") if not (folders[0] / name).is_file()]
    lacking += [] if len(folders) > 1 else ["cccl (cub, cuda::std)"]
    version = header_version(folders[0])
    detail = str(folders[0]) + (f", without {', '.join(lacking)}" if lacking else "")
    return _Found(".".join(map(str, version)) if version else "", detail)


def _native_call() -> _Found | _Missing:
    if importlib.util.find_spec("torch") is None:
        return _Missing("torch is needed to load it")
    from kforge.kernel import native

    module, text = native.load()
    return _Missing(text) if module is None else _Found("", text)


def _launcher() -> _Found | _Missing:
    # Asked of the registry that launches, for the same reason.
    from kforge.errors import KforgeError
    from kforge.kernel.launchers import choose

    try:
        launcher = choose()
    except KforgeError as error:
        return _Missing(f"{error.message}: {error.hint}" if error.hint else error.message)
    return _Found("", f"{launcher.name} ({launcher.is_available()[1]})")


def _nvcc() -> _Found | _Missing:
    from kforge.kernel.build.toolchain import find_nvcc

    path = find_nvcc()
    if path is None:
        return _Missing("not on PATH, in no toolkit")
    text = _run([str(path), "--version"])
    return _Missing(f"{path} does not run") if text is None else _Found(_version(text), str(path))


def _landlock() -> _Found | _Missing:
    libc = ctypes.CDLL(None, use_errno=True)
    # landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) answers the ABI version; 444 on every Linux ABI
    abi = libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if abi < 1:
        return _Missing(f"the kernel refuses it: {os.strerror(ctypes.get_errno())}")
    return _Found(f"ABI {abi}", "")


def _seccomp() -> _Found | _Missing:
    libc = ctypes.CDLL(None, use_errno=True)
    # prctl(PR_GET_SECCOMP): 0 = built in and not in force, 2 = a filter is in force; EINVAL = not built in
    state = libc.prctl(21, 0, 0, 0, 0)
    if state < 0:
        return _Missing(f"the kernel refuses it: {os.strerror(ctypes.get_errno())}")
    actions = Path("/proc/sys/kernel/seccomp/actions_avail")
    return _Found("", "filters: " + actions.read_text().strip() if actions.is_file() else "")


def _bubblewrap() -> _Found | _Missing:
    path = shutil.which("bwrap")
    if path is None:
        return _Missing("bwrap is not on PATH")
    if _run([path, "--ro-bind", "/", "/", "--dev", "/dev", "true"]) is None:
        return _Missing(f"{path} cannot make a sandbox here (user namespaces may be forbidden)")
    return _Found(_version(_run([path, "--version"]) or ""), path)


_NO_BUILD = "kernels are judged on the host emulator only; the build gate says 'not run'"
_LAUNCH = "the other launchers: one is enough"
_NO_SPEED = "the emulator: right or wrong, speed stays 'untimed'"

# name, probe, why it matters, what works without it
PROBES: list[tuple[str, _Probe, str, str]] = [
    ("python", _python, "runs kforge", "nothing"),
    ("torch", _torch, "reference, capture, baselines", "only --help, runs and doctor"),
    ("driver", _driver, "launches kernels", _NO_SPEED),
    ("GPU", _gpu, "times and profiles kernels", _NO_SPEED),
    ("g++", _program("g++", release=r"\)"), "compiles the host emulator", "kernels can be judged on a GPU only"),
    ("NVRTC", _nvrtc, "builds a kernel in 50 ms, without a GPU too (extras cu12, cu13)", "nvcc, else " + _NO_BUILD),
    ("CUDA headers", _headers, "cuda_fp16.h, mma.h, cub in kernels (extras cu12, cu13)", "kernels that include none"),
    ("nvcc", _nvcc, "builds what NVRTC cannot, and exports", "NVRTC builds; no export"),
    ("launcher", _launcher, "launches kernels, by the driver itself, CuPy or cuda.core", _NO_SPEED),
    ("native call", _native_call, "a repeated Kernel call at half the host time", "repeated calls go through Python"),
    ("tree-sitter", _package("tree_sitter", "tree-sitter"), "reads sources", "nothing can be checked"),
    (
        "tree-sitter-cuda",
        _package("tree_sitter_cuda", "tree-sitter-cuda"),
        "reads kernel signatures",
        "Kernel(signature=...) only",
    ),
    (
        "tree-sitter-python",
        _package("tree_sitter_python", "tree-sitter-python"),
        "reads candidates for the static gate",
        "the static gate says 'not run'",
    ),
    ("cuda-core", _package("cuda.core", "cuda-core"), "a launcher (extras cu12, cu13)", _LAUNCH),
    (
        "cupy",
        _package("cupy", "cupy-cuda13x", "cupy-cuda12x", "cupy"),
        "a launcher, and candidates in CuPy (extras cupy12, cupy13)",
        f"{_LAUNCH}; candidates of other kinds",
    ),
    (
        "pycuda",
        _package("pycuda", "pycuda"),
        "candidates in PyCUDA (extra pycuda: it builds on GPU machines only)",
        "candidates of other kinds",
    ),
    (
        "nvidia-ml-py",
        _package("pynvml", "nvidia-ml-py"),
        "clocks, throttling, energy, other users of the GPU (extras cu12, cu13)",
        "times without them, and the report says so",
    ),
    ("ncu", _program("ncu", release="Version"), "counters of a kernel", "the analytic roofline and the static reading"),
    ("nsys", _program("nsys", release="version"), "gaps between kernels", "torch.profiler"),
    (
        "compute-sanitizer",
        _program("compute-sanitizer", release="version"),
        "memory faults and races on a GPU",
        "the emulator's checked mode",
    ),
    (
        "cuobjdump",
        _program("cuobjdump", release="release"),
        "registers and memory of a cubin",
        "the compiler's own log",
    ),
    ("nvdisasm", _program("nvdisasm", release="release"), "instructions per source line", "no reading of instructions"),
    ("pillow", _package("PIL", "pillow"), "a profile's roofline as PNG (extra png)", "the same as SVG"),
    ("triton", _package("triton", "triton"), "tasks and candidates in Triton", "CUDA tasks; torch.compile on a CPU"),
    ("helion", _package("helion", "helion"), "tasks in Helion", "the other forms of op.py"),
    ("keyring", _package("keyring", "keyring"), "keeps a chat model's key (extra keyring)", "the key in a variable"),
    ("mcp", _package("mcp", "mcp"), "kforge mcp: the judge for other agents (extra mcp)", "all other commands"),
    (
        "ray",
        _package("ray", "ray"),
        "bench --ray: many machines (extra distributed)",
        "this machine, and bench --worker",
    ),
    ("landlock", _landlock, "keeps candidates to their own folder", "a process of its own, named in the report"),
    ("seccomp", _seccomp, "denies candidates exec and sockets", "a process of its own, named in the report"),
    ("bubblewrap", _bubblewrap, "isolates compilers", "Landlock alone, named in the report"),
]


def probe_all() -> list[Tool]:
    """Every tool of PROBES, in order."""
    tools = []
    for name, probe, why, without in PROBES:
        answer = probe()
        if isinstance(answer, _Found):
            tools.append(Tool(name, True, answer.version, answer.detail, why, without))
        else:
            tools.append(Tool(name, False, "", answer.reason, why, without))
    return tools


@dataclass(frozen=True)
class Modes:
    """What the tools found allow: how kernels are built, where they run, whether speed is measured."""

    build: str
    run: str
    nvrtc: str

    @staticmethod
    def of(tools: Sequence[Tool]) -> Modes:
        found = {tool.name: tool for tool in tools if tool.found}
        every = {tool.name: tool for tool in tools}
        if "NVRTC" in found:
            build = f"NVRTC {found['NVRTC'].version}"
        elif "nvcc" in found:
            build = f"nvcc {found['nvcc'].version}"
        else:
            build = "no compiler for the device: the build gate says 'not run' (install the extra cu12 or cu13)"
        if "GPU" in found and "launcher" in found:
            run = f"on the GPU through {found['launcher'].detail}: verified and timed"
        elif "g++" in found:
            lacking = "a launcher" if "GPU" in found else "a GPU"
            run = f"on the host emulator: verified, speed 'untimed' ({lacking} is missing)"
        else:
            run = "nowhere: install g++ for the emulator, or use a machine with a GPU"
        return Modes(build, run, every["NVRTC"].detail)

    def lines(self) -> list[tuple[str, str]]:
        """(what, how) for a person."""
        return [("kernels are built by", self.build), ("kernels run", self.run)]
