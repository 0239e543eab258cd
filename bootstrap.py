#!/usr/bin/env python3
"""One command on a fresh machine: make .venv beside this file, install kforge with its pins, run what is asked.

    python3 bootstrap.py suggest examples/softmax.py     any kforge command, with its arguments
    python3 bootstrap.py test                            the whole test suite (further arguments go to pytest)

Options, before the command:
    --system-torch    use the torch of this Python instead of the pinned one
    --cuda 12|13      major version of the CUDA wheels (default: what the driver runs, 13 without one)

Needs Python 3.11 or newer and g++; only the standard library is used here.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.metadata
import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".kforge-bootstrap"
TORCH = ((2, 11), (2, 15))  # from, below: as in pyproject.toml


def say(text: str) -> None:
    """Narration goes to stderr: stdout belongs to the command."""
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


def stop(text: str) -> None:
    """One line and exit code 3: a part is missing without which nothing can be done."""
    say(text)
    raise SystemExit(3)


def driver_cuda() -> int | None:
    """The newest CUDA major version that the driver runs; None without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version = ctypes.c_int()
    return version.value // 1000 if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value else None


def system_torch() -> str | None:
    """The version of this Python's torch when kforge can use it."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    release = tuple(int(part) for part in version.split(".")[:2])
    return version if TORCH[0] <= release < TORCH[1] else None


def choose_cuda(asked: str | None) -> tuple[str, str]:
    """The CUDA major version of the wheels, and why."""
    if asked is not None:
        if asked not in {"12", "13"}:
            stop(f"--cuda {asked}: choose 12 or 13")
        return asked, "as asked"
    driver = driver_cuda()
    if driver == 12:
        return "12", "the driver runs CUDA 12, the pinned torch needs 13: use the GPU through --system-torch"
    return "13", "no driver here" if driver is None else f"the driver runs CUDA {driver}"


def install(extras: list[str], use_system_torch: bool, why: str) -> None:
    """Make .venv hold exactly the pins of constraints.txt; nothing is done when it already does."""
    pins = (ROOT / "constraints.txt").read_text()
    state = hashlib.sha256(
        "\n".join([pins, (ROOT / "pyproject.toml").read_text(), str(use_system_torch), sys.version]).encode()
    ).hexdigest()
    stamp = STAMP.read_text().split() if STAMP.is_file() else []
    done = set(stamp[1:]) if stamp[:1] == [state] else set()
    if set(extras) <= done:
        return
    if stamp and stamp[0] != state:
        say("the pins, this Python or the choice of torch have changed: .venv is made anew")
    if not done:
        say(f"making {VENV} with Python {sys.version.split()[0]}")
        STAMP.unlink(missing_ok=True)
        try:
            venv.create(VENV, clear=VENV.is_dir() and bool(stamp), with_pip=True, system_site_packages=use_system_torch)
        except subprocess.CalledProcessError:
            stop("this Python has no ensurepip: install python3-venv, then try again")
    dropped: tuple[str, ...] = ("cuda-bindings==",) if "cu12" in extras else ()
    if use_system_torch:
        dropped += ("torch==", "triton==", "cuda-bindings==", "nvidia-")  # another torch has pins of its own for these
    lines = [line for line in pins.splitlines() if not line.startswith(dropped)]
    if use_system_torch:
        lines.append(f"torch=={importlib.metadata.version('torch')}")
    constraints = VENV / "constraints.txt"
    constraints.write_text("\n".join(lines) + "\n")
    say(f"installing kforge[{','.join(extras)}] with the pins of constraints.txt (a minute or two)")
    say(f"{extras[0]}: {why}")
    target = f"{ROOT}[{','.join(extras)}]"
    command = [str(PYTHON), "-m", "pip", "install", "--quiet", "-c", str(constraints), "-e", target]
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode != 0:
        stop("pip could not install kforge: the lines above say why")
    STAMP.write_text(" ".join([state, *sorted(done | set(extras))]) + "\n")


def main(argv: list[str]) -> None:
    """Read the options, install, and become the command."""
    if sys.version_info < (3, 11):  # noqa: UP036 (an older Python can still start this file)
        stop(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    use_system_torch, cuda = False, None
    while argv and argv[0].startswith("--"):
        option = argv.pop(0)
        if option == "--system-torch":
            use_system_torch = True
        elif option == "--cuda" and argv:
            cuda = argv.pop(0)
        else:
            print(__doc__)
            raise SystemExit(0 if option == "--help" else 2)
    if not argv:
        print(__doc__)
        raise SystemExit(2)
    found = system_torch()
    if use_system_torch and found is None:
        stop("--system-torch: this Python has no torch from 2.11 to 2.14")
    if found and not use_system_torch and not STAMP.is_file():
        say(f"this Python has torch {found}; --system-torch would use it instead of the pinned one")
    testing = argv[0] == "test"
    major, why = choose_cuda(cuda)
    install([f"cu{major}", *(["test"] if testing else [])], use_system_torch, why)
    command = [str(PYTHON), "-m", "pytest", *argv[1:]] if testing else [str(VENV / "bin" / "kforge"), *argv]
    if testing:
        os.chdir(ROOT)
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
