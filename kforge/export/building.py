"""Builds an exported project, installs its wheel into a clean environment and runs its tests there."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kforge.errors import ExportError, MissingError

BUILD_S, TEST_S = 900.0, 900.0
_COUNT = re.compile(r"(\d+) (passed|failed|skipped|error|errors)\b")


@dataclass(frozen=True)
class Tried:
    """What happened to a package before it left: its wheel, seconds, numbers of tests, and why some did not run."""

    wheel: Path
    build_s: float
    test_s: float
    passed: int
    failed: int
    skipped: int
    not_run: tuple[str, ...]
    log: str = ""

    def as_dict(self) -> dict[str, object]:
        """For a manifest and for --json."""
        names = ("build_s", "test_s", "passed", "failed", "skipped")
        return {"wheel": self.wheel.name} | {n: getattr(self, n) for n in names} | {"not_run": list(self.not_run)}


def _is_installed(name: str) -> bool:
    """By its metadata: looking for the module `pip` would make setuptools leave distutils to Python from then on."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def try_package(project: Path, package: str, work: Path, env: Mapping[str, str] | None = None) -> Tried:
    """Build the wheel, install it into a fresh environment that borrows torch and pytest, run its tests there.

    ExportError: the build or a test fails (`log` has the output's tail). MissingError: no setuptools or pytest here.
    """
    for name in ("torch", "setuptools", "pytest", "pip"):
        if not _is_installed(name):
            raise MissingError(
                f"the package cannot be tried: no {name} here", f"pip install {name}, or leave the build out"
            )
    environment = {**os.environ, **(env or {}), "PYTHONDONTWRITEBYTECODE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    venv = _fresh(work)
    python = venv / "bin" / "python"
    started = time.monotonic()
    wheel = build_wheel(project, work / "dist", environment)
    built = time.monotonic()
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps", "--no-index"]
    done = _run([*install, str(wheel)], work, environment, BUILD_S)
    if done.returncode:
        raise ExportError(f"the wheel does not install: {_last(done.stdout)}")
    tests = [
        "-m",
        "pytest",
        "-q",
        "-rsfE",
        "--tb=line",
        "--show-capture=no",
        "-p",
        "no:cacheprovider",
        str(project / "tests"),
    ]
    started_tests = time.monotonic()
    clean = {k: v for k, v in environment.items() if k != "PYTHONPATH"}
    done = _run([str(python), *tests], work, clean, TEST_S)
    counts = {kind.rstrip("s"): int(n) for n, kind in _COUNT.findall(done.stdout[-2000:])}
    if done.returncode:
        failed = re.findall(r"^(?:FAILED|ERROR) (.*)$", done.stdout, re.M)
        error = ExportError(f"{package}: its own tests fail: {failed[0] if failed else _last(done.stdout)}")
        error.log = done.stdout[-6000:]  # type: ignore[attr-defined]
        raise error
    return Tried(
        wheel=wheel,
        build_s=round(built - started, 2),
        test_s=round(time.monotonic() - started_tests, 2),
        passed=counts.get("passed", 0),
        failed=counts.get("failed", 0) + counts.get("error", 0),
        skipped=counts.get("skipped", 0),
        not_run=tuple(dict.fromkeys(re.findall(r"^SKIPPED \[\d+\] \S+: (.*)$", done.stdout, re.M))),
        log=done.stdout[-3000:],
    )


def build_wheel(project: Path, out: Path, environment: Mapping[str, str]) -> Path:
    """The wheel of a project, built with this environment's torch. ExportError has the build's own line."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    done = _run([*command, "-w", str(out), str(project)], project, environment, BUILD_S)
    if done.returncode:
        raise ExportError(f"the package does not build: {build_error(done.stdout)}")
    for left in (project / "build", *project.glob("*/*.egg-info"), *project.glob("*.egg-info")):
        shutil.rmtree(left, ignore_errors=True)
    wheels = sorted(out.glob("*.whl"), key=lambda p: p.stat().st_mtime)
    return wheels[-1]


def build_error(log: str) -> str:
    """The line in which the package's own setup.py says what is missing, else the first error of the log."""
    said = re.findall(r"^\s*(\w+_?\w*: (?:no |torch |the |nvcc |this nvcc ).*)$", log, re.M)
    errors = [line.strip() for line in log.splitlines() if "error" in line.lower()]
    errors = [line for line in errors if "subprocess-exited" not in line] or errors  # pip's own, which names nothing
    return said[-1] if said else errors[0] if errors else _last(log)


def _fresh(work: Path) -> Path:
    """A virtual environment without packages of its own; those of this one come last, for torch and pytest."""
    import venv

    folder = work / "venv"
    venv.create(folder, clear=True, with_pip=False, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    borrowed = dict.fromkeys(
        str(Path(str(found.origin)).parent.parent)
        for name in ("torch", "pytest", "numpy", "typing_extensions")
        if (found := importlib.util.find_spec(name)) is not None and found.origin is not None
    )
    borrowed |= dict.fromkeys(p for p in sys.path if p.endswith(("site-packages", "dist-packages")))
    (site / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed))
    return folder


def _run(
    command: list[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise ExportError(f"{' '.join(command[:4])} took more than {seconds:.0f} s") from error


def _last(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"
