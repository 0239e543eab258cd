"""Transposes and pointwise work over mixed layouts: reads and writes both coalesced, through tiles of shared memory.

What is read along another loop than the result is written goes to a tile first, all of a thread's loads under way
before the first is used; the other operands are read where they are needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from kforge.engine.coalescing import sizes_of
from kforge.engine.emit.access import Crossing, crossing, size_of
from kforge.engine.emit.cgen import BYTES, Scope, Sizes, Types
from kforge.engine.emit.kernelcode import KernelCode, parameters, render, template_types
from kforge.engine.emit.naming import Names, named_steps, wished_name
from kforge.engine.emit.passes import Pass, plan
from kforge.engine.emit.rowbase import Style
from kforge.engine.emit.rowcode import RowCode
from kforge.engine.families import Target, register
from kforge.engine.graph.ir import Expr, Program
from kforge.engine.graph.symbols import Poly, Var

TILE_BLOCK, LEAST_BLOCK = 256, 128
SHARED = 49152  # bytes of shared memory that a block has anywhere


class TileCode(RowCode):
    """The statements of one block: its place, its tiles, its elements."""

    cross: Crossing
    tiles: dict[int, str]
    narrow = False  # fewer than 32 of the loop that is written along
    longer = ""  # the side of a tile that is longer than a block, where the loop across it is short: INNER or OTHER

    def _row_var(self, v: Var) -> str:
        return f"i_{self.program.cols.index(v)}"

    _col_var = _row_var
    _element_var = _row_var

    def emit(self) -> str:
        self.tiles = {}
        own = {"place", "lane", "strip", "across", "down"}
        self.names.taken |= {self._row_var(v) for v in self.program.cols} | own
        self._place()
        loads = [e for e in self.program.loads if e.uid in self.cross.loads]
        for e in loads:
            assert e.buffer is not None
            name = self.tiles[e.uid] = self.names.fresh(f"{e.buffer.name}_tile")
            element = self.types.element(e.buffer)  # rows are a bank apart, whatever the element's size
            word = f"(sizeof({element}) + 3) / sizeof({element})"
            if self.narrow:  # or so many that the rows of a warp's elements share no bank
                word = f"(INNER < 32 ? 32 / INNER : 1) * ({word})"
            self.scratch_lines.append(f"__shared__ {element} {name}[INNER][OTHER + {word}];")
        self._fill(loads)
        self.lines.add("__syncthreads();")
        self.lines.blank()
        self._write()
        return "\n".join([*(f"    {line}" for line in self.scratch_lines), str(self.lines)])

    def _place(self) -> None:
        """Which tile of which batch this block has."""
        a, b = self.cross.inner, self.cross.other
        sizes = {v: self.scope.index(v.size, True) for v in self.program.cols}
        self.lines.add("unsigned int place = blockIdx.x;")
        for v, tile in ((a, "INNER"), (b, "OTHER")):
            n = self.program.cols.index(v)
            self.lines.add(f"const unsigned int tiles_{n} = ({sizes[v]} + {tile} - 1) / {tile};")
            self.lines.add(f"const long long {self._first(v)} = place % tiles_{n} * static_cast<long long>({tile});")
            self.lines.add(f"const int left_{n} = min({sizes[v]} - {self._first(v)}, {tile} + 0LL);")
            self.lines.add(f"place /= tiles_{n};")
        batch = [v for v in self.program.cols if v not in (a, b)]
        for v in reversed(batch):
            last = v is batch[0]
            self.lines.add(f"const long long {self._row_var(v)} = place{'' if last else f' % {sizes[v]}'};")
            if not last:
                self.lines.add(f"place /= {sizes[v]};")
        self.lines.blank()

    def _first(self, v: Var) -> str:
        return f"first_{self.program.cols.index(v)}"

    def _fill(self, loads: list[Expr]) -> None:
        """Each thread reads every (BLOCK / OTHER)th row of the tile: one pointer and one distance, nothing else."""
        a, b = self.cross.inner, self.cross.other
        if self.longer:
            self.lines.add(
                f"constexpr int PARTS = {self.longer} / BLOCK;  // of the tile's long rows, each a block wide"
            )
        self.lines.add("const int lane = threadIdx.x % OTHER, strip = threadIdx.x / OTHER;")
        lane, down, part, away = self._kth("OTHER", "lane", "strip")
        corner = {a: f"({self._first(a)} + strip)", b: f"({self._first(b)} + lane)"}
        scope = self.scope.child(var=lambda v: corner.get(v) or self._row_var(v), load=self._plain)
        for e in loads:
            assert e.buffer is not None and e.index is not None
            element, name = self.types.element(e.buffer), e.buffer.name
            step = self.scope.index(e.index.coefficient(a), True)
            self.lines.add(f"const {element}* {self.tiles[e.uid]}_from = {name} + {scope.index(e.index)};")
            each = "1LL" if self.longer == "OTHER" else "(BLOCK / OTHER * 1LL)"
            self.lines.add(f"const long long {self.tiles[e.uid]}_step = {step} * {each};")
            self.lines.add(f"{element} {self.tiles[e.uid]}_in[INNER * OTHER / BLOCK];")
        place = {a: f"({self._first(a)} + {down})", b: f"({self._first(b)} + {lane})"}
        with self.elements_of_tile():
            inside = f"{self._edge(b, lane)} && {self._edge(a, down)}"
            with self.lines.block(f"if ({inside})"):
                for e in loads:
                    tile = self.tiles[e.uid]
                    text = f"{tile}_from[{part}{away} * {tile}_step]"
                    if e.args:
                        assert e.buffer is not None
                        guard = self.scope.child(var=lambda v: place.get(v) or self._row_var(v), load=self._plain)
                        text = f"{guard.text(e.args[0], 2)} ? {text} : {self.types.element(e.buffer)}(0)"
                    self.lines.add(f"{tile}_in[k] = {text};")
        with self.elements_of_tile():
            for e in loads:
                self.lines.add(f"{self.tiles[e.uid]}[{down}][{lane}] = {self.tiles[e.uid]}_in[k];")

    def _kth(self, side: str, along: str, across: str) -> tuple[str, str, str, str]:
        """A thread's kth element of a tile that is walked along `side`: its place along and across it, how far it is
        along from the thread's first, how many distances across."""
        if self.longer == side:
            return f"{along} + k % PARTS * BLOCK", f"{across} + k / PARTS", "k % PARTS * BLOCK + ", "k / PARTS"
        return along, f"{across} + k * (BLOCK / {side})", "", "k"

    def _edge(self, v: Var, offset: str) -> str:
        return f"{offset} < left_{self.program.cols.index(v)}"

    @contextmanager
    def elements_of_tile(self) -> Iterator[None]:
        """The loop over this thread's elements of a tile."""
        with self.lines.block("for (int k = 0; k < INNER * OTHER / BLOCK; ++k)", unroll=True):
            yield

    def _plain(self, e: Expr, scope: Scope) -> str:
        assert e.buffer is not None and e.index is not None
        return self._guarded(e, self._convert(e, f"{e.buffer.name}[{scope.index(e.index)}]"), scope)

    def _tiled(self, e: Expr, scope: Scope) -> str:
        if e.uid in self.tiles:
            across, down, _, _ = self._kth("INNER", "across", "down")
            return self._convert(e, f"{self.tiles[e.uid]}[{across}][{down}]")
        return self._plain(e, scope)

    def _write(self) -> None:
        a, b = self.cross.inner, self.cross.other
        across, down, part, away = self._kth("INNER", "across", "down")
        self.lines.add("const int across = threadIdx.x % INNER, down = threadIdx.x / INNER;")
        corner = {b: f"({self._first(b)} + down)"}
        if part:
            corner[a] = f"({self._first(a)} + across)"
        else:
            self.lines.add(f"const long long {self._row_var(a)} = {self._first(a)} + across;")
        start = self.scope.child(var=lambda v: corner.get(v) or self._row_var(v), load=self._plain)
        pointers = {}
        for s in self.program.stores:
            name = pointers[s] = self.names.fresh(f"{s.buffer.name}_to")
            step = self.scope.index(s.index.coefficient(b), True)
            self.lines.add(f"{self.types.element(s.buffer)}* {name} = {s.buffer.name} + {start.index(s.index)};")
            each = "1LL" if part else "(BLOCK / INNER * 1LL)"
            self.lines.add(f"const long long {name}_step = {step} * {each};")
        with self.elements_of_tile():
            inside = f"{self._edge(a, across)} && {self._edge(b, down)}"
            with self.lines.block(f"if ({inside})"):
                place = len(self.lines._lines)
                self.lines.add(f"const long long {self._row_var(b)} = {self._first(b)} + {down};")
                if part:
                    self.lines.add(f"const long long {self._row_var(a)} = {self._first(a)} + {across};")
                scope = self.scope.child(var=self._row_var, load=self._tiled)
                scope.names = Names(self.names.taken)
                for e in named_steps([s.value for s in self.program.stores], set()):
                    if e.uid not in self.tiles:
                        self.lines.add(scope.declare(e, wished_name(e, self.final)))
                for s in self.program.stores:
                    self.lines.add(f"{pointers[s]}[{part}{away} * {pointers[s]}_step] = {self._stored(s, scope)};")
                declared = (b, a) if part else (b,)
                used = "\n".join(self.lines._lines[place + len(declared) :])
                for n, v in reversed(list(enumerate(declared))):
                    if not re.search(rf"\b{self._row_var(v)}\b", used):
                        del self.lines._lines[place + n]


@register("transpose")
def transpose(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to pointwise programs that read along another loop than they write."""
    cross = crossing(program)
    if cross is None or any(e.op == "window" for s in program.stores for e in _values(s.value)):
        return
    sizes = Sizes()
    labels = {}
    for k, v in enumerate(program.cols):
        if v.size.constant is None:
            sizes.add(f"size_{k}", v.size)
        labels[v] = str(v.size.constant) if v.size.constant is not None else f"size_{k}"
    for size in sizes_of(program):
        if any(size in sizes.write(p).atoms() for p in program.indices):
            sizes.add(size.name, Poly.of(size))
    passes: list[Pass] = plan(program, keep=True)
    code = TileCode(program, types, sizes, passes, Style("", "", False, "", False))
    code.cross = cross
    wide, deep = _tile(cross, sum(BYTES[e.buffer.dtype] for e in program.loads if e.uid in cross.loads and e.buffer))
    if wide * deep < LEAST_BLOCK:  # so many are read the other way that not even small tiles have room
        return
    code.narrow = wide < 32
    code.longer = "INNER" if wide > TILE_BLOCK else "OTHER" if deep > TILE_BLOCK else ""
    body = code.emit()
    element_types = template_types(program, types)
    size_types = dict.fromkeys(sizes.params, "int")
    text = render(
        "cuda/transpose.cu.j2",
        name=f"{name}_transpose",
        types=element_types,
        parameters=parameters(program, types, size_types),
        body=body,
        inner=code._row_var(cross.inner),
        other=code._row_var(cross.other),
    )
    bytes_each = " + ".join(size_of(e.buffer, types) for e in program.loads if e.uid in cross.loads and e.buffer)
    batch = [labels[v] for v in program.cols if v not in (cross.inner, cross.other)]
    tiles = [f"ceil_div({labels[cross.inner]}, INNER)", f"ceil_div({labels[cross.other]}, OTHER)"]
    fits = {"INNER": "INNER <= BLOCK", "OTHER": "OTHER <= BLOCK"}
    if code.longer:
        fits[code.longer] = f"{code.longer} % BLOCK == 0"
    yield KernelCode(
        name=f"{name}_transpose",
        program=program,
        schedule="transpose",
        idea="tiles through shared memory, so that reads and writes are both coalesced",
        text=text,
        template=(*element_types, "BLOCK", "INNER", "OTHER"),
        helpers=frozenset(code.helpers),
        sizes=dict(sizes.params),
        grid=" * ".join([*tiles, *batch]),
        block="BLOCK",
        constants={"BLOCK": min(TILE_BLOCK, wide * deep), "INNER": wide, "OTHER": deep},
        tune={
            "BLOCK": (256, 512, LEAST_BLOCK),
            "INNER": tuple(dict.fromkeys((wide, max(wide // 2, 2), min(wide * 2, max(wide, 128)), max(wide // 4, 2)))),
            "OTHER": tuple(dict.fromkeys((deep, max(deep // 2, 2), min(deep * 2, max(deep, 128))))),
        },
        require={
            "INNER": f"INNER * (OTHER + 16) * ({bytes_each}) <= {SHARED} and INNER * OTHER >= BLOCK and "
            + fits["INNER"],
            "BLOCK": fits["OTHER"],
        },
        size_types=size_types,
    )


def _tile(cross: Crossing, bytes_each: int) -> tuple[int, int]:
    """64 x 64, or a tile as narrow as the narrower loop and as much longer along the other: with few elements a thread
    spends its time on finding them (3 channels, tiles of 4 x 256: 0.50 of the floor).

    bytes_each: of all that is read for a place; tiles are smaller where a block's shared memory has no room for them.
    """

    def side(v: Var) -> int:
        return max(2, min(64, 1 << (v.size.hint() - 1).bit_length()))

    inner, other = side(cross.inner), side(cross.other)
    if other < inner:
        inner = min(1024, 4096 // other)
    elif inner < other:
        other = min(1024, 4096 // inner)
    else:
        inner = other = max(inner, 16)
    while inner * (other + 16) * bytes_each > SHARED:
        inner, other = (inner // 2, other) if inner >= other else (inner, other // 2)
    return inner, other


def _values(e: Expr) -> list[Expr]:
    from kforge.engine.graph.ir import walk

    return walk([e])
