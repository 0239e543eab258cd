"""Pointwise kernels that read at computed places: resampling, mirrored and shifted images, permuted blocks.

A thread has VEC neighbouring columns of ROWS rows. What a place depends on, the column or the row alone, is then worked
out once for the tile: a compiler sees it in the unrolled loops. With one vector per thread such kernels are bound by
their index arithmetic (bilinear upsampling 0.41 of the floor, a mirrored border 0.62). Where a row is made of several
lines, as between the nearest pixels, a thread keeps what it has read of them: the next row needs mostly the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from kforge.engine.emit.access import access_of, crossing, moving
from kforge.engine.emit.cgen import BYTES, Scope, Sizes, Types
from kforge.engine.emit.kernelcode import KernelCode, name_loops, parameters, render, template_types
from kforge.engine.emit.naming import Names, named_steps, wished_name
from kforge.engine.emit.passes import plan
from kforge.engine.emit.rowbase import Style
from kforge.engine.families import Target, register
from kforge.engine.families.pointwise import PointwiseCode, reads_apart
from kforge.engine.graph.ir import SCATTERS, Expr, Program, walk
from kforge.engine.graph.symbols import Atom, Poly, Value, Var, product

LEAST_COLUMNS = 32


MOST_HELD = 16  # elements of lines that a thread keeps for each of its columns: all between which cubic terms run


class GatherCode(PointwiseCode):
    """The statements of one thread: where its tile lies, and its elements row by row.

    held: (buffer, line) -> which of the buffer's lines; places: the columns that are read of each line.
    """

    held: dict[tuple[str, Poly], int]
    places: dict[str, list[Poly]]

    def _col_var(self, v: Var) -> str:
        loops = self.program.cols
        if v == loops[-1]:
            return "col"
        if v == loops[-2]:
            return "row"
        return "plane" if len(loops) == 3 else f"i_{loops.index(v)}"

    def emit(self) -> str:
        self.helpers |= {"pack", "index"}
        self._tile()
        loops, lines, stores = self.program.cols, self.lines, self.program.stores
        inner, down = loops[-1], loops[-2]
        within = {inner: "(col + j)", down: "(row + r)"}
        values = [s.value for s in stores]
        self._choose_held()
        self._declare_held()
        with lines.block("for (int r = 0; r < ROWS; ++r)", unroll=True):
            lines.add(f"if (row + r >= {self.scope.index(down.size)}) break;")
            of_row = self.scope.child(var=lambda v: "(row + r)" if v == down else self._row_var(v))
            of_row.names = Names(self.names.taken)
            for e in named_steps(values, set(of_row.known)):
                if inner not in e.variables() and e.op != "load":
                    lines.add(of_row.declare(e, wished_name(e, self.final)))
            self._pointers(of_row)
            outs = []
            for s in stores:
                outs.append(of_row.names.fresh(f"{s.buffer.name}_out"))
                lines.add(f"Pack<{self.types.element(s.buffer)}, VEC> {outs[-1]};")
            with lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
                scope = of_row.child(var=lambda v: within.get(v) or self._row_var(v))
                scope.names = Names(of_row.names.taken)
                for e in named_steps(values, set(scope.known)):
                    lines.add(scope.declare(e, wished_name(e, self.final)))
                for s, out in zip(stores, outs, strict=True):
                    lines.add(f"{out}.at[j] = {self._stored(s, scope)};")
            for s, out in zip(stores, outs, strict=True):
                lines.add(f"store({s.buffer.name} + {of_row.index(s.index)}, {out});")
        return str(lines)

    def _choose_held(self) -> None:
        """Buffers of which every load is at a column, of one of several lines that the row decides."""
        self.held, self.places = {}, {}
        inner, down = self.program.cols[-1], self.program.cols[-2]
        for buffer in dict.fromkeys(e.buffer for e in self.program.loads):
            loads = [e for e in self.program.loads if e.buffer == buffer]
            lines: dict[Poly, None] = {}
            places: dict[Poly, None] = {}
            for e in loads:
                assert e.index is not None
                base = self._base(e.index)
                lines[base], places[e.index - base] = None, None
            by_row = all(down in moving(base) for base in lines)
            plain = all(
                {c for _, c in place.terms} == {1}
                and all(len(m) == 1 for m, _ in place.terms)
                and moving(place) == {inner}
                for place in places
            )
            few = len(lines) > 1 and len(lines) * len(places) <= MOST_HELD
            if buffer is not None and by_row and plain and few and not any(e.args for e in loads):
                self.held |= {(buffer.name, base): n for n, base in enumerate(lines)}
                self.places[buffer.name] = list(places)

    @property
    def vector(self) -> int:
        """So many columns that what is kept for them takes 32 registers at most; 0 where nothing is."""
        names = [name for name, _ in self.held]
        most = max((names.count(name) * len(places) for name, places in self.places.items()), default=0)
        return min(4, 32 // most) if most else 0

    def _declare_held(self) -> None:
        """What a thread keeps of lines, and where in a line its columns' elements lie."""
        inner = self.program.cols[-1]
        for buffer in dict.fromkeys(e.buffer for e in self.program.loads):
            if buffer is None or buffer.name not in self.places:
                continue
            self.helpers.add("held_lines")
            places = self.places[buffer.name]
            count = sum(1 for name, _ in self.held if name == buffer.name)
            self.names.taken |= {f"{buffer.name}_lines", f"{buffer.name}_places"}
            self.lines.add(f"int {buffer.name}_places[{len(places)}][VEC];")
            with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
                scope = self.scope.child(var=lambda v: "(col + j)" if v == inner else self._row_var(v))
                scope.names = Names(self.names.taken)
                for n, place in enumerate(places):
                    values = [a.expr for a in place.atoms() if isinstance(a, Value)]
                    for e in named_steps(values, set(scope.known)):  # type: ignore[arg-type]
                        self.lines.add(scope.declare(e, wished_name(e, self.final)))
                    self.lines.add(f"{buffer.name}_places[{n}][j] = {scope.index(place)};")
            element = self.types.element(buffer)
            self.lines.add(f"HeldLines<{element}, {count}, {len(places)}, VEC> {buffer.name}_lines;")
            self.lines.blank()

    def _base(self, index: Poly) -> Poly:
        return Poly(tuple(t for t in index.terms if not self._moves(t[0])))

    def _pointers(self, scope: Scope) -> None:
        """The part of each place that is the same along a row, as a pointer."""
        for e in self.program.loads:
            assert e.buffer is not None and e.index is not None
            base = self._base(e.index)
            key = (e.buffer.name, base)
            if base.terms and base.constant is None and key not in self.pointers:
                self.pointers[key] = scope.names.fresh(f"{e.buffer.name}_line")
                element = self.types.element(e.buffer)
                text = f"const {element}* {self.pointers[key]} = {e.buffer.name} + {scope.index(base)};"
                self.lines.add(text)
        for (name, base), n in self.held.items():
            self.lines.add(f"{name}_lines.template take<{n}>({self.pointers[name, base]}, {name}_places);")

    def _moves(self, monomial: tuple[Atom, ...]) -> bool:
        return self.program.cols[-1] in moving(Poly(((monomial, 1),)))

    def _load_row(self, e: Expr, scope: Scope) -> str:
        assert e.buffer is not None and e.index is not None
        base = self._base(e.index)
        if (line := self.held.get((e.buffer.name, base))) is not None and "r)" in scope.var(self.program.cols[-2]):
            n = self.places[e.buffer.name].index(e.index - base)
            return self._convert(e, f"{e.buffer.name}_lines.at[{line}][{n}][j]")
        pointer = self.pointers.get((e.buffer.name, base))
        place = f"{e.buffer.name}[{scope.index(e.index)}]"
        if pointer is not None:
            place = f"{pointer}[{scope.index(e.index - base)}]"
        return self._guarded(e, self._convert(e, place), scope)

    def _tile(self) -> None:
        loops, lines = self.program.cols, self.lines
        cols, rows = (self.scope.index(v.size, True) for v in (loops[-1], loops[-2]))
        lines.add("Index<WIDE> rest = static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x;")
        lines.add(f"const Index<WIDE> across = {cols} / VEC, down = ({rows} + ROWS - 1) / ROWS;")
        lines.add("const int col = rest % across * VEC;", "rest /= across;")
        lines.add("const long long row = rest % down * ROWS;", "rest /= down;")
        lines.add("if (rest >= planes) return;")
        outer = loops[:-2]
        for k in range(len(outer) - 1, -1, -1):
            name = self._col_var(outer[k])
            if k == 0:
                lines.add(f"const long long {name} = rest;")
            else:
                size = self.scope.index(outer[k].size, True)
                lines.add(f"const long long {name} = rest % {size};", f"rest /= {size};")
        lines.blank()


def _widest(program: Program) -> int:
    return max(BYTES[s.buffer.dtype] for s in program.stores)


@register("gather")
def gather(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to pointwise programs of two loops or more that read at computed places and write along their rows."""
    if program.rows or program.reductions or program.scans or len(program.cols) < 2 or not reads_apart(program):
        return
    loops = program.cols
    inner = loops[-1]
    if any(e.op == "window" for e in walk(s.value for s in program.stores)) or crossing(program) is not None:
        return
    plain = all(
        not s.once and s.below is None and s.value.op not in SCATTERS and s.index.coefficient(inner).constant == 1
        for s in program.stores
    )
    together = all(access_of(s.index, s.buffer, inner).kind == "vector" for s in program.stores)
    if not plain or not together or inner.size.hint() < LEAST_COLUMNS:
        return
    name = f"{name}_gather"
    sizes = Sizes()
    sizes.add("planes", product(v.size for v in loops[:-2]))
    for label, v in (("height", loops[-2]), ("width", inner)):
        if v.size.constant is None:
            sizes.add(label, v.size)
    name_loops(sizes, Program(program.name, (), loops[:-2], program.stores))
    sizes.params = {n: p for n, p in sizes.params.items() if n == "planes" or p.constant is None}
    code = GatherCode(program, types, sizes, plan(program, keep=True), Style("", "", False, "", False))
    body = code.emit()
    cols = next((n for n, p in sizes.params.items() if p == inner.size), str(inner.size.constant))
    rows = next((n for n, p in sizes.params.items() if p == loops[-2].size), str(loops[-2].size.constant))
    tiles = f"planes * ceil_div({rows}, ROWS) * ({cols} // VEC)"
    code.memory.loads.clear()  # only results are vectors
    size_types = {s: "long long" if s == "planes" else "int" for s in sizes.params}
    element_types = template_types(program, types)
    yield KernelCode(
        name=name,
        program=program,
        schedule="gather",
        idea="each thread writes vectors of several rows, whose places are worked out once for all of them",
        text=render(
            "cuda/gather.cu.j2",
            name=name,
            types=element_types,
            counts=["BLOCK", "VEC", "ROWS", "WIDE"],
            parameters=parameters(program, types, size_types),
            body=body,
        ),
        template=(*element_types, "BLOCK", "VEC", "ROWS", "WIDE"),
        helpers=frozenset(code.helpers),
        sizes=dict(sizes.params),
        grid=f"ceil_div({tiles}, BLOCK)",
        block="BLOCK",
        constants={
            "BLOCK": 256,
            "VEC": code.vector or (4 if _widest(program) > 2 else 8),
            "ROWS": 8 if code.held else 4,
            "WIDE": 0,
        },
        tune={"BLOCK": (256, 128), "VEC": (8, 4, 2, 1), "ROWS": (4, 8, 2, 1), "WIDE": (0, 1)},
        require={
            "VEC": code.memory.condition(types, sizes, cols),
            "WIDE": f"WIDE == 1 or {tiles} + BLOCK <= 4294967295",
        },
        size_types=size_types,
    )
