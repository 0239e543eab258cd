"""What the toolchain can and cannot do is said before work starts, and its own failures are never a kernel's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kforge.errors import BuildError, MissingError, UsageError
from kforge.kernel.build import COMPILERS, BuildRequest, build, check_arch, nvcc, nvrtc
from kforge.kernel.emulator import build as emulator_build
from kforge.kernel.emulator import load

SOURCE = 'extern "C" __global__ void k(float* x) { x[0] = 1; }\n'
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available()[0], reason=nvrtc.is_available()[1])
needs_nvcc = pytest.mark.skipif(not nvcc.is_available()[0], reason=nvcc.is_available()[1])


@needs_nvrtc
@pytest.mark.parametrize(
    "arch", ["sm_10", "sm_999", "sm_80a", "sm_90f", "compute_61", "foo", "", "sm_9", "90", "SM_90"]
)
def test_an_architecture_that_cannot_be_built_is_refused(arch: str) -> None:
    """What the compiler here does not build for is a usage error that lists what it does."""
    with pytest.raises(UsageError) as caught:
        check_arch(arch)
    assert caught.value.message == f"'{arch}' is not an architecture that can be built for here"
    assert caught.value.hint.startswith("nvrtc builds for sm_") and "sm_90" in caught.value.hint


@needs_nvrtc
def test_what_is_taken_does_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each architecture that is accepted, suffixes included, gives a cubin; one beyond the list does not."""
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path))
    numbers = nvrtc.architectures()
    taken = [f"sm_{n}" for n in numbers] + ["sm_90a"] + [f"sm_{n}f" for n in numbers if n >= 100][:1]
    for arch in taken:
        assert build(BuildRequest(SOURCE, "k.cu", ("k",), check_arch(arch), compiler="nvrtc")).cubin[:4] == b"\x7fELF"
    with pytest.raises(BuildError):
        build(BuildRequest(SOURCE, "k.cu", ("k",), f"sm_{min(numbers) - 1}", compiler="nvrtc"))


@needs_nvcc
def test_nvcc_is_asked_where_there_is_no_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is that of the compiler that would build."""
    monkeypatch.delitem(COMPILERS, "nvrtc")
    assert check_arch("sm_90a") == "sm_90a"
    with pytest.raises(UsageError) as caught:
        check_arch("sm_999")
    assert caught.value.hint.startswith("nvcc builds for sm_")


def test_without_a_compiler_the_spelling_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be built, any architecture that could exist is taken."""
    monkeypatch.setattr("kforge.kernel.build.COMPILERS", {})
    assert check_arch("sm_70") == "sm_70"
    with pytest.raises(UsageError, match="'foo' is not an architecture"):
        check_arch("foo")


@needs_nvrtc
def test_the_command_refuses_before_it_works(tmp_path: Path) -> None:
    """--arch, and arch in the settings, end with exit code 2 before the task is even read."""
    for arguments in (["suggest", "absent.py"], ["suggest", "absent.py", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "kforge", *arguments, "--arch", "sm_999"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        if "--json" in arguments:
            error = json.loads(done.stdout.splitlines()[-1])["error"]
            assert error["kind"] == "usage" and "builds for sm_" in error["hint"]
        else:
            assert "'sm_999' is not an architecture" in done.stderr and "Traceback" not in done.stderr


@needs_nvcc
def test_a_host_compiler_that_fails_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host compiler that is missing or broken is what is missing, and no fault of the kernel."""
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path / "cache"))
    request = BuildRequest(SOURCE, "k.cu", ("k",), "sm_90a", compiler="nvcc")
    for broken in ("/bin/false", str(tmp_path / "absent")):
        monkeypatch.setenv("NVCC_CCBIN", broken)
        with pytest.raises(MissingError, match="nvcc cannot use its host compiler: ") as caught:
            build(request)
        assert caught.value.exit_code == 3 and "NVCC_CCBIN" in caught.value.hint
    monkeypatch.delenv("NVCC_CCBIN")
    assert build(request).cubin
    with pytest.raises(BuildError, match="undefined"):
        build(BuildRequest(SOURCE.replace("1;", "no_such_name;"), "k.cu", ("k",), "sm_90a", compiler="nvcc"))


def _program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


BROKEN = {
    "fails": ("#!/bin/sh\nexit 1\n", "does not compile"),
    "does nothing": ("#!/bin/sh\nexit 0\n", "does not compile"),
    "lacks its parts": (
        "#!/bin/sh\necho \"g++: fatal error: cannot execute 'cc1plus'\" >&2\nexit 1\n",
        "cannot execute 'cc1plus'",
    ),
    "is no program": ("\x7fELF but no program", "does not run: Exec format error"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_host_compiler_that_fails_the_emulator(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A C++ compiler that is broken is named, with what to do, in place of a kernel that does not compile."""
    text, words = BROKEN[kind]
    compiler = _program(tmp_path / "broken-g++", text)
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KFORGE_CXX", str(compiler))
    emulator_build.toolchain.cache_clear()
    try:
        with pytest.raises(MissingError) as caught:
            load(SOURCE, "k.cu", ["k"])
    finally:
        emulator_build.toolchain.cache_clear()
    assert str(compiler) in caught.value.message and words in caught.value.message
    assert caught.value.exit_code == 3 and "KFORGE_CXX" in caught.value.hint


def test_a_compiler_that_breaks_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all of ours built and the compiler broken since, the next kernel is not called wrong; a wrong one is."""
    compiler = _program(tmp_path / "later-g++", f'#!/bin/sh\n[ -e {tmp_path}/broken ] && exit 1\nexec g++ "$@"\n')
    monkeypatch.setenv("KFORGE_CXX", str(compiler))
    emulator_build.toolchain.cache_clear()
    try:
        load(SOURCE, "k.cu", ["k"])
        with pytest.raises(BuildError, match="no_such_name"):
            load(SOURCE.replace("1;", "no_such_name;"), "k.cu", ["k"])
        with pytest.raises(BuildError):  # of the linker, without a line of the source
            load(
                SOURCE + 'int kforge_absent(); __device__ int y = kforge_absent();\nasm(".error \\"no\\"");\n',
                "k.cu",
                ["k"],
            )
        (tmp_path / "broken").touch()
        with pytest.raises(MissingError, match="later-g\\+\\+ does not compile"):
            load(SOURCE.replace("1;", "2;"), "k.cu", ["k"])
    finally:
        emulator_build.toolchain.cache_clear()
