"""What bodies of window kernels share: places, the walk over the operand's lines, and stores of a tile's lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kforge.engine.emit.access import Access
from kforge.engine.emit.cgen import Scope, Sizes, Types, identity
from kforge.engine.emit.naming import Names, wished_name
from kforge.engine.emit.sliding import Line, Sliding
from kforge.engine.emit.text import Lines
from kforge.engine.emit.tiles import Planes, divided, spanned
from kforge.engine.graph.ir import REAL, Expr, Program, Store, walk
from kforge.engine.graph.symbols import Poly, Tap, Var

COUNTS = ("DEPTHS", "ROWS", "COLS")
PLACES = ("slice", "row", "col")
RESERVED = (
    "lane strip rest col row slice plane channel line part sums best weights inside within out_col exchange across "
    "down deep first reached T U W VEC COLS ROWS DEPTHS BLOCK WIDE SPAN LEAD SHIFT VECTORS v k j in_channel"
)


@dataclass
class SlidingBase:
    """Subclasses say where a thread's tile lies (`_place`) and what a line of the operand gives to it (`_line`)."""

    program: Program
    types: Types
    sizes: Sizes
    sliding: Sliding
    helpers: set[str] = field(default_factory=set)
    lines_read: dict[int, Access] = field(default_factory=dict)  # loads along the innermost dimension

    shares_blocks = True  # several warps of a block have a tile each, and the last block may have too many

    def __post_init__(self) -> None:
        names = [b.name for b in self.program.buffers]
        self.names = Names({*names, *self.sizes.params, *RESERVED.split()})
        loops = {"DEPTHS": "d", "ROWS": "r", "COLS": "c", "slice": "z", "row": "h"}
        self.loop = {of: self.names.fresh(wish) for of, wish in loops.items()}
        self.out = Lines()
        self.rank = len(self.sliding.lines)
        self.counts, self.places = COUNTS[-self.rank :], PLACES[-self.rank :]
        self.scope = Scope(self.types, self.sizes, self.names, lambda v: self.vars[v], self._load)
        self.planes = Planes(self.sliding.outer, self.rank, self.scope)
        self.vars: dict[Var, str] = dict(self.planes.names)
        for line, place in zip(self.sliding.lines, self.places, strict=True):
            self.vars[line.reach.at] = f"{place}_at"
            self.vars[line.reach.tap] = f"{place}_tap" if line.taps > 1 else "0"
            self.vars[line.var] = place
        for r in self.sliding.fixed:
            self.vars[r.at], self.vars[r.tap] = str(r.start.constant), "0"
        for t in self.sliding.window.window.free:  # type: ignore[union-attr]
            self.vars[t] = "in_channel"
        self.names.taken |= set(self.vars.values())
        at = self.sliding.lines[-1].reach.at
        for e in walk([self.sliding.value]):
            if e.op == "load" and at in e.variables():
                assert e.index is not None and e.buffer is not None
                self.lines_read[e.uid] = Access(e.buffer, e.index, e.index - Poly.of(at), "vector")
        ops = {e.op for e in walk(s.value for s in self.program.stores)}
        if self.kind == "max" or ops & {"max", "min"}:
            self.helpers.add("extremes")
        if "draw" in ops:
            self.helpers.add("draw")
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
            pointer, rest = self.planes.pointer(e.buffer, e.index)
            text = f"{pointer}[{scope.index(rest)}]"
        text = f"{self.types.real}({text})" if e.dtype == REAL else text
        guard = scope.text(e.args[0], 2) if e.args else ""
        if e.uid not in self.elements and any(isinstance(v, Tap) and "at" in v.name for v in e.variables()):
            guard = "inside"
        return f"({guard} ? {text} : {self.types.literal(0, e.dtype)})" if guard else text

    def emit(self) -> str:
        """The whole body."""
        raise NotImplementedError

    def _place(self) -> None:
        """Where this thread's tile begins."""
        raise NotImplementedError

    def _line(self, target: str, inside: str) -> None:
        """What one line gives to each column of the tile, joined into `target`; inside: whether the line exists."""
        raise NotImplementedError

    def _value(self, to: str, at: str, condition: str) -> None:
        """`to` becomes the operand's value at column `at`, or what padding counts as where the condition fails."""
        inner, value = self.sliding.lines[-1], self.sliding.value
        scope = self.scope.child()
        scope.names = Names(self.names.taken)
        scope.var = lambda v: at if v == inner.reach.at else self.vars[v]
        self.out.add(*scope.declare_steps([value], but=value))
        text = scope.text(value)
        if value.op != "load" or self.kind != "sum":
            text = f"{condition} ? {text} : {self.neutral(value.dtype)}"
        self.out.add(f"{to} = {text};")

    def _declare(self, name: str, counts: tuple[str, ...]) -> None:
        self.out.add(f"{self.real} {name}{''.join(f'[{c}]' for c in counts)};")

    def _each(self, counts: tuple[str, ...], write: Callable[[str], None], at: str = "") -> None:
        if not counts:
            write(at)
            return
        index = self.loop[counts[0]]
        with self.out.block(f"for (int {index} = 0; {index} < {counts[0]}; ++{index})", unroll=True):
            self._each(counts[1:], write, f"{at}[{index}]")

    def _place_rows(self, sizes: list[str]) -> None:
        out = self.out
        for k in range(self.rank - 2, -1, -1):
            label = {"row": "down", "slice": "deep"}[self.places[k]]
            count = self.counts[k]
            out.add(f"const Index<WIDE> {label} = {divided(sizes[k], count)};")
            out.add(f"const Offset<WIDE> {self.places[k]} = rest % {label} * {count};", f"rest /= {label};")
        if self.shares_blocks:
            out.add("if (rest >= planes) return;")
        out.add(*self.planes.indices())
        out.add(*self.planes.declare((access.buffer, access.base) for access in self.lines_read.values()))

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
                self.out.add(*self.scope.declare_steps([e], but=e))
                self.out.add(self.scope.declare(e, wished_name(e)))
                return
            for a in e.args if e.op != "window" else ():
                visit(a)

        for r in roots:
            visit(r)

    def _hoist_line(self) -> Scope:
        """The scope of a line's results: what does not depend on their column is in variables already."""
        inner, scope = self.sliding.lines[-1].var, self.scope.child()
        scope.names = Names(self.names.taken)
        left = [s.value for s in reversed(self.program.stores)]
        while left:
            e = left.pop()
            if e.op in ("const", "index", "window") or e.uid in scope.known:
                continue
            if inner in e.variables() or any(x.op == "window" for x in walk([e])):
                left += reversed(e.args)
                continue
            self.out.add(*scope.declare_steps([e], but=e, wish=self._wish))
            self.out.add(scope.declare(e, self._wish(e)))
        return scope

    def _wish(self, e: Expr) -> str:
        """A readable name for a value: ends of windows by the dimension that they are of."""
        for line, place in zip(self.sliding.lines, self.places, strict=True):
            if e.dtype == "int64" and line.var in e.variables() and e.op in ("index", "sub"):
                if e.op == "sub":
                    return f"{place}s_counted"
                return f"{place}_first" if e.index == line.reach.start else f"{place}_end"
        return wished_name(e)

    # the walk over the operand's lines

    def _walk(self, k: int, target: str, inside: str = "") -> None:
        """The lines along dimension k; what they give is joined into `target`, an array over dimensions k and after."""
        if k == self.rank - 1:
            self._line(target, inside)
            return
        line, place, count = self.sliding.lines[k], self.places[k], self.counts[k]
        alone, index = line.extent == 1, self.loop[count]  # each result has one line: it is walked by results
        step = index if alone else self.loop[place]
        total = count if alone else spanned(count, line.stride, line.extent)
        self.out.blank()
        with self.out.block(f"for (int {step} = 0; {step} < {total}; ++{step})", unroll=True):
            before = f" - {line.padding}" if line.padding else ""
            first = f"{place} * {line.stride}" if line.stride > 1 else place
            moved = f"({place} + {step}) * {line.stride}" if line.stride > 1 else f"{place} + {step}"
            self.out.add(f"const Offset<WIDE> {place}_at = {moved + before if alone else f'{first}{before} + {step}'};")
            end = self.scope.index(line.reach.end)
            test = f"{place}_at >= 0 && " if line.padding else ""
            name = f"inside_{place}" if k < self.rank - 2 else "inside"
            both = f"{inside} && " if inside else ""
            self.out.add(f"const bool {name} = {both}{test}{place}_at < {end};")
            if self.sliding.weight is not None:
                self._walk(k + 1, target, name)
                return
            if alone and not self.free:
                self._walk(k + 1, f"{target}[{index}]", name)
                return
            part = f"{place}_part"
            counts = self.counts[k + 1 :]
            self._declare(part, counts)
            self._walk(k + 1, part, name)
            if alone:
                self._each(counts, lambda at: self._join(f"{target}[{index}]{at}", f"{part}{at}"))
                return
            with self.out.block(f"for (int {index} = 0; {index} < {count}; ++{index})", unroll=True):
                self.out.add(f"if ({self._misses(line, step, index)}) continue;")
                if k == 0 and self.free:
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

    @property
    def free(self) -> bool:
        """Whether the walk is repeated for several channels."""
        return bool(self.sliding.free)

    def _start(self, first: str, target: str, value: str) -> None:
        """The first part of a result is its value, what comes later is joined to it."""
        self.out.add(f"{target} = {first} ? {value} : {self._joined(target, value)};")

    def _joined(self, a: str, b: str) -> str:
        return f"{a} + {b}" if self.kind == "sum" else f"larger({a}, {b})"

    def _join(self, target: str, value: str) -> None:
        self.out.add(f"{target} += {value};" if self.kind == "sum" else f"{target} = {self._joined(target, value)};")

    def _join_taps(self, target: str, tap: Callable[[str], str], ctype: str = "") -> None:
        """What one line's taps give to a result, first tap first; ctype: of a target that is declared here."""
        inner = self.sliding.lines[-1]
        value = tap("") if inner.taps != 2 else self._joined(tap(""), tap(str(inner.dilation)))
        self.out.add(f"{ctype}{target} = {value};")
        if inner.taps > 2:
            with self.out.block(f"for (int k = 1; k < {inner.taps}; ++k)", unroll=True):
                self._join(target, tap(f"k * {inner.dilation}" if inner.dilation > 1 else "k"))

    # results

    def _outputs(self, name: str) -> None:
        """Stores of the tile, a line at a time, with what is computed of each result."""
        stores = self.program.stores
        lines_of = {line.var for line in self.sliding.lines}
        beside = [(e.buffer, e.index) for e in self._beside() if e.variables() & lines_of]
        self.out.add(*self.planes.declare(beside))  # type: ignore[arg-type]
        self.out.add(*self.planes.declare(((s.buffer, s.index) for s in stores), written=True))
        self._hoist([s.value for s in stores])
        self.exchange()
        places = {f"{s.buffer.name} ({s.value.origin.file}:{s.value.origin.line})": None
                  for s in self.program.stores if s.value.origin is not None}  # fmt: skip
        if places:
            self.out.comment(", ".join(places))
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

    def _beside(self) -> list[Expr]:
        """Loads of what is computed of results, the window's own left out."""
        found, left = [], [s.value for s in self.program.stores]
        seen: set[int] = set()
        while left:
            e = left.pop()
            if e.uid in seen or e.op == "window":
                continue
            seen.add(e.uid)
            found += [e] if e.op == "load" else []
            left += e.args
        return found

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
        width, last = (self.scope.index(inner.var.size - less) for less in (0, 1))
        out.add(f"if constexpr (!ALIGNED) interleave({results}, exchange[threadIdx.x / 32], lane);")
        pointers: dict[Store, tuple[str, str]] = {}
        for s in stores:
            pointers[s] = self._line_of(s), self.names.fresh(f"{s.buffer.name}_out")
            out.add(f"Pack<{self.types.element(s.buffer)}, COLS> {pointers[s][1]};")
        scope = self._hoist_line()
        with out.block("for (int k = 0; k < COLS; ++k)", unroll=True):
            if self._uses_column():
                out.add(f"const int out_col = min(ALIGNED ? col + k : strip + k * 32 + lane, {last});")
            self._store_each(scope, f"{results}[k]", {s: f"{packed}.at[k]" for s, (_, packed) in pointers.items()})
        for line, results in pointers.values():
            out.add(f"store_line<ALIGNED>({line}, {results}, strip, {self.end or width}, lane);")

    def _line_of(self, s: Store) -> str:
        """Declares where the line begins that a store writes; its name."""
        text = self.planes.address(s.buffer, s.index - Poly.of(self.sliding.lines[-1].var))
        if " " not in text:
            return text
        line = self.names.fresh(f"{s.buffer.name}_line")
        self.out.add(f"{self.types.element(s.buffer)}* {line} = {text};")
        return line

    def _store_each(self, line: Scope, result: str, places: Mapping[Store, str]) -> None:
        """What is computed of one result, at column `out_col`, into the place of each store."""
        inner = self.sliding.lines[-1]
        scope = line.child(lambda v: "out_col" if v == inner.var else self.vars[v])
        scope.known[self.sliding.window.uid] = result
        roots = [s.value for s in places]
        counted = [e for e in walk(roots) if e.op == "sub" and e.dtype == "int64" and inner.var in e.variables()]
        self.out.add(*scope.declare_steps([*counted, *roots], wish=self._wish))
        self.out.add(*(scope.declare(e, self._wish(e)) for e in counted if e.uid not in scope.known))
        self.out.add(*scope.declare_steps(roots, wish=self._wish))
        for s, place in places.items():
            self.out.add(f"{place} = {self.types.stored(s.buffer, s.value, scope)};")

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


@dataclass
class JoiningCode(SlidingBase):
    """Pooling whose threads own VEC columns of the operand: lines are joined per column, columns after that."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.counts = (*self.counts[:-1], "VEC")
        self.loop["VEC"] = self.loop["COLS"]

    def emit(self) -> str:
        self._place()
        self._hoist([self.sliding.value])
        name = "sums" if self.kind == "sum" else "best"
        self._declare(name, self.counts)
        self._walk(0, name)
        self.out.blank()
        self._outputs(name)
        return str(self.out)
