"""Convolutions in halves on Hopper's tensor cores, with what follows element by element in the same kernel.

The ring, its one feeding thread and the two multiplying warpgroups are those of product.py. Images lie channels last
in a frame of zeros (calls/implicit.py), so that the tile of a tap is one of the same matrix, so many rows further on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from kforge.engine.calls.implicit import OWN_RATE, STEP, Frame
from kforge.engine.coalescing import sizes_of
from kforge.engine.emit.cgen import BYTES, Sizes, Types
from kforge.engine.emit.kernelcode import KernelCode, render, template_types, wrap
from kforge.engine.emit.passes import plan
from kforge.engine.emit.rowbase import Style
from kforge.engine.families import Target, register
from kforge.engine.families.pointwise import PointwiseCode
from kforge.engine.families.product_parts import HALF, PROCESSORS
from kforge.engine.graph.ir import SCATTERS, Expr, Program, walk
from kforge.engine.graph.symbols import Poly, Var, product
from kforge.engine.graph.tensors import linear
from kforge.engine.handlers.implicit import CONVOLUTION, Walk

SHARED, SLABS = 232448, 21504  # bytes: of a block; of the sums on their way, with what aligning the ring takes
BYTES_PER_SECOND = 4e12
LONG = 2304  # depth from which on the products of a tile hide little else
TAKEN = (
    "full empty ring memory tiles_down tiles_across tiles stage parity step to tap further part k batch at a b d from "
    "before top first pair below beside slab framed col row inside i sums channel ready turn m left right place "
    "release mma pitch places lines wide tall warpgroup warp lane STEPS BM BN STAGES TURNS GROUP VEC PITCH ITEMS WIDTH "
    "HALVES ACROSS LEFT_BYTES RIGHT_BYTES"
)

FRAMED = '''\
def framed(x):
    """x (batch, ..., values) as matrices of lines, to be copied by tiles of 64 x 64."""
    x = x if x.numel() else x.new_zeros(1, 1, x.shape[-1])
    return TensorMap(x.flatten(1, -2), (1, 64, 64), swizzle=128, l2=256)'''
OVERLAPPING = '''\
def overlapping(x):
    """x (batch, ..., values) as matrices of lines of 64 values, each a line of x and the beginning of the next ones."""
    x = x if x.numel() else x.new_zeros(1, 64, x.shape[-1])
    x, values = x.flatten(1, -2), x.shape[-1]
    lines = x.as_strided((x.shape[0], x.shape[1], 64), (x.shape[1] * values, values, 1))
    return TensorMap(lines, (1, 64, 64), swizzle=128, l2=256)'''
FILTERS = '''\
def filters_map(x):
    """x, a line for each filter, to be copied by tiles of 64 x 64."""
    return TensorMap(x if x.numel() else x.new_zeros(1, x.shape[-1]), (64, 64), swizzle=128, l2=256)'''


@dataclass(frozen=True)
class Axis:
    """One or several spatial dimensions that a kernel walks over as one. loop: none where there is but one place.

    around: how long it is in the frame.
    """

    loop: Var | None
    around: Poly

    @property
    def size(self) -> Poly:
        return self.loop.size if self.loop is not None else Poly.of(1)


@dataclass(frozen=True)
class Convolution:
    """The one convolution of a program over images, filters and places. left, right: loads of filters and images."""

    window: Expr
    left: Expr
    right: Expr
    frame: Frame
    image: Var | None
    axes: tuple[Axis, ...]

    @property
    def places(self) -> Poly:
        """From the first place of an image to behind the last, in the frame."""
        found = Poly()
        for axis in self.axes:
            found = found * axis.around + axis.size - Poly.of(1)
        return found + Poly.of(1)


def convolves(program: Program) -> bool:
    """Whether a program has a convolution that only this family computes."""
    return any(e.window is not None and e.window.kind == CONVOLUTION for e in walk(s.value for s in program.stores))


def convolution_of(program: Program) -> Convolution | None:
    """The convolution of a program whose loops are images, filters and places, in this order."""
    windows = {e.uid: e for e in walk(s.value for s in program.stores) if e.window is not None}
    if len(windows) != 1 or program.rows or len(program.cols) < 2 or program.reductions or program.scans:
        return None
    (window,) = windows.values()
    if (
        not isinstance(window.window, Walk)
        or window.window.frame is None
        or any(s.value.op in SCATTERS or s.once for s in program.stores)
    ):
        return None
    (depth,), factors = window.window.free, window.args[0].args
    for left, right in (factors, factors[::-1]):
        if left.buffer is None or right.buffer is None or len(right.buffer.shape) < 3:
            continue
        images, *around, inner = right.buffer.shape
        image, loops = (None, program.cols) if images.constant == 1 else (program.cols[0], program.cols[1:])
        if left.index != linear((Poly.of(loops[0]), Poly.of(depth)), left.buffer.shape):
            continue
        for axes in _axes(tuple(around), loops[1:]):
            places = [Poly() if v is None else Poly.of(v) for v in (image, *(axis.loop for axis in axes))]
            if right.index == linear((*places, Poly.of(depth)), (images, *(axis.around for axis in axes), inner)):
                return Convolution(window, left, right, window.window.frame, image, axes)
    return None


def _axes(around: tuple[Poly, ...], loops: tuple[Var, ...]) -> Iterator[tuple[Axis, ...]]:
    """Every way in which the loops may be made of spatial dimensions; the last one is a loop."""
    if not around and not loops:
        yield ()
    for count in range(1, len(around) + 1 if loops else 0):
        for rest in _axes(around[count:], loops[1:]):
            yield (Axis(loops[0], product(around[:count])), *rest)
    if around and loops:
        for rest in _axes(around[1:], loops):
            yield (Axis(None, around[0]), *rest)


@dataclass
class ConvolutionCode(PointwiseCode):
    """The statements for VEC neighbours of a line of sums."""

    convolution: Convolution = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names.taken |= set(TAKEN.split())
        self.scope.known[self.convolution.window.uid] = "sums.at[j]"

    def _col_var(self, v: Var) -> str:
        found = self.convolution
        if v in (found.image, self.program.cols[-1]):
            return "batch" if v == found.image else "col"
        number = next((k for k, axis in enumerate(found.axes) if axis.loop == v), None)
        return "row" if number is None else f"i_{number}"

    def split_columns(self) -> None:
        """All indices are known: the template takes places apart."""


@register("convolution")
def convolution(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to programs of one convolution whose operands lie in halves."""
    found = convolution_of(program)
    if found is None or target.arch != "sm_90a":
        return
    frame, loops, axes = found.frame, program.cols, found.axes
    rows = loops[0 if found.image is None else 1].size
    batches = found.image.size if found.image is not None else Poly.of(1)
    sizes = Sizes({"rows": rows, "cols": loops[-1].size, "batches": batches, "pitch": axes[-1].around})
    sizes.add("places", found.places)
    extents = {}
    for number, axis in enumerate(axes[:-1]):
        extents[f"i_{number}"] = ("height", "depth")[len(axes) - 2 - number] if axis.loop is not None else "1"
        if axis.loop is not None:
            sizes.add(extents[f"i_{number}"], axis.loop.size)
    if len(axes) == 3:
        sizes.add("lines", axes[-2].around)
    further = _further(found, sizes)
    for size in sizes_of(program):
        if any(size in sizes.write(p).atoms() for p in [*program.indices, *(v.size for v in loops)]):
            sizes.add(size.name, Poly.of(size))
    style = Style("", "", False, "", False)
    code = ConvolutionCode(program, types, sizes, plan(program, keep=True), style, convolution=found)
    body = "\n".join(line if line.startswith("#") else " " * 16 + line for line in code.emit().splitlines())
    read = {
        e.buffer for e in walk(s.value for s in program.stores) if e.op == "load" and e not in (found.left, found.right)
    }
    written = {s.buffer for s in program.stores}
    pointers = [b for b in program.buffers if b in read | written]
    taken = {b.name for b in program.buffers} | set(sizes.params)
    left, right = (f"{side}_operand" if side in taken else side for side in ("left", "right"))
    declared = [f"const __grid_constant__ CUtensorMap {side}" for side in (left, right)]
    declared += [f"{'' if b in written else 'const '}{types.element(b)}* __restrict__ {b.name}" for b in pointers]
    apart = {1: ["framed / pitch"], 2: ["framed / pitch / lines", "framed / pitch % lines"]}.get(len(extents), [])
    element = "static_cast<long long>(batch) * rows + row"
    for index, extent in extents.items():
        element = f"({element}) * {extent} + {index}" if extent != "1" else element
    assert found.left.buffer is not None and found.right.buffer is not None
    images, filters, dtype = found.right.buffer.name, found.left.buffer.name, found.right.buffer.dtype
    element_types = [t for t in template_types(program, types) if any(types.element(b) == t for b in pointers)]
    lies = "overlapping" if frame.together > 1 else "framed"
    constants = _schedule(rows.hint(), frame)
    yield KernelCode(
        name=f"{name}_convolution",
        program=program,
        schedule="convolution",
        idea="a convolution on Hopper's tensor cores, fed by tensor copies, with all that follows in the same kernel",
        text=render(
            "cuda/convolution.cu.j2",
            name=f"{name}_convolution",
            types=element_types,
            parameters=wrap([*declared, *(f"int {s}" for s in sizes.params), "int processors"]),
            steps=frame.depth // STEP,
            parts=frame.parts,
            channel=_channel(frame),
            further=further,
            left=left,
            right=right,
            taken_apart=[f"const int {n} = {text};" for n, text in zip(extents, apart, strict=True)],
            within="".join(f" && {n} < {size}" for n, size in extents.items()),
            element=f"({element}) * cols + col",
            body=body,
        ),
        template=(*element_types, *constants),
        helpers=frozenset(
            (code.helpers - {"cascade"})
            | {"pack", "product", f"product_{HALF[dtype]}", "hopper", "boxes_2d", "boxes_3d", "tile_along"}
        ),
        sizes=dict(sizes.params),
        grid="max(1, min(ceil_div(rows, BM) * ceil_div(places, BN) * batches, processors))",
        block="384",
        shared=f"STAGES * (BM + BN) * 128 + {SLABS}",
        constants=constants,
        tune={
            "BM": (128, 64),
            "BN": (256, 128),
            "STAGES": (6, 5, 4, 3),
            "TURNS": (1, 2),
            "GROUP": (8, 16, 4),
            "VEC": (4, 2, 1),
        },
        require={
            "STAGES": f"STAGES * (BM + BN) * 128 + {SLABS} <= {SHARED}",
            "TURNS": "TURNS * BM * BN <= 32768",
            "VEC": _condition(code.memory.condition(types, sizes, "cols")),
        },
        size_types=dict.fromkeys(sizes.params, "int"),
        types={t: next(b.name for b in pointers if types.element(b) == t) for t in element_types},
        operands=((f"filters_map({filters})", ()), (f"{lies}({images})", ())),
        pointers=tuple(b.name for b in pointers),
        counts=(f"processors({images})",),
        functions=(PROCESSORS, OVERLAPPING if frame.together > 1 else FRAMED, FILTERS),
        seconds=_seconds(found, program),
    )


def _condition(text: str) -> str:
    """Without what holds where a line is whole vectors."""
    parts = text.split(" and ")
    return " and ".join(p for p in parts if p == "cols % VEC == 0" or not ("cols" in p and p.endswith("% VEC == 0")))


def _further(found: Convolution, sizes: Sizes) -> str:
    """How many lines of the frame a tap's operand lies further on; the frame's own sizes where loops are others."""
    frame = found.frame
    kernel = frame.walked
    around = found.right.buffer.shape[1:-1]  # type: ignore[union-attr]
    named = {"pitch": found.axes[-1].around, **({"lines": found.axes[-2].around} if len(found.axes) == 3 else {})}
    text = ""
    for axis in range(len(kernel)):  # outermost first
        if axis:
            own = ("pitch", "lines")[len(kernel) - 1 - axis]
            if text and named.get(own) != around[axis]:
                own = ("wide", "tall")[len(kernel) - 1 - axis]
                sizes.add(own, around[axis])
            text = f"({text}) * {own}" if text else ""
        if kernel[axis] > 1:
            tap = _tap(frame, axis)
            tap += f" / {frame.stride[axis]}" if frame.stride[axis] > 1 else ""
            text = f"{text} + {tap}" if text else tap
    return text or "0"


def _tap(frame: Frame, axis: int) -> str:
    """How far a tap is from the first along a dimension of the image, in taps that are taken together."""
    kernel, dilation = frame.walked, (*frame.dilation[:-1], frame.dilation[-1] * frame.together)
    below = prod(kernel[axis + 1 :])
    tap = "tap" if below == 1 else f"tap / {below}"
    tap += f" % {kernel[axis]}" if prod(kernel[:axis]) > 1 else ""
    return tap + (f" * {dilation[axis]}" if dilation[axis] > 1 else "")


def _channel(frame: Frame) -> str:
    """The first of the channels that a step takes of a line, which has those of all places of a stride's step."""
    phase, parts = "", "step" if frame.taps == 1 else f"step % {frame.parts}"
    for axis, count in enumerate(frame.phases):
        if count > 1:
            phase = f"({phase}) * {count} + " if phase else ""
            phase += f"{_tap(frame, axis)} % {frame.stride[axis]}"
    found = [f"({phase}) * {frame.padded}"] if phase else []
    found += [f"{parts} * {STEP}"] if frame.parts > 1 else []
    return " + ".join(found) or "0"


def _schedule(rows: int, frame: Frame) -> dict[str, int | str]:
    """In turns where the sums of a tile are soon there, so that what follows takes about as long; 64 filters a tile
    where 128 would leave more undone. Expected, not measured."""
    down = 64 if -(-rows // 128) * 128 > -(-rows // 64) * 64 else 128
    if down == 128 and frame.depth >= LONG:
        return {"BM": 128, "BN": 256, "STAGES": 4, "TURNS": 1, "GROUP": 8, "VEC": 4}
    wide = 256 if down == 64 else 128
    return {"BM": down, "BN": wide, "STAGES": 5 if wide == 256 else 6, "TURNS": 2, "GROUP": 8, "VEC": 4}


def _seconds(found: Convolution, program: Program) -> float:
    """Predicted from what is multiplied, zeros included, and a part of the traffic beside it."""
    elements = prod(v.size.hint() for v in program.cols)
    spots = prod(axis.size.hint() for axis in found.axes)
    rows = elements // max(1, spots * (found.image.size.hint() if found.image is not None else 1))
    batch = elements // max(1, spots * rows)
    work = 2 * batch * -(-rows // 64) * 64 * found.places.hint() * found.frame.depth
    operands = (found.left.buffer, found.right.buffer)
    whole = [b for b in program.buffers if b not in operands and prod(s.hint() for s in b.shape) == elements]
    return 5e-6 + work / OWN_RATE + 0.3 * elements * sum(BYTES[b.dtype] for b in whole) / BYTES_PER_SECOND
