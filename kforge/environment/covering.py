"""Covering arrays: few rows in which every pair of values of any two factors occurs (CONTRACTS 4)."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

Pair = tuple[int, Hashable, int, Hashable]


def pairs_of(row: Sequence[Hashable]) -> set[Pair]:
    """The pairs that a row covers: (factor, its value, a later factor, its value)."""
    return {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(row)), 2)}


def covering(factors: Sequence[Sequence[Hashable]], covered: Iterable[Pair] = ()) -> list[tuple[Any, ...]]:
    """Rows, those that cover most first, such that together with `covered` every pair occurs. Deterministic.

    Greedy: a row starts from the first pair that is missing and takes for each other factor the value that adds most.
    """
    missing = {
        (i, a, j, b)
        for (i, first), (j, second) in itertools.combinations(enumerate(factors), 2)
        for a in first
        for b in second
    } - set(covered)
    order = sorted(missing, key=lambda p: (p[0], p[2], factors[p[0]].index(p[1]) + factors[p[2]].index(p[3])))
    rows = []
    for start in order:
        if start not in missing:
            continue
        row: dict[int, Hashable] = {start[0]: start[1], start[2]: start[3]}
        for i, values in enumerate(factors):
            if i not in row:
                row[i] = max(values, key=lambda v: sum(_pair(i, v, j, w) in missing for j, w in row.items()))
        full = tuple(row[i] for i in range(len(factors)))
        missing -= pairs_of(full)
        rows.append(full)
    return rows


def _pair(i: int, a: Hashable, j: int, b: Hashable) -> Pair:
    return (i, a, j, b) if i < j else (j, b, i, a)
