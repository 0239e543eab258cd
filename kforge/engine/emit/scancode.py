"""The body of a kernel with running results: each tile of a row is loaded, scanned in place, used and stored.

Within a pass the scans of a tile run one after another, those first that others are over. Vectors are walked in the
scans' direction; each warp owns neighbouring ones, so that a tile has one partial result for each warp.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from kforge.engine.emit.cgen import BYTES, identity
from kforge.engine.emit.naming import Names, named_steps, wished_name
from kforge.engine.emit.passes import Pass
from kforge.engine.emit.rowcode import RowCode
from kforge.engine.emit.threadcode import ThreadCode
from kforge.engine.graph.ir import REAL, Expr, is_element, runs_backwards, walk
from kforge.engine.graph.symbols import Poly

OPERATIONS = {
    "sum": "RunningSum",
    "prod": "RunningProduct",
    "max": "RunningMax",
    "min": "RunningMin",
    "argmax": "RunningMax",
    "argmin": "RunningMin",
    "logsumexp": "RunningLogSumExp",
}
TITLES = {
    "sum": "running sum",
    "prod": "running product",
    "max": "running maximum",
    "min": "running minimum",
    "argmax": "where the running maximum stands",
    "argmin": "where the running minimum stands",
    "logsumexp": "running log of the sum of exp",
}


@dataclass
class ScanCode(RowCode):
    """Scans by the threads of a block or warp. ahead: the next tile is loaded before the current one is scanned."""

    running: dict[int, str] = field(default_factory=dict)  # scan -> array of its results
    carries: dict[int, str] = field(default_factory=dict)
    ahead: bool = False
    lines_up: bool = False  # tiles begin where lines of memory do
    early: str = ""
    helper, function = "row_scan", "scan"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.backwards = any(runs_backwards(e) for e in self.program.scans)
        self.names.taken |= {"own"}

    @property
    def warps(self) -> str:
        return "BLOCK / 32" if self.style.scratch else "1"

    # the loop over vectors, in the scans' direction

    @contextmanager
    def vectors(self, p: Pass, note: str = "", elements: bool = True) -> Iterator[None]:
        with self._vectors("tile"):
            yield

    @contextmanager
    def _vectors(self, tile: str, stop: str = "") -> Iterator[None]:
        column, at, end = self.style.column, self.at, stop or self.style.end
        with self.lines.block("for (int k = 0; k < ITEMS; ++k)", unroll=True):
            position = self.offset() if tile in ("", "0") else f"{tile} + {self.offset()}"
            if self.backwards:
                self.lines.add(f"const {column} {at} = {end} - VEC - ({position});")
            else:
                self.lines.add(f"const {column} {at} = {position};")
            inside = f"{at} >= 0" if self.backwards else f"{at} < {end}"
            if self.early:
                inside = f"{at} >= 0 && {at} < {end}"
            with self.lines.block(f"if ({inside})"):
                yield

    def offset(self) -> str:
        return "own + k * 32 * VEC"

    # tiles

    def emit(self) -> str:
        self.line_up()
        return super().emit()

    def _walk(self, p: Pass, outside: Names) -> None:
        for e in self._scans(p):
            if e.uid in self.running:
                continue
            if e.kind.startswith("sort"):
                self.declare_sort(e, outside)
                continue
            self.helpers |= {"scan", self.helper, OPERATIONS[e.kind]}
            if e.kind == "logsumexp":
                self.helpers.add("extremes")
            if e.kind.startswith("arg"):
                self.helpers.add("ranked")
            if e.kind in ("max", "min") and self._ranked(e, p) is not None:
                continue
            wish = e.origin.name if e.origin and e.origin.name and e.uid in self.final else f"running_{e.kind}"
            name = outside.fresh(wish)
            self.names.taken |= {name, f"{name}_carry"}
            outside.taken.add(f"{name}_carry")
            self.running[e.uid] = name
            self.lines.add(self.carry(e, name))
        super()._walk(p, outside)
        self.running = {}

    def declare_sort(self, e: Expr, outside: Names) -> None:
        raise AssertionError("rows are sorted by schedules that hold them")

    def _scans(self, p: Pass) -> list[Expr]:
        return [e for e in walk(p.roots, into_reductions=False) if e.op == "scan"]

    def _ranked(self, e: Expr, p: Pass) -> Expr | None:
        """The scan for the index of an extreme that has the extreme's value, too."""
        same = (s for s in self._scans(p) if s.kind == f"arg{e.kind}" and s.args == e.args and s.index == e.index)
        return next(same, None)

    def _value_type(self, e: Expr) -> str:
        scalar = self.types.scalar(e.args[0].dtype)
        return f"Ranked<{scalar}>" if e.kind.startswith("arg") else scalar

    def carry(self, e: Expr, name: str) -> str:
        return f"Carry<{OPERATIONS[e.kind]}, {self._value_type(e)}> {name}_carry;"

    def walk_tiles(self, p: Pass, sums: dict[int, str], preload: list[Expr], outside: Names) -> None:
        style = self.style
        loads = [e for e in p.fresh if self._is_vector(e)]
        step = f"{style.threads} * VEC * ITEMS"
        following: dict[str, str] = {}
        if self.ahead and loads:
            self._load(loads, self.start(), "_in", outside)
        with self.lines.block(f"for ({style.column} tile = {self.start()}; tile < {style.end}; tile += {step})"):
            parts = self._tile_partials(p, sums)
            if self.ahead and loads:
                now = {e.uid: self.arrays[e.uid] for e in loads}
                self._load(loads, f"tile + {step}", "_next", self.names)
                following = {now[e.uid]: self.arrays[e.uid] for e in loads}
                self.arrays.update(now)
            elif loads:
                self._load(loads, "tile", "_in", self.names)
            self._run_and_use(p, parts)
            for uid, part in parts.items():
                if part != sums[uid]:
                    self.lines.add(f"{sums[uid]}.add(pairwise({part}));")
            if following:
                with self.lines.block("for (int k = 0; k < ITEMS; ++k)", unroll=True):
                    self.lines.add(*(f"{now} = {later};" for now, later in following.items()))
        for e in loads:
            self.arrays.pop(e.uid, None)

    def _run_and_use(self, p: Pass, parts: dict[int, str]) -> None:
        """The running results of a tile that is loaded, and what its elements make of them."""
        for e in self._scans(p):
            if e.uid in self.running:
                self._fill(e, p)
                self._scan(e)
        with self.vectors(p):
            self.split_columns()
            self.element(p, parts)

    @contextmanager
    def of_elements(self, e: Expr, p: Pass) -> Iterator[str]:
        """Within the vectors of a tile: the block that runs for each element, with the text of e's value there."""
        self.split_columns()
        with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
            scope = self.scope.child(var=self._element_var)
            scope.names = Names(self.names.taken)
            self._know(scope, p)
            for step in named_steps([e], set(scope.known)):
                if step.uid not in scope.known and is_element(step, self.program.cols):
                    self.lines.add(scope.declare(step, wished_name(step, self.final)))
            yield scope.text(e)

    def start(self) -> str:
        """The position at which the first tile begins."""
        return f"-{self.early}" if self.early else self.style.first

    def line_up(self) -> None:
        """Tiles begin so early that a warp's stores are whole lines of 128 bytes, wherever the row begins in memory."""
        stored = [s for s in self.program.stores if not s.per_row and s.below is None]
        if not self.lines_up or not stored:
            return
        store = self.memory.stores[stored[0]]
        element = self.types.element(store.buffer)
        edge = f"({self.pointer(store)} + {self.style.end})" if self.backwards else self.pointer(store)
        at = f"reinterpret_cast<size_t>({edge}) / sizeof({element})"
        text = f"(32 - {at} % 32) % 32" if self.backwards else f"{at} % 32"
        self.early = self.names.fresh("early")
        self.lines.add(f"const int {self.early} = static_cast<int>({text});  // stores are whole lines")

    def _load(self, loads: list[Expr], tile: str, suffix: str, names: Names) -> None:
        """All vectors of a tile, on their way before the first is used."""
        self.helpers.add("pack")
        for e in loads:
            buffer = self.memory.loads[e.uid].buffer
            name = names.fresh(f"{buffer.name}{suffix}")
            self.names.taken.add(name)
            self.lines.add(f"Pack<{self.types.element(buffer)}, VEC> {name}[ITEMS];")
            self.arrays[e.uid] = f"{name}[k]"
        with self._vectors(tile):
            self.split_columns()
            for e in loads:
                self.lines.add(f"{self.arrays[e.uid]} = {self._vector(e, self.memory.loads[e.uid])};")

    def _fill(self, e: Expr, p: Pass) -> None:
        """What is scanned, over the whole tile; behind the end of the row stands what changes nothing."""
        name, ctype = self.running[e.uid], self._value_type(e)
        self.lines.comment(self._sources(TITLES[e.kind], e))
        neutral = identity("max" if e.kind == "logsumexp" else e.kind, e.args[0].dtype, self.types)
        if e.kind == "sum":
            self.lines.add(f"{ctype} {name}[ITEMS][VEC] = {{}};")
        else:
            self.lines.add(f"{ctype} {name}[ITEMS][VEC];")
            with self.lines.block("for (int k = 0; k < ITEMS * VEC; ++k)", unroll=True):
                empty = f"{ctype}{{{neutral}, -1}}" if e.kind.startswith("arg") else neutral
                self.lines.add(f"{name}[k / VEC][k % VEC] = {empty};")
        with self.vectors(p), self.of_elements(e.args[0], p) as value:
            ranked = f"{{{value}, static_cast<int>({self._position(e)})}}" if e.kind.startswith("arg") else value
            self.lines.add(f"{name}[k][j] = {ranked};")

    def _position(self, e: Expr) -> str:
        column = f"{self.at} + j"
        return f"{self.style.end} - 1 - ({column})" if self.backwards else column

    def _scan(self, e: Expr) -> None:
        name = self.running[e.uid]
        inclusive = "false" if self._exclusive(e) else "true"
        direction = "true" if self.backwards else "false"
        function = "log_scan" if e.kind == "logsumexp" and self.function == "scan" else self.function
        self.lines.add(f"{function}<{inclusive}, {direction}>({name}, {name}_carry, {self._scratch(e)});")

    def _exclusive(self, e: Expr) -> bool:
        assert e.index is not None
        column = Poly.of(self.inner)
        whole = self.inner.size - 1 - column if self.backwards else column
        return e.index != whole

    def _scratch(self, e: Expr) -> str:
        """Shared memory of a scan: totals of warps, and room in which a warp turns single elements around."""
        self.sites += 1
        name = f"scratch_{self.sites}"
        kind = f"{OPERATIONS[e.kind]}, {self._value_type(e)}"
        self.scratch_lines.append(f"__shared__ ScanScratch<{kind}, {self.warps}, BLOCK / 32, ITEMS, VEC> {name};")
        return name

    def _know(self, scope: object, p: Pass) -> None:
        for e in self._scans(p):
            ranked = self._ranked(e, p) if e.kind in ("max", "min") else None
            if e.uid in self.running and e.kind.startswith("sort"):
                scope.known[e.uid] = self.sorted_text(e)  # type: ignore[attr-defined]
            elif e.uid in self.running:
                text = f"{self.running[e.uid]}[k][j]"
                scope.known[e.uid] = f"static_cast<long long>({text}.index)" if e.kind.startswith("arg") else text  # type: ignore[attr-defined]
            elif ranked is not None and ranked.uid in self.running:
                scope.known[e.uid] = f"{self.running[ranked.uid]}[k][j].value"  # type: ignore[attr-defined]

    def sorted_text(self, e: Expr) -> str:
        return f"index_of({self.running[e.uid]}[k][j])"

    def know_more(self, p: Pass, scope: object) -> None:  # type: ignore[override]
        self._know(scope, p)

    def value_bytes(self) -> int:
        """Bytes of the largest value that is scanned."""
        real = 8 if self.types.real == "double" else 4
        return max(
            (2 * real if e.kind.startswith("arg") else real if e.args[0].dtype == REAL else BYTES[e.args[0].dtype])
            for e in self.program.scans
        )


@dataclass
class LookBackCode(ScanCode):
    """Each block has one tile of a row and learns from the blocks before it what the row holds up to there."""

    rounds: int = 0
    needs = ("team", "exchange", "warp_reduce", "look_back")

    def walk_tiles(self, p: Pass, sums: dict[int, str], preload: list[Expr], outside: Names) -> None:
        self.helpers |= set(self.needs)
        loads = [e for e in p.fresh if self._is_vector(e)]
        if loads:
            self._load(loads, "tile", "_in", self.names)
        self._run_and_use(p, sums)

    def carry(self, e: Expr, name: str) -> str:
        self.rounds += 2
        return f"Behind<{OPERATIONS[e.kind]}, {self._value_type(e)}> {name}_carry = {{team, {self.rounds - 2}}};"


@dataclass
class ColumnScanCode(ScanCode, ThreadCode):
    """Scans by threads that each take a row: SPLIT warps share a tile of columns, each with ITEMS neighbouring ones."""

    helper = function = "column_scan"

    def offset(self) -> str:
        return "own + k"

    def _scratch(self, e: Expr) -> str:
        self.sites += 1
        name = f"scratch_{self.sites}"
        self.scratch_lines.append(
            f"__shared__ typename {OPERATIONS[e.kind]}::template State<{self._value_type(e)}> {name}[2][SPLIT][32];"
        )
        return name


@dataclass
class ColumnTilesCode(LookBackCode, ColumnScanCode):
    """Threads that each take a row, and a block for each tile of their columns."""

    needs = ("team", "exchange", "warp_reduce", "column_look_back")

    def carry(self, e: Expr, name: str) -> str:
        place = f"workspace + rows * tiles * {self.rounds}" if self.rounds else "workspace"
        self.rounds += 2 * self.message_bytes(e)
        kind = f"{OPERATIONS[e.kind]}, {self._value_type(e)}"
        return f"Above<{kind}> {name}_carry = {{{place}, row, rows, rank, tiles}};"

    def message_bytes(self, e: Expr) -> int:
        """Bytes of a state on its way: each word of four travels with a mark of four."""
        wide = self.types.scalar(e.args[0].dtype) in ("double", "long long")
        if e.kind == "logsumexp" or e.kind.startswith("arg"):
            return 32 if wide or e.kind == "logsumexp" else 16
        return 16 if wide or (e.args[0].dtype == REAL and e.kind in ("sum", "prod")) else 8
