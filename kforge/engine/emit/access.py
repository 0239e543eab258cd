"""How a kernel reads and writes memory: which accesses are vectors along the innermost loop, and when they may be."""

from __future__ import annotations

from dataclasses import dataclass, field

from kforge.engine.emit.cgen import BYTES, Sizes, Types
from kforge.engine.graph.ir import Buffer, Expr, Program, Store
from kforge.engine.graph.symbols import Poly, Quotient, Remainder, Size, Tap, Value, Var

WIDEST = 8  # elements of a 16-byte vector of halves


@dataclass(frozen=True)
class Access:
    """base + index into a buffer. kind: "vector" (VEC neighbours), "uniform" (one for the vector), "scalar" (gather).

    base: the part of the index that does not move with the innermost loop. multiples: sizes that VEC must divide.
    """

    buffer: Buffer
    index: Poly
    base: Poly
    kind: str
    multiples: frozenset[Poly] = frozenset()


def access_of(index: Poly, buffer: Buffer, inner: Var | None, guard: Expr | None = None) -> Access:
    """Classify an index along `inner`."""
    if any(isinstance(v, Tap) for v in moving(index)):  # within a window's loops
        return Access(buffer, index, index, "scalar")
    if inner is None or inner not in moving(index):
        if guard is None or inner is None or inner not in guard.variables():
            return Access(buffer, index, index, "uniform")
        return Access(buffer, index, index, "scalar")
    direct = index.coefficient(inner)
    base = index - direct * Poly.of(inner)
    if direct.constant != 1 or inner in moving(base):
        return Access(buffer, index, base, "scalar")
    multiples = {_stride(monomial, c) for monomial, c in base.terms}
    edges = _guard_edges(guard, inner)
    if edges is None:
        return Access(buffer, index, base, "scalar")
    return Access(buffer, index, base, "vector", frozenset(m for m in multiples | edges if not _always(m)))


def walks_down(access: Access, inner: Var) -> Access:
    """An access that moves by one distance from column to column, as one that a pointer can follow; else itself."""
    step = access.index.coefficient(inner)
    base = access.index - step * Poly.of(inner)
    plain = all(isinstance(a, (Var, Size)) for a in access.index.atoms()) and inner not in base.atoms()
    return Access(access.buffer, access.index, base, "vector") if access.kind == "scalar" and plain else access


def moving(index: Poly) -> set[Var]:
    """The loop variables that an index depends on, those of gathered positions included."""
    found: set[Var] = set()
    for atom in index.atoms():
        if isinstance(atom, Var):
            found.add(atom)
        elif isinstance(atom, Value):
            found |= atom.expr.variables()  # type: ignore[attr-defined]
    return found


def _stride(monomial: tuple[object, ...], c: int) -> Poly:
    """What a term moves by: its sizes and coefficient, without loop variables and opaque parts."""
    sizes = tuple(a for a in monomial if isinstance(a, Size))
    return Poly(((sizes, abs(c)),))


def _always(multiple: Poly) -> bool:
    return multiple.constant is not None and multiple.constant % WIDEST == 0


def _guard_edges(guard: Expr | None, inner: Var) -> set[Poly] | None:
    """Where along `inner` the guard may switch, as sizes that VEC must divide; None where it is not so simple."""
    if guard is None or inner not in guard.variables():
        return set()
    if guard.op in {"and", "not"}:
        edges: set[Poly] = set()
        for a in guard.args:
            found = _guard_edges(a, inner)
            if found is None:
                return None
            edges |= found
        return edges
    if guard.op in {"lt", "ge"}:
        left, right = (_index(a) for a in guard.args)
        if left is None or right is None:
            return None
        gap = left - right
        if gap.coefficient(inner).constant != 1:
            return None
        rest = gap - Poly.of(inner)
        if inner in moving(rest) or any(isinstance(a, (Quotient, Remainder, Value)) for a in rest.atoms()):
            return None
        return {_stride(monomial, c) for monomial, c in rest.terms}
    return None


def _index(e: Expr) -> Poly | None:
    if e.op == "index":
        return e.index
    return Poly.of(int(e.value)) if e.op == "const" and e.value is not None else None


@dataclass
class Memory:
    """All accesses of one program, and the condition under which VEC elements move at once."""

    inner: Var | None
    loads: dict[int, Access] = field(default_factory=dict)
    stores: dict[Store, Access] = field(default_factory=dict)

    @staticmethod
    def of(program: Program, inner: Var | None) -> Memory:
        memory = Memory(inner)
        for e in program.loads:
            assert e.index is not None and e.buffer is not None
            memory.loads[e.uid] = access_of(e.index, e.buffer, inner, e.args[0] if e.args else None)
        for s in program.stores:
            memory.stores[s] = access_of(s.index, s.buffer, None if s.per_row or s.below is not None else inner)
        return memory

    def vectors(self) -> list[Access]:
        return [a for a in [*self.loads.values(), *self.stores.values()] if a.kind == "vector"]

    def condition(self, types: Types, sizes: Sizes, inner_size: str, ragged: bool = False) -> str:
        """The launch-language condition on VEC; holds for VEC = 1. ragged: rows may begin within a vector."""
        buffers = list(dict.fromkeys(a.buffer for a in self.vectors()))
        if not buffers:
            return "VEC == 1"
        main = next((b for b in buffers if types.element(b) in types.bound), buffers[0])
        parts = [f"VEC * {size_of(main, types)} <= 16"]
        parts += [f"aligned({b.name}, VEC * {size_of(b, types)})" for b in buffers]
        if ragged:
            return " and ".join(dict.fromkeys([*parts, f"(VEC == 1 or {inner_size} >= 2 * VEC)"]))
        multiples = {inner_size: None}
        for a in self.vectors():
            for m in a.multiples:
                multiples[_product(sizes.write(m))] = None
        parts += [f"{m} % VEC == 0" for m in sorted(multiples, key=lambda m: (m != inner_size, m))]
        return " and ".join(dict.fromkeys(parts))


def reads_across(program: Program) -> bool:
    """True when most of what a row program reads lies along the rows in memory, not along the columns."""
    if not program.rows or not program.cols:
        return False
    inner, last = program.cols[-1], program.rows[-1]
    along = across = 0
    for e in program.loads:
        assert e.index is not None
        variables = e.variables()
        if inner in variables and last in variables:
            along += e.index.coefficient(inner).constant == 1
            across += e.index.coefficient(last).constant == 1
    return across > along


def size_of(buffer: Buffer, types: Types) -> str:
    element = types.element(buffer)
    if element in types.bound:
        return f"sizeof({element})"
    return str(
        BYTES[buffer.dtype]
        if buffer.kind != "temporary" or buffer.dtype != "float32"
        else (8 if types.real == "double" else 4)
    )


def _product(poly: Poly) -> str:
    monomial, c = poly.terms[0]
    factors = [a.name for a in monomial if isinstance(a, Size)]
    if c != 1 or not factors:
        factors.append(str(c))
    text = " * ".join(factors)
    return f"({text})" if len(factors) > 1 else text


@dataclass(frozen=True)
class Crossing:
    """A pointwise program that reads along one loop and writes along another.

    inner: the loop it writes along; other: the one that `loads` (by expression id) read along.
    """

    inner: Var
    other: Var
    loads: frozenset[int]


def crossing(program: Program) -> Crossing | None:
    """The two loops of a transposing program; None where everything is read as it is written."""
    if program.rows or program.reductions or len(program.cols) < 2:
        return None
    inner = program.cols[-1]
    found: dict[Var, set[int]] = {}
    for e in program.loads:
        assert e.index is not None
        if any(not isinstance(a, (Var, Size)) for a in e.index.atoms()) or e.index.coefficient(inner).constant == 1:
            continue
        along = [v for v in program.cols[:-1] if e.index.coefficient(v).constant == 1]
        if along and e.index.coefficient(inner).terms:
            found.setdefault(along[-1], set()).add(e.uid)
    stored = all(s.index.coefficient(inner).constant == 1 for s in program.stores)
    if not found or not stored:
        return None
    other = max(found, key=lambda v: len(found[v]))
    return Crossing(inner, other, frozenset(found[other]))
