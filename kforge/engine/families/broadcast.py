"""Pointwise kernels with an operand that all rows share and that is too large to stay in the second-level cache.

Walked row after row, a weight of the size of a row is read from memory for each row again. Here the blocks of all rows
for one stretch of columns run together.
"""

from __future__ import annotations

from collections.abc import Iterator

from kforge.engine.cost import shared_bytes
from kforge.engine.emit.access import Access
from kforge.engine.emit.cgen import Sizes, Types
from kforge.engine.emit.kernelcode import KernelCode, name_loops, parameters, render, template_types
from kforge.engine.emit.passes import plan
from kforge.engine.emit.rowbase import Style
from kforge.engine.emit.rowcode import RowCode
from kforge.engine.families import Target, register
from kforge.engine.families.pointwise import PointwiseCode
from kforge.engine.graph.ir import Program, walk

LARGE = 1 << 22  # bytes that the rows share, from which the order of the blocks counts


class BroadcastCode(PointwiseCode):
    """Row and column are given by the block, and no index is taken apart."""

    def split_columns(self) -> None:
        pass

    @property
    def first_thread(self) -> str:
        return "row == 0 && col == 0"

    def address(self, access: Access) -> str:
        return RowCode.address(self, access)


@register("broadcast")
def broadcast(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to pointwise programs over two loops with a large operand that moves with the inner one alone."""
    if program.rows or program.reductions or program.scans or len(program.cols) != 2:
        return
    if shared_bytes(program) < LARGE or any(e.op == "window" for e in walk(s.value for s in program.stores)):
        return
    outer, inner = program.cols
    sizes = Sizes()
    sizes.add("rows", outer.size)
    name_loops(sizes, program)
    cols = next((s for s, p in sizes.params.items() if p == inner.size), None) or str(inner.size.constant)
    name = f"{name}_rows"
    code = BroadcastCode(program, types, sizes, plan(program, keep=True), Style("", "", False, "", False))
    body = code.emit()
    size_types = dict.fromkeys(sizes.params, "int")
    element_types = template_types(program, types)
    text = render(
        "cuda/broadcast.cu.j2",
        name=name,
        types=element_types,
        rows=str(outer.size.constant or "rows"),
        cols=cols,
        parameters=parameters(program, types, size_types),
        body=body,
    )
    yield KernelCode(
        name=name,
        program=program,
        schedule="broadcast",
        idea="everything fused into one pointwise kernel, all rows of one stretch of columns together",
        text=text,
        template=(*element_types, "BLOCK", "VEC"),
        helpers=frozenset(code.helpers),
        sizes=dict(sizes.params),
        grid=f"{outer.size.constant or 'rows'} * ceil_div({cols}, BLOCK * VEC)",
        block="BLOCK",
        constants={"BLOCK": 256, "VEC": 8},
        tune={"BLOCK": (256, 128, 512), "VEC": (8, 4, 2, 1)},
        require={"VEC": code.memory.condition(types, sizes, cols)},
        size_types=size_types,
    )
