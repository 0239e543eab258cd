"""Kernel families: a template, a schedule space and a rule that says where it applies. One file each; see REGISTRY."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from kforge.engine.emit.cgen import Types
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.graph.ir import Program
from kforge.engine.graph.symbols import Derived, Poly, Size, Var


@dataclass(frozen=True)
class Target:
    """What the kernels will run on and meet: multiprocessors that are there at least; the longest dimension of any
    input variant, an upper bound on the rows to prepare for (0: only those of the first); the architecture.

    extents: gives the largest that each size of the inputs is in any variant, by name (`x_0`).
    """

    multiprocessors: int = 132
    longest: int = 0
    arch: str = "sm_90a"
    extents: Callable[[], Mapping[str, int]] = field(default=dict, compare=False)

    def steps(self, loops: Sequence[Var]) -> int:
        """How many steps these loops take together where they take most: in the first variant or another."""
        return prod(self._most(v.size) for v in loops)

    def _most(self, size: Poly) -> int:
        return sum(c * prod(map(self._atom, monomial)) for monomial, c in size.terms)

    def _atom(self, size: object) -> int:
        assert isinstance(size, Size)
        if isinstance(size, Derived):
            return (self._most(size.base) + size.shift) // size.step
        whole, _, parts = size.name.partition("_by_")  # of a size that must be a multiple (Importer.divide)
        known = self.extents()
        if whole in known and parts.isdigit():
            return max(size.hint, known[whole] // int(parts))
        return max(size.hint, known.get(size.name, 0))


Family = Callable[[Program, Types, str, Target], Iterator[KernelCode]]
"""(program, types, kernel name, target) -> kernels for it, best guess first; none where the family does not apply."""

REGISTRY: dict[str, Family] = {}


def register(name: str) -> Callable[[Family], Family]:
    def add(family: Family) -> Family:
        REGISTRY[name] = family
        return family

    return add


def kernels_for(program: Program, types: Types, name: str, target: Target) -> list[KernelCode]:
    """All kernels that the registered families offer, the fastest by prediction first."""
    from kforge.engine.cost import predict
    from kforge.engine.families import (  # noqa: F401  (they register themselves)
        bags,
        broadcast,
        carried,
        columns,
        convolution,
        gather,
        pointwise,
        product,
        row,
        scan,
        shared_rows,
        sort,
        transpose,
        window,
    )

    if convolution.convolves(program):
        return list(REGISTRY["convolution"](program, types, name, target))
    if product.multiplies(program):
        return list(REGISTRY["product"](program, types, name, target))
    if any(s.carried for s in program.stores):
        return list(REGISTRY["carried"](program, types, name, target))
    if program.scans:
        return [code for own in ("sort", "scan") for code in REGISTRY[own](program, types, name, target)]
    found = [code for family in REGISTRY.values() for code in family(program, types, name, target)]
    return sorted(found, key=predict)
