"""SASS of a cubin through nvdisasm: instructions with their source lines, loops and control codes, and what they say.

Needs no GPU. Control codes: the upper bits of each 128-bit instruction hold the issue stall, the scoreboard that the
instruction sets and those it waits for (Jia et al., "Dissecting the Volta GPU Architecture", section 2.1).
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from kforge.kernel.build.toolchain import toolkit_roots, wheel_roots
from kforge.profiling.evidence import KernelSass, SassLine
from kforge.profiling.sources import Unavailable
from kforge.profiling.sources.opcodes import MEMORY, classify, width

_SECTION = re.compile(r"^\.text\.(\S+):$")
_PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_LABEL = re.compile(r"^(\.L\w+):$")
_CODE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*);\s+/\* 0x([0-9a-f]{16}) \*/")
_UPPER = re.compile(r"^\s+/\* 0x([0-9a-f]{16}) \*/")
_NO_BARRIER = 7
LOOP_WEIGHT = 10  # an instruction in a loop counts as so many times its neighbour outside, per level


@dataclass(frozen=True)
class Instruction:
    """One instruction. file, line: the innermost place in the user's sources. depth: of loops around it.

    stall: cycles before the next one of this warp can issue. sets: scoreboards that its results (write) or its operands
    (read) hold. waits: scoreboards it waits for, as a bit mask.
    """

    address: int
    opcode: str
    operands: str
    predicate: str
    file: str
    line: int
    stall: int
    sets: tuple[int, ...]
    waits: int
    depth: int = 0

    @property
    def kind(self) -> str:
        return classify(self.opcode)

    @property
    def weight(self) -> int:
        return int(LOOP_WEIGHT**self.depth)

    @property
    def text(self) -> str:
        """As nvdisasm writes it."""
        return f"{'@' + self.predicate + ' ' if self.predicate else ''}{self.opcode} {self.operands}".strip()


@lru_cache(maxsize=1)
def nvdisasm() -> Path:
    """The disassembler: on PATH, of a toolkit, of NVIDIA's wheels, of Triton. Unavailable where there is none."""
    found = shutil.which("nvdisasm")
    places = [Path(found)] if found else []
    places += [root / "bin" / "nvdisasm" for root in (*toolkit_roots(), *wheel_roots())]
    try:
        import importlib.util

        spec = importlib.util.find_spec("triton")
    except (ImportError, ValueError):
        spec = None
    if spec and spec.origin:
        places.append(Path(spec.origin).parent / "backends" / "nvidia" / "bin" / "nvdisasm")
    for place in places:
        if place.is_file():
            return place
    raise Unavailable("sass", "nvdisasm is not here", "pip install nvidia-cuda-nvdisasm, or install a CUDA toolkit")


def disassemble(cubin: Path, files: Sequence[str] = ()) -> dict[str, list[Instruction]]:
    """Instructions by symbol. files: base names of the user's sources, to which inlined code is attributed."""
    # -ndf: no analysis of the data flow, a quarter of its time; it names the targets of indirect branches only
    command = [str(nvdisasm()), "-gi", "-c", "-hex", "-ndf", str(cubin)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    if done.returncode:
        words = (done.stderr.strip().splitlines() or ["it failed"])[-1]
        raise Unavailable("sass", f"nvdisasm: {words}", "a newer nvdisasm may know this architecture")
    return parse(done.stdout, files)


def parse(listing: str, files: Sequence[str] = ()) -> dict[str, list[Instruction]]:
    """The same from nvdisasm's listing (-gi -c -hex)."""
    found: dict[str, list[Instruction]] = {}
    for name, lines in _sections(listing.splitlines()):
        instructions, labels = _instructions(lines, frozenset(files))
        if instructions:
            found[name] = _with_loops(instructions, labels)
    return found


def _sections(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    name = ""
    body: list[str] = []
    for line in lines:
        match = _SECTION.match(line)
        if match or line.startswith("//---"):
            if name:
                yield name, body
            name, body = (match[1] if match else ""), []
        elif name:
            body.append(line)
    if name:
        yield name, body


def _instructions(lines: Sequence[str], files: frozenset[str]) -> tuple[list[Instruction], dict[str, int]]:
    found: list[Instruction] = []
    labels: dict[str, int] = {}
    pending: list[str] = []
    frames: list[tuple[str, int]] = []
    fresh = False  # the next place begins a new stack of frames
    for number, line in enumerate(lines):
        if place := _PLACE.match(line):
            if fresh:
                frames, fresh = [], False
            frames.append((Path(place[1]).name, int(place[2])))
        elif label := _LABEL.match(line):
            pending.append(label[1])
        elif code := _CODE.match(line):
            fresh = True
            upper = _UPPER.match(lines[number + 1]) if number + 1 < len(lines) else None
            stall, sets, waits = _control(int(upper[1], 16) if upper else 0)
            file, at = _innermost(frames, files)
            address = int(code[1], 16)
            labels.update((name, address) for name in pending)
            pending = []
            operands = " ".join(code[4].split())
            found.append(Instruction(address, code[3], operands, code[2] or "", file, at, stall, sets, waits))
    return found, labels


def _innermost(frames: Sequence[tuple[str, int]], files: frozenset[str]) -> tuple[str, int]:
    return next((f for f in frames if f[0] in files), frames[-1] if frames else ("", 0))


def _control(upper: int) -> tuple[int, tuple[int, ...], int]:
    sets = tuple(b for b in ((upper >> 46) & 7, (upper >> 49) & 7) if b != _NO_BARRIER)
    return (upper >> 41) & 15, sets, (upper >> 52) & 63


def _with_loops(instructions: list[Instruction], labels: dict[str, int]) -> list[Instruction]:
    """depth from branches to earlier addresses. The last one of a kernel, to itself, pads and is no loop."""
    spans = []
    for i in instructions:
        target = re.search(r"`\((\.L\w+)\)", i.operands)
        if i.opcode.startswith("BRA") and target and labels.get(target[1], i.address) < i.address:
            spans.append((labels[target[1]], i.address))
    outer: dict[int, int] = {}  # several branches back to one place are one loop
    for start, end in spans:
        outer[start] = max(end, outer.get(start, 0))
    return [replace(i, depth=sum(a <= i.address <= b for a, b in outer.items())) for i in instructions]


def summarise(instructions: Sequence[Instruction]) -> KernelSass:
    """What the tools read: counts by class, widths, traffic to local memory, how many loads are in flight."""
    mix: Counter[str] = Counter()
    weighted: Counter[str] = Counter()
    loads: Counter[int] = Counter()
    stores: Counter[int] = Counter()
    lines: dict[tuple[str, int], Counter[str]] = {}
    weights: Counter[tuple[str, int]] = Counter()
    widths: dict[tuple[str, int], list[int]] = {}
    code: dict[tuple[str, int], list[tuple[int, str]]] = {}
    for i in instructions:
        if i.opcode == "NOP":
            continue
        kind, place = i.kind, (i.file, i.line)
        mix[kind] += 1
        weighted[kind] += i.weight
        lines.setdefault(place, Counter())[kind] += 1
        weights[place] += i.weight
        code.setdefault(place, []).append((i.address, i.text))
        if kind in MEMORY:
            (loads if kind == "global load" else stores)[width(i.opcode)] += i.weight
            widths.setdefault(place, []).append(width(i.opcode))
    flight, at = loads_in_flight(instructions)
    matrix = sorted({i.opcode.split(".")[0] for i in instructions if i.kind == "matrix"})
    return KernelSass(
        instructions=sum(mix.values()),
        mix=dict(mix),
        weighted=dict(weighted),
        load_widths={str(k): v for k, v in sorted(loads.items())},
        store_widths={str(k): v for k, v in sorted(stores.items())},
        matrix=tuple(matrix),
        loop=any(i.depth for i in instructions),
        loads_in_flight=flight,
        load_line=at,
        lines=tuple(
            SassLine(
                file, line, dict(c), weights[file, line], min(widths.get((file, line), [0])), tuple(code[file, line])
            )
            for (file, line), c in sorted(lines.items())
            if line
        ),
    )


def loads_in_flight(instructions: Sequence[Instruction]) -> tuple[int, tuple[str, int] | None]:
    """The most bytes of global loads a thread has under way before it waits for one of them, in its deepest loop.

    Returns (bytes, place of the first of them); 0 where nothing is loaded. Asynchronous copies wait for nothing here
    and are not counted.
    """
    depth = max((i.depth for i in instructions if i.opcode.startswith("LDG.")), default=0)
    best, place = 0, None
    open_: dict[int, int] = {}  # scoreboard -> bytes under way
    first: tuple[str, int] | None = None
    for i in instructions:
        waited = [b for b in open_ if i.waits >> b & 1]
        if waited:
            if sum(open_.values()) > best:
                best, place = sum(open_.values()), first
            for b in waited:
                del open_[b]
            first = first if open_ else None
        if i.opcode.startswith("LDG.") and i.depth == depth and i.sets:
            open_[i.sets[0]] = open_.get(i.sets[0], 0) + width(i.opcode)
            first = first or (i.file, i.line)
    if sum(open_.values()) > best:
        best, place = sum(open_.values()), first
    return best, place
