"""The body of a row kernel: passes over a row as loops of vectors, for every schedule of families/row.py.

A schedule says who walks the row (a warp, a block, several blocks), whether the row is held in registers or read
again tile by tile, and how partial results are combined; the statements per element are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from kforge.engine.emit.access import Access
from kforge.engine.emit.cgen import Names, Scope, identity, named_steps, wished_name
from kforge.engine.emit.passes import Pass
from kforge.engine.emit.rowbase import CodeBase
from kforge.engine.graph.ir import REAL, SCATTERS, Expr, Store, is_element, walk
from kforge.engine.graph.state import write_once

OPERATIONS = {"sum": "Sum", "prod": "Product", "max": "Max", "min": "Min", "argmax": "ArgMax", "argmin": "ArgMin"}


@dataclass
class RowCode(CodeBase):
    """Emits the passes of a program in one style."""

    results: dict[int, str] = field(default_factory=dict)
    items = "ITEMS"  # vectors of a row or tile that a thread walks
    never_empty = False  # rows have a column at least

    def emit(self) -> str:
        if self.row_loads_first:
            self.load_early()
        for n, p in enumerate(self.passes):
            if n:
                self.lines.blank()
            self.row_stores(p)
            self.hoist(p.roots)
            self.declare_divisors(p.roots)
            if p.roots:
                self.walk(p)
        write_once(self, self.first_thread)
        return str(self.lines)

    @property
    def first_thread(self) -> str:
        """The condition that holds for one thread of the grid."""
        return f"row == 0 && {self.style.writes}"

    row_loads_first = False  # what is written per row is loaded before the row is walked, not after it

    def load_early(self, gathered: bool = False) -> None:
        """gathered: those at a position that was loaded itself, once the row's loads are on their way."""
        found = [e for p in self.passes[1:] for s in p.row_stores for e in walk([s.value], into_reductions=False)]
        loads = [e for e in dict.fromkeys(found) if e.op == "load" and not is_element(e, self.program.cols)]
        waiting = {e.uid for e in loads if any(b is not e and b.op == "load" for b in walk([e]))}
        loads = [e for e in loads if (e.uid in waiting) == gathered and e.uid not in self.scope.known]
        for e in loads:
            self.lines.add(self.scope.declare(e, wished_name(e, self.final)))
            self.names.taken.add(self.scope.known[e.uid])
        if loads:
            self.lines.blank()

    def declare_divisors(self, roots: list[Expr]) -> None:
        """Row values that elements are divided by, where a schedule has cheaper quotients for them."""

    def row_stores(self, p: Pass) -> None:
        if not p.row_stores:
            return
        with self.lines.block(f"if ({self.style.writes})"):
            scope = self.scope.child()
            for s in p.row_stores:
                for step in named_steps([s.value], set(scope.known)):
                    if step.uid not in scope.known and step is not s.value:
                        self.lines.add(scope.declare(step, wished_name(step, self.final)))
                self.lines.add(f"{s.buffer.name}[{scope.index(s.index)}] = {self._stored(s, scope)};")

    def statement(self, s: Store, scope: Scope) -> str:
        """The assignment of an element's value, or the update of the place that the value names itself."""
        if s.value.op not in SCATTERS:
            return f"{s.buffer.name}[{scope.index(s.index)}] = {self._stored(s, scope)};"
        place, value = s.value.args
        text = self._stored(replace(s, value=value), scope)
        # threads beyond the last row take that one again: what they store is the same, what they add is not
        own = "if (active) " if "active" in self.style.writer else ""
        if s.value.op == "add_at":
            return f"{own}atomicAdd({s.buffer.name} + {scope.text(place, 10)}, {text});"
        return f"{own}{s.buffer.name}[{scope.text(place)}] = {text};"

    def column_reduce(self, operation: str, value: str, ctype: str, shape: str, at: str = "") -> str:
        """`value` joined over the threads that share a row's columns, through partials of this shape."""
        self.helpers.add("column_reduce")
        self.sites += 1
        scratch = self.names.fresh(f"partials_{self.sites}")
        self.scratch_lines.append(f"__shared__ {ctype} {scratch}{shape};")
        return f"column_reduce<{operation}, {ctype}>({value}, {scratch}{at})"

    def _stored(self, s: Store, scope: Scope) -> str:
        return self.types.stored(s.buffer, s.value.dtype, scope.text(s.value))

    def what(self, p: Pass) -> str:
        """A comment that says what a pass is for, with its lines of op.py."""
        parts = [pair.title for pair in p.pairs]
        parts += [self._sources(self._describe(r), r) for r in p.reductions]
        parts += [self._sources(f"{s.buffer.name}", s.value) for s in p.stores]
        return ", ".join(parts)

    def _describe(self, r: Expr) -> str:
        return {"max": "maximum", "min": "minimum", "prod": "product"}.get(r.kind, r.kind) + " over the row"

    @staticmethod
    def _sources(text: str, e: Expr) -> str:
        return f"{text} ({e.origin.file}:{e.origin.line})" if e.origin is not None else text

    @contextmanager
    def vectors(self, p: Pass, note: str = "") -> Iterator[None]:
        """The loop over this thread's vectors of a row or tile; `col` is the first column of a vector."""
        s = self.style
        base = f"{s.first} + " if s.first != "0" and not s.tiled else "tile + " if s.tiled else ""
        with self.lines.block(f"for (int k = 0; k < {self.items}; ++k)", unroll=True):
            self.lines.add(f"const {s.column} {self.at} = {base}(k * {s.threads} + {s.thread}) * VEC;")
            with self.lines.block(f"if ({self.at} < {s.end})"):
                yield

    @contextmanager
    def clamped_vectors(self, start: str = "0", stop: str = "ITEMS") -> Iterator[None]:
        """As `vectors` for loads alone, without a condition on each: a compiler that may not skip a load issues them
        all before it waits for the first. With conditions it waited in between; RMS norm over 32,768 columns then
        reached 0.77 of the floor."""
        s = self.style
        base = f"{s.first} + " if s.first != "0" else ""
        loop = self.lines.block(f"for (int k = {start}; k < {stop}; ++k)", unroll=True)
        some = nullcontext() if self.never_empty else self.lines.block(f"if ({s.end} > 0)")
        with some, loop:
            self.lines.add(f"const {s.column} own = {base}(k * {s.threads} + {s.thread}) * VEC;")
            self.lines.add(f"const {s.column} {self.at} = own < {s.end} ? own : {s.end} - VEC;  // the last again")
            yield

    def split_columns(self) -> None:
        if len(self.program.cols) > 1:
            loops = self.program.cols
            self._split_index(self.at, [self._col_var(v) for v in loops], loops, self.style.column)

    def walk(self, p: Pass) -> None:
        self.lines.comment(self.what(p))
        everywhere, self.names = self.names, Names(self.names.taken)
        self._walk(p, everywhere)
        self.names = everywhere

    def _walk(self, p: Pass, outside: Names) -> None:
        """`outside` gives names that live on after the pass; the pass's own are forgotten."""
        sums: dict[int, str] = {}
        for r in p.reductions:
            name = outside.fresh(r.origin.name if r.origin and r.uid in self.final else f"row_{r.kind}")
            self.names.taken.add(name)
            sums[r.uid] = name
            if r.kind.startswith("arg"):
                self.helpers.add("arg")
                ctype, zero = self._arg_type(r), f"{{{identity(r.kind, r.args[0].dtype, self.types)}, -1}}"
            else:
                ctype, zero = self.types.scalar(r.dtype), identity(r.kind, r.dtype, self.types)
                if self.by_pairs(r) and not self.style.tiled:
                    sums[r.uid] = outside.fresh(f"{name}_parts")
                    self.declare_sum(sums[r.uid])
                    self.results[r.uid] = name
                    continue
                if self.by_pairs(r):
                    self.helpers.add("cascade")
                    ctype, zero = f"Cascade<{ctype}>", ""
            self.lines.add(f"{ctype} {name}{f' = {zero}' if zero else ''};")
        preload = [e for e in p.fresh if self._moves_with_row(e) or (e in p.kept and self._is_vector(e))]
        self.open_pairs(p, outside)
        if self.style.tiled:
            self.walk_tiles(p, sums, preload, outside)
        else:
            self.preload(p, preload, outside)
            self.after_loads(p, outside)
            self.kept_arrays(p, outside)
            with self.vectors(p):
                self.split_columns()
                self.element(p, sums)
        for uid in [e.uid for e in preload if e not in p.kept]:
            self.arrays.pop(uid, None)
        self.names = outside
        self.close_pairs(p)
        for r in p.reductions:
            self.finish(r, sums[r.uid])
        self.flush()

    def walk_tiles(self, p: Pass, sums: dict[int, str], preload: list[Expr], outside: Names) -> None:
        """The loop over tiles of a row that does not fit."""
        s = self.style
        step = f"{s.threads} * VEC * ITEMS"
        with self.lines.block(f"for ({s.column} tile = {s.first}; tile < {s.end}; tile += {step})"):
            parts = self._tile_partials(p, sums)
            self.preload(p, preload, outside)
            with self.vectors(p):
                self.split_columns()
                self.element(p, parts)
            self.tile_pairs(p)
            for uid, part in parts.items():
                if part != sums[uid]:
                    self.lines.add(f"{sums[uid]}.add(pairwise({part}));")

    def _tile_partials(self, p: Pass, sums: dict[int, str]) -> dict[int, str]:
        """Sums of a tile start afresh and go to the cascade, which takes 64 of them in a row at most."""
        parts = dict(sums)
        for r in p.reductions:
            if self.by_pairs(r):
                parts[r.uid] = self.names.fresh(f"{sums[r.uid]}_tile")
                self.declare_sum(parts[r.uid])
        return parts

    @staticmethod
    def by_pairs(r: Expr) -> bool:
        """Sums of floats: added by pairs. In sequence, 32 nearly equal terms in a lane round with a preferred sign;
        softmax of exact zeros and ones then had 2.5 times torch's error, by pairs it has 0.8 of it."""
        return r.kind == "sum" and r.dtype == REAL

    def declare_sum(self, name: str) -> None:
        """An array with a partial sum for each vector of this thread."""
        self.helpers.add("pairwise")
        self.lines.add(f"{self.types.real} {name}[ITEMS] = {{}};")

    def pair_sums(self, p: Pass) -> list[str]:
        """Partial sums that pairs of reductions add to in the element loop."""
        return []

    @contextmanager
    def elements(self, sums: list[str], kept: Sequence[Expr] = ()) -> Iterator[None]:
        """The loop over a vector's elements, which fills in the terms of each of `sums` and the values of `kept`."""
        for name in sums:
            self.lines.add(f"{self.types.real} {name}_terms[VEC];")
        with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
            yield
        for name in sums:
            self.add_terms(name)

    def add_terms(self, name: str) -> None:
        """The sum of a vector's terms goes to the partial sums `name`."""
        self.lines.add(f"{name}[k] = pairwise({name}_terms);")

    def _is_vector(self, e: Expr) -> bool:
        return self.memory.loads[e.uid].kind == "vector"

    def _moves_with_row(self, e: Expr) -> bool:
        access = self.memory.loads[e.uid]
        return (access.kind == "vector" and any(v in self.program.rows for v in e.variables())) or (
            access.kind == "vector" and not self.program.rows
        )

    def preload(self, p: Pass, loads: list[Expr], outside: Names) -> None:
        """All loads of a thread are issued before the first is used."""
        if not loads:
            return
        self.helpers.add("pack")
        for e in loads:
            access = self.memory.loads[e.uid]
            name = (outside if e in p.kept else self.names).fresh(f"{access.buffer.name}_in")
            self.names.taken.add(name)
            self.lines.add(f"Pack<{self.types.element(access.buffer)}, VEC> {name}[ITEMS];")
            self.arrays[e.uid] = f"{name}[k]"
        with self.vectors(p) if self.style.tiled else self.clamped_vectors():
            self.split_columns()
            for e in loads:
                access = self.memory.loads[e.uid]
                self.lines.add(f"{self.arrays[e.uid]} = {self._vector(e, access)};")

    def _vector(self, e: Expr, access: Access) -> str:
        text = f"load<VEC>({self.address(access)})"
        if e.args:
            element = self.types.element(access.buffer)
            text = f"{self.scope.text(e.args[0], 2)} ? {text} : Pack<{element}, VEC>()"
        return text

    def know_more(self, p: Pass, scope: Scope) -> None:
        """Further values that what is kept gives more cheaply than their formula does."""

    def after_loads(self, p: Pass, outside: Names) -> None:
        """What is read beside the row's elements, once their loads are on their way."""

    def place(self, e: Expr) -> str:
        """Where a value that is kept is written, at (k, j)."""
        return f"{self.arrays[e.uid]}[k][j]"

    def kept_at(self, e: Expr) -> str:
        """A kept value at (k, j), as it was written."""
        return f"{self.arrays[e.uid]}[k][j]"

    def kept_text(self, e: Expr) -> str:
        """A kept value at (k, j), as it is wanted."""
        return self.kept_at(e)

    def wish(self, e: Expr) -> str:
        """The name that a kept value should have."""
        return wished_name(e, self.final)

    def kept_arrays(self, p: Pass, outside: Names) -> None:
        for e in p.kept:
            if e.uid not in self.arrays:
                name = outside.fresh(self.wish(e))
                self.names.taken.add(name)
                self.lines.add(f"{self.types.scalar(e.dtype)} {name}[ITEMS][VEC];")
                self.arrays[e.uid] = name

    def element(self, p: Pass, sums: dict[int, str]) -> None:
        """Statements for one vector: what else it loads, the loop over its elements, what it stores."""
        for e in p.fresh:
            access = self.memory.loads[e.uid]
            if access.kind == "vector" and e.uid not in self.arrays:
                self.helpers.add("pack")
                name = self.names.fresh(f"{access.buffer.name}_in")
                element = self.types.element(access.buffer)
                self.lines.add(f"const Pack<{element}, VEC> {name} = {self._vector(e, access)};")
                self.arrays[e.uid] = name
        outs: dict[int, str] = {}
        for n, s in enumerate(p.stores):
            if self.memory.stores[s].kind == "vector":
                self.helpers.add("pack")
                outs[n] = self.names.fresh(f"{s.buffer.name}_out")
                self.lines.add(f"Pack<{self.types.element(s.buffer)}, VEC> {outs[n]};")
        terms = [sums[r.uid] for r in p.reductions if self.by_pairs(r)] + self.pair_sums(p)
        later = {pair.exponential.uid for pair in p.pairs if pair.exponential is not None}
        kept = [
            e for e in p.kept if e.uid not in later and (e.op != "load" or self.memory.loads[e.uid].kind != "vector")
        ]
        with self.elements(terms, kept):
            scope = self.scope.child(var=self._element_var)
            scope.names = self.names
            for e in p.reused:
                if e.op != "load" or self.memory.loads[e.uid].kind != "vector":
                    scope.known[e.uid] = self.kept_text(e)
            self.know_more(p, scope)
            steps = named_steps(p.roots, set(scope.known))
            for e in [*steps, *[e for e in kept if e not in steps]]:
                if e.uid in scope.known or not is_element(e, self.program.cols):
                    continue
                if e in kept:
                    self.lines.add(f"{self.place(e)} = {scope.text(e)};")
                    scope.known[e.uid] = self.place(e)
                else:
                    self.lines.add(scope.declare(e, wished_name(e, self.final)))
            self.element_pairs(p, scope)
            for r in p.reductions:
                self.accumulate(r, sums[r.uid], scope)
            for n, s in enumerate(p.stores):
                if n in outs:
                    self.lines.add(f"{outs[n]}.at[j] = {self._stored(s, scope)};")
                else:
                    some = "" if s.below is None else f"if ({self.at} + j < {scope.index(s.below, True)}) "
                    self.lines.add(f"{some}{self.statement(s, scope)}")
        for n, s in enumerate(p.stores):
            if n in outs:
                access = self.memory.stores[s]
                self.lines.add(f"store({self.address(access)}, {outs[n]});")
        for e in p.fresh:
            if self.arrays.get(e.uid, "").isidentifier() and e not in p.kept:
                del self.arrays[e.uid]

    # pairs of reductions computed in one pass: only schedules that merge them (paircode.py) have any

    def open_pairs(self, p: Pass, outside: Names) -> None:
        assert not p.pairs

    def element_pairs(self, p: Pass, scope: Scope) -> None:
        pass

    def tile_pairs(self, p: Pass) -> None:
        pass

    def close_pairs(self, p: Pass) -> None:
        pass

    def accumulate(self, r: Expr, name: str, scope: Scope) -> None:
        value = scope.text(r.args[0])
        if self.by_pairs(r):
            self.lines.add(f"{name}_terms[j] = {value};")
        elif r.kind == "sum":
            self.lines.add(f"{name} += {value};")
        elif r.kind == "prod":
            self.lines.add(f"{name} *= {scope.text(r.args[0], 12)};")
        elif r.kind.startswith("arg"):
            column = f"{self.at} + j"
            self.lines.add(f"{OPERATIONS[r.kind]}::follow({name}, {value}, {column});")
        else:
            self.helpers.add("extremes")
            function = "larger" if r.kind == "max" else "smaller"
            self.lines.add(f"{name} = {function}({name}, {value});")

    def _arg_type(self, r: Expr) -> str:
        return f"Indexed<{self.types.scalar(r.args[0].dtype)}>"

    def finish(self, r: Expr, name: str) -> None:
        """Combine the partial results of all threads; the reduction is a row value from here on."""
        operation = OPERATIONS[r.kind]
        self.helpers.add(operation)
        if r.kind in ("max", "min"):
            self.helpers.add("extremes")
        value = name
        if self.by_pairs(r):
            value = f"{name}.total()" if self.style.tiled else f"pairwise({name})"
        neutral = identity(r.kind, r.args[0].dtype, self.types)
        if r.kind.startswith("arg"):
            neutral = f"{self._arg_type(r)}{{{neutral}, -1}}"

        def then(joined: str) -> None:
            result = name
            if value != name or self.queues:
                result = self.results.get(r.uid) or self.names.fresh(f"{name}_total")
                self.lines.add(f"const {self._partial_type(r)} {result} = {joined};")
            else:
                self.lines.add(f"{name} = {joined};")
            self.scope.known[r.uid] = f"{result}.index" if r.kind.startswith("arg") else result

        self.join(operation, value, neutral, self._partial_type(r), then)

    queues = False  # results of a join appear later than the join is written

    def join(self, operation: str, value: str, neutral: str, ctype: str, then: Callable[[str], None]) -> None:
        """Combine `value` over all threads of the row and hand the text of the result to `then`."""
        then(self.combine(operation, value, neutral, ctype))

    def flush(self) -> None:
        """End of the joins of a pass."""

    def _partial_type(self, r: Expr) -> str:
        return self._arg_type(r) if r.kind.startswith("arg") else self.types.scalar(r.dtype)

    def combine(self, operation: str, value: str, neutral: str, ctype: str) -> str:
        self.helpers.add("warp_reduce")
        if not self.style.scratch:
            return f"warp_reduce<{operation}>({value})"
        self.helpers.add("block_reduce")
        self.sites += 1
        scratch = self.names.fresh(f"partials_{self.sites}")
        self.scratch_lines.append(f"__shared__ {ctype} {scratch}[BLOCK / 32];")
        if ctype in ("long long", "double"):  # the literal may be of a narrower type
            neutral = f"static_cast<{ctype}>({neutral})"
        return f"block_reduce<{operation}>({value}, {neutral}, {scratch})"
