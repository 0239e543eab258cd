"""Reading a candidate: text or one clear line, whatever stands beside the module, and never a hang."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from kforge.errors import BuildError, UsageError
from kforge.kernel import Module
from kforge.kernel.candidate import MAX_FILES, Candidate
from kforge.kernel.sources import MAX_BYTES

MODULE = "class ModelNew: pass\n"


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """A module with one source beside it."""
    (tmp_path / "op_kforge.cu").write_text("// kernel\n")
    path = tmp_path / "op_kforge.py"
    path.write_text(MODULE)
    return path


def test_what_belongs_to_it(module: Path) -> None:
    """Sources beside the module belong to it; other files do not."""
    (module.parent / "a.cuh").write_text("a")
    (module.parent / "b.h").write_text("b")
    (module.parent / "notes.bin").write_bytes(b"\xff\0")
    os.mkfifo(module.parent / "pipe")
    found = Candidate.read(module, proposer="user")
    assert found.files == {"op_kforge.py": MODULE, "op_kforge.cu": "// kernel\n", "a.cuh": "a", "b.h": "b"}


def _bind(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:  # a socket's name may have 107 bytes only
        socket.socket(socket.AF_UNIX).bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "binary": (lambda p: p.write_bytes(b"\x7fELF\x02\xff"), "is no UTF-8 text: byte 5 is 0xff"),
    "UTF-16": (lambda p: p.write_bytes("int x;".encode("utf-16")), "is no UTF-8 text: byte 0 is 0xff"),
    "null bytes": (lambda p: p.write_bytes(b"int\0x;"), "is no text: byte 3 is null"),
    "a folder": (lambda p: p.mkdir(), "is a folder, not a source file"),
    "a pipe": (lambda p: os.mkfifo(p), "is a pipe, not a source file"),
    "a socket": (_bind, "cannot be read: No such device or address"),
    "a device": (lambda p: p.symlink_to("/dev/zero"), "is a device, not a source file"),
    "a terminal": (lambda p: p.symlink_to("/dev/null"), "is a device, not a source file"),
    "a dangling link": (lambda p: p.symlink_to("nowhere"), "cannot be read: No such file or directory"),
    "a link to itself": (lambda p: p.symlink_to(p.name), "cannot be read: Too many levels of symbolic links"),
    "huge": (lambda p: (p.touch(), os.truncate(p, 1 << 40)), f"has more than {MAX_BYTES >> 20} MiB"),
}


@pytest.mark.parametrize("name", ["x.h", "op_kforge.cu", "op_kforge.py"])
@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_source_is_named(kind: str, name: str, module: Path) -> None:
    """Anything else under a source's name is one line with the path and what it is."""
    make, words = BAD[kind]
    path = module.parent / name
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(UsageError) as caught:
        Candidate.read(module)
    assert caught.value.message.startswith(f"{path} {words}") and "\n" not in caught.value.message
    assert caught.value.exit_code == 2 and caught.value.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_what_may_not_be_read_is_named(module: Path) -> None:
    """A file without permission is named with the reason."""
    (module.parent / "op_kforge.cu").chmod(0)
    with pytest.raises(UsageError, match=r"op_kforge\.cu cannot be read: Permission denied"):
        Candidate.read(module)


def test_a_missing_module_or_folder(tmp_path: Path) -> None:
    """A module that is not there, or a name that cannot be one, is a usage error."""
    for path in (tmp_path / "no_kforge.py", tmp_path / "no" / "op_kforge.py", tmp_path / "a\0b.py"):
        with pytest.raises(UsageError, match="cannot be read"):
            Candidate.read(path)


def test_byte_order_mark_and_line_ends(module: Path) -> None:
    """A byte order mark is no part of the text, and line ends are newlines, in every source."""
    module.write_bytes(b"\xef\xbb\xbf" + MODULE.replace("\n", "\r\n").encode())
    (module.parent / "op_kforge.cu").write_bytes(b"\xef\xbb\xbfint x;\r\nint y;\r")
    assert Candidate.read(module).files == {"op_kforge.py": MODULE, "op_kforge.cu": "int x;\nint y;\n"}


def test_too_many_files(module: Path) -> None:
    """A folder full of headers is refused before they are read."""
    for i in range(MAX_FILES):
        (module.parent / f"{i}.h").touch()
    with pytest.raises(UsageError, match=r"101 sources lie beside .* a candidate has at most 100"):
        Candidate.read(module)


def test_a_kernel_of_a_binary_source(tmp_path: Path) -> None:
    """Module and Kernel read their source in the same way; what is none is a BuildError that says so."""
    (tmp_path / "k.cu").write_bytes(b"\xff\xff")
    with pytest.raises(BuildError, match=r"k\.cu is no UTF-8 text"):
        Module(tmp_path / "k.cu")
    (tmp_path / "k.cu").write_bytes(b"\xef\xbb\xbf__global__ void k() {}\n")
    assert Module(tmp_path / "k.cu").text == "__global__ void k() {}\n"
