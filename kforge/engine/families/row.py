"""Row programs: reductions over the last dimensions with pointwise work before, between and after them.

Schedules, by the length of the row (softmax in fp32 on one H200, share of the copy rate): a warp per row up to 1,024
columns (0.97 to 0.99), a block per row with the row in registers up to 32,768 (0.97), several blocks per row, chunks
in registers and shared memory, beyond that (0.91 to 0.94 at 393,216), one block that streams the row for what is left
(0.64).
Few long rows that are only reduced are shared by several blocks; where neighbouring rows, not columns, are neighbours
in memory, a thread takes a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kforge.engine.emit.access import reads_across
from kforge.engine.emit.cgen import BYTES, C_TYPES, Types, total
from kforge.engine.emit.kernelcode import KernelCode, row_sizes
from kforge.engine.emit.merging import find_pairs
from kforge.engine.emit.passes import plan
from kforge.engine.emit.ragged import is_ragged
from kforge.engine.emit.reducing import SLOT_BYTES
from kforge.engine.emit.schedules import block_classes, fitted, live_values
from kforge.engine.emit.splitcode import ShareCode, SplitCode, joins_once
from kforge.engine.emit.threadcode import ThreadCode
from kforge.engine.families import Target, register
from kforge.engine.families.row_parts import (
    BLOCK,
    CHUNK,
    PER_THREAD,
    SHARE,
    STREAM,
    THREAD,
    WARP,
    HeldCode,
    StreamCode,
    captured,
    moments,
    row_kernel,
    widest,
)
from kforge.engine.graph.ir import Program

WARP_COLUMNS = 1024
SIZES = (1, 2, 4, 8, 16, 32)  # vectors of a thread that are tried
HELD = 48  # the same where three blocks of 256 threads share a multiprocessor
STAGED_BYTES = 192  # of shared memory that such a thread fills besides
SHARED_BYTES = 227 * 1024  # that the blocks of a multiprocessor have together, 1 KB of each taken by the system

REDUCED_COLUMNS = 4096
SEVERAL_A_ROW = 2048
"""Columns from which rows that are only reduced are streamed first; rows from which a block of few warps takes one.

A block that holds a row waits for its slowest load and then idles until it has ended. With 8,192 columns in 512 threads
3.1 TB/s were read (a maximum, 0.68 of the floor), which makes 5.6 us a block, with 4,096 in 256 threads 0.85 of the
floor, or 4.3 us. The warps of a block that streams go on with loads of their own."""

SHARES = ((1 << 25, 1 << 12), (1 << 27, 1 << 14), (1 << 29, 1 << 16), (1 << 62, 1 << 17))
"""Elements up to so many: columns that a block streams. More blocks than run at once even out what each takes."""


@register("row")
def row(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to programs with at least one reduction."""
    if not program.reductions:
        return
    width = total(program.cols).constant
    for kernel in _schedules(program, types, name, target):
        if width is None:
            yield kernel
        elif width <= kernel.most:
            yield replace(kernel, limit="", tuned=())  # chosen for this width, which is the only one


def _schedules(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    cols, rows = max(1, captured(program.cols)), max(1, captured(program.rows))
    covers_all = _stream(program, types, name)
    if reads_across(program) and not program.in_place:
        yield _thread(program, types, name)
    share = _share(program, types, name, target)
    if share is not None and rows < target.multiprocessors * 2 and rows * cols > 1 << 16:
        yield share
    several = share is not None and rows >= target.multiprocessors * 2 and not reads_across(program)
    reduces = several and cols > REDUCED_COLUMNS
    if reduces:  # before those that hold rows, which are measured to be slower where nothing but the result is stored
        yield replace(covers_all, schedule="reduce")
    held = []
    if cols <= WARP_COLUMNS:
        yield _warp(program, types, name)
    if cols <= _register_columns(program):
        held.append(_block(program, types, name))
    if max(cols, target.longest) > _register_columns(program) and (share is None or rows >= target.multiprocessors * 2):
        held.append(_split(program, types, name, target))
    yield from (replace(kernel, schedule=f"{kernel.schedule}_reduce") if reduces else kernel for kernel in held)
    if not reduces:
        yield covers_all


def _register_columns(program: Program) -> int:
    return 1024 * (PER_THREAD // live_values(plan(program, keep=True))) - _slack(program)


def _vec(program: Program) -> int:
    """Elements of a 16-byte vector of the widest floats."""
    return 4 if widest(program) >= 4 else 8


def _slack(program: Program) -> int:
    """Elements that a row's vectors hold beyond the row."""
    return _vec(program) - 1 if is_ragged(program, _vec(program)) else 0


def _warp(program: Program, types: Types, name: str) -> KernelCode:
    vec, slack = _vec(program), _slack(program)
    passes = plan(program, keep=True, pairs=moments(program))
    code = HeldCode(program, types, row_sizes(program), passes, WARP, ragged=slack > 0)
    items = max(1, -(-(captured(program.cols) + slack) // (32 * vec)))
    constants: dict[str, int | str] = {"BLOCK": 128, "VEC": vec, "ITEMS": items}
    kernel = row_kernel(
        code, f"{name}_warp", "row_warp.cu.j2", "warp", "one warp per row, the row in registers", constants
    )
    return replace(
        kernel,
        grid="ceil_div(rows, BLOCK / 32)".replace("/ 32", "// 32"),
        tune={"BLOCK": (128, 256, 64), "VEC": (8, 4, 2, 1), "ITEMS": tuple(sorted({items, *SIZES}))},
        require={**kernel.require, "ITEMS": f"32 * VEC * ITEMS >= cols{_plus(slack)}"},
        limit=f"cols <= {WARP_COLUMNS}",
    )


def _block(program: Program, types: Types, name: str) -> KernelCode:
    passes = plan(program, keep=True, pairs=moments(program))
    vec, slack = _vec(program), _slack(program)
    code = HeldCode(program, types, row_sizes(program), passes, BLOCK, ragged=slack > 0)
    per_thread = PER_THREAD // live_values(passes)
    classes = [(limit - slack, chosen) for limit, chosen in block_classes(per_thread, vec)]
    cols = captured(program.cols)
    chosen = next((c for limit, c in classes if cols <= limit), classes[-1][1])
    fit = fitted(cols + slack, vec, *chosen)
    own = [(f"cols == {cols}", fit)] if fit != chosen else []  # not of a class, but of the width that was captured
    constants: dict[str, int | str] = {"BLOCK": fit[0], "VEC": vec, "ITEMS": fit[1]}
    kernel = row_kernel(
        code, f"{name}_block", "row_block.cu.j2", "block", "one block per row, the row in registers", constants
    )
    return replace(
        kernel,
        tune={
            "BLOCK": tuple(sorted({fit[0], 64, 128, 256, 512, 1024})),
            "VEC": (8, 4, 2, 1),
            "ITEMS": tuple(sorted({fit[1], *(i for i in SIZES if i <= per_thread)})),
        },
        require={
            **kernel.require,
            "BLOCK": f"BLOCK * {per_thread} >= cols{_plus(slack)}",
            "ITEMS": f"BLOCK * VEC * ITEMS >= cols{_plus(slack)}",
        },
        tuned=(
            *((f, {"BLOCK": b, "ITEMS": i}) for f, (b, i) in own),
            *((f"cols <= {limit}", {"BLOCK": b, "ITEMS": i}) for limit, (b, i) in classes[:-1]),
            ("True", {"BLOCK": classes[-1][1][0], "ITEMS": classes[-1][1][1]}),
        ),
        limit=f"cols <= {1024 * per_thread - slack}",
    )


def _plus(slack: int) -> str:
    return f" + {slack}" if slack else ""


def _stream(program: Program, types: Types, name: str) -> KernelCode:
    pairs = find_pairs(program)
    vec = _vec(program)
    passes = plan(program, keep=False, pairs=pairs)
    code = StreamCode(program, types, row_sizes(program), passes, STREAM, ragged=_slack(program) > 0)
    constants: dict[str, int | str] = {"BLOCK": 512, "VEC": vec, "ITEMS": 4}
    once = joins_once(code.passes)
    classes: list[tuple[str, int]] = []
    if once:
        loads = sum(1 for e in code.passes[0].fresh if code._is_vector(e) and code._moves_with_row(e))
        items = 4 if loads < 2 else 2
        constants["ITEMS"] = items
        classes = [(f"rows >= {SEVERAL_A_ROW} and cols < {4 * b * vec * items}", b // 2) for b in (128, 256, 512)]
        if captured(program.rows) >= SEVERAL_A_ROW:
            constants["BLOCK"] = next(
                (b // 2 for b in (128, 256, 512) if captured(program.cols) < 4 * b * vec * items), 512
            )
    idea = "one block per row, streaming the row tile by tile"
    kernel = row_kernel(code, f"{name}_stream", "row_stream.cu.j2", "stream", idea, constants)
    tune: dict[str, tuple[int | str, ...]] = {"BLOCK": (256, 512, 1024), "VEC": (8, 4, 2, 1), "ITEMS": (1, 2, 4)}
    if once:
        tune |= {"BLOCK": (64, 128, 256, 512), "ITEMS": (2, 4, 8)}
    return replace(
        kernel,
        tune=tune,
        tuned=(
            *((condition, {"BLOCK": block}) for condition, block in classes),
            *([("True", {"BLOCK": 512})] if once else []),
        ),
    )


def _split(program: Program, types: Types, name: str, target: Target) -> KernelCode:
    """Chunks in registers and shared memory, so long that the blocks' waiting for each other is a small part.

    The blocks of a row must all run at once, or they wait for ever: of RESIDENT blocks that fit on a multiprocessor one
    is not counted on, but one always is. Two let a row have 4 million floats of a batch norm's channel, read once.
    """
    passes = plan(program, keep=True, pairs=find_pairs(program))
    vec = _vec(program)
    ragged = is_ragged(program, vec, split=True)
    code = SplitCode(program, types, row_sizes(program), passes, CHUNK, ragged=ragged)
    held = HELD // live_values(passes)
    first = max(1, held // vec - (2 if ragged and held // vec > 4 else 0))  # tests of places take registers, too
    constants: dict[str, int | str] = {"BLOCK": 256, "VEC": vec, "ITEMS": first, "STAGED": 0, "RESIDENT": 3}
    idea = "several blocks per row, each with a chunk of the row in registers and shared memory"
    kernel = row_kernel(code, f"{name}_split", "row_split.cu.j2", "split", idea, constants, workspace=True)
    slots = max(1, len(code.slots))
    staged = STAGED_BYTES // (slots * _slot_bytes(code)) // 8 * 8  # whole vectors
    blocks = f"ceil_div(cols{' + VEC - 1' if ragged else ''}, BLOCK * VEC * (ITEMS + STAGED // VEC))"
    bytes_per_block = SLOT_BYTES * code.rounds
    sizes = code.element_sizes()
    size = f"max({', '.join(sizes)})" if len(sizes) > 1 else sizes[0]
    items = (first, *(i for i in (first // 2, first // 4) if i), *(first * k for k in (2, 4, 8) if first * k <= held))
    fewest = staged // 2 // 8 * 8
    fits = min(max(v * i + fewest for i in items if v * i <= held) for v in (1, 2, 4, 8) if v <= held)
    shared = f"BLOCK * (STAGED // VEC) * {slots} * VEC * {size}"
    counted_on = f"max(1, min(RESIDENT, {SHARED_BYTES} // ({shared} + 1024)) - 1)"
    return replace(
        kernel,
        grid=f"rows * {blocks}",
        constants={**constants, "STAGED": staged},
        tune={
            "BLOCK": (256, 512),
            "VEC": (8, 4, 2, 1),
            "ITEMS": items,
            "STAGED": tuple(dict.fromkeys((staged, fewest, staged * 4 // 3 // 8 * 8))),
            "RESIDENT": (3, 4),
        },
        require={
            **kernel.require,
            "ITEMS": f"VEC * ITEMS <= {held} and {blocks} <= {target.multiprocessors} * {counted_on}",
        },
        shared=shared,
        workspace=f"rows * {blocks} * {bytes_per_block} + 4",
        zeroed=True,
        limit=f"cols <= {target.multiprocessors * 2 * 256 * fits - (vec if ragged else 0)}",
    )


def _slot_bytes(code: SplitCode) -> int:
    """Bytes of an element in a slot, for the types at hand."""
    names = {ctype: size for dtype, ctype in C_TYPES.items() for size in [BYTES[dtype]]}
    names |= {alias: BYTES[dtype] for dtype, alias in code.types.aliases.items()}
    return max((names[ctype] for ctype in code.held), default=4)


def _share(program: Program, types: Types, name: str, target: Target) -> KernelCode | None:
    passes = plan(program, keep=False, pairs=find_pairs(program))
    if not joins_once(passes):
        return None
    vec = _vec(program)
    code = ShareCode(program, types, row_sizes(program), passes, SHARE, ragged=_slack(program) > 0)
    count = max(1, captured(program.rows)) * captured(program.cols)
    share = next((share for most, share in SHARES if count <= most), SHARES[-1][1])
    constants: dict[str, int | str] = {"BLOCK": 256, "VEC": vec, "ITEMS": 4, "SHARE": share}
    blocks = "max(1, ceil_div(cols, SHARE))"
    idea = "several blocks per row, each streaming a share; the last one joins them"
    kernel = row_kernel(code, f"{name}_share", "row_share.cu.j2", "share", idea, constants, workspace=True)
    return replace(
        kernel,
        grid=f"rows * {blocks}",
        tune={
            "BLOCK": (256, 512, 1024),
            "VEC": (8, 4, 2, 1),
            "ITEMS": (4, 2, 8),
            "SHARE": tuple(dict.fromkeys((share, *(s for _, s in SHARES)))),
        },
        tuned=(
            *((f"rows * cols <= {most}", {"SHARE": s}) for most, s in SHARES[:-1]),
            ("True", {"SHARE": SHARES[-1][1]}),
        ),
        workspace=f"rows * {blocks} * {SLOT_BYTES * code.rounds} + rows * 4",
        zeroed=True,
    )


def _thread(program: Program, types: Types, name: str) -> KernelCode:
    passes = plan(program, keep=False, pairs=find_pairs(program))
    code = ThreadCode(program, types, row_sizes(program), passes, THREAD)
    rows = captured(program.rows)
    split = 1 if rows >= 1 << 18 else 4 if rows >= 1 << 15 else 8
    constants: dict[str, int | str] = {"SPLIT": split, "VEC": 1, "ITEMS": 8}
    idea = "one thread per row, since neighbouring rows are neighbours in memory"
    kernel = row_kernel(code, f"{name}_thread", "row_thread.cu.j2", "thread", idea, constants)
    return replace(
        kernel,
        grid="ceil_div(rows, 32)",
        block="32 * SPLIT",
        tune={"SPLIT": (1, 2, 4, 8, 16), "ITEMS": (4, 8, 16)},
        require={},
    )
