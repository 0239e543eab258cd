"""The body of a window kernel (families/window.py): how lines of the operand become outputs of a thread's tile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kforge.engine.emit.access import Access
from kforge.engine.emit.cgen import Names, Scope, Sizes, Types, identity, named_steps, wished_name
from kforge.engine.emit.sliding import Line, Sliding
from kforge.engine.emit.text import Lines
from kforge.engine.graph.ir import REAL, Expr, Program, Store, walk
from kforge.engine.graph.symbols import Poly, Tap, Var

COUNTS = ("DEPTHS", "ROWS", "COLS")
PLACES = ("slice", "row", "col")
RESERVED = (
    "lane strip rest col row slice plane channel line part sums best weights inside within out_col exchange across "
    "down deep first reached T U W VEC COLS ROWS DEPTHS BLOCK WIDE SPAN LEAD SHIFT VECTORS v k j in_channel"
)


@dataclass
class SlidingCode:
    """Emits one thread's work."""

    program: Program
    types: Types
    sizes: Sizes
    sliding: Sliding
    helpers: set[str] = field(default_factory=set)
    lines_read: dict[int, Access] = field(default_factory=dict)  # loads along the innermost dimension

    def __post_init__(self) -> None:
        names = [b.name for b in self.program.buffers]
        self.names = Names({*names, *self.sizes.params, *RESERVED.split()})
        loops = {"DEPTHS": "d", "ROWS": "r", "COLS": "c", "slice": "z", "row": "y"}
        self.loop = {of: self.names.fresh(wish) for of, wish in loops.items()}
        self.out = Lines()
        self.rank = len(self.sliding.lines)
        self.counts, self.places = COUNTS[-self.rank :], PLACES[-self.rank :]
        self.vars: dict[Var, str] = {}
        outer = self.sliding.outer
        for k, v in enumerate(outer):
            self.vars[v] = "plane" if len(outer) == 1 else "channel" if k == len(outer) - 1 else f"plane_{k}"
        for line, place in zip(self.sliding.lines, self.places, strict=True):
            self.vars[line.reach.at] = f"{place}_at"
            self.vars[line.reach.tap] = f"{place}_tap"
            self.vars[line.var] = place
        for r in self.sliding.fixed:
            self.vars[r.at], self.vars[r.tap] = str(r.start.constant), "0"
        for t in self.sliding.window.window.free:  # type: ignore[union-attr]
            self.vars[t] = "in_channel"
        self.names.taken |= set(self.vars.values())
        self.scope = Scope(self.types, self.sizes, self.names, lambda v: self.vars[v], self._load)
        at = self.sliding.lines[-1].reach.at
        for e in walk([self.sliding.value]):
            if e.op == "load" and at in e.variables():
                assert e.index is not None and e.buffer is not None
                self.lines_read[e.uid] = Access(e.buffer, e.index, e.index - Poly.of(at), "vector")
        if self.kind == "max" or any(e.op in ("max", "min") for e in walk(s.value for s in self.program.stores)):
            self.helpers.add("extremes")
        self.elements: dict[int, str] = {}

    @property
    def kind(self) -> str:
        window = self.sliding.window.window
        assert window is not None
        return window.kind

    @property
    def real(self) -> str:
        return self.types.scalar(self.sliding.window.dtype)

    def _load(self, e: Expr, scope: Scope) -> str:
        assert e.buffer is not None and e.index is not None
        if e.uid in self.elements:
            text = self.elements[e.uid]
        else:
            text = f"{e.buffer.name}[{scope.index(e.index)}]"
        text = f"{self.types.real}({text})" if e.dtype == REAL else text
        guard = scope.text(e.args[0], 2) if e.args else ""
        if e.uid not in self.elements and any(isinstance(v, Tap) and "at" in v.name for v in e.variables()):
            guard = "inside"
        return f"({guard} ? {text} : {self.types.literal(0, e.dtype)})" if guard else text

    # the whole

    def emit(self) -> str:
        self._place()
        self._hoist([self.sliding.value, *([self.sliding.weight] if self.sliding.weight else [])])
        self._constants()
        zero = identity(self.kind, self.sliding.window.dtype, self.types)
        name = "sums" if self.kind == "sum" else "best"
        free = self.sliding.window.window.free  # type: ignore[union-attr]
        if self.sliding.weight is None and not free and self.rank > 1:
            self._declare(name, self.counts)
        else:
            self._fill(name, self.counts, zero)
        if free:
            with self.out.block(f"for (int in_channel = 0; in_channel < {free[0].size.constant}; ++in_channel)"):
                self._weights()
                self._walk(0, name)
        else:
            self._weights()
            self._walk(0, name)
        self.out.blank()
        self._outputs(name)
        return str(self.out)

    def _declare(self, name: str, counts: tuple[str, ...]) -> None:
        self.out.add(f"{self.real} {name}{''.join(f'[{c}]' for c in counts)};")

    def _fill(self, name: str, counts: tuple[str, ...], value: str) -> None:
        """An array of one value for each output."""
        sizes = "".join(f"[{c}]" for c in counts)
        if value in ("0.0f", "0.0", "0"):
            self.out.add(f"{self.real} {name}{sizes} = {{}};")
            return
        self.out.add(f"{self.real} {name}{sizes};")
        self._each(counts, lambda at: self.out.add(f"{name}{at} = {value};"))

    def _each(self, counts: tuple[str, ...], write: Callable[[str], None], at: str = "") -> None:
        if not counts:
            write(at)
            return
        index = self.loop[counts[0]]
        with self.out.block(f"for (int {index} = 0; {index} < {counts[0]}; ++{index})", unroll=True):
            self._each(counts[1:], write, f"{at}[{index}]")

    def _place(self) -> None:
        """Where this warp's strip and this thread's tile begin."""
        out, sizes = self.out, [self.scope.index(line.var.size, True) for line in self.sliding.lines]
        out.add("const int lane = threadIdx.x % 32;")
        out.add("Index<WIDE> rest = static_cast<long long>(blockIdx.x) * (BLOCK / 32) + threadIdx.x / 32;")
        out.add(f"const Index<WIDE> across = ({sizes[-1]} + 32 * COLS - 1) / (32 * COLS);")
        out.add("const int strip = rest % across * (32 * COLS);", "rest /= across;")
        out.add("const int col = strip + lane * COLS;")
        self._place_rows(sizes)
        out.blank()

    def _place_rows(self, sizes: list[str]) -> None:
        out = self.out
        for k in range(self.rank - 2, -1, -1):
            label = {"row": "down", "slice": "deep"}[self.places[k]]
            count = self.counts[k]
            out.add(f"const Index<WIDE> {label} = ({sizes[k]} + {count} - 1) / {count};")
            out.add(f"const Offset<WIDE> {self.places[k]} = rest % {label} * {count};", f"rest /= {label};")
        out.add("if (rest >= planes) return;")
        self._place_outer()

    def _place_outer(self) -> None:
        out, outer = self.out, self.sliding.outer
        for k in range(len(outer) - 1, -1, -1):
            name = self.vars[outer[k]]
            if k == 0:
                out.add(f"const long long {name} = rest;")
            else:
                size = self.scope.index(outer[k].size, True)
                out.add(f"const long long {name} = rest % {size};", f"rest /= {size};")

    def _constants(self) -> None:
        inner = self.sliding.lines[-1]
        step = f" * {inner.stride}" if inner.stride > 1 else ""
        note = "columns that the tile reads of a line"
        self.out.add(f"constexpr int SPAN = (COLS - 1){step} + {inner.extent};  // {note}")
        if inner.padding:
            self.out.add(f"constexpr int LEAD = ({inner.padding} + VEC - 1) / VEC * VEC;")
            self.out.add(f"constexpr int SHIFT = LEAD - {inner.padding};  // the first of them in the first vector")
            self.out.add("constexpr int VECTORS = (SHIFT + SPAN + VEC - 1) / VEC;")
        else:
            self.out.add("constexpr int VECTORS = (SPAN + VEC - 1) / VEC;")

    def _hoist(self, roots: list[Expr]) -> None:
        """Values that are the same for the whole tile become variables."""
        outer = set(self.sliding.outer)
        seen: set[int] = set()

        def visit(e: Expr) -> None:
            if e.uid in seen or e.op in ("const", "index") or e.uid in self.scope.known:
                return
            seen.add(e.uid)
            loads = [x for x in walk([e]) if x.op == "load"]
            if loads and e.variables() <= outer and e.op != "window":
                for step in named_steps([e], set(self.scope.known)):
                    if step is not e:
                        self.out.add(self.scope.declare(step, wished_name(step)))
                self.out.add(self.scope.declare(e, wished_name(e)))
                return
            for a in e.args if e.op != "window" else ():
                visit(a)

        for r in roots:
            visit(r)

    def _weights(self) -> None:
        weight = self.sliding.weight
        if weight is None:
            return
        shape = "".join(f"[{line.taps}]" for line in self.sliding.lines)
        self.out.add(f"{self.real} weights{shape};")
        lines = list(zip(self.sliding.lines, self.places, strict=True))

        def loop(left: list[tuple[Line, str]], at: str) -> None:
            if not left:
                inner = self.scope.child()
                inner.names = Names(self.names.taken)
                for step in named_steps([weight], set(inner.known)):
                    if step is not weight:
                        self.out.add(inner.declare(step, wished_name(step)))
                self.out.add(f"weights{at} = {inner.text(weight)};")
                return
            line, place = left[0]
            tap = f"{place}_tap"
            with self.out.block(f"for (int {tap} = 0; {tap} < {line.taps}; ++{tap})", unroll=True):
                loop(left[1:], f"{at}[{tap}]")

        loop(lines, "")

    # the walk over the operand's lines

    def _walk(self, k: int, target: str, inside: str = "") -> None:
        """The lines along dimension k; what they give is joined into `target`, an array over dimensions k and after."""
        if k == self.rank - 1:
            self._line(target, inside)
            return
        line, place, count = self.sliding.lines[k], self.places[k], self.counts[k]
        step = self.loop[place]
        total = f"({count} - 1) * {line.stride} + {line.extent}" if line.stride > 1 else f"{count} + {line.extent - 1}"
        self.out.blank()
        with self.out.block(f"for (int {step} = 0; {step} < {total}; ++{step})", unroll=True):
            start = f"{place} * {line.stride}" if line.stride > 1 else place
            start += f" - {line.padding}" if line.padding else ""
            self.out.add(f"const Offset<WIDE> {place}_at = {start} + {step};")
            end = self.scope.index(line.reach.end)
            test = f"{place}_at >= 0 && " if line.padding else ""
            name = f"inside_{place}" if k < self.rank - 2 else "inside"
            both = f"{inside} && " if inside else ""
            self.out.add(f"const bool {name} = {both}{test}{place}_at < {end};")
            if self.sliding.weight is not None:
                self._walk(k + 1, target, name)
                return
            part = f"{place}_part"
            counts = self.counts[k + 1 :]
            self._declare(part, counts)
            self._walk(k + 1, part, name)
            index = self.loop[count]
            with self.out.block(f"for (int {index} = 0; {index} < {count}; ++{index})", unroll=True):
                self.out.add(f"if ({self._misses(line, step, index)}) continue;")
                if k == 0 and self.sliding.window.window.free:  # type: ignore[union-attr]
                    self._each(counts, lambda at: self._join(f"{target}[{index}]{at}", f"{part}{at}"))
                else:
                    first = f"{step} == {index} * {line.stride}" if line.stride > 1 else f"{step} == {index}"
                    self._each(counts, lambda at: self._start(first, f"{target}[{index}]{at}", f"{part}{at}"))

    @staticmethod
    def _misses(line: Line, step: str, index: str) -> str:
        """The condition under which output `index` has no tap at `step`."""
        first = f"{index} * {line.stride}" if line.stride > 1 else index
        last = f"{first} + {line.extent - 1}" if line.extent > 1 else first
        test = f"{step} < {first} || {step} > {last}"
        return f"{test} || ({step} - {first}) % {line.dilation} != 0" if line.dilation > 1 else test

    def _start(self, first: str, target: str, value: str) -> None:
        """The first part of a result is its value, what comes later is joined to it."""
        joined = f"{target} + {value}" if self.kind == "sum" else f"larger({target}, {value})"
        self.out.add(f"{target} = {first} ? {value} : {joined};")

    def _join(self, target: str, value: str) -> None:
        self.out.add(f"{target} += {value};" if self.kind == "sum" else f"{target} = larger({target}, {value});")

    def _line(self, target: str, inside: str) -> None:
        """One line: its vectors, then what each column of the tile takes from it."""
        inner = self.sliding.lines[-1]
        dtype = self.sliding.value.dtype
        pointers: dict[int, str] = {}
        for uid, access in self.lines_read.items():
            pointers[uid] = self.names.fresh(f"{access.buffer.name}_line")
            self.out.add(
                f"const {self.types.element(access.buffer)}* {pointers[uid]} = "
                f"{access.buffer.name}{' + ' + self.scope.index(access.base) if access.base.terms else ''};"
            )
        self.out.add(f"{self.types.scalar(dtype)} line[VECTORS * VEC];")
        with self.out.block("for (int v = 0; v < VECTORS; ++v)", unroll=True):
            start = f"col * {inner.stride}" if inner.stride > 1 else "col"
            start += " - LEAD" if inner.padding else ""
            self.out.add(f"const int first = {start} + v * VEC;")
            end = self.scope.index(inner.reach.end)
            tests = [inside] if inside else []
            tests += ["first >= 0"] if inner.padding else []
            self.out.add(f"const bool within = {' && '.join([*tests, f'first < {end}'])};")
            for uid, access in self.lines_read.items():
                name = self.names.fresh(f"{access.buffer.name}_in")
                element = self.types.element(access.buffer)
                self.out.add(
                    f"const Pack<{element}, VEC> {name} = "
                    f"within ? load<VEC>({pointers[uid]} + first) : Pack<{element}, VEC>();"
                )
                self.elements[uid] = f"{name}.at[j]"
            with self.out.block("for (int j = 0; j < VEC; ++j)", unroll=True):
                value = self.sliding.value
                scope = self.scope.child()
                scope.names = Names(self.names.taken)
                scope.var = lambda v: "(first + j)" if v == inner.reach.at else self.vars[v]
                for part in named_steps([value], set(scope.known)):
                    if part is not value and part.uid not in scope.known:
                        self.out.add(scope.declare(part, wished_name(part)))
                text = scope.text(value)
                zero = self.neutral(dtype)
                if value.op != "load" or self.kind != "sum":
                    text = f"within ? {text} : {zero}"
                self.out.add(f"line[v * VEC + j] = {text};")
        column = self.loop["COLS"]
        place = f"SHIFT + {column}" if inner.padding else column
        place += f" * {inner.stride}" if inner.stride > 1 else ""
        step = f"k * {inner.dilation}" if inner.dilation > 1 else "k"
        if self.sliding.weight is not None:
            self._products(place, step)
            return
        with self.out.block(f"for (int {column} = 0; {column} < COLS; ++{column})", unroll=True):
            direct = self.rank == 1
            if not direct:
                self.out.add(f"{target}[{column}] = line[{place}];")
            with self.out.block(f"for (int k = {0 if direct else 1}; k < {inner.taps}; ++k)", unroll=True):
                self._join(f"{target}[{column}]", f"line[{place} + {step}]")

    def _products(self, place: str, step: str) -> None:
        """Every output that has a tap on this line adds its products."""
        inner = self.sliding.lines[-1]

        def loop(k: int, sums: str, weights: str) -> None:
            if k == self.rank - 1:
                with self.out.block(f"for (int k = 0; k < {inner.taps}; ++k)", unroll=True):
                    column = self.loop["COLS"]
                    with self.out.block(f"for (int {column} = 0; {column} < COLS; ++{column})", unroll=True):
                        self.out.add(f"sums{sums}[{column}] += line[{place} + {step}] * weights{weights}[k];")
                return
            line, count = self.sliding.lines[k], self.counts[k]
            index, walked = self.loop[count], self.loop[self.places[k]]
            with self.out.block(f"for (int {index} = 0; {index} < {count}; ++{index})", unroll=True):
                self.out.add(f"if ({self._misses(line, walked, index)}) continue;")
                first = f"{index} * {line.stride}" if line.stride > 1 else index
                tap = f"({walked} - {first})" if line.dilation > 1 else f"{walked} - {first}"
                tap += f" / {line.dilation}" if line.dilation > 1 else ""
                loop(k + 1, f"{sums}[{index}]", f"{weights}[{tap}]")

        loop(0, "", "")

    # results

    def _outputs(self, name: str) -> None:
        """Stores of the tile, a line at a time, with what is computed of each result."""
        self._hoist([s.value for s in self.program.stores])
        self.exchange()
        lines = list(zip(self.sliding.lines, self.places, self.counts, strict=True))[:-1]

        def loop(left: list[tuple[Line, str, str]], at: str) -> None:
            if not left:
                self._store_line(f"{name}{at}")
                return
            line, place, count = left[0]
            index = self.loop[count]
            with self.out.block(f"for (int {index} = 0; {index} < {count}; ++{index})", unroll=True):
                self.out.add(f"if ({place} + {index} >= {self.scope.index(line.var.size)}) break;")
                self.vars[line.var] = f"({place} + {index})"
                loop(left[1:], f"{at}[{index}]")
                self.vars[line.var] = place

        loop(lines, "")

    @property
    def end(self) -> str:
        """Where a strip's outputs end, if not at the end of the line."""
        return ""

    def exchange(self) -> None:
        self.out.add(f"__shared__ Pack<{self.real}, COLS> exchange[BLOCK / 32][32];")

    def neutral(self, dtype: str) -> str:
        """What padding counts as."""
        return identity(self.kind, dtype, self.types)

    def _store_line(self, results: str) -> None:
        """Results change places where rows are not aligned; what is computed of each; the line's stores."""
        out, inner, stores = self.out, self.sliding.lines[-1], self.program.stores
        width = self.scope.index(inner.var.size)
        out.add(f"if constexpr (!ALIGNED) interleave({results}, exchange[threadIdx.x / 32], lane);")
        pointers: dict[Store, tuple[str, str]] = {}
        for s in stores:
            pointers[s] = self.names.fresh(f"{s.buffer.name}_line"), self.names.fresh(f"{s.buffer.name}_out")
            base = s.index - Poly.of(inner.var)
            offset = f" + {self.scope.index(base)}" if base.terms else ""
            element = self.types.element(s.buffer)
            out.add(f"{element}* {pointers[s][0]} = {s.buffer.name}{offset};")
            out.add(f"Pack<{element}, COLS> {pointers[s][1]};")
        with out.block("for (int k = 0; k < COLS; ++k)", unroll=True):
            scope = self.scope.child()
            scope.names = Names(self.names.taken)
            scope.var = lambda v: "out_col" if v == inner.var else self.vars[v]
            scope.known[self.sliding.window.uid] = f"{results}[k]"
            if self._uses_column():
                out.add(f"const int out_col = min(ALIGNED ? col + k : strip + k * 32 + lane, {width} - 1);")
            for step in named_steps([s.value for s in stores], set(scope.known)):
                if step.uid not in scope.known:
                    out.add(scope.declare(step, wished_name(step)))
            for s in stores:
                text = self.types.stored(s.buffer, s.value.dtype, scope.text(s.value))
                out.add(f"{pointers[s][1]}.at[k] = {text};")
        for line, results in pointers.values():
            out.add(f"store_line<ALIGNED>({line}, {results}, strip, {self.end or width}, lane);")

    def _uses_column(self) -> bool:
        """Whether anything beside the window depends on the column of a result."""
        inner, seen = self.sliding.lines[-1].var, [s.value for s in self.program.stores]
        while seen:
            e = seen.pop()
            if e.op == "window":
                continue
            if not e.args and inner in e.variables():
                return True
            if e.index is not None and inner in e.variables():
                return True
            seen += e.args
        return False
