"""Sorted rows and their first few: merges in shared memory, or a pool of what may still be among the first.

Rows of up to 256 elements are sorted by a warp, up to 4,096 by a block. The first few of longer rows need no more than
a comparison an element: what comes after a bound is dropped, the rest collects in a pool of each warp, which is sorted
when it is full and gives a nearer bound. (On one H200 a bitonic network in registers and shuffles sorted rows of 1,024
at 0.1 of the floor, no faster than torch.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kforge.engine.emit.cgen import Types
from kforge.engine.emit.kernelcode import KernelCode, row_sizes
from kforge.engine.emit.ordercode import SortCode, TopCode
from kforge.engine.emit.passes import plan
from kforge.engine.families import Target, register
from kforge.engine.families.row_parts import captured, row_kernel, widest
from kforge.engine.families.scan import BLOCK_ROW, WARP_ROW
from kforge.engine.graph.ir import Program
from kforge.errors import NoCandidate

WARP_COLUMNS = 256
HELD_COLUMNS = 4096
SHARED_BYTES = 47 << 10  # of the 48 KB that a kernel may declare
TOP_COLUMNS = 1024  # up to which a whole row is sorted for its first few
MOST_OF_LONG = 128  # elements that are asked of a row too long to be sorted


@register("sort")
def sort(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to programs that sort rows short enough, or ask for few elements of long ones."""
    if not any(e.kind.startswith("sort") for e in program.scans):
        return
    top = _top(program, types, name)
    most = _most_held(program, types)
    if top is None and target.steps(program.cols) > most:
        raise NoCandidate(f"rows of more than {most} elements are not sorted", operator="sort")
    width = program.cols[-1].size.constant
    held = _block(program, types, name)
    limit = most if top is None else min(most, TOP_COLUMNS)
    choices = [_warp(program, types, name), replace(held, limit=f"cols <= {limit}")]
    choices += [] if top is None else [top]
    if width is None:
        yield from choices
    else:  # the only width: what fits it, whatever its limit
        yield from (replace(k, limit="") for k in choices if width <= k.most)


def _word_bytes(program: Program, types: Types) -> int:
    """Bytes of the words of all sorts, for one column; an eighth is left free among them."""
    kinds = [types.scalar(e.args[0].dtype) for e in program.scans if e.kind.startswith("sort")]
    return sum(18 if k in ("double", "long long") else 9 for k in kinds)


def _most_held(program: Program, types: Types) -> int:
    """The longest rows that fit into shared memory."""
    return min(HELD_COLUMNS, 1 << (SHARED_BYTES // _word_bytes(program, types)).bit_length() - 1)


def _warp(program: Program, types: Types, name: str) -> KernelCode:
    code = SortCode(program, types, row_sizes(program), plan(program, keep=False), WARP_ROW)
    vec = 4 if widest(program) >= 4 else 8
    items = next(i for i in (1, 2, 4, 8) if 32 * vec * i >= min(WARP_COLUMNS, captured(program.cols)))
    constants: dict[str, int | str] = {"BLOCK": 128, "VEC": vec, "ITEMS": items}
    idea = "one warp per row, sorted in registers"
    kernel = row_kernel(code, f"{name}_warp", "row_sort_warp.cu.j2", "sort_warp", idea, constants)
    return replace(
        kernel,
        grid="ceil_div(rows, BLOCK // 32)",
        tune={"BLOCK": (128, 256), "VEC": (8, 4, 2, 1), "ITEMS": (1, 2, 4, 8)},
        require={**kernel.require, "ITEMS": "32 * VEC * ITEMS >= cols"},
        tuned=tuple(
            (f"cols <= {32 * vec * i}" if i * vec < 8 else "True", {"ITEMS": i}) for i in (1, 2) if i * vec <= 8
        ),
        limit=f"cols <= {WARP_COLUMNS}",
    )


def _block(program: Program, types: Types, name: str) -> KernelCode:
    code = SortCode(program, types, row_sizes(program), plan(program, keep=False), BLOCK_ROW)
    vec = 4 if widest(program) >= 4 else 8
    cols = min(_most_held(program, types), captured(program.cols))
    block = next(b for b in (64, 128, 256) if b * 16 >= cols)
    constants: dict[str, int | str] = {"BLOCK": block, "VEC": vec, "ITEMS": 16 // vec}
    idea = "one block per row, sorted in registers"
    kernel = row_kernel(code, f"{name}_sorted", "row_sort.cu.j2", "sort", idea, constants)
    fits = f"BLOCK * VEC * ITEMS >= cols and BLOCK * VEC * ITEMS * {_word_bytes(program, types)} <= {SHARED_BYTES}"
    return replace(
        kernel,
        tune={"BLOCK": (64, 128, 256, 512), "VEC": (8, 4, 2, 1), "ITEMS": (1, 2, 4, 8, 16)},
        require={**kernel.require, "BLOCK": "BLOCK * 16 >= cols", "ITEMS": fits},
        tuned=tuple((f"cols <= {b * 16}" if b < 256 else "True", {"BLOCK": b}) for b in (64, 128, 256)),
    )


def _top(program: Program, types: Types, name: str) -> KernelCode | None:
    """None where more than the first few of a single sorted row are asked for."""
    limits = [None if s.below is None else s.below.constant for s in program.stores]
    passes = plan(program, keep=False)
    if len(program.scans) != 1 or None in limits or program.reductions:
        return None
    count = max(n for n in limits if n is not None)
    if count > MOST_OF_LONG:
        return None
    vec = 4 if widest(program) >= 4 else 8
    each = 8 if vec == 4 and count <= 64 else 16
    code = TopCode(program, types, row_sizes(program), passes, BLOCK_ROW, count=count, each=each)
    constants: dict[str, int | str] = {"BLOCK": 128, "VEC": vec, "ITEMS": 8 // vec}
    idea = "one block per row, which keeps what may be among the first few"
    kernel = row_kernel(code, f"{name}_top", "row_scan.cu.j2", "top", idea, constants, extra={"wide": False})
    room = f"BLOCK * {code.each * _word_bytes(program, types)} <= {SHARED_BYTES}"
    return replace(
        kernel,
        tune={"BLOCK": (256, 512, 128, 1024), "VEC": (8, 4, 2, 1), "ITEMS": (4, 2, 8, 1)},
        require={**kernel.require, "BLOCK": f"{room} and cols <= {2**32 - 2}"},
    )
