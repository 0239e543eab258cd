"""Reductions in a row kernel: what each thread gathers, and how the threads' partial results become the row's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kforge.engine.emit.cgen import Scope, identity
from kforge.engine.emit.rowbase import CodeBase
from kforge.engine.graph.ir import REAL, Expr

SLOT_BYTES = 32  # room for the largest partial result in memory
OPERATIONS = {"sum": "Sum", "prod": "Product", "max": "Max", "min": "Min", "argmax": "ArgMax", "argmin": "ArgMin"}

Joined = Callable[[str], None]
"""Takes the text of a joined result."""


@dataclass
class ReducingCode(CodeBase):
    """Partial results in registers, joined by the threads of a warp or block."""

    results: dict[int, str] = field(default_factory=dict)

    # what a thread gathers

    @staticmethod
    def by_pairs(r: Expr) -> bool:
        """Sums of floats: added by pairs. In sequence, 32 nearly equal terms in a lane round with a preferred sign;
        softmax of exact zeros and ones then had 2.5 times torch's error, by pairs it has 0.8 of it."""
        return r.kind == "sum" and r.dtype == REAL

    def declare_sum(self, name: str) -> None:
        """An array with a partial sum for each vector of this thread."""
        self.helpers.add("pairwise")
        self.lines.add(f"{self.types.real} {name}[ITEMS] = {{}};")

    @contextmanager
    def elements(self, sums: list[str], kept: Sequence[Expr] = ()) -> Iterator[None]:
        """The loop over a vector's elements, which fills in the terms of each of `sums` and the values of `kept`."""
        for name in sums:
            self.lines.add(f"{self.types.real} {name}_terms[VEC]{' = {}' if self.ragged else ''};")
        with self.lines.block("for (int j = 0; j < VEC; ++j)", unroll=True), self.inside_row():
            yield
        for name in sums:
            self.add_terms(name)

    @contextmanager
    def inside_row(self) -> Iterator[None]:
        """Of a vector that may be another row's in part: for this row's elements alone."""
        if not self.ragged:
            yield
            return
        with self.lines.block("if (inside >> j & 1)"):
            yield

    def add_terms(self, name: str) -> None:
        """The sum of a vector's terms goes to the partial sums `name`."""
        self.lines.add(f"{name}[k] = pairwise({name}_terms);")

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

    # what its threads join

    def _arg_type(self, r: Expr) -> str:
        return f"Indexed<{self.types.scalar(r.args[0].dtype)}>"

    def _partial_type(self, r: Expr) -> str:
        return self._arg_type(r) if r.kind.startswith("arg") else self.types.scalar(r.dtype)

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

    def join(self, operation: str, value: str, neutral: str, ctype: str, then: Joined) -> None:
        """Combine `value` over all threads of the row and hand the text of the result to `then`."""
        then(self.combine(operation, value, neutral, ctype))

    def flush(self) -> None:
        """End of the joins of a pass."""

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

    def column_reduce(self, operation: str, value: str, ctype: str, shape: str, at: str = "") -> str:
        """`value` joined over the threads that share a row's columns, through partials of this shape."""
        self.helpers.add("column_reduce")
        self.sites += 1
        scratch = self.names.fresh(f"partials_{self.sites}")
        self.scratch_lines.append(f"__shared__ {ctype} {scratch}{shape};")
        return f"column_reduce<{operation}, {ctype}>({value}, {scratch}{at})"


@dataclass
class QueuedCode(ReducingCode):
    """Blocks that share a row leave their results in memory; the last one to finish joins them all, in order."""

    rounds: int = 0
    queue: list[tuple[str, str, str, int, Joined]] = field(default_factory=list)
    others = "results"  # what the last block finds

    def join(self, operation: str, value: str, neutral: str, ctype: str, then: Joined) -> None:
        if not self.queues:
            super().join(operation, value, neutral, ctype, then)
            return
        self.helpers |= {"team", "gather", "warp_reduce", "block_reduce"}
        self.lines.add(self.published(self.combine(operation, value, neutral, ctype), ctype))
        self.queue.append((operation, neutral, ctype, self.rounds, then))
        self.rounds += 1

    def published(self, mine: str, ctype: str) -> str:
        """The statement that leaves a block's result where the last one finds it."""
        raise NotImplementedError

    def gathered(self, operation: str, neutral: str, ctype: str, number: int) -> str:
        """The results of all blocks in round `number`, joined."""
        raise NotImplementedError

    def flush(self) -> None:
        if self.queue:
            self.lines.blank()
            self.last_block_only()
            self.take_queue()

    def last_block_only(self) -> None:
        """The end for every block but the last."""
        self.lines.comment(
            f"only the block that finishes last goes on: it finds the {self.others} of all others in memory"
        )

    def take_queue(self) -> None:
        """Hand on what was waited for."""
        for operation, neutral, ctype, number, then in self.queue:
            then(self.gathered(operation, neutral, ctype, number))
        self.queue = []
