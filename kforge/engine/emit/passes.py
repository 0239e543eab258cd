"""The order of work in a row program: which reduction in which pass over the row, and what is kept between passes.

A pass walks the row's elements once. Reductions whose operands need no other reduction are pass 0; what needs their
results comes later. An element value that a later pass needs again is kept (in registers or shared memory), so that
an expensive one such as exp(x - max) is computed once: recomputing it costs more than the traffic it saves (measured:
a softmax with two expf per element reaches 0.7 of the copy rate, with one 0.97).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kforge.engine.emit.merging import Merged
from kforge.engine.graph.ir import Expr, Program, Store, is_element
from kforge.engine.graph.symbols import Value


@dataclass
class Pass:
    """One walk over the row. roots: element values it needs; fresh: loads it makes; kept: values later passes read."""

    number: int
    reductions: list[Expr] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    row_stores: list[Store] = field(default_factory=list)  # before the walk
    fresh: list[Expr] = field(default_factory=list)
    kept: list[Expr] = field(default_factory=list)
    reused: list[Expr] = field(default_factory=list)
    pairs: list[Merged] = field(default_factory=list)

    @property
    def roots(self) -> list[Expr]:
        bodies = [pair.body for pair in self.pairs]
        return bodies + [r.args[0] for r in self.reductions] + [s.value for s in self.stores]


def below(e: Expr) -> list[Expr]:
    """Operands, those inside an index included; a window's loops are written as a whole."""
    if e.op == "window":
        return []
    found = list(e.args)
    if e.index is not None:
        found += [a.expr for a in sorted(e.index.atoms(), key=repr) if isinstance(a, Value)]  # type: ignore[misc]
    return found


class Levels:
    """level(e): how many passes must be over before `e` can be computed."""

    def __init__(self, pairs: Sequence[Merged] = ()) -> None:
        self._memo: dict[int, int] = {}
        for pair in pairs:
            self._memo[pair.second.uid] = self(pair.first)

    def __call__(self, e: Expr) -> int:
        found = self._memo.get(e.uid)
        if found is None:
            found = max((self(a) for a in below(e)), default=0) + (e.op == "reduce")
            self._memo[e.uid] = found
        return found


def plan(program: Program, keep: bool, pairs: Sequence[Merged] = ()) -> list[Pass]:
    """The passes of a program. keep: element values may be kept between passes; else each pass loads again.

    pairs: reductions that one pass computes together; the exponential of a pair is kept like any other value.
    """
    level = Levels(pairs)
    paired = {r.uid for pair in pairs for r in (pair.first, pair.second) if r is pair.second or not pair.mean_elsewhere}
    last = max([level(s.value) for s in program.stores])
    passes = [Pass(n) for n in range(last + 1)]
    for pair in pairs:
        passes[level(pair.first) - 1].pairs.append(pair)
    for r in program.reductions:
        if r.uid not in paired:
            passes[level(r) - 1].reductions.append(r)
    for s in program.stores:
        if s.once:
            continue
        (passes[level(s.value)].row_stores if s.per_row else passes[level(s.value)].stores).append(s)
    computed: dict[int, Pass] = {}
    kept: set[int] = set()
    for p in passes:
        now: set[int] = set()

        def visit(e: Expr, p: Pass = p, now: set[int] = now) -> None:
            if e.uid in now or not is_element(e, program.cols) or e.op in ("reduce", "const", "index"):
                return
            before = computed.get(e.uid)
            if keep and before is not None:
                now.add(e.uid)
                if e.uid not in kept:
                    kept.add(e.uid)
                    before.kept.append(e)
                p.reused.append(e)
                return
            now.add(e.uid)
            for a in below(e):
                visit(a)
            if e.op == "load":
                p.fresh.append(e)

        for root in p.roots:
            visit(root)
        for uid in now:
            computed.setdefault(uid, p)
        for pair in p.pairs:
            if pair.exponential is not None:
                computed.setdefault(pair.exponential.uid, p)
            if keep and pair.body.uid not in kept:  # walked twice within the pass
                kept.add(pair.body.uid)
                p.kept.append(pair.body)
    return [p for p in passes if p.roots or p.row_stores or p.pairs]
