"""The walls around a candidate, put up by its own process before any of its code or CUDA runs.

setsid, no_new_privs, capabilities dropped, resource limits, Landlock, seccomp. What the machine lacks is named in the
answer, never skipped in silence. Two phases: *build* may start compilers and write its folder; *run* may do neither,
but for a scratch folder.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kforge.worker import landlock, seccomp

_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _CLEAR_ALL = 38, 24, 47, 4
_CAPABILITY_V3 = 0x20080522
_FILE_BYTES = 16 << 30
SCRATCH = "tmp"  # the folder inside the candidate's that stays writable in *run*

_in_force: dict[str, str] = {}


@dataclass(frozen=True)
class Policy:
    """phase: "build" or "run". folder: the candidate's own. readable, writable: paths beyond the usual ones."""

    phase: str
    folder: Path
    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()


def apply(policy: Policy, *, capabilities: bool = False) -> dict[str, str]:
    """Put the walls up around the calling process; returns what `in_force` will say. Irrevocable.

    capabilities: keep those of the caller (the driver may ask a profiler for one). The process must have one thread
    (RuntimeError otherwise): a second one would stay outside the filter.
    """
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        raise RuntimeError(f"a sandbox needs a process of one thread, this one has {threads}")
    libc = ctypes.CDLL(None, use_errno=True)
    os.setsid()
    _in_force["session"] = "own session"
    _in_force["oom"] = _prefer_as_oom_victim()
    _limit_resources()
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _in_force["no_new_privs"] = "in force"
    _in_force["landlock"] = landlock.restrict(_rules(policy))
    _in_force["capabilities"] = "absent: kept for the profiler" if capabilities else _drop_capabilities(libc)
    scoped = _in_force["landlock"].startswith("in force") and landlock.scopes_signals()
    _in_force["seccomp"] = seccomp.install(policy.phase, scoped)
    _in_force["cgroup"] = "not used: a watchdog reads resident memory instead"
    _in_force["phase"] = policy.phase
    return in_force()


def in_force() -> dict[str, str]:
    """Each wall with "in force ..." or "absent: reason"; empty before `apply`."""
    return dict(_in_force)


def _prefer_as_oom_victim() -> str:
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError as error:
        return f"absent: {error.strerror}"
    return "in force: first to go when memory runs out"


def _limit_resources() -> None:
    def lower(what: int, value: int) -> None:
        _, hard = resource.getrlimit(what)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (bound, bound))

    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, _FILE_BYTES)
    lower(resource.RLIMIT_NOFILE, 4096)
    _in_force["rlimits"] = f"core 0, file {_FILE_BYTES >> 30} GiB, 4096 descriptors"


def _drop_capabilities(libc: ctypes.CDLL) -> str:
    # ambient and bounding sets first: dropping the latter needs the capability that the last step gives up
    libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    for capability in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0):
            break
    header = struct.pack("=Ii", _CAPABILITY_V3, 0)
    if libc.capset(ctypes.c_char_p(header), ctypes.c_char_p(bytes(24))):
        return f"absent: {os.strerror(ctypes.get_errno())}"
    return "in force: none left"


def _rules(policy: Policy) -> list[tuple[Path, int]]:
    """CONTRACTS 3: interpreter, packages, CUDA and system read-only, devices of the GPU, own folder."""
    read_execute = [Path(p) for p in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/opt", "/etc/alternatives")]
    read_execute += _interpreter_folders()
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(name):
            read_execute.append(Path(os.environ[name]))
    read_only = [Path(p) for p in ("/etc", "/proc", "/sys", "/run/nvidia-persistenced", "/dev/shm")]
    rules = [(path, landlock.READ_EXECUTE) for path in read_execute]
    rules += [(path, landlock.READ) for path in (*read_only, *policy.readable)]
    rules += [(path, landlock.EVERYTHING) for path in policy.writable]
    rules.append((Path(f"/proc/{os.getpid()}/task"), landlock.READ_WRITE))
    devices = ("null", "zero", "full", "random", "urandom", "tty")
    for entry in sorted(Path("/dev").iterdir()):
        if entry.name in devices or entry.name.startswith("nvidia"):
            rules.append((entry, landlock.DEVICE))
    folder_rights = landlock.EVERYTHING if policy.phase == "build" else landlock.READ
    rules += [(policy.folder, folder_rights), (policy.folder / SCRATCH, landlock.EVERYTHING)]
    return rules


def own_folder(base: Path, *parts: str) -> Path:
    """`base/parts...` as real folders, made where absent. Whatever else a *build* left under such a name goes first.

    A link there would open what it points at to the next process, and let the judge write through it.
    """
    path = base
    for part in parts:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        path.mkdir(exist_ok=True)
    return path


def package_folders() -> list[Path]:
    """Folders of packages on sys.path, in its order. pip --target gives them any name: what holds ours is one."""
    ours = ("torch", "tree_sitter", "tree_sitter_cuda", "numpy")
    named = {"site-packages", "dist-packages"}
    entries = [Path(p) for p in sys.path if p]
    return [e for e in entries if e.name in named or any((e / name).is_dir() for name in ours)]


def _interpreter_folders() -> Sequence[Path]:
    """Where Python, the packages and kforge itself lie: never a folder of the user's that merely is on sys.path."""
    import kforge

    package = Path(kforge.__file__).resolve().parent
    folders = {Path(sys.prefix), Path(sys.base_prefix), Path(sys.exec_prefix), package, package.parent / "templates"}
    folders |= {Path(p) for p in sysconfig.get_paths().values()}
    folders |= set(package_folders())
    home = Path.home()
    return sorted(f for f in folders if f != home and f not in home.parents)
