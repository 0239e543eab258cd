"""Sizes that a candidate's own text asks for: where its Python chooses between kernels, both sides of the choice."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kforge.kernel.candidate import Candidate

LEAST, MOST = 16, 1 << 17  # below: numbers of dimensions and flags; above: too large to try on the emulator
COUNT = 6


def compared_sizes(candidate: Candidate) -> tuple[int, ...]:
    """Integers that the module compares something with by <, <=, > or >=, the smallest few, in order."""
    try:
        tree = ast.parse(candidate.files[candidate.module])
    except (SyntaxError, RecursionError, MemoryError):  # the static gate says so
        return ()
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops):
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Constant) and type(side.value) is int and LEAST <= side.value <= MOST:
                    found.add(side.value)
    return tuple(sorted(found)[:COUNT])


def declared_names(candidate: Candidate) -> list[str]:
    """Names of the kernels that a candidate's text declares; what has a computed name is not among them."""
    from kforge.kernel.report import declared_kernels

    texts = [text for file, text in candidate.files.items() if file.endswith(".py")]
    try:
        return [name for text in texts for name, _ in declared_kernels(text)]
    except (SyntaxError, RecursionError, MemoryError):  # the static gate says so
        return []


def never_launched(declared: Iterable[str], launched: Iterable[str]) -> list[str]:
    """Kernels of a candidate that no case launched, by name (name expressions without their arguments)."""
    ran = {_bare(name) for name in launched}
    return sorted({_bare(name) for name in declared} - ran)


def _bare(name: str) -> str:
    return name.split("<")[0].split("::")[-1].strip()
