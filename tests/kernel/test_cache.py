"""The build cache: a damaged entry is built again, and a cache that cannot be written is named, with what to do."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kforge.errors import BuildError, MissingError
from kforge.kernel.build import BuildRequest, build, cache, nvrtc
from kforge.kernel.build.cache import MANIFEST, cached, read_only_cache

CONTENT = b"kernel " * 100


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache; `anew` below forgets what this process has verified."""
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What a process has verified or loaded is forgotten, as in a process that starts."""

    def forget() -> None:
        monkeypatch.setattr(cache, "_sound", set())
        monkeypatch.setattr("kforge.kernel.build._in_process", {})

    forget()
    return forget


def _make(folder: Path) -> None:
    (folder / "part").mkdir()
    (folder / "part" / "data").write_bytes(CONTENT)
    (folder / "meta.json").write_text("{}")


def _flip(path: Path, at: int = 50) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _swap_for_file(entry: Path) -> None:
    shutil.rmtree(entry)
    entry.write_text("no folder")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "a bit flipped": lambda entry: _flip(entry / "part" / "data"),
    "truncated": lambda entry: os.truncate(entry / "part" / "data", 10),
    "emptied": lambda entry: os.truncate(entry / "part" / "data", 0),
    "grown": lambda entry: (entry / "part" / "data").write_bytes(CONTENT + b"\0"),
    "a file gone": lambda entry: (entry / "meta.json").unlink(),
    "a file too many": lambda entry: (entry / "other").write_text("x"),
    "a file that is a folder": lambda entry: ((entry / "meta.json").unlink(), (entry / "meta.json").mkdir()),
    "manifest gone": lambda entry: (entry / MANIFEST).unlink(),
    "manifest flipped": lambda entry: _flip(entry / MANIFEST),
    "manifest no text": lambda entry: (entry / MANIFEST).write_bytes(b"\xff\xfe\0"),
    "manifest of another form": lambda entry: (entry / MANIFEST).write_text("[1]"),
    "manifest emptied": lambda entry: os.truncate(entry / MANIFEST, 0),
    "emptied folder": lambda entry: (shutil.rmtree(entry), entry.mkdir()),
    "a file in the entry's place": _swap_for_file,
    "gone": shutil.rmtree,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_built_again(damage: str, root: Path, anew: Callable[[], None]) -> None:
    """Whatever happened to an entry, the next process gets the right content, and the entry is whole again."""
    builds: list[Path] = []

    def make(folder: Path) -> None:
        builds.append(folder)
        _make(folder)

    entry = cached("kind", "key", "it", make)
    anew()
    assert cached("kind", "key", "it", make) == entry and len(builds) == 1
    DAMAGE[damage](entry)
    anew()
    with read_only_cache(), pytest.raises(BuildError, match=r"(damaged|not) in the read-only cache: it"):
        cached("kind", "key", "it", make)
    assert cached("kind", "key", "it", make) == entry and len(builds) == 2
    assert (entry / "part" / "data").read_bytes() == CONTENT and not (entry / "other").exists()
    anew()
    assert cached("kind", "key", "it", make) == entry and len(builds) == 2


def test_a_failed_build_leaves_nothing(root: Path, anew: Callable[[], None]) -> None:
    """A build that fails half way leaves neither an entry nor debris, and the next one succeeds."""

    def fail(folder: Path) -> None:
        _make(folder)
        raise BuildError("no")

    with pytest.raises(BuildError, match="no"):
        cached("kind", "key", "it", fail)
    assert [p.name for p in (root / "kind").iterdir()] == ["key.lock"]
    assert (cached("kind", "key", "it", _make) / "meta.json").is_file()


@pytest.mark.skipif(not nvrtc.is_available()[0], reason=nvrtc.is_available()[1])
@pytest.mark.parametrize("name", ["kernel.cubin", "build.json", "kernel.cu"])
def test_a_damaged_cubin_is_built_again(name: str, root: Path, anew: Callable[[], None]) -> None:
    """A flipped bit in a cubin, or in what is kept about it, is found, and the kernel is compiled again."""
    request = BuildRequest('extern "C" __global__ void k(float* x) { x[0] = 1; }\n', "k.cu", ("k",), "sm_90a")
    first = build(request)
    good = first.cubin
    for damage in (_flip, lambda path: os.truncate(path, 20)):
        damage(first.path.parent / name)
        anew()
        again = build(request)
        assert again.cubin == good and not again.from_cache and again.names == first.names


def test_a_damaged_emulator_library_is_built_again(root: Path, anew: Callable[[], None], tmp_path: Path) -> None:
    """A truncated library of the emulator, of a kernel or the runtime, is built again instead of failing the kernel."""
    script = tmp_path / "call.py"
    script.write_text(
        "import torch\nfrom kforge.kernel import Kernel\n"
        """k = Kernel("k", 'extern "C" __global__ void k(float* y) { y[0] = 4; }\\n', block=1)\n"""
        "y = torch.zeros(1)\nk(y)\nprint(y.item())\n"
    )

    def call() -> str:
        return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout.strip()

    assert call() == "4.0"
    libraries = sorted((root / "emulator").glob("*/*.so"))
    assert len(libraries) == 2  # the kernel's and the runtime
    for library in libraries:
        os.truncate(library, 1000)
    assert call() == "4.0"
    assert all(library.stat().st_size > 1000 for library in libraries)


def _refused(action: Callable[[], object]) -> MissingError:
    with pytest.raises(MissingError) as caught:
        action()
    assert caught.value.exit_code == 3 and "KFORGE_CACHE" in caught.value.hint and "\n" not in caught.value.message
    return caught.value


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: Callable[[], None]) -> None:
    """A file in the cache's place, or a file system that takes nothing, is one error with folder and way out."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/kforge")):
        monkeypatch.setenv("KFORGE_CACHE", str(place))
        error = _refused(lambda: cached("kind", "key", "it", _make))
        assert error.message.startswith(f"the build cache {place} cannot be written: ")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_no_fault_of_the_kernel(code: int, root: Path, anew: Callable[[], None]) -> None:
    """A disk that fills while a kernel is built, for us or for the compiler, is named as such, and leaves no entry."""

    def full(folder: Path) -> None:
        raise OSError(code, os.strerror(code))

    def compiler(folder: Path) -> None:
        raise BuildError("kernel.cu(1): error: x", log=f"fatal error: a.o: {os.strerror(errno.ENOSPC)}")

    assert os.strerror(code) in _refused(lambda: cached("kind", "key", "it", full)).message
    assert "no room for building in" in _refused(lambda: cached("kind", "key", "it", compiler)).message
    assert [p.name for p in (root / "kind").iterdir()] == ["key.lock"]


def test_other_errors_stay_what_they_are(root: Path, anew: Callable[[], None]) -> None:
    """An error that has nothing to do with the cache's folder is not called a broken cache."""

    def lost(folder: Path) -> None:
        Path("/nowhere/at/all").read_text()

    with pytest.raises(FileNotFoundError):
        cached("kind", "key", "it", lost)


def test_a_relative_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: Callable[[], None]) -> None:
    """KFORGE_CACHE may be relative to the working directory, though compilers run elsewhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KFORGE_CACHE", "here")
    assert cached("kind", "key", "it", _make) == tmp_path / "here" / "kind" / "key"
