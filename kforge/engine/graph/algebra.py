"""Rewrites of whole programs and of tensors, each under a condition that makes it exact (expressions: rewrite.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kforge.engine.graph.ir import Program, walk
from kforge.engine.graph.symbols import Poly, Quotient, Remainder, Size, Var

Substitute = Callable[[Program, Mapping[Var, Poly]], Program]


def split_loops(program: Program, substitute: Substitute) -> Program:
    """A loop that indices take apart by a size becomes two loops: no division is left, and each is coalesced by itself.

    Such loops come from a reshape after a permute. Condition: the size divides the loop's, whatever the tensors' sizes
    are. substitute: puts polynomials for loop variables into a program.
    """
    for _ in range(16):
        found = _divided(program)
        if found is None:
            return program
        group, k, size = found
        loops: tuple[Var, ...] = getattr(program, group)
        whole = loops[k].size.divide(size)
        assert whole is not None
        taken = {v.name for v in program.rows + program.cols}
        label = next(f"{loops[k].name[0]}{n}" for n in range(100) if f"{loops[k].name[0]}{n}" not in taken)
        outer, inner = Var(label, whole), Var(loops[k].name, size)
        split = (*loops[:k], outer, inner, *loops[k + 1 :])
        renewed = replace(program, rows=split) if group == "rows" else replace(program, cols=split)
        program = substitute(renewed, {loops[k]: Poly.of(outer) * size + Poly.of(inner)})
    return program


def order_loops(program: Program) -> Program:
    """The loops of a pointwise program in the order in which its first result lies in memory, the innermost last."""
    if program.rows or program.reductions or program.scans or len(program.cols) < 2:
        return program
    index = program.stores[0].index
    if any(not isinstance(a, (Var, Size)) for a in index.atoms()):
        return program
    strides = {v: index.coefficient(v).hint() for v in program.cols}
    return replace(program, cols=tuple(sorted(program.cols, key=lambda v: -strides[v])))


def drop_columns(program: Program) -> Program:
    """A row program in which nothing depends on a column is a pointwise one over its rows."""
    walks = program.reductions or program.scans or any(e.op == "window" for e in walk(s.value for s in program.stores))
    if not program.cols or walks or not all(s.per_row for s in program.stores):
        return program
    stores = tuple(replace(s, per_row=False) for s in program.stores)
    return replace(program, rows=(), cols=program.rows or (Var("c0", Poly.of(1)),), stores=stores)


def _divided(program: Program) -> tuple[str, int, Poly] | None:
    """A loop and a size that divides it, from a quotient or remainder of that loop alone."""
    for poly in program.indices:
        for atom in poly.atoms():
            if not isinstance(atom, (Quotient, Remainder)) or atom.bottom.constant == 1:
                continue
            for group in ("rows", "cols"):
                loops: tuple[Var, ...] = getattr(program, group)
                for k, v in enumerate(loops):
                    part = v.size.divide(atom.bottom) if len(atom.bottom.terms) == 1 else None
                    small = atom.bottom.constant is not None and atom.bottom.constant < 8 and group == "cols"
                    if small and not program.rows:
                        continue  # rows of so few columns: the quotient is cheaper
                    if atom.top == Poly.of(v) and part is not None and part.constant != 1:
                        return group, k, atom.bottom
    return None
