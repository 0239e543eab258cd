"""Torch's CUDA allocator in a candidate's process while its answers are judged: guard bands and one of two patterns.

The library (guard.cpp) is compiled once by the judge, before there is a candidate. It is never in force where times or
memory are measured.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

from kforge.errors import BuildError, MissingError
from kforge.worker.poison import PATTERNS, ZEROS

SOURCE = Path(__file__).with_suffix(".cpp")
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-Wall")
_WORDS = 2048
# By pattern the byte of the bands: NaN in every floating format, whose weight of 0 still shows, then a large number,
# which no maximum swallows.
BANDS = {PATTERNS[0]: 0xFF, PATTERNS[1]: 0x7F, ZEROS: 0xFF}


def library() -> Path:
    """The compiled allocator, from the cache or built now. MissingError without a C++ compiler."""
    return compiled(SOURCE, "the guard allocator")


def compiled(source: Path, what: str) -> Path:
    """The shared library of one C++ file, from the cache or built now. what: the library in words, for errors."""
    from kforge.kernel.build.cache import cached, content_key

    name = os.environ.get("KFORGE_CXX", "g++")
    compiler = shutil.which(name)
    if compiler is None:
        raise MissingError(f"{what} needs a C++ compiler and {name} is not here", "install g++")
    target = f"{source.stem}.so"

    def make(folder: Path) -> None:
        command = [compiler, *_FLAGS, str(source), "-o", target, "-ldl"]
        out = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if out.returncode:
            raise BuildError(f"{what} does not compile", "please report this", out.stderr)

    key = content_key(source=source.read_text(), flags=_FLAGS, compiler=str(Path(compiler).resolve()))
    return cached(source.stem, key, what, make) / target


class Guard:
    """In force in this process from here on; made before torch's first CUDA allocation. RuntimeError where torch has no
    pluggable allocator or has allocated already.
    """

    def __init__(self, path: Path) -> None:
        import torch

        self._library = ctypes.CDLL(str(path))
        self._library.kforge_guard_peak.restype = ctypes.c_ulonglong
        self._library.kforge_guard_check.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        self._allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), "kforge_guard_alloc", "kforge_guard_free")
        torch.cuda.memory.change_current_allocator(self._allocator)
        self.set_pattern(PATTERNS[0])

    def set_pattern(self, pattern: int) -> None:
        """From now on fresh device memory consists of this byte, the bands around it of another."""
        self._library.kforge_guard_pattern(pattern, BANDS[pattern])

    def begin(self) -> None:
        """What is allocated now is where `peak_bytes` counts from."""
        self._library.kforge_guard_begin()

    @property
    def peak_bytes(self) -> int:
        """Most bytes that torch has held at once since `begin`, above what it held then."""
        return int(self._library.kforge_guard_peak())

    def damage(self) -> str:
        """With the device idle: what was written outside of every allocation since the last look, or nothing."""
        text = ctypes.create_string_buffer(_WORDS)
        self._library.kforge_guard_check(text, _WORDS)
        return text.value.decode(errors="replace")
