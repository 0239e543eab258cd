"""Window kernels: pooling and small convolutions, where a thread's outputs are neighbours and share what they read.

A warp walks a strip of 32 * COLS columns, ROWS rows (and DEPTHS slices) at a time. Each line of the operand is read
once, as aligned vectors, and serves every output of the thread that it has a tap for; only tests against the borders
are left of the padding. Results change places within the warp before they are stored, so that stores are whole lines
even where the result's rows are not aligned.
"""

from __future__ import annotations

from collections.abc import Iterator

from kforge.engine.emit.access import _product, _stride, size_of
from kforge.engine.emit.cgen import BYTES, Sizes, Types
from kforge.engine.emit.columnsums import ColumnsCode, outputs_of
from kforge.engine.emit.kernelcode import KernelCode, name_loops, parameters, render, template_types
from kforge.engine.emit.neighbours import NeighbourCode
from kforge.engine.emit.neighbours import outputs_of as outputs_of_warp
from kforge.engine.emit.sliding import MOST, Line, Sliding, sliding_of
from kforge.engine.emit.slidingbase import COUNTS, SlidingBase
from kforge.engine.emit.slidingcode import SlidingCode
from kforge.engine.families import Target, register
from kforge.engine.graph.ir import Program
from kforge.engine.graph.symbols import Poly, product

WIDEST_WINDOW = 128  # columns that a window spans where a block joins them in shared memory


@register("window")
def window(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to programs with one window whose taps lie along the loops."""
    sliding = sliding_of(program)
    if sliding is None:
        return
    if sliding.taps <= MOST:
        yield _sliding(program, types, f"{name}_window", sliding)
    if sliding.weight is None and not sliding.free and _within_lanes(sliding.lines[-1]):
        yield _neighbours(program, types, f"{name}_lanes", sliding)
    if sliding.weight is None and not sliding.free and sliding.lines[-1].extent <= WIDEST_WINDOW:
        yield _columns(program, types, f"{name}_columns", sliding)


def _sliding(program: Program, types: Types, name: str, sliding: Sliding) -> KernelCode:
    """Neighbouring outputs in each thread."""
    sizes = _sizes(program, sliding)
    code = SlidingCode(program, types, sizes, sliding)
    counts = COUNTS[-len(sliding.lines) :]
    inner = sliding.lines[-1]
    columns = max(1, (8 if _widest(program) == 2 else 4) // (inner.stride & -inner.stride))
    constants: dict[str, int | str] = {"BLOCK": 128, "COLS": columns, "VEC": 16 // _widest(program), "ALIGNED": 1}
    tune: dict[str, tuple[int | str, ...]] = {"BLOCK": (128, 256, 64), "COLS": (8, 4, 2, 1), "VEC": (8, 4, 2, 1)}
    tune["ALIGNED"] = (1, 0)
    rows = {"ROWS": (8, 4, 2, 1), "DEPTHS": (2, 4, 1)}
    if columns > 4:
        rows["ROWS"] = (4, 8, 2, 1)
    if len(counts) == 3:
        rows["ROWS"] = (2, 1, 4)
    if sliding.weight is None and len(counts) > 1:
        constants["BLOCK"] = 256
    for count in counts[:-1]:
        constants[count], tune[count] = rows[count][0], rows[count]
    what = "a convolution" if sliding.weight is not None else "pooling"
    across = " in every line of its tile" if len(counts) > 1 else ""
    return _built(
        code,
        name,
        "window",
        f"{what} in one kernel: each thread computes neighbouring outputs from lines that it reads once",
        constants,
        tune,
        counts,
        note=f"// Warps take strips of 32 * COLS neighbouring outputs: each thread computes COLS of them{across}.\n",
        require={
            "COLS": "COLS == 1 or VEC > 1",
            "VEC": "VEC == 1 or " + _together(code, types, inner.stride),
            "ALIGNED": "ALIGNED == 0 or " + _aligned(program, types, sizes, sliding),
        },
    )


def _built(
    code: SlidingBase,
    name: str,
    schedule: str,
    idea: str,
    constants: dict[str, int | str],
    tune: dict[str, tuple[int | str, ...]],
    counts: tuple[str, ...],
    require: dict[str, str],
    note: str = "",
) -> KernelCode:
    """The kernel of a body; WIDE, which all have, is added. counts: outputs of a tile along each line; note: above it.

    Template parameters are the types, then the constants in their order.
    """
    program, sizes = code.program, code.sizes
    constants, tune = constants | {"WIDE": 0}, tune | {"WIDE": (0, 1)}
    strips, warps = _strips(sizes, code.sliding, counts), code.shares_blocks
    size_types = {s: "long long" if s == "planes" else "int" for s in sizes.params}
    element_types = template_types(program, code.types)
    text = render(
        "cuda/gather.cu.j2",
        name=name,
        types=element_types,
        counts=list(constants),
        parameters=parameters(program, code.types, size_types),
        body=code.emit(),
    )
    fits = f"{strips}{' + BLOCK' if warps else ''} <= 4294967295{_planes(sizes, code.sliding)}"
    return KernelCode(
        name=name,
        program=program,
        schedule=schedule,
        idea=idea,
        text=note + text,
        template=(*element_types, *constants),
        helpers=frozenset(code.helpers | {"index", "offset", "pack", *(["interleave"] if warps else [])}),
        sizes=dict(sizes.params),
        grid=f"ceil_div({strips}, BLOCK // 32)" if warps else strips,
        block="BLOCK",
        constants=constants,
        tune=tune,
        require={**require, "WIDE": f"WIDE == 1 or {fits}"},
        size_types=size_types,
    )


def _within_lanes(line: Line) -> bool:
    """Whether a warp computes most of what its lanes hold, with one column or with several in each."""
    return line.stride in (1, 2, 4) and line.padding + line.extent <= 8


def _neighbours(program: Program, types: Types, name: str, sliding: Sliding) -> KernelCode:
    """Each element in one lane."""
    sizes = _sizes(program, sliding)
    code = NeighbourCode(program, types, sizes, sliding)
    counts = COUNTS[-len(sliding.lines) : -1]
    inner = sliding.lines[-1]
    columns = max(1, 16 // _widest(program) // inner.stride)
    constants: dict[str, int | str] = {"BLOCK": 256, "COLS": columns, "VECTOR": 1, "ALIGNED": 1}
    tune: dict[str, tuple[int | str, ...]] = {"BLOCK": (256, 128, 512), "COLS": (columns, 2, 1)}
    tune |= {"VECTOR": (1, 0), "ALIGNED": (1, 0)}
    rows = (2, 1, 4) if len(counts) == 2 else (8, 4, 2, 1)
    for count in counts:
        tune[count] = rows if count == "ROWS" else (2, 4, 1)
        constants[count] = tune[count][0]

    vector = _together(code, types, 0).replace("VEC", f"(COLS * {inner.stride})" if inner.stride > 1 else "COLS")
    aligned = _aligned(program, types, sizes, sliding)
    return _built(
        code,
        name,
        "lanes",
        "pooling in one kernel: each element is loaded by one lane, and lanes give each other their columns",
        constants,
        tune,
        (*counts, outputs_of_warp(inner)),
        require={"VECTOR": f"VECTOR == 0 or {vector}", "ALIGNED": f"ALIGNED == 0 or {aligned}"},
    )


def _columns(program: Program, types: Types, name: str, sliding: Sliding) -> KernelCode:
    """Down the columns first, then along the rows."""
    sizes = _sizes(program, sliding)
    code = ColumnsCode(program, types, sizes, sliding)
    counts = COUNTS[-len(sliding.lines) : -1]
    inner = sliding.lines[-1]
    large = any(line.extent > 16 for line in sliding.lines[:-1])
    constants: dict[str, int | str] = {"BLOCK": 256, "VEC": 16 // _widest(program)}
    tune: dict[str, tuple[int | str, ...]] = {"BLOCK": (256, 128, 512), "VEC": (8, 4, 2, 1)}
    for count in counts:
        apart = all(line.stride >= line.extent for line in sliding.lines)  # no line is read twice
        tune[count] = (1,) if large else (1, 2) if apart or count == "DEPTHS" else (4, 2, 1)
        constants[count] = tune[count][0]
    unaligned = inner.stride > 1 and inner.reach.end.hint() % 2 == 1
    first = inner.stride >= 4 or unaligned or sliding.taps > MOST
    return _built(
        code,
        name,
        "columns_first" if first else "columns_then",
        "pooling in one kernel: columns of a stretch first, then each output from the columns that it reaches",
        constants,
        tune,
        (*counts, outputs_of(inner)),
        require={"VEC": "VEC == 1 or " + _together(code, types, 0)},
    )


def _sizes(program: Program, sliding: Sliding) -> Sizes:
    """Sizes by the names that a person would give them."""
    sizes = Sizes()
    labels = ("depth", "height", "width")[-len(sliding.lines) :]
    sizes.add("planes", product(v.size for v in sliding.outer))
    for label, line in zip(labels, sliding.lines, strict=True):
        sizes.add(label, line.reach.end)
    for label, line in zip(labels, sliding.lines, strict=True):
        if line.var.size != line.reach.end:
            sizes.add(f"out_{label}", line.var.size)
    for k, v in enumerate(sliding.outer):
        if k > 0:
            sizes.add("channels" if len(sliding.outer) == 2 else f"planes_{k}", v.size)
    for name in [n for n, p in sizes.params.items() if p.constant is not None and n != "planes"]:
        del sizes.params[name]
    plain = Program(program.name, (), (), program.stores)
    name_loops(sizes, plain)
    return sizes


def _widest(program: Program) -> int:
    outer = [b for b in program.buffers if b.kind != "temporary"]  # none: it stands between two other kernels
    return max(BYTES[b.dtype] for b in outer or program.buffers)


def _text(sizes: Sizes, poly: Poly) -> str:
    """A size in the launch language."""
    if poly.constant is not None:
        return str(poly.constant)
    return next(name for name, p in sizes.params.items() if p == poly)


def _strips(sizes: Sizes, sliding: Sliding, counts: tuple[str, ...]) -> str:
    """How many tiles there are; counts: outputs of a tile along each line."""
    parts = ["planes"]
    for count, line in zip(counts, sliding.lines, strict=True):
        each = "32 * COLS" if count == "COLS" else count
        parts.append(f"ceil_div({_text(sizes, line.var.size)}, {each})")
    return " * ".join(parts)


def _planes(sizes: Sizes, sliding: Sliding) -> str:
    """A plane of the operand, and one of the result, is counted in 32 bits; nothing to ask of rows alone."""
    if len(sliding.lines) == 1:
        return ""
    parts = []
    for planes in ([line.reach.end for line in sliding.lines], [line.var.size for line in sliding.lines]):
        parts.append(" * ".join(_text(sizes, size) for size in planes) + " <= 1073741823")
    return "".join(f" and {part}" for part in dict.fromkeys(parts))


def _aligned(program: Program, types: Types, sizes: Sizes, sliding: Sliding) -> str:
    """When COLS neighbours of every line of the results are one vector."""
    inner = sliding.lines[-1].var
    parts = [f"{_text(sizes, inner.size)} % COLS == 0"]
    for s in program.stores:
        size = size_of(s.buffer, types)
        parts += [f"COLS * {size} <= 16", f"aligned({s.buffer.name}, COLS * {size})"]
        for monomial, c in (s.index - Poly.of(inner)).terms:
            multiple = _stride(monomial, c)
            if inner.size.constant is None and multiple.divide(inner.size) is not None:
                continue  # a multiple of the width
            if multiple.constant is None or multiple.constant % 8:
                parts.append(f"{_product(sizes.write(multiple))} % COLS == 0")
    return " and ".join(dict.fromkeys(parts))


def _together(code: SlidingBase, types: Types, stride: int) -> str:
    """When VEC neighbours of every line move at once."""
    parts = [f"COLS * {stride & -stride} % VEC == 0"] if stride else []
    multiples: dict[str, None] = {}
    for access in code.lines_read.values():
        parts += [f"VEC * {size_of(access.buffer, types)} <= 16"]
        parts += [f"aligned({access.buffer.name}, VEC * {size_of(access.buffer, types)})"]
        for monomial, c in access.base.terms:
            multiple = _stride(monomial, c)
            if multiple.constant is None or multiple.constant % 8:
                multiples[_product(code.sizes.write(multiple))] = None
    multiples[_text(code.sizes, code.sliding.lines[-1].reach.end)] = None
    parts += [f"{m} % VEC == 0" for m in multiples]
    return " and ".join(dict.fromkeys(parts))
