"""Row code for several rows per block: sums whose terms need the same values in every row, read once for all rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from kforge.engine.emit.cgen import identity
from kforge.engine.emit.rowcode import RowCode
from kforge.engine.graph.ir import Expr, Program
from kforge.engine.graph.symbols import Var

FEW = 8


def few_of(program: Program) -> Var | None:
    """Of two row loops, the one of at most FEW rows; None where there is no such."""
    if len(program.rows) != 2:
        return None
    return next((v for v in program.rows[::-1] if 1 < (v.size.constant or 0) <= FEW), None)


@dataclass
class RowsCode(RowCode):
    """One pass of sums; each thread walks its columns once and keeps a running sum for each of ROWS rows.

    A row loop of at most FEW beside the other is walked whole by every thread: the columns of a thin product, say.
    """

    @property
    def few(self) -> Var | None:
        return few_of(self.program)

    @property
    def many(self) -> Var:
        return next(v for v in self.program.rows if v != self.few)

    def _row_var(self, v: Var) -> str:
        return "m" if v == self.few else "row" if v in self.program.rows else super()._row_var(v)

    def prologue(self) -> None:
        """Rows are written out where they are used."""
        self.names.taken |= {"m", "r", "first_row"}

    def emit(self) -> str:
        first = self.passes[0]
        self.helpers |= {"pack", "cascade", "pairwise", "warp_reduce", "block_reduce", "Sum"}
        real = self.types.real
        sums: dict[int, str] = {}
        each = "[r]" if self.few is None else "[r][m]"
        shape = "[ROWS]" if self.few is None else f"[ROWS][{self.few.size.constant}]"
        for r in first.reductions:
            sums[r.uid] = self.names.fresh(r.origin.name if r.origin and r.uid in self.final else "row_sum")
            self.lines.add(f"Cascade<{real}> {sums[r.uid]}{shape};")
        self.lines.comment(self.what(first))
        with self.lines.block("for (long long col = threadIdx.x * VEC; col < cols; col += BLOCK * VEC)"):
            self.load_vectors(first.fresh)
            with self.each_row(), self.each_of_few():
                self.add_terms_of(first.reductions, sums, each)
        self.lines.blank()
        for uid in list(self.arrays):
            del self.arrays[uid]
        with self.each_row(clamped=False), self.each_of_few():
            for r in first.reductions:
                self.sites += 1
                scratch = self.names.fresh(f"partials_{self.sites}")
                self.scratch_lines.append(f"__shared__ {real} {scratch}{shape}[BLOCK / 32];")
                total = self.names.fresh(f"{sums[r.uid]}_total")
                zero = identity("sum", r.dtype, self.types)
                if real == "double":
                    zero = f"static_cast<double>({zero})"
                text = f"block_reduce<Sum>({sums[r.uid]}{each}.total(), {zero}, {scratch}{each})"
                self.lines.add(f"const {real} {total} = {text};")
                self.scope.known[r.uid] = total
            with self.lines.block(f"if (threadIdx.x == 0 && row < {self.count})"):
                scope = self.scope.child()
                for p in self.passes:
                    for s in p.row_stores:
                        self.lines.add(f"{s.buffer.name}[{scope.index(s.index)}] = {self._stored(s, scope)};")
        return str(self.lines)

    @property
    def count(self) -> str:
        return self.scope.index(self.many.size, True)

    @contextmanager
    def each_row(self, clamped: bool = True) -> Iterator[None]:
        """A loop over this block's rows; `row` is the row, the last one again where there are fewer."""
        with self.lines.block("for (int r = 0; r < ROWS; ++r)", unroll=True):
            row = f"min(first_row + r, {self.count} - 1LL)" if clamped else "first_row + r"
            self.lines.add(f"const long long row = {row};")
            yield

    @contextmanager
    def each_of_few(self) -> Iterator[None]:
        """A loop over the inner rows, if there are any."""
        few = self.few
        head = f"for (int m = 0; m < {few.size.constant}; ++m)" if few is not None else ""
        with self.lines.block(head, unroll=True) if head else nullcontext():
            yield

    def load_vectors(self, loads: list[Expr]) -> None:
        """What all rows share, then what each row has: all are under way before the first is used."""
        vectors = [e for e in loads if self._is_vector(e)]
        plain = [e for e in vectors if not self._moves_with_row(e)]
        inner = [e for e in vectors if self.few in e.variables()]
        own = [e for e in vectors if e not in plain and e not in inner]
        for e in plain:
            access = self.memory.loads[e.uid]
            name = self.arrays[e.uid] = self.names.fresh(f"{access.buffer.name}_in")
            element = self.types.element(access.buffer)
            self.lines.add(f"const Pack<{element}, VEC> {name} = {self._vector(e, access)};")
        for group, size, at in ((inner, self.few and self.few.size.constant, "m"), (own, "ROWS", "r")):
            for e in group:
                access = self.memory.loads[e.uid]
                name = self.names.fresh(f"{access.buffer.name}_in")
                self.arrays[e.uid] = f"{name}[{at}]"
                self.lines.add(f"Pack<{self.types.element(access.buffer)}, VEC> {name}[{size}];")
        for group, loop in ((own, self.each_row), (inner, self.each_of_few)):
            if group:
                with loop():
                    for e in group:
                        self.lines.add(f"{self.arrays[e.uid]} = {self._vector(e, self.memory.loads[e.uid])};")

    def add_terms_of(self, reductions: list[Expr], sums: dict[int, str], each: str) -> None:
        for r in reductions:
            self.lines.add(f"{self.types.real} {sums[r.uid]}_terms[VEC];")
        with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
            scope = self.scope.child(var=self._element_var)
            for r in reductions:
                self.lines.add(f"{sums[r.uid]}_terms[j] = {scope.text(r.args[0])};")
        for r in reductions:
            self.lines.add(f"{sums[r.uid]}{each}.add(pairwise({sums[r.uid]}_terms));")
