"""Kernel families: a template, a schedule space and a rule that says where it applies. One file each; see REGISTRY."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kforge.engine.emit.cgen import Types
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.graph.ir import Program


@dataclass(frozen=True)
class Target:
    """What the kernels will run on and meet: multiprocessors that are there at least; the longest dimension of any
    input variant, an upper bound on the rows to prepare for (0: only those of the first); the architecture."""

    multiprocessors: int = 132
    longest: int = 0
    arch: str = "sm_90a"


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

    if product.multiplies(program):
        return list(REGISTRY["product"](program, types, name, target))
    if any(s.carried for s in program.stores):
        return list(REGISTRY["carried"](program, types, name, target))
    if program.scans:
        return [code for own in ("sort", "scan") for code in REGISTRY[own](program, types, name, target)]
    found = [code for family in REGISTRY.values() for code in family(program, types, name, target)]
    return sorted(found, key=predict)
