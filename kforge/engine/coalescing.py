"""Loops of a program: neighbours that every index walks as one become one; loops and buffers under other names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kforge.engine.graph.ir import Buffer, Builder, Expr, Program, walk
from kforge.engine.graph.symbols import Atom, Poly, Quotient, Remainder, Size, Value, Var


def coalesce(builder: Builder, program: Program) -> Program:
    """Merge adjacent loops (both rows, or both columns) that every index walks as one."""
    merged = True
    while merged:
        merged = False
        for group in ("rows", "cols"):
            variables: tuple[Var, ...] = getattr(program, group)
            for k in range(len(variables) - 1):
                outer, inner = variables[k], variables[k + 1]
                if all(_walks_as_one(p, outer, inner) for p in program.indices):
                    one = Var(inner.name, outer.size * inner.size)
                    mapping = {outer: Poly(), inner: Poly.of(one)}
                    loops = (*variables[:k], one, *variables[k + 2 :])
                    with_loops = replace(program, rows=loops) if group == "rows" else replace(program, cols=loops)
                    program = substitute(builder, with_loops, mapping)
                    merged = True
                    break
    return program


def _walks_as_one(index: Poly, outer: Var, inner: Var) -> bool:
    for atom in index.atoms():
        if isinstance(atom, (Quotient, Remainder)) and {outer, inner} & (atom.top.atoms() | atom.bottom.atoms()):
            return False
    return index.coefficient(outer) == index.coefficient(inner) * inner.size


def substitute(
    builder: Builder,
    program: Program,
    mapping: dict[Var, Poly],
    buffers: Mapping[Buffer, Buffer] | None = None,
    made: Callable[[Expr, tuple[Expr, ...]], Expr | None] | None = None,
) -> Program:
    """The program with loop variables as other polynomials, and buffers under other names.

    made: gives what shall stand for an expression, from its operands as they stand by then; None: nothing else.
    """
    renamed = buffers or {}
    memo: dict[int, Expr] = {}

    def poly(p: Poly) -> Poly:
        inner: dict[Atom, Poly] = dict(mapping.items())
        for atom in p.atoms():
            if isinstance(atom, Value):
                inner[atom] = Poly.of(Value(memo[atom.expr.uid], atom.bound))  # type: ignore[attr-defined]
        return p.substitute(inner)

    for e in walk(s.value for s in program.stores):
        args = tuple(memo[a.uid] for a in e.args)
        builder.origin = e.origin
        other = made(e, args) if made is not None else None
        if other is not None:
            memo[e.uid] = other
        elif e.op == "load":
            assert e.buffer is not None and e.index is not None
            memo[e.uid] = builder.load(renamed.get(e.buffer, e.buffer), poly(e.index), args[0] if args else None)
        elif e.op == "index":
            assert e.index is not None
            memo[e.uid] = builder.index(poly(e.index))
        elif e.op == "reduce":
            memo[e.uid] = builder.reduce(e.kind, args[0], e.dtype)
        elif e.window is not None:
            memo[e.uid] = builder.window(e.window.map(poly), args[0], e.dtype)
        elif e.op == "scan":
            assert e.index is not None
            memo[e.uid] = builder.scan(e.kind, args[0], poly(e.index), e.dtype)
        elif e.op == "const":
            memo[e.uid] = e
        else:
            memo[e.uid] = builder.op(e.op, *args, dtype=e.dtype)
    builder.origin = None
    stores = tuple(
        replace(s, buffer=renamed.get(s.buffer, s.buffer), index=poly(s.index), value=memo[s.value.uid])
        for s in program.stores
    )
    return replace(program, stores=stores)


def sizes_of(program: Program) -> list[Size]:
    """Every size that the program's loops and indices mention, in order of name."""
    found: set[Size] = set()
    for p in [*program.indices, *(v.size for v in program.rows + program.cols)]:
        found |= {a for a in p.atoms() if isinstance(a, Size)}
    return sorted(found, key=lambda s: s.name)
