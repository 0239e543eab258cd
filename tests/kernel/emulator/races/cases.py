"""Reads the kernels beside this file with their launches and marked lines, and runs them under the race detector."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from kforge.kernel.emulator import Program, load
from kforge.kernel.emulator.findings import Finding, Region

HERE = Path(__file__).parent
WORDS = 4096  # of each of the four arguments
ORDERS = (0, 2)


@dataclass(frozen=True)
class Case:
    """A kernel of a file: its launch, and the pair of lines whose accesses race (None: clean)."""

    file: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    cluster: int
    shared: int
    cooperative: bool
    lines: tuple[int, int] | None


@lru_cache(maxsize=2)
def cases(file: str) -> tuple[Case, ...]:
    """Every KERNEL of races/<file>, in order."""
    found = []
    lines = (HERE / file).read_text().splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith("KERNEL(")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        body = lines[start:end]
        options = dict(re.findall(r"(\w+)=([\dx]+)", " ".join(line.partition("// ")[2] for line in body)))
        marked = [start + 1 + i for i, line in enumerate(body) for _ in range(line.count("@"))]

        def sizes(name: str, given: dict[str, str] = options) -> tuple[int, ...]:
            return (*(int(n) for n in given[name].split("x")), 1, 1)[:3]

        assert len(marked) in (0, 2), body[0]
        found.append(Case(
            file, re.findall(r"\w+", body[0])[1], sizes("grid"), sizes("block"), int(options.get("cluster", 1)),
            int(options.get("shared", 0)), "cooperative" in body[0], (marked[0], marked[1]) if marked else None,
        ))  # fmt: skip
    return tuple(found)


@lru_cache(maxsize=2)
def program(file: str) -> Program:
    """All kernels of races/<file>, built once with the detector in."""
    return load((HERE / file).read_text(), file, [c.kernel for c in cases(file)], mode="traced")


def findings(case: Case, orders: Sequence[int] = ORDERS, built: Program | None = None) -> list[Finding]:
    """What the detector reports in these thread orders, warnings included. built: in place of the file's program."""
    out: list[Finding] = []
    built = built or program(case.file)
    for order in orders:
        x = np.random.default_rng(0).standard_normal(WORDS).astype(np.float32)
        arrays = {"x": x, "y": np.zeros_like(x), "n": np.zeros(WORDS, np.int32), "f": np.zeros(WORDS, np.uint32)}
        regions = [Region(name, a.ctypes.data, a.nbytes) for name, a in arrays.items()]
        built.launch(
            case.kernel, case.grid, case.block, case.shared, [ctypes.c_void_p(r.address) for r in regions],
            (case.cluster, 1, 1), order, case.cooperative, regions, raise_findings=False,
        )  # fmt: skip
        out += built.findings
    return out


def found(case: Case, reported: Sequence[Finding]) -> bool:
    """Whether the planted pair of lines is among the races."""
    assert case.lines is not None
    pairs = [sorted((f.line, f.other_line)) for f in reported if f.kind == "race"]
    return sorted(case.lines) in pairs
