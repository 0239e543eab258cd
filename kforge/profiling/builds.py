"""What builds and graphs say of kernels, as evidence: SASS by kernel, symbols, counted bytes and operations."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import ChildFailed, KforgeError
from kforge.profiling.evidence import KernelEvidence, KernelSass, plain_name
from kforge.profiling.sources import Unavailable
from kforge.worker.answers import count, seconds

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.profiling.sources.ncu import Profiled
    from kforge.task import Cost

AT_ONCE = 4  # disassemblers
LIBRARY = {
    *("@", "mm", "bmm", "addmm", "baddbmm", "addbmm", "matmul", "linear", "einsum", "tensordot"),
    *("convolution", "_int_mm", "_scaled_mm"),
    *(f"{name}{n}d" for name in ("conv", "conv_transpose") for n in (1, 2, 3)),
}
# What no kernel exceeds on any device: a child that says more is lying.
MOST_REGISTERS, MOST_LOCAL, MOST_SHARED, MOST_GRID = 255, 512 << 10, 1 << 20, (1 << 31) - 1


def disassembled(
    kernels: Sequence[KernelEvidence], cubins: Mapping[str, Path], files: Sequence[str]
) -> dict[str, KernelSass]:
    """SASS by kernel name; each cubin is read once, all side by side. Unavailable without a disassembler."""
    from kforge.profiling.sources import sass

    found: dict[str, KernelSass] = {}
    distinct = list(dict.fromkeys(cubins.values()))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        listings = list(pool.map(lambda cubin: sass.disassemble(cubin, files), distinct))
    for cubin, listing in zip(distinct, listings, strict=True):
        for kernel in kernels:
            if cubins.get(kernel.name) == cubin and kernel.symbol in listing:
                found[kernel.name] = sass.summarise(listing[kernel.symbol])
    return found


def with_counters(kernels: Sequence[KernelEvidence], launches: Sequence[Profiled]) -> list[KernelEvidence]:
    """The kernels with what ncu saw of their longest launch."""
    from kforge.profiling.sources.ncu_report import access_of

    found = list(kernels)
    for launch in launches:
        for i, kernel in enumerate(found):
            if launch.kernel != kernel.symbol and plain_name(launch.kernel) != plain_name(kernel.name):
                continue
            duration = launch.counters.get("duration_ns")
            if (kernel.counter("duration_ns") or 0.0) < (duration or 1.0):
                found[i] = attributed(
                    replace(
                        kernel,
                        counters=launch.counters,
                        sampled=launch.sampled,
                        access=access_of(launch.sampled),
                        us=duration / 1e3 if duration else kernel.us,
                    )
                )
            break
    return found


def attributed(kernel: KernelEvidence) -> KernelEvidence:
    """The kernel with ncu's instructions put on the lines of the user's sources, where the SASS says which they are.

    ncu names the innermost place, which may be a header of CUDA's; its addresses are those of the loaded code.
    """
    if kernel.sass is None or not kernel.sampled:
        return kernel
    from kforge.profiling.sources.ncu_report import access_of

    places = {at: (line.file, line.line, text) for line in kernel.sass.lines for at, text in line.code}
    base = min(row.address for row in kernel.sampled)
    moved = []
    for row in kernel.sampled:
        file, number, text = places.get(row.address - base, ("", 0, ""))
        if text and _opcode(text) != _opcode(row.sass):
            return kernel  # another build than the one that was disassembled
        moved.append(replace(row, file=file, line=number) if number else row)
    return replace(kernel, sampled=tuple(moved), access=access_of(moved))


def _opcode(text: str) -> str:
    words = text.split()
    return next((word.split(".")[0] for word in words if not word.startswith("@")), "")


def static_kernels(rows: Sequence[Mapping[str, Any]], files: Sequence[str], folder: Path) -> tuple[KernelEvidence, ...]:
    """Kernels of a static report (kernel/report.py) with their SASS, where there is a disassembler.

    rows come from a candidate's process: ChildFailed where they have another form, or name a cubin outside `folder`.
    """
    with described():
        cubins = {str(row["name"]): cubin_in(folder, row) for row in rows}
        kernels = [from_report(row, cubins[str(row["name"])]) for row in rows]
    try:
        found = disassembled(kernels, cubins, files)
    except Unavailable:
        found = {}
    return tuple(replace(k, sass=found.get(k.name)) for k in kernels)


@contextmanager
def described() -> Iterator[None]:
    """Around the reading of what a candidate's process says of its kernels: ChildFailed where it has another form."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ChildFailed("protocol", f"a malformed description of a kernel: {error!r}") from error


def made_by_others(candidate: Candidate) -> bool:
    """Whether kernels are made by what compiles in the candidate's own process: Triton, load_inline and the like."""
    text = candidate.files.get(candidate.module, "")
    return any(maker in text for maker in ("triton", "helion", "cupy", "pycuda", "cpp_extension"))


def geometry(row: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Grid and block of a launch. ValueError for what no device can launch."""
    grid, block = (tuple(count(n, most) for n in row[key]) for key, most in (("grid", MOST_GRID), ("block", 1024)))
    if not (len(grid) == len(block) == 3 and 0 < prod(block) <= 1024):
        raise ValueError(f"no launch: grid {grid}, block {block}")
    return grid, block


def _with_figures(kernel: KernelEvidence, row: Mapping[str, Any], shared: str) -> KernelEvidence:
    """With what the compiler says of it, within what any device has. shared: the name of static shared memory."""
    return replace(
        kernel,
        registers=count(row["registers"], MOST_REGISTERS),
        spill_bytes=count(row["spill_bytes"]),
        stack=count(row["stack"], MOST_LOCAL),
        shared=count(row[shared], MOST_SHARED),
    )


def cubin_in(folder: Path, row: Mapping[str, Any]) -> Path:
    """The cubin that a row names. ValueError for one outside the candidate's folder."""
    cubin = Path(str(row["cubin"])).resolve()
    if not cubin.is_relative_to(folder.resolve()):
        raise ValueError(f"a cubin outside the candidate's folder: {cubin}")
    return cubin


def from_report(row: Mapping[str, Any], cubin: Path) -> KernelEvidence:
    """A row of the static report: no launch is known, so occupancy is what the report could say."""
    name = str(row["name"])
    share = row.get("occupancy")
    kernel = KernelEvidence(
        name=name,
        symbol=symbol_in(cubin, name),
        occupancy=None if share is None else _share(share),
        occupancy_limit=str(row.get("occupancy_limit", "")) if share is not None else "",
    )
    return _with_figures(kernel, row, "shared")


def _share(value: Any) -> float:
    share = seconds(value)
    if share > 1:
        raise ValueError(f"an occupancy of {share:g}")
    return share


def from_launch(row: Mapping[str, Any]) -> KernelEvidence:
    """A row of worker/profiled.py; geometry and occupancy are added by whoever knows the architecture."""
    kernel = KernelEvidence(
        name=str(row["kernel"]),
        symbol=str(row["symbol"]),
        file=str(row["file"]),
        launches=count(row["count"]),
    )
    return _with_figures(kernel, row, "static_shared")


def counted(cost: Cost | None) -> dict[str, float]:
    """Bytes and operations by kind of the least traffic, as plain numbers."""
    if cost is None:
        return {}
    return {"read_bytes": float(cost.read_bytes), "write_bytes": float(cost.write_bytes)} | {
        kind: float(n) for kind, n in cost.flops.items()
    }


def products(cost: Cost | None) -> tuple[str, ...]:
    """The matrix products of a graph, each by the type whose rate it may have."""
    from kforge.task.counting import MATMULS

    if cost is None:
        return ()
    found = [node for node in cost.nodes if node.op in MATMULS]
    return tuple((cost.tensor_dtype or "float32") if node.kind == "tensor" else "float32" for node in found)


def library_products(candidate: Candidate) -> tuple[str, ...]:
    """Products that a candidate's module calls of torch, by name: functions, `@`, its own nn.Linear or nn.Conv2d."""
    try:
        tree = ast.parse(candidate.files[candidate.module])
    except (SyntaxError, RecursionError, MemoryError):  # the judge says so
        return ()
    made = {
        target.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and _called(node.value).startswith(("Conv", "Linear"))
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    found = []
    for node in ast.walk(tree):
        name = "@" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) else _called(node)
        if name in LIBRARY or name in made:
            found.append(name)
    return tuple(sorted(found))


def _called(node: ast.AST) -> str:
    """The last part of the name that is called; empty where nothing is."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def longest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One row a kernel: of its launches the one with most threads."""
    best: dict[str, Mapping[str, Any]] = {}

    def threads(row: Mapping[str, Any]) -> int:
        return prod((*geometry(row)[0], *geometry(row)[1])) if "kernel" in row else 0

    for row in rows:
        name = str(row["kernel"] if "kernel" in row else row["name"])
        if name not in best or threads(row) > threads(best[name]):
            best[name] = row
    return list(best.values())


def symbol_in(cubin: Path, name: str) -> str:
    """The symbol of a kernel in a build of the cache."""
    try:
        names = json.loads((cubin.parent / "build.json").read_text())["names"]
        pairs = {str(expression): str(symbol) for expression, symbol in names.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise KforgeError(f"the build report of {name} cannot be read: {error}") from error
    for expression, symbol in pairs.items():
        if plain_name(expression) == plain_name(name):
            return symbol
    return name
