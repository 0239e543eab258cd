"""The body of a row kernel: passes over a row as loops of vectors, for every schedule of families/row.py.

A schedule says who walks the row (a warp, a block, several blocks), whether the row is held in registers or read
again tile by tile, and how partial results are combined; the statements per element are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

from kforge.engine.emit.access import Access
from kforge.engine.emit.cgen import Scope, identity
from kforge.engine.emit.naming import Names, named_steps, wished_name
from kforge.engine.emit.passes import Pass
from kforge.engine.emit.reducing import ReducingCode
from kforge.engine.graph.ir import SCATTERS, Expr, Store, is_element, walk
from kforge.engine.graph.state import write_once


@dataclass
class RowCode(ReducingCode):
    """Emits the passes of a program in one style."""

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
        loads = [e for e in loads if all(b.op != "reduce" for b in walk([e]))]
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
        if s.value.op == "set_at":
            return f"{own}{s.buffer.name}[{scope.text(place)}] = {text};"
        target = f"{s.buffer.name} + {scope.text(place, 10)}"
        if s.value.op == "add_at" and s.buffer.dtype != "int64":
            return f"{own}atomicAdd({target}, {text});"
        self.helpers.add("atomics")
        return f"{own}{s.value.op}({target}, {text});"

    def _stored(self, s: Store, scope: Scope) -> str:
        return self.types.stored(s.buffer, s.value, scope)

    def what(self, p: Pass) -> str:
        """A comment that says what a pass is for, with its lines of op.py."""
        parts = [pair.title for pair in p.pairs]
        described = [self._sources(self._describe(r), r) for r in p.reductions]
        parts += [one.replace(" ", "s ", 1) if described.count(one) > 1 else one for one in dict.fromkeys(described)]
        parts += [self._sources(f"{s.buffer.name}", s.value) for s in p.stores]
        return ", ".join(parts)

    def _describe(self, r: Expr) -> str:
        return {"max": "maximum", "min": "minimum", "prod": "product"}.get(r.kind, r.kind) + " over the row"

    @staticmethod
    def _sources(text: str, e: Expr) -> str:
        return f"{text} ({e.origin.file}:{e.origin.line})" if e.origin is not None else text

    @contextmanager
    def vectors(self, p: Pass, note: str = "", elements: bool = True) -> Iterator[None]:
        """The loop over this thread's vectors of a row or tile; `col` is the first column of a vector."""
        s = self.style
        base = f"{s.first} + " if s.first != "0" and not s.tiled else "tile + " if s.tiled else ""
        with self.lines.block(f"for (int k = 0; k < {self.items}; ++k)", unroll=True):
            shift = self.less_lead if s.first == "0" and not s.tiled else ""  # else the first vector is that already
            self.lines.add(f"const {s.column} {self.at} = {base}(k * {s.threads} + {s.thread}) * VEC{shift};")
            with self.lines.block(f"if ({self.at} < {s.end})"), self.indices_used():
                if elements:
                    self.which_inside()
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
            shift = self.less_lead if s.first == "0" else ""
            self.lines.add(f"const {s.column} own = {base}(k * {s.threads} + {s.thread}) * VEC{shift};")
            if self.ragged:
                self.lines.add(f"const {s.column} {self.at} = own < head ? head : own < last ? own : last;")
            else:
                self.lines.add(f"const {s.column} {self.at} = own < {s.end} ? own : {s.end} - VEC;  // the last again")
            self.whole = True
            with self.indices_used():
                yield
            self.whole = False

    whole = False  # vectors are whole ones

    def mend_edges(self, p: Pass, loads: list[Expr]) -> None:
        """The elements of vectors that are another row's in part, after all loads of whole ones."""
        if not self.ragged or not loads:
            return
        self.lines.comment("the row's first and last elements")
        partly = self.lines.block(f"if ({self.at} < head || {self.at} > last)")
        each = self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True)
        with self.vectors(p, elements=False), partly:
            self.which_inside()
            with each, self.inside_row():
                for e in loads:
                    pointer = self.pointer(self.memory.loads[e.uid])
                    pointer = pointer if pointer.isidentifier() else f"({pointer})"
                    self.lines.add(f"{self.arrays[e.uid]}.at[j] = {pointer}[{self.at} + j];")

    def split_columns(self) -> None:
        if len(self.program.cols) > 1:
            loops = self.program.cols
            self.split_at = len(self.lines._lines)
            self._split_index(self.at, [self._col_var(v) for v in loops], loops, self.style.column)

    split_at = -1  # the lines of the block that is being written in which a column is split into its indices

    @contextmanager
    def indices_used(self) -> Iterator[None]:
        """Of a column's indices only those that the block reads are left: each costs a division."""
        self.split_at = -1
        yield
        if self.follows_columns and self.split_at >= 0:
            lines = self.lines._lines
            end = self.split_at + len(self.program.cols)
            used = "\n".join(lines[end:])
            declared = [
                (line, self._col_var(v))
                for line, v in zip(lines[self.split_at : end], self.program.cols[::-1], strict=True)
            ]
            lines[self.split_at : end] = [line for line, name in declared if re.search(rf"\b{name}\b", used)]
        self.split_at = -1

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
        first = f"-{self.lead}" if s.first == "0" and self.lead else s.first
        with self.lines.block(f"for ({s.column} tile = {first}; tile < {s.end}; tile += {step})"):
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

    def pair_sums(self, p: Pass) -> list[str]:
        """Partial sums that pairs of reductions add to in the element loop."""
        return []

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
        with self.vectors(p, elements=False) if self.style.tiled else self.clamped_vectors():
            self.split_columns()
            for e in loads:
                access = self.memory.loads[e.uid]
                self.lines.add(f"{self.arrays[e.uid]} = {self._vector(e, access)};")
        if not self.style.tiled:
            self.mend_edges(p, loads)

    def _vector(self, e: Expr, access: Access) -> str:
        if self.ragged and not self.whole:
            self.helpers.add("ragged")
            return f"load_within<VEC>({self.pointer(access)}, {self.at}, cols)"
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
                if e.uid in scope.known or e.op in SCATTERS or not is_element(e, self.program.cols):
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
                if self.ragged:
                    self.helpers.add("ragged")
                    self.lines.add(f"store_within({self.pointer(access)}, {self.at}, cols, {outs[n]});")
                    continue
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
