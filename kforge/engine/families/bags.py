"""Bags: joins of table rows that an input picks, from where to where another input says (`F.embedding_bag`).

A thread has VEC neighbouring columns of one bag. It walks the bag's rows once and reads each as a vector, so that a row
is read by neighbouring threads as a whole line; nothing is gathered in memory, and no two bags write to one place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kforge.engine.emit.access import Access, _always, _stride, moving
from kforge.engine.emit.cgen import Scope, Types, identity
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.emit.naming import Names, named_steps, wished_name
from kforge.engine.emit.passes import Pass
from kforge.engine.families import Target, register
from kforge.engine.families.pointwise import PointwiseCode, kernel_of
from kforge.engine.graph.ir import Expr, Program, index_values, walk
from kforge.engine.graph.symbols import Poly, Tap, Var

UNDER_WAY = 4  # rows whose loads are under way at once


@dataclass
class BagCode(PointwiseCode):
    """The statements of one thread: its bag's rows one after the other, then its elements of the result."""

    joined: dict[int, str] = field(default_factory=dict)  # stretches, and the array that each is joined in

    def __post_init__(self) -> None:
        super().__post_init__()
        self.stretches = stretches_of(self.program)
        for e in self.stretches:
            self.memory.loads |= _rows_of(e, self.inner) or {}

    def _row_var(self, v: Var) -> str:
        return "at" if isinstance(v, Tap) else super()._row_var(v)

    def walk(self, p: Pass) -> None:
        self.split_columns()
        for e in self.stretches:
            self._stretch(e)
        self.element(p, {})

    def know_more(self, p: Pass, scope: Scope) -> None:
        scope.known |= {uid: f"{name}[j]" for uid, name in self.joined.items()}

    def _stretch(self, e: Expr) -> None:
        """The loop over the rows of a bag."""
        assert e.window is not None
        (reach,) = e.window.reaches
        for poly, wish in ((reach.start, "begin"), (reach.end, "end")):
            for value in index_values(poly):
                self.lines.add(*self.scope.declare_steps([value], but=value))
                if value.uid not in self.scope.known:
                    self.lines.add(self.scope.declare(value, wish))
        largest = e.window.kind == "max"
        total = self.joined[e.uid] = self.names.fresh("largest" if largest else "sum")
        real, lines = self.types.scalar(e.dtype), self.lines
        if largest:
            self.helpers.add("extremes")
            lines.add(f"{real} {total}[VEC];")
            with lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
                lines.add(f"{total}[j] = {identity('max', e.dtype, self.types)};")
        else:
            lines.add(f"{real} {total}[VEC] = {{}};")
        first, last = self.scope.index(reach.start), self.scope.index(reach.end)
        lines.add(f"#pragma unroll {UNDER_WAY}")
        outside, known = self.names, dict(self.scope.known)
        self.names = Names(self.names.taken)
        self.scope.names = self.names
        with lines.block(f"for (long long at = {first}; at < {last}; ++at)"):
            body = e.args[0]
            for step in named_steps([body], set(self.scope.known)):
                if self.inner not in step.variables() and step is not body:
                    lines.add(self.scope.declare(step, wished_name(step, self.final)))
            for load in [v for v in walk([body]) if self.memory.loads.get(v.uid, NOTHING).kind == "vector"]:
                access = self.memory.loads[load.uid]
                self.helpers.add("pack")
                self.arrays[load.uid] = self.names.fresh(f"{access.buffer.name}_in")
                element = self.types.element(access.buffer)
                lines.add(f"const Pack<{element}, VEC> {self.arrays[load.uid]} = load<VEC>({self.address(access)});")
            with lines.block("for (int j = 0; j < VEC; ++j)", unroll=True):
                scope = self.scope.child(var=self._element_var)
                lines.add(*scope.declare_steps([body], but=body))
                text = scope.text(body)
                lines.add(f"{total}[j] = larger({total}[j], {text});" if largest else f"{total}[j] += {text};")
        self.names = self.scope.names = outside
        self.scope.known.clear()
        self.scope.known |= known


NOTHING = Access(None, Poly(), Poly(), "scalar")  # type: ignore[arg-type]


def stretches_of(program: Program) -> list[Expr]:
    """The bags of a program, in order."""
    return [e for e in walk(s.value for s in program.stores) if e.op == "window"]


def _rows_of(e: Expr, inner: Var) -> dict[int, Access] | None:
    """How a stretch reads along the innermost loop: the table by vectors, the rest once; None where it does not."""
    assert e.window is not None
    if len(e.window.reaches) != 1 or e.window.free or not e.window.reaches[0].stretches:
        return None
    if any(inner in moving(p) for p in e.window.polys):
        return None
    found: dict[int, Access] = {}
    for load in walk([e.args[0]]):
        if load.op == "window":
            return None
        if load.op != "load" or inner not in load.variables():
            continue
        assert load.index is not None and load.buffer is not None
        rest = load.index - Poly.of(inner)
        if load.args or inner in moving(rest) or load.index.coefficient(inner).constant != 1:
            return None
        multiples = frozenset(m for m in (_stride(*term) for term in rest.terms) if not _always(m))
        found[load.uid] = Access(load.buffer, load.index, rest, "vector", multiples)
    return found


@register("bags")
def bags(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to pointwise programs whose windows are stretches along none of the innermost loop."""
    if program.rows or program.reductions or program.scans or not program.cols:
        return
    found = stretches_of(program)
    if not found or any(_rows_of(e, program.cols[-1]) is None for e in found):
        return
    kernel = kernel_of(BagCode, program, types, f"{name}_bags")
    yield replace(
        kernel,
        schedule="bags",
        idea="each thread joins neighbouring columns of a bag's rows, which it reads as vectors",
    )
