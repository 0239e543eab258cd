"""What a compiler is asked for and what it answers, and how its log becomes an error or a resource report."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from kforge.errors import BuildError


@dataclass(frozen=True)
class BuildRequest:
    """One cubin: the prepared text, the name expressions it must contain, the architecture, extra header folders.

    include_keys name the packages behind `includes` with their versions; they enter the hash, paths do not.
    """

    text: str
    filename: str
    kernels: tuple[str, ...]
    arch: str
    includes: tuple[Path, ...] = ()
    include_keys: tuple[str, ...] = ()
    compiler: str = "auto"  # auto | nvrtc | nvcc
    what: str = ""  # the specialisation in words


@dataclass(frozen=True)
class Image:
    """What a compiler made: the cubin, name expression -> symbol, its log, its version."""

    cubin: bytes
    names: dict[str, str]
    log: str
    compiler: str


@dataclass(frozen=True)
class Resources:
    """ptxas's figures of one kernel: registers a thread, bytes of static shared memory, stack and spills."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    barriers: int = 0

    @property
    def spill_bytes(self) -> int:
        return self.spill_stores + self.spill_loads


@dataclass(frozen=True)
class Build:
    """A built cubin on disk: path, symbols and resources by name expression, the log, and whether it was cached."""

    path: Path
    arch: str
    names: dict[str, str]
    resources: dict[str, Resources] = field(default_factory=dict)
    log: str = ""
    compiler: str = ""
    seconds: float = 0.0
    from_cache: bool = False

    @property
    def cubin(self) -> bytes:
        return self.path.read_bytes()


_ERROR = re.compile(r"^(?P<where>[^\n(]*?[(:]\d+[):]*\d*:?)\s*(?P<kind>catastrophic error|fatal error|error)\b", re.M)
_FUNCTION = re.compile(r"Compiling entry function '([^']+)'|Function properties for '?([^'\s]+)'?")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?")
_SMEM = re.compile(r"(\d+) bytes smem")


def compiler_error(log: str, request: BuildRequest) -> BuildError:
    """A BuildError whose message is the compiler's first error line; the hint shows the source line."""
    lines = [line for line in log.splitlines() if line.strip()]
    at = next((i for i, line in enumerate(lines) if _ERROR.match(line)), None)
    if at is None:
        at = next((i for i, line in enumerate(lines) if "error" in line.lower()), 0 if lines else None)
    message = lines[at].strip() if at is not None else "the compiler failed without a message"
    excerpt = [line.strip() for line in lines[at + 1 : at + 2]] if at is not None else []
    return BuildError(f"{message}", hint=" ".join(excerpt), log=log)


def parse_resources(log: str) -> dict[str, Resources]:
    """Symbol -> figures, from the log of `ptxas -v`."""
    found: dict[str, dict[str, int]] = {}
    current: dict[str, int] | None = None
    entry: dict[str, int] | None = None
    for line in log.splitlines():
        if match := _FUNCTION.search(line):
            if match.group(1):
                entry = current = found.setdefault(match.group(1), {})
            else:
                current = found.get(match.group(2), {})  # figures of a called function belong to nobody
        elif current is not None and (match := _STACK.search(line)):
            current.update(zip(("stack", "stores", "loads"), map(int, match.groups()), strict=True))
        elif entry is not None and (match := _USED.search(line)):
            entry["registers"] = int(match.group(1))
            entry["barriers"] = int(match.group(2) or 0)
            smem = _SMEM.search(line)
            entry["shared"] = int(smem.group(1)) if smem else 0
    return {
        symbol: Resources(
            registers=f["registers"],
            shared=f.get("shared", 0),
            stack=f.get("stack", 0),
            spill_stores=f.get("stores", 0),
            spill_loads=f.get("loads", 0),
            barriers=f.get("barriers", 0),
        )
        for symbol, f in found.items()
        if "registers" in f
    }
