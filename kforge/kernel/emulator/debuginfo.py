"""Which source line each instrumented access of a traced library stands in, and its global variables.

Read with binutils when the library is built, because a candidate's run phase may not execute anything.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kforge.errors import MissingError

_HOOK = re.compile(r"^\s*([0-9a-f]+):\s+(?:call|bl)\s.*<__tsan_\w+", re.M)
_ADDRESS = re.compile(r"^\s*([0-9a-f]+):", re.M)
_OBJECT = re.compile(r"^([0-9a-f]+) ([0-9a-f]+) [bBdDuV] (\S+)$")
_OURS = re.compile(r"/(?:kforge_emulator|shadow)/|/kforge_emulator_prelude|^\?\?|/usr/|/nvidia/|/include/")

Run = Callable[..., subprocess.CompletedProcess[str]]


@dataclass(frozen=True)
class Symbols:
    """lines: (file, line) by the offset that a hook returns to. variables: (name, offset, bytes) of device globals."""

    lines: dict[str, tuple[str, int]]
    variables: tuple[tuple[str, int, int], ...]

    @classmethod
    def read(cls, library: Path) -> Symbols:
        """What write_symbols left beside the library."""
        data = json.loads((library.parent / "symbols.json").read_text())
        return cls({k: (v[0], v[1]) for k, v in data["lines"].items()}, tuple(tuple(v) for v in data["variables"]))


def write_symbols(library: Path, run: Run) -> None:
    """Writes symbols.json beside `library`. MissingError without objdump, addr2line and nm (package binutils)."""
    tools = {name: shutil.which(name) for name in ("objdump", "addr2line", "nm")}
    if missing := [name for name, path in tools.items() if path is None]:
        raise MissingError(f"mode traced needs {', '.join(missing)}", "install binutils (it comes with g++)")
    name = library.name
    code = run(["-d", "--no-show-raw-insn", name], library.parent, tools["objdump"]).stdout
    calls = {}  # return address -> address inside the call
    for match in _HOOK.finditer(code):
        following = _ADDRESS.search(code, match.end())
        if following:
            calls[following[1]] = match[1]
    (library.parent / "addresses").write_text("\n".join(calls.values()))
    listing = run(["-a", "-i", "-e", name, "@addresses"], library.parent, tools["addr2line"]).stdout
    (library.parent / "addresses").unlink()
    frames = re.split(r"^0x0*([0-9a-f]+)$", listing, flags=re.M)
    place = {a: _users(text) for a, text in zip(frames[1::2], frames[2::2], strict=True)}
    lines = {back: place[at] for back, at in calls.items() if at in place}
    symbols = run(["-S", "-p", name], library.parent, tools["nm"]).stdout
    (library.parent / "symbols.json").write_text(
        json.dumps({"lines": lines, "variables": [v for line in symbols.splitlines() if (v := _variable(line))]})
    )


def _users(text: str) -> tuple[str, int]:
    """The innermost frame in the user's source."""
    frames = [f.rpartition(":") for f in re.sub(r" \(discriminator \d+\)", "", text).split()]
    chosen = next((f for f in frames if f[0] and not _OURS.search(f[0])), frames[-1] if frames else ("", "", "0"))
    return os.path.normpath(chosen[0]) if chosen[0] else "", int(chosen[2]) if chosen[2].isdigit() else 0


def _variable(line: str) -> tuple[str, int, int] | None:
    """A line of nm as a global of the user's: functions' statics, guards and the emulator's own are none."""
    match = _OBJECT.match(line)
    if not match or re.match(r"_Z(Z|G|T)|__|_ZS|completed", match[3]) or "kforge" in match[3]:
        return None
    return _plain(match[3]), int(match[1], 16), int(match[2], 16)


def _plain(mangled: str) -> str:
    """The last part of a mangled variable's name: _ZN2ns5countE -> count."""
    position, last = 0, mangled
    head = re.match(r"_ZN?L?K?", mangled)
    if not head:
        return mangled.split(".")[0]
    position = head.end()
    while m := re.compile(r"L?(\d+)").match(mangled, position):
        last = mangled[m.end() : m.end() + int(m[1])]
        position = m.end() + int(m[1])
    return last
