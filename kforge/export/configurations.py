"""Which constants and types a Kernel's calls can resolve to: what an export has to build ahead of time.

Found by resolving the declaration on a grid of integer arguments and alignments: around every number and product of
numbers that its conditions name, with all remainders up to 16. A call that resolves to something else is refused there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from kforge.errors import ExportError, LaunchError
from kforge.kernel.arguments import bind_types
from kforge.kernel.ctypes_table import element
from kforge.kernel.definition import Definition
from kforge.kernel.expression import Binary, Bool, Call, Compare, Node, Number, Tuple, Unary
from kforge.kernel.prepare import Constant

MAX_CONFIGURATIONS = 200
_SPREAD = 16  # remainders looked at around each number
_MOST_TUPLES = 200_000  # of scalars, each tried at every alignment: some seconds
_MOST_MIXED = 2000  # of those that mix a few values of each scalar


@dataclass(frozen=True)
class Configuration:
    """One build of a kernel: C types by name, constants by name."""

    types: tuple[tuple[str, str], ...]
    constants: tuple[tuple[str, Constant], ...]


def types_of(definition: Definition, calls: Iterable[Sequence[Any]]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """The combinations of types that recorded calls bind, in order of appearance."""
    return tuple(dict.fromkeys(tuple(sorted(bind_types(definition, tuple(call)).items())) for call in calls))


def configurations(definition: Definition, calls: Sequence[Sequence[Any]]) -> tuple[Configuration, ...]:
    """What calls like the recorded ones (same types, any sizes and alignments) resolve to. ExportError: too many."""
    read = sorted(frozenset().union(*(e.names for e in definition.expressions)) - definition.constants.keys())
    position = {p.name: i for i, p in enumerate(definition.arguments)}
    pointers = sorted(frozenset().union(*(e.pointers for e in definition.expressions)))
    found: dict[Configuration, None] = {}
    for types in types_of(definition, calls):
        sizes = {f"sizeof {name}": element(ctype).size for name, ctype in types}
        for integers in _integers(definition, read, [[c[position[n]] for n in read] for c in calls]):
            for addresses in _alignments(pointers):
                env = {**dict(zip(read, integers, strict=True)), **addresses, **sizes}
                try:
                    constants = definition.resolve(env, {})
                except LaunchError:  # a call that the Kernel refuses: the export refuses it too
                    continue
                found[Configuration(types, tuple(constants.items()))] = None
        if len(found) > MAX_CONFIGURATIONS:
            raise ExportError(
                f"{definition.name} can resolve to more than {MAX_CONFIGURATIONS} sets of constants",
                "shorten its tune lists: every value behind the chosen one is built",
            )
    return tuple(sorted(found, key=lambda c: (c.types, repr(c.constants))))


def _alignments(pointers: Sequence[str]) -> list[dict[str, int]]:
    """Addresses by pointer: all alike, and each one worse than the others."""
    classes = (1024, 16, 8, 4, 2, 1)
    found = [dict.fromkeys(pointers, size) for size in classes]
    if len(pointers) > 1:
        found += [{p: (size if p == worse else 1024) for p in pointers} for worse in pointers for size in classes[1:]]
    return found


def _integers(definition: Definition, names: Sequence[str], recorded: Sequence[Sequence[Any]]) -> list[tuple]:
    """Values of the scalars that the conditions read: one varies over all that matters, the others over a few."""
    if not names:
        return [()]
    decisive = frozenset().union(
        *(e.names for e in definition.require.values()), *(c.names for c, _ in definition.tuned)
    )
    every = sorted(_interesting(definition) | {v for call in recorded for v in call if isinstance(v, int)})
    few = sorted({1, 7, 64, 1 << 20, *(v for call in recorded[:4] for v in call if isinstance(v, int))})
    axes = [every if name in decisive else few[:2] for name in names]
    many = [i for i, name in enumerate(names) if name in decisive]
    if len(many) <= 1:
        return list(product(*axes))
    if len(many) * len(every) * len(few) ** (len(many) - 1) > _MOST_TUPLES:
        rows = len(many) * (min(len(recorded), 4) + 4)  # what _sampled tries each value in
        if rows * len(every) > _MOST_TUPLES:
            numbers = {v for call in recorded for v in call if isinstance(v, int)}
            every = sorted(_interesting(definition, of_constants=False) | numbers)
        return _sampled(names, many, every, recorded)
    found: list[tuple] = []
    for varied in many:
        found += product(*(every if i == varied else few if i in many else few[:1] for i in range(len(names))))
    return found


def _sampled(
    names: Sequence[str], many: Sequence[int], every: Sequence[int], recorded: Sequence[Sequence[Any]]
) -> list[tuple]:
    """The same where all that would take hours, as for a window of five sizes: each scalar takes every value while the
    others are as recorded or all alike, and a few values of each meet those of all others.
    """
    alike = [[value] * len(names) for value in (1, 7, 64, 1 << 20)]
    found = {
        tuple(value if i == varied else rest if isinstance(rest, int) else 1 for i, rest in enumerate(others))
        for varied in many
        for others in (*recorded[:4], *alike)
        for value in every
    }
    mixed = [1 << 20, 64, 7, 2, 4, 1]  # large ones, remainders of vectors: the fewer the more names there are
    while len(mixed) > 3 and len(mixed) ** len(many) > _MOST_MIXED:
        mixed.pop()
    if len(mixed) ** len(many) <= _MOST_MIXED:
        found |= set(product(*(mixed if i in many else [1] for i in range(len(names)))))
    return sorted(found)


def _interesting(definition: Definition, of_constants: bool = True) -> set[int]:
    """Small numbers, powers of two, and whatever the conditions compare with, each with its neighbours.

    of_constants: also the products of the constants' values with these, which a bound on one size is.
    """
    numbers: set[int] = set()
    for expression in (*definition.require.values(), *(c for c, _ in definition.tuned)):
        _numbers(expression.tree, numbers)
    spaces: list[set[int]] = []
    for name, first in definition.constants.items():
        values = {v for v in (first, *definition.tune.get(name, ())) if isinstance(v, int)}
        values |= {v for _, chosen in definition.tuned for k, v in chosen.items() if k == name and isinstance(v, int)}
        spaces.append(values)
    products = set(numbers) | {1}
    for space in spaces if of_constants else ():
        products |= {p * v for p in products for v in space if 0 < p * v < 1 << 40}
        if len(products) > 4000:
            break
    centres = {p for p in products if p > 0} | {1 << k for k in range(5, 32)}
    near = {c + d for c in numbers for d in range(-_SPREAD, _SPREAD + 1)}
    near |= {c + d for c in centres for d in (-1, 0, 1, 2, 4, 8)}
    return {n for n in near if 0 <= n < 1 << 40} | set(range(2 * _SPREAD + 1))


def _numbers(node: Node, found: set[int]) -> None:
    match node:
        case Number(value):
            if isinstance(value, int) and not isinstance(value, bool):
                found.add(abs(value))
        case Unary(_, operand):
            _numbers(operand, found)
        case Binary(_, left, right):
            _numbers(left, found)
            _numbers(right, found)
        case Compare(_, parts) | Bool(_, parts) | Call(_, parts) | Tuple(parts):
            for part in parts:
                _numbers(part, found)


def by_definitions(
    configurations: Iterable[Configuration], substituted: frozenset[str]
) -> Mapping[tuple[tuple[str, Constant], ...], list[Configuration]]:
    """Configurations grouped by what is written into the source; `substituted` names occur in name expressions only."""
    groups: dict[tuple, list[Configuration]] = {}
    for c in configurations:
        defined = tuple((k, v) for k, v in (*c.types, *c.constants) if k not in substituted)
        groups.setdefault(defined, []).append(c)
    return groups
