"""Row code for rows that are neighbours in memory while their columns are far apart: reductions over outer dimensions.

LANES threads take LANES neighbouring rows, SPLIT groups of them share the columns, so that each load of a warp is one
contiguous stretch. A pointer a buffer walks down the columns: nothing is multiplied per element. Full tiles load
without conditions, all ITEMS of a thread under way before the first is used; one tile with conditions is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from kforge.engine.emit.access import Access, access_of, walks_down
from kforge.engine.emit.cgen import Scope, identity
from kforge.engine.emit.naming import Names
from kforge.engine.emit.passes import Pass
from kforge.engine.emit.reducing import OPERATIONS, SLOT_BYTES, QueuedCode
from kforge.engine.emit.splitcode import SplitCode
from kforge.engine.emit.threadcode import ThreadCode
from kforge.engine.families.row_parts import HeldCode
from kforge.engine.graph.ir import Expr, Program
from kforge.engine.graph.symbols import Poly, Var


@dataclass
class ColumnCode(QueuedCode, ThreadCode):
    """team: several blocks share the rows' columns, and the last one to finish joins their results."""

    team: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queues = self.team
        self.full = False
        self.walking: dict[tuple[str, Poly], str] = {}
        self.steps: dict[str, str] = {}
        self.distances: dict[Poly, str] = {}
        self.names.taken |= {"lane", "end", "tile", "strip"}
        for store, access in self.memory.stores.items():
            self.memory.stores[store] = walks_down(access, self.inner)

    # rows

    def prologue(self) -> None:
        rows = self.program.rows
        if len(rows) > 1:
            self.lines.add("const Index<WIDE> flat = row;")
            self._split_index("flat", [f"row_{k}" for k in range(len(rows))], rows, "long long")
        self.lines.blank()

    # the walk down the columns

    def walk_tiles(self, p: Pass, sums: dict[int, str], preload: list[Expr], outside: Names) -> None:
        """Outer column loops one by one; the innermost in tiles of SPLIT x ITEMS, the last of them with conditions."""
        cols = self.program.cols
        with ExitStack() as loops:
            for n, v in enumerate(cols[:-1]):
                size = self.scope.index(v.size, True)
                low, high = ("first", "end") if n == 0 else ("0", size)
                head = f"for (long long {self._col_var(v)} = {low}; {self._col_var(v)} < {high}; ++{self._col_var(v)})"
                loops.enter_context(self.lines.block(head))
            alone = len(cols) == 1  # then variables live on in later passes
            if not alone:
                self.walking, self.steps, self.distances = {}, {}, {}
            kind = "" if self.distances else "long long "
            self.lines.add(f"{kind}tile = {'first + part' if alone else 'part'};")
            self.stop = "end" if alone else self.scope.index(cols[-1].size, True)
            moving = self.start_walk(p, outside if alone else self.names)
            taken, values = set(self.names.taken), dict(self.values)
            with self.lines.block(f"for (; tile + (ITEMS - 1) * SPLIT < {self.stop}; tile += ITEMS * SPLIT)"):
                self.full = True
                self.tile(p, sums, preload, outside)
                for name in moving:
                    self.lines.add(f"{name} += ITEMS * {self.steps[name]};")
            self.names.taken, self.values = taken, values
            with self.lines.block(f"if (tile < {self.stop})"):
                self.full = False
                self.tile(p, sums, preload, outside)

    def start_walk(self, p: Pass, names: Names) -> list[str]:
        """A pointer for every buffer that this pass walks along, and how far it moves from a column to the next."""
        moving: dict[str, None] = {}
        accesses = [self.memory.loads[e.uid] for e in p.fresh] + [self.memory.stores[s] for s in p.stores]
        scope = self.scope.child(var=lambda v: "tile" if v == self.inner else self._row_var(v))
        for access in accesses:
            if access.kind != "vector":
                continue
            key = access.buffer.name, access.index
            distance = access.index.coefficient(self.inner)
            if distance not in self.distances:
                self.distances[distance] = names.fresh("step")
                self.lines.add(f"const long long {self.distances[distance]} = {self._wide(distance)} * SPLIT;")
            start = f"{access.buffer.name} + {scope.index(access.index)}"
            known = self.walking.get(key)
            if known is None:
                name = self.walking[key] = names.fresh(f"{access.buffer.name}_at")
                self.steps[name] = self.distances[distance]
                const = "" if self._is_written(access) else "const "
                self.lines.add(f"{const}{self.types.element(access.buffer)}* {name} = {start};")
            elif known not in moving:
                self.lines.add(f"{known} = {start};")
            moving[self.walking[key]] = None
        self.names.taken |= {*moving, *self.distances.values()}
        return list(moving)

    def _wide(self, distance: Poly) -> str:
        text = self.scope.index(distance, True)
        return text if distance.constant is not None else f"static_cast<long long>({text.strip('()')})"

    def tile(self, p: Pass, sums: dict[int, str], preload: list[Expr], outside: Names) -> None:
        parts = self._tile_partials(p, sums)
        kept = {e.uid: self.arrays.get(e.uid) for e in preload}
        self.preload(p, preload, outside)
        with self.vectors(p):
            self.element(p, parts)
        self.tile_pairs(p)
        for uid, part in parts.items():
            if part != sums[uid]:
                self.lines.add(f"{sums[uid]}.add(pairwise({part}));")
        for uid, before in kept.items():
            if before is None:
                self.arrays.pop(uid, None)

    @contextmanager
    def vectors(self, p: Pass, note: str = "", elements: bool = True) -> Iterator[None]:
        col = self._col_var(self.inner)
        with self.lines.block("for (int k = 0; k < ITEMS; ++k)", unroll=True):
            condition = self.lines.block(f"if (tile + k * SPLIT < {self.stop})")
            with ExitStack() as inside:
                if not self.full:
                    inside.enter_context(condition)
                first = len(self.lines._lines)
                self.declare_column()
                middle = len(self.lines._lines)
                yield
            used = "\n".join(self.lines._lines[middle:])
            if not re.search(rf"\b({col}|{self.at})\b", used):
                del self.lines._lines[first:middle]

    def declare_column(self) -> None:
        cols = self.program.cols
        self.lines.add(f"const long long {self._col_var(self.inner)} = tile + k * SPLIT;")
        if len(cols) > 1:
            flat = Poly()
            for v in cols:
                flat = flat * v.size + Poly.of(v)
            self.lines.add(f"const long long {self.at} = {self.scope.index(flat)};")

    def split_columns(self) -> None:
        """The loops give every column index."""

    def address(self, access: Access) -> str:
        name = self.walking.get((access.buffer.name, access.index))
        return f"{name} + k * {self.steps[name]}" if name else super().address(access)

    def _vector(self, e: Expr, access: Access) -> str:
        if (access.buffer.name, access.index) not in self.walking:
            return super()._vector(e, access)
        text = f"load<VEC>({self.address(access)})"
        if e.args:
            text = f"{self.scope.text(e.args[0], 2)} ? {text} : Pack<{self.types.element(access.buffer)}, VEC>()"
        return text

    def _element_var(self, v: Var) -> str:
        return self._row_var(v)

    # joining

    def combine(self, operation: str, value: str, neutral: str, ctype: str) -> str:
        return self.column_reduce(operation, value, ctype, "[SPLIT][LANES]")

    def published(self, mine: str, ctype: str) -> str:
        self.helpers.add("column_gather")
        return f"publish_column<{ctype}>({mine}, team, {self.rounds}, part);"

    def last_block_only(self) -> None:
        super().last_block_only()
        self.lines.add("__syncthreads();")
        self.lines.add("if (!is_last(arrived, BLOCKS)) return;")

    def gathered(self, operation: str, neutral: str, ctype: str, number: int) -> str:
        if ctype in ("long long", "double"):
            neutral = f"static_cast<{ctype}>({neutral})"
        found = f"gather_column<{operation}, {ctype}>({neutral}, team, {number}, part, SPLIT)"
        return self.combine(operation, found, neutral, ctype)


@dataclass
class RowsAbreast(ColumnCode):
    """VEC neighbouring rows a thread, loaded as one: what is kept for a row is an array over them."""

    def emit(self) -> str:
        first = self.passes[0]
        self.lines.comment(self.what(first))
        sums: dict[int, str] = {}
        for r in first.reductions:
            name = sums[r.uid] = self.names.fresh(f"row_{r.kind}")
            self.declare_states(r, name)
            self.results[r.uid] = self.names.fresh(f"{name}_total")
        preload = [e for e in first.fresh if self._moves_with_row(e)]
        self.walk_tiles(first, sums, preload, self.names)
        with self.each_row():
            for r in first.reductions:
                self.finish(r, f"{sums[r.uid]}[j]")
            if not self.team:
                self.stores_of_row()
        if self.team:
            self.last_block_only()
            with self.each_row():
                self.take_queue()
                self.stores_of_row()
        return str(self.lines)

    def declare_states(self, r: Expr, name: str) -> None:
        if self.by_pairs(r):
            self.helpers.add("cascade")
            self.lines.add(f"Cascade<{self.types.real}> {name}[VEC];")
            return
        zero = identity(r.kind, r.args[0].dtype, self.types)
        if r.kind.startswith("arg"):
            self.helpers.add("arg")
            zero = f"{{{zero}, -1}}"
        self.lines.add(f"{self._partial_type(r)} {name}[VEC];")
        with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
            self.lines.add(f"{name}[j] = {zero};")

    @contextmanager
    def each_row(self) -> Iterator[None]:
        """A loop over this thread's rows; with several blocks a row, `team` are those of the row."""
        with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
            if self.team:
                bytes_of_row = SLOT_BYTES * len(self.passes[0].reductions)
                self.lines.add(
                    f"const Team team = {{workspace + (wanted + j) * BLOCKS * {bytes_of_row}, rank, BLOCKS}};"
                )
            yield

    def stores_of_row(self) -> None:
        self.in_row = True
        for p in self.passes:
            self.row_stores(p)
        self.in_row = False

    def tile(self, p: Pass, sums: dict[int, str], preload: list[Expr], outside: Names) -> None:
        parts = self._tile_partials(p, sums)
        self.preload(p, preload, outside)
        with self.vectors(p):
            self.in_row = True
            self.element(p, parts)
            self.in_row = False
        added = [(sums[uid], part) for uid, part in parts.items() if part != sums[uid]]
        if added:
            with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
                for name, part in added:
                    self.lines.add(f"{name}[j].add(pairwise({part}[j]));")
        for e in preload:
            self.arrays.pop(e.uid, None)

    def declare_sum(self, name: str) -> None:
        self.helpers.add("pairwise")
        self.lines.add(f"{self.types.real} {name}[VEC][ITEMS] = {{}};")

    @contextmanager
    def elements(self, sums: list[str], kept: Sequence[Expr] = ()) -> Iterator[None]:
        with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
            yield

    def accumulate(self, r: Expr, name: str, scope: Scope) -> None:
        if self.by_pairs(r):
            self.lines.add(f"{name}[j][k] = {scope.text(r.args[0])};")
        elif r.kind.startswith("arg"):
            self.lines.add(f"{OPERATIONS[r.kind]}::follow({name}[j], {scope.text(r.args[0])}, {self.at});")
        else:
            super().accumulate(r, f"{name}[j]", scope)

    def _row_var(self, v: Var) -> str:
        text = super()._row_var(v)
        return f"({text} + j)" if v == self.program.rows[-1] and self.in_row else text

    _element_var = _row_var
    in_row = False

    def combine(self, operation: str, value: str, neutral: str, ctype: str) -> str:
        return self.column_reduce(operation, value, ctype, "[VEC][SPLIT][LANES]", at="[j]")


class HeldColumns(HeldCode):
    """The same with all columns of a row in registers: SPLIT groups of LANES threads hold ITEMS of them each.

    Every access has a pointer to the thread's first column and a distance to the next one; with whole indices, tests in
    64 bits and divisions an element took 82 instructions, twice what memory leaves time for.
    """

    follows_columns = False
    declare_divisors = SplitCode.declare_divisors
    walking: dict[tuple[str, Poly], tuple[str, str]]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names.taken |= {"lane", "end"}
        self.memory.loads = {k: walks_down(access, self.inner) for k, access in self.memory.loads.items()}
        self.memory.stores = {s: walks_down(access, self.inner) for s, access in self.memory.stores.items()}

    _element_var = ColumnCode._element_var
    combine = ColumnCode.combine
    combine_block = ColumnCode.combine

    @staticmethod
    def walks(program: Program) -> bool:
        """Whether all that moves with the columns moves by one distance from each to the next."""
        if len(program.cols) != 1:
            return False
        inner = program.cols[0]
        found = [
            access_of(e.index, e.buffer, inner) for e in program.loads if e.index is not None and e.buffer is not None
        ]
        found += [access_of(s.index, s.buffer, inner) for s in program.stores if not s.per_row]
        return all(walks_down(a, inner).kind != "scalar" for a in found)

    def prologue(self) -> None:
        ColumnCode.prologue(self)  # type: ignore[arg-type]
        self.walking = {}
        if not self.walks(self.program):
            return
        self.names.taken |= {"start", "nth"}
        distances: dict[Poly, str] = {}
        scope = self.scope.child(var=lambda v: "start" if v == self.inner else self._row_var(v))
        self.lines.add("const long long start = min(part, cols - 1);  // there may be fewer columns than parts")
        for access in [*self.memory.loads.values(), *self.memory.stores.values()]:
            key = access.buffer.name, access.index
            if access.kind != "vector" or key in self.walking:
                continue
            distance = access.index.coefficient(self.inner)
            if distance not in distances:
                distances[distance] = self.names.fresh("step")
                text = self.scope.index(distance, True)
                self.lines.add(f"const long long {distances[distance]} = {text} * (SPLIT * 1LL);")
            name = self.names.fresh(f"{access.buffer.name}_at")
            const = "" if self._is_written(access) else "const "
            text = f"{access.buffer.name} + {scope.index(access.index)}"
            self.lines.add(f"{const}{self.types.element(access.buffer)}* {name} = {text};")
            self.walking[key] = name, distances[distance]
        self.lines.blank()

    @contextmanager
    def clamped_vectors(self, start: str = "0", stop: str = "ITEMS") -> Iterator[None]:
        if not self.walking:
            with super().clamped_vectors(start, stop):
                yield
            return
        loop = self.lines.block(f"for (int k = {start}; k < {stop}; ++k)", unroll=True)
        with self.lines.block("if (end > 0)"), loop:
            self.lines.add("const int nth = FULL || k * SPLIT + part < end ? k : 0;  // the first again")
            place = len(self.lines._lines)
            self.lines.add(f"const int {self.at} = nth * SPLIT + part;")
            self.whole = True
            yield
            self.whole = False
            if not re.search(rf"\b{self.at}\b", "\n".join(self.lines._lines[place + 1 :])):
                del self.lines._lines[place]

    @contextmanager
    def vectors(self, p: Pass, note: str = "", elements: bool = True) -> Iterator[None]:
        if not self.walking:
            with super().vectors(p, note, elements):
                yield
            return
        with self.lines.block("for (int k = 0; k < ITEMS; ++k)", unroll=True):
            self.lines.add(f"const int {self.at} = k * SPLIT + part;")
            with self.lines.block(f"if (FULL || {self.at} < end)"):
                yield

    def address(self, access: Access) -> str:
        if (access.buffer.name, access.index) in self.walking:
            name, step = self.walking[access.buffer.name, access.index]
            return f"{name} + {'nth' if self.whole else 'k'} * {step}"
        return f"{access.buffer.name} + {self.scope.index(access.index)}"

    def declare_pointers(self) -> None:
        """Columns are far apart: every access is written out in full."""
