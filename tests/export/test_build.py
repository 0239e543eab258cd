"""Exported projects are built, installed into a clean environment and tested; a failing install says one line."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support import unverified

from kforge.export.building import build_error, try_package
from kforge.export.formats import find_format
from kforge.export.package import Options
from kforge.export.placing import place, sealed
from kforge.kernel.build import compilers

NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="needs nvcc")
needs_nvrtc = pytest.mark.skipif(not any(ok for ok, _ in compilers().values()), reason="needs NVRTC or nvcc")


def _architectures(wheel: Path) -> set[tuple[str, int]]:
    """What the fat binary of a wheel's library holds, by its headers: ("code" or "ptx", compute capability)."""
    with zipfile.ZipFile(wheel) as opened:
        data = opened.read(next(n for n in opened.namelist() if n.endswith(".so")))
    found = set()
    for match in re.finditer(b"\x50\xed\x55\xba", data):
        _, _, header, size = struct.unpack_from("<IHHQ", data, match.start())
        at = match.start() + header
        end = at + size
        while at < end:
            kind, _, own, length = struct.unpack_from("<HHIQ", data, at)
            found.add(("code" if kind == 2 else "ptx", struct.unpack_from("<I", data, at + 28)[0]))
            at += own + length
    return found


@needs_nvcc
def test_extension_builds_and_passes_its_own_tests(tmp_path: Path) -> None:
    """One wheel for all Pythons from 3.9 and all torches from 2.10, built without ninja; what needs a GPU is listed.

    It holds code for every architecture that was asked for, and PTX for later ones.
    """
    export = unverified(tmp_path / "task", options=Options(archs=("sm_80", "sm_90a", "compute_90")))
    project = tmp_path / "project"
    place(project, sealed(find_format("extension")(export, "0.1.0")))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("nvcc", "g++", "gcc", "c++", "cc", "sh", "as", "ld", "dirname"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    environment = {"PATH": f"{tools}:{tmp_path}", "CUDA_HOME": ""}
    tried = try_package(project, export.package, tmp_path, environment)
    assert tried.wheel.name.startswith("shift_kernels-0.1.0-cp39-abi3-linux_")
    assert tried.failed == 0
    assert tried.passed >= 9
    assert not (project / "build").exists()
    assert _architectures(tried.wheel) == {("code", 80), ("code", 90), ("ptx", 90)}
    import torch

    if not torch.cuda.is_available():
        assert tried.skipped > 10
        assert tried.not_run == ("needs a CUDA GPU",)


@needs_nvrtc
def test_aot_needs_no_compiler_and_lives_beside_another_export(tmp_path: Path) -> None:
    """A cubin package is pure Python; a second export in the same process has operators of its own."""
    for name in ("shift_one", "shift_two"):
        export = unverified(tmp_path / name, options=Options(name=name))
        files = find_format("aot")(export, "0.1.0")
        cubins = [data for path, data in files.items() if path.endswith(".cubin")]
        assert len(cubins) == 2 and all(bytes(data)[:4] == b"\x7fELF" for data in cubins)  # type: ignore[arg-type]
        place(tmp_path / "project" / name, sealed(files))
    both = [str(tmp_path / "project" / name / "src") for name in ("shift_one", "shift_two")]
    code = (
        "import torch, warnings, shift_one, shift_two\n"
        "warnings.simplefilter('ignore')\n"
        "x = torch.randn(6, 24)\n"
        "layers = [p.Shift(24) for p in (shift_one, shift_two)]\n"
        "assert torch.equal(layers[0](x), layers[1](x))\n"
        "ops = [getattr(torch.ops, p.NAMESPACE) for p in (shift_one, shift_two)]\n"
        "shapes = [o.shift(x.to('meta'), x[0].to('meta')).shape for o in ops]\n"
        "print(ops[0] is ops[1], shapes[0] == shapes[1] == x.shape)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(both)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


STUB = """#!/bin/sh
case "$*" in
  *--version*) echo "Cuda compilation tools, release {release}, V{release}.0";;
  *--dryrun*) echo "#$ TOP=/nowhere" >&2;;
  *) echo "{says}" >&2; exit 1;;
esac
"""
TOO_NEW = "#error -- unsupported GNU version! gcc versions later than 15 are not supported!"
FAILURES = {
    "no nvcc": ("", "", "no nvcc found; install a CUDA toolkit"),
    "wrong CUDA_HOME": ("", "", "no nvcc in CUDA_HOME="),
    "gcc too new": ("13.0", TOO_NEW, "the host compiler is too new for this nvcc; name an older one: NVCC_CCBIN="),
    "no gcc": ("13.0", "nvcc fatal : Failed to preprocess host compiler properties.", "nvcc finds no host compiler"),
    "old nvcc": (
        "12.0",
        "nvcc fatal : Unsupported gpu architecture 'compute_90a'",
        "this nvcc cannot build for sm_90a",
    ),
    "an error": ("13.0", "launch.cu(7): error: expected a ;", "nvcc failed: launch.cu(7): error: expected a ;"),
    "CUDA mismatch": ("13.0", "", "torch 9.9 was built for CUDA 12.8, the toolkit in /nowhere is CUDA 13"),
    "no torch": (
        "13.0",
        "",
        "torch is not visible to the build; install torch, then: pip install --no-build-isolation .",
    ),
    "old setuptools": ("13.0", "", "setuptools 65.5.0 is too old; run: pip install --upgrade 'setuptools>=77'"),
    "old torch": ("13.0", "", "torch 2.1.0 is too old; this package needs torch 2.4 or later"),
}


# One Python with torch, which each case forks from: its first import is most of what a failing build takes.
FORKED = """
import json, os, sys
import setuptools, torch
from torch.utils import cpp_extension

for name, case in json.loads(sys.argv[1]).items():
    if (child := os.fork()) == 0:
        out = os.open(case["log"], os.O_WRONLY | os.O_CREAT)
        os.dup2(out, 1), os.dup2(out, 2)
        os.environ.clear(), os.environ.update(case["environment"])
        if name == "no torch":
            sys.path.insert(0, case["site"])
            for module in [m for m in sys.modules if m.partition(".")[0] == "torch"]:
                del sys.modules[module]
        sys.argv = ["setup.py", "build_ext"]
        exec(case["change"])
        exec(compile(open("setup.py").read(), "setup.py", "exec"))
        sys.exit(0)
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sep="=", flush=True)
"""
CHANGES = {
    "no nvcc": "import shutil; shutil.which = lambda *a, **k: None",
    "old setuptools": "setuptools.__version__ = '65.5.0'",
    "old torch": "torch.__version__ = '2.1.0'",
    "CUDA mismatch": "torch.__version__ = '9.9'; torch.version.cuda = '12.8'",
}


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """(exit code, output) of a build of the same sources that meets each failure."""
    folder = tmp_path_factory.mktemp("install")
    place(folder / "project", sealed(find_format("extension")(unverified(folder / "task"), "0.1.0")))
    cases = {}
    for number, (failure, (release, says, _)) in enumerate(FAILURES.items()):
        own = folder / str(number)
        (own / "bin").mkdir(parents=True)
        (own / "site").mkdir()
        environment = {"PATH": f"{own / 'bin'}:/usr/bin:/bin"}
        if release:
            stub = own / "bin" / "nvcc"
            stub.write_text(STUB.format(release=release, says=says))
            stub.chmod(0o755)
        if failure == "wrong CUDA_HOME":
            environment["CUDA_HOME"] = str(own)
        if failure == "no torch":
            (own / "site" / "torch.py").write_text("raise ImportError('no torch')\n")
        cases[failure] = {
            "log": str(own / "log"),
            "environment": environment,
            "site": str(own / "site"),
            "change": CHANGES.get(failure, ""),
        }
    command = [sys.executable, "-c", FORKED, json.dumps(cases)]
    done = subprocess.run(command, cwd=folder / "project", capture_output=True, text=True, check=True)
    codes = dict(line.rsplit("=", 1) for line in done.stdout.splitlines())
    return {name: (int(codes[name]), Path(str(case["log"])).read_text()) for name, case in cases.items()}


@pytest.mark.parametrize("failure", FAILURES)
def test_install_errors_are_one_line(builds: dict[str, tuple[int, str]], failure: str) -> None:
    """What goes wrong in a build, provoked: the last line says what is missing and what to do."""
    code, said = builds[failure]
    expected = FAILURES[failure][2]
    assert code != 0
    assert said.strip().splitlines()[-1].startswith(f"shift_kernels: {expected}"), said
    assert "Traceback" not in said
    assert build_error(said).startswith(f"shift_kernels: {expected}")
