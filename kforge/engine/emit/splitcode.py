"""Row code for several blocks per row: each holds or streams a share, and the shares are joined through memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kforge.engine.emit.cgen import BYTES, C_TYPES
from kforge.engine.emit.merging import Merged
from kforge.engine.emit.naming import Names
from kforge.engine.emit.paircode import ChunkCode, OnlineCode
from kforge.engine.emit.passes import Pass
from kforge.engine.emit.reducing import QueuedCode
from kforge.engine.graph.ir import Expr, is_element, walk

Moment = tuple[int, int]  # a pass, and in it the loop: -1 loads, 0 the elements, n the second loop of the nth pair


@dataclass
class SplitCode(ChunkCode):
    """The blocks of a row run at once, hold their chunks, and wait for each other at every join.

    A chunk lies in registers and, as far again, in shared memory: with registers alone the blocks are so short that
    their waiting shows (softmax over 393,216 columns). Each thread has slots of its own there, filled by copies that
    pass no register. slots: for each, when the value in it is read last; a later value may take its place.
    """

    rounds: int = 0
    factors: dict[int, str] = field(default_factory=dict)
    states: dict[int, str] = field(default_factory=dict)
    shifts: dict[int, str] = field(default_factory=dict)
    scales: dict[int, tuple[Expr, str]] = field(default_factory=dict)
    slots: list[Moment] = field(default_factory=list)
    held: dict[str, None] = field(default_factory=dict)  # element types in slots
    items = "VECTORS"
    never_empty = True  # without columns there are no blocks

    def declare_edges(self) -> None:
        super().declare_edges()
        self.lines.add(f"const int first = rank * share{self.less_lead}, end = min(first + share, cols);")

    # what is held

    def preload(self, p: Pass, loads: list[Expr], outside: Names) -> None:
        """Copies to shared memory first, then loads to registers: all are under way before the first is waited for.

        Values of later passes that none keeps are loaded where they are used, since their slots would be dear.
        """
        loads = [e for e in loads if p is self.passes[0] or e in p.kept]
        if not loads:
            return
        self.helpers |= {"pack", "held"}
        for e in loads:
            buffer = self.memory.loads[e.uid].buffer
            name = (outside if e in p.kept else self.names).fresh(f"{buffer.name}_in")
            self.names.taken.add(name)
            self._hold(e, name, self.types.element(buffer), (p.number, -1))
            self.arrays[e.uid] = f"{name}[k]"
        with self.clamped_vectors("ITEMS", "VECTORS"):
            self.split_columns()
            for e in loads:
                self._start_copy(e)
        with self.clamped_vectors():
            self.split_columns()
            for e in loads:
                self.lines.add(f"{self.arrays[e.uid]} = {self._vector(e, self.memory.loads[e.uid])};")
        self.lines.add("__pipeline_commit();")
        self.lines.add("__pipeline_wait_prior(0);  // each thread reads what it copied itself: no barrier")
        self.mend_edges(p, loads)

    def _start_copy(self, e: Expr) -> None:
        access = self.memory.loads[e.uid]
        to = self.arrays[e.uid]
        copy = f"start_copy({to}, {self.address(access)});"
        if not e.args:
            self.lines.add(copy)
            return
        with self.lines.block(f"if ({self.scope.text(e.args[0], 2)})"):
            self.lines.add(copy)
        with self.lines.block("else"):
            self.lines.add(f"{to} = Pack<{self.types.element(access.buffer)}, VEC>();")

    def kept_arrays(self, p: Pass, outside: Names) -> None:
        for e in p.kept:
            if e.uid not in self.arrays:
                self.helpers |= {"pack", "held"}
                name = outside.fresh(self.wish(e))
                self.names.taken |= {name, f"{name}_k"}
                outside.taken.add(f"{name}_k")
                self._hold(e, name, self.types.scalar(e.dtype), self._birth(e, p))
                self.arrays[e.uid] = name

    def _hold(self, e: Expr, name: str, element: str, birth: Moment) -> None:
        free = [n for n, last in enumerate(self.slots) if last <= birth]
        slot = free[0] if free else len(self.slots)
        if not free:
            self.slots.append(birth)
        self.slots[slot] = self._last_use(e, birth)
        self.held[element] = None
        at = f"slots + {slot} * STAGES * BLOCK * SLOT" if slot else "slots"
        self.lines.add(f"Held<Pack<{element}, VEC>, ITEMS, BLOCK, SLOT> {name}({at});")

    @staticmethod
    def _birth(e: Expr, p: Pass) -> Moment:
        """An exponential is written in the second loop of its pair, other values in the loop over elements."""
        return p.number, next((n for n, pair in enumerate(p.pairs, 1) if pair.exponential is e), 0)

    def _last_use(self, e: Expr, birth: Moment) -> Moment:
        uses = [(q.number, 0) for q in self.passes if e in q.reused or e in q.fresh]
        uses += [(q.number, n) for q in self.passes for n, pair in enumerate(q.pairs, 1) if pair.body is e]
        return max([birth, *uses])

    def element_sizes(self) -> list[str]:
        """Bytes of the elements in slots, as constants of C++ and of the launch language."""
        sizes = [f"sizeof({t})" for t in self.held if t in self.types.bound]
        fixed = [BYTES[dtype] for dtype, ctype in C_TYPES.items() if ctype in self.held]
        return [*sizes, str(max(fixed))] if fixed else sizes or ["0"]

    @contextmanager
    def elements(self, sums: list[str], kept: Sequence[Expr] = ()) -> Iterator[None]:
        """As ever; what is kept goes to its slot a vector at a time, after all reads of what was in it."""
        for e in kept:
            self.lines.add(f"Pack<{self.types.scalar(e.dtype)}, VEC> {self.arrays[e.uid]}_k;")
        with super().elements(sums, kept):
            yield
        for e in kept:
            self.lines.add(f"{self.arrays[e.uid]}[k] = {self.arrays[e.uid]}_k;")

    def declare_sum(self, name: str) -> None:
        """Few vectors share a partial sum, since one for each would not fit the registers."""
        self.helpers.add("pairwise")
        self.lines.add(f"{self.types.real} {name}[PARTS] = {{}};")

    def add_terms(self, name: str) -> None:
        self.lines.add(f"{name}[k % PARTS] += pairwise({name}_terms);")

    def place(self, e: Expr) -> str:
        return f"{self.arrays[e.uid]}_k.at[j]"

    def kept_at(self, e: Expr) -> str:
        return f"{self.arrays[e.uid]}[k].at[j]"

    def declare_divisors(self, roots: list[Expr]) -> None:
        for e in walk(roots):
            divisor = e.args[1] if e.op == "div" else None
            if divisor is None or divisor.op == "const" or is_element(divisor, self.program.cols):
                continue
            if is_element(e, self.program.cols) and e.uid not in self.scales and divisor.uid not in self.scope.divisors:
                self.helpers.add("divisor")
                text = self.scope.text(divisor)
                name = self.names.fresh(f"by_{text}" if text.isidentifier() else "divisor")
                self.lines.add(f"const Divisor<{self.types.real}> {name}({text});")
                self.scope.divisors[divisor.uid] = name

    # what is joined

    def combine(self, operation: str, value: str, neutral: str, ctype: str) -> str:
        inside = self.combine_block(operation, value, neutral, ctype)
        return self.exchange(operation, inside, neutral, ctype)

    def exchange(self, operation: str, mine: str, neutral: str, ctype: str) -> str:
        self.helpers |= {"team", "exchange", "warp_reduce"}
        shared = self.names.fresh(f"joined_{self.rounds + 1}")
        self.scratch_lines.append(f"__shared__ {ctype} {shared};")
        text = f"exchange<{operation}, {ctype}>({mine}, {neutral}, team, {self.rounds}, {shared})"
        self.rounds += 1
        return text

    def join_moments(self, pair: Merged, mean: str, rest: str, deviations: str) -> None:
        """Chunks send their mean and deviations; the row's mean is a sum of two numbers again."""
        self.helpers |= {"team", "exchange", "warp_reduce", "exchange_moments"}
        real = self.types.real
        shared = self.names.fresh(f"joined_{self.rounds + 1}")
        self.scratch_lines.append(f"__shared__ Spread {shared};")
        spread, large, small = (self.names.fresh(n) for n in ("spread", "row_mean", "row_mean_rest"))
        mine = f"Spread{{static_cast<double>({mean}) + {rest}, {deviations}}}"
        self.lines.add(f"const Spread {spread} = exchange_moments({mine}, team, {self.rounds}, share, cols, {shared});")
        self.rounds += 1
        self.lines.add(f"const {real} {large} = {spread}.mean, {small} = {spread}.mean - {large};")
        super().join_moments(pair, large, small, f"{real}({spread}.deviations)")


@dataclass
class ShareCode(QueuedCode, OnlineCode):
    """Pure reductions: each block streams its share and the last one to finish joins all shares, in order."""

    states: dict[int, str] = field(default_factory=dict)
    shifts: dict[int, str] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    queues = True
    others = "shares"

    def declare_edges(self) -> None:
        super().declare_edges()
        self.lines.add(f"const long long first = static_cast<long long>(rank) * SHARE{self.less_lead};")
        self.lines.add("const long long end = rank + 1 == team.blocks ? cols : min(first + SHARE, cols);")

    def published(self, mine: str, ctype: str) -> str:
        return f"publish<{ctype}>({mine}, team, {self.rounds});"

    def last_block_only(self) -> None:
        super().last_block_only()
        self.lines.add("if (!is_last(arrived, team.blocks)) return;")

    def gathered(self, operation: str, neutral: str, ctype: str, number: int) -> str:
        scratch = self.names.fresh(f"gathered_{number + 1}")
        self.scratch_lines.append(f"__shared__ {ctype} {scratch}[BLOCK / 32];")
        return f"gather<{operation}, {ctype}>({neutral}, team, {number}, {scratch})"


def joins_once(passes: list[Pass]) -> bool:
    """True when every reduction is in the first pass and nothing is written per element."""
    return not any(p.stores for p in passes) and not any(p.reductions or p.pairs for p in passes[1:])
