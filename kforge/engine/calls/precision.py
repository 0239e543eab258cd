"""Precision schemes for matrix products in single precision: products of halves that are as accurate as the baseline.

Every operand is scaled by an exact power of two per row (of the right operand: per column), so that its largest value
lies in [2^14, 2^15). Against strict single precision x = high + low / 2^11, both halves: the error of an operand is at
most 2^-23 |x|, or 2^-50 of its row's largest value where that is more. The product is (low high' + high low') / 2^11 +
high high'; what is left out, low low', is below 2^-24 of each term. Tensor cores cut sums short instead of rounding
them, about 6e-9 of a sum of one sign per step of depth, so that high high' is taken in chunks (`chunk_of`) and their
sums are added in single precision. Against TF32 one half has the same 10 bits of mantissa as its operands.

A row whose small values (two standard deviations of their exponents below the mean) are ROOM orders below its largest
would lose bits of what may matter; so would infinities, NaN and exponents beyond +-60. Such rows are marked while they
are converted, and what they meet in the result is computed again in single precision on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kforge.engine.calls import attention, bands, batches, chains, converted, framed, halved, implicit
from kforge.engine.calls.vendor import INTEGER, RATES, TF32_RATE, CallStep, Lowering, Operand, integers, plain
from kforge.engine.emit.hostcode import Host
from kforge.engine.emit.kernelcode import Constant, KernelCode, alone, render
from kforge.engine.families import product_merged
from kforge.engine.families.product_parts import PROCESSORS as PROCESSORS_OF

PROCESSORS = 132
LEAST_DEPTH = 512  # of a product as accurate as in single precision: sums of one sign of 100 values are not
SMALL = 4_000_000_000  # operations of a product that is left to the library at run time
LEAST = 64  # rows and columns of a product that a scheme is for
HALF_RATE = 6.5e14  # operations a second
RATE_OF_BYTES, RATE_OF_CACHE = 3.5e12, 6e12  # bytes a second

_CODE = {"rows": "halves_rows", "columns": "halves_columns", "ranges": "halves_ranges", "mend": "halves_mend"}


@dataclass(frozen=True)
class Scheme:
    """low: two halves an operand (as accurate as single precision) or one (as TF32). merged: by a kernel of ours."""

    name: str
    low: bool
    merged: bool = False


MERGED = "merged"
SCHEMES = {
    s.name: s
    for s in (
        Scheme("split", low=True),
        Scheme(MERGED, low=True, merged=True),
        Scheme("scaled", low=False),
        Scheme(converted.CONVERTED, low=False),
    )
}
IDEAS = {
    True: "operands as two halves each, three products of halves, partial sums added in single precision",
    False: "operands as halves scaled by powers of two, with TF32's mantissa at twice its rate",
}
RESULTS = ("row_units", "column_units")
"""What a scheme leaves beside its sums: a factor for each row and each column, negative where the sums have none."""
BY_PRECISION = {"highest": "split", "high": "scaled", "medium": "scaled"}
"""The scheme whose products are as accurate as torch's at a float32 matmul precision."""


def pays(scheme: str, rows: int, columns: int, depth: int) -> bool:
    """Whether a product of these sizes is predicted to be faster by a scheme than by the library's own call."""
    deep = depth >= LEAST_DEPTH or not SCHEMES[scheme].low
    return (
        deep
        and scheme != converted.CONVERTED  # which has a rule of its own
        and min(rows, columns) >= LEAST
        and seconds(scheme, rows, columns, depth)
        < (5e-6 + 2 * rows * columns * depth / (RATES["float32"] if SCHEMES[scheme].low else TF32_RATE))
    )


def seconds(scheme: str, rows: int, columns: int, depth: int, count: int = 1) -> float:
    """Predicted time: conversion, products, and the reading and writing of partial sums between them.

    count: of products in a batch.
    """
    low = SCHEMES[scheme].low
    tiles = count * -(-rows // 128) * -(-columns // 128)
    whole = product_merged.RATE if SCHEMES[scheme].merged else HALF_RATE
    shares = product_merged.shares_for(rows, columns, depth) if SCHEMES[scheme].merged and count == 1 else 1
    rate = whole * min(1.0, tiles * shares / PROCESSORS)  # a product of one chunk is not divided any further
    convert = count * (rows + columns) * depth * (4 + (4 if low else 2)) / RATE_OF_BYTES
    products = 2 * count * rows * columns * depth * (3 if low else 1) / rate
    parts = -(-depth // chunk_of(depth)) if low and not SCHEMES[scheme].merged else 0
    between = parts * (2e-6 + count * rows * columns * 8 / RATE_OF_CACHE)
    if shares > 1:  # written by one kernel, added up by another
        between += 3e-6 + shares * rows * columns * 8 / RATE_OF_CACHE
    return 2.5e-5 + convert + products + between


def lowering(step: CallStep, precision: str = "highest") -> Lowering:
    """How a library step is computed: by its scheme, else by the library's own call. precision: the task's."""
    if step.call.scheme == halved.HALVED:
        return halved.lowering(step)
    if step.call.scheme == INTEGER:
        return integers(step)
    if step.call.scheme == attention.ATTENTION:
        return attention.lowering(step)
    if step.call.scheme == implicit.IMPLICIT:
        return implicit.lowering(step)
    if step.call.scheme == framed.FRAMED:
        return framed.lowering(step)
    if step.call.scheme == converted.CONVERTED:
        return converted.lowering(step)
    if step.call.scheme == chains.CHAIN:
        return chains.lowering(step, plain(step, precision).seconds)
    band = step.call.facts.get("band")
    if not step.call.scheme:
        whole = plain(step, precision)
        if "operand_band" in step.call.facts:
            return bands.operand_lowering(step, whole)
        return whole if band is None else bands.lowering(step, whole)
    if step.call.operator == "bmm":
        return batches.lowering(step)
    scheme = SCHEMES[step.call.scheme]
    sides = [_along_rows(step.operands[0], left=True), _along_rows(step.operands[1], left=False)]
    if band and scheme.merged:
        scheme = SCHEMES["split"]
    function = f"product_of_{'two_halves' if scheme.low else 'halves'}_{''.join('cr'[s] for s in sides)}"
    function += "_in_band" if band else ""

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        given = [Operand(o.buffer, o.shape).python(host) for o in step.operands]
        given += [bands.written(band)] if band else []
        return [f"{', '.join(b.name for b in step.results)} = {function}({', '.join(given)})"]

    kernels = []
    for left, rows in zip((True, False), sides, strict=True):
        kernels += (
            [kernel("rows", scheme, left)] if rows else [kernel("ranges", scheme), kernel("columns", scheme, left)]
        )
    sizes = [step.result.shape[0].hint(), step.result.shape[1].hint(), step.call.operands[0].shape[1].hint()]
    shared = scheme.merged and product_merged.shares_for(*sizes) > 1
    kernels += [product_merged.merged(sides[0], sides[1], shared=shared)] if scheme.merged else []
    kernels += [product_merged.adding()] if shared else []
    unique = tuple({k.name: k for k in [*kernels, kernel("mend", scheme)]}.values())
    padded = step.result.shape[1] != step.others[1].shape[0]
    adding = (bands.IN_BAND, PRODUCT, PRODUCT_IN_BAND) if band else (PROCESSORS_OF,) if scheme.merged else (PRODUCT,)
    helpers = (*adding, _function(function, scheme, sides[0], sides[1], padded, bool(band), shared))
    part = bands.share(step) if band else 1.0
    idea = IDEAS[scheme.low] + (", all in one kernel of ours" if scheme.merged else "")
    return Lowering(lines, seconds(scheme.name, *sizes) * part, idea, unique, helpers)


def chunk_of(depth: int) -> int:
    """Steps of depth that tensor cores add at once: what is cut short of sums of one sign grows with them, what single
    precision loses with the root of the depth; at these they are about equal."""
    return max(64, int(4.7 * depth**0.5) // 64 * 64)


def _along_rows(operand: Operand, left: bool) -> bool:
    """Whether the summed dimension is the contiguous one in memory."""
    return (operand.order == (0, 1)) == left


def kernel(kind: str, scheme: Scheme, left: bool = True, batched: bool = False, peak: int = 0) -> KernelCode:
    """A kernel of a scheme: "rows" and "columns" scale and convert, "ranges" looks at columns, "mend" computes again.

    batched: "mend" for batches of matrices that lie along the depth. peak: of "rows", binary orders from their mean to
    their largest value beyond which they are not converted, if any.
    """
    side = "left" if left else "right"
    names = {"rows": f"halve_{side}_rows", "columns": f"halve_{side}_columns", "ranges": "column_ranges"}
    name = names.get(kind, "mend_batches" if batched else "mend_tiles")
    name = "halve_rows" if kind == "rows" and scheme.name == converted.CONVERTED else name
    low_first = left and scheme.low
    order = "low then high" if low_first else "high then low"
    how = {"low": scheme.low, "low_first": low_first, "order": order, "batched": batched, "peak": peak}
    text = render(f"cuda/{_CODE[kind]}.cu.j2", name=name, **how)
    constants: dict[str, Constant] = {"WARPS": 8, "VEC": 4}
    tune: dict[str, tuple[Constant, ...]] = {"WARPS": (8, 4, 16), "VEC": (4, 2, 1)}
    grid, block = "(ceil_div(columns, 32 * VEC), ceil_div(depth, share))", "32 * WARPS"
    require = {"VEC": "aligned(x, 4 * VEC) and columns % VEC == 0"}
    if kind == "columns":
        grid = "(ceil_div(width, 32 * VEC), ceil_div(padded, share))"
    elif kind == "rows":
        constants = {"BLOCK": 256, "VEC": 4}
        tune = {"BLOCK": (256, 128, 512), "VEC": (4, 2, 1)}
        grid, block = "rows", "BLOCK"
        require = {"VEC": "aligned(x, 4 * VEC) and depth % VEC == 0"}
    elif kind == "mend":
        constants, tune, require = {"BLOCK": 256}, {}, {}
        grid, block = f"{'batches * ' if batched else ''}ceil_div(rows, 64) * ceil_div(columns, 64)", "BLOCK"
    helpers = ["pack", "halves", *(["halves_low"] if scheme.low else []), *(["counted"] if kind == "ranges" else [])]
    return alone(name, scheme.name, text, helpers, constants, grid=grid, block=block, tune=tune, require=require)


PRODUCT = '''\
def add_product(sums, a, b, scale, keep):
    """sums * keep + scale * a @ b for halves, summed in single precision; a CPU has no such product."""
    if not sums.is_cuda:
        torch.addmm(sums, a.float(), b.float(), beta=keep, alpha=scale, out=sums)
    else:
        torch.addmm(sums, a, b, out_dtype=torch.float32, beta=keep, alpha=scale, out=sums)'''


PRODUCT_IN_BAND = '''\
def add_product_in_band(sums, a, b, scale, keep, low, high):
    """As add_product, where low <= column - row <= high."""
    for rows, columns in strips(sums.shape[1], sums.shape[0], low, high):
        add_product(sums[rows, columns], a[rows], b[:, columns], scale, keep)'''


def _function(
    name: str, scheme: Scheme, left_rows: bool, right_rows: bool, padded: bool, band: bool, shared: bool
) -> str:
    """The host function: a and b lie in memory as the kernels read them, the right one transposed if `right_rows`.

    padded: rows of sums end on a whole vector; else they are as long as the result has columns. band: only a band of
    the product is computed. shared: the depth may be divided.
    """
    columns, height = "-(-columns // 8) * 8", "rows" if left_rows else "-(-rows // 8) * 8"
    right = "b_halves.t()" if right_rows else "b_halves"
    if not padded and not right_rows:
        right = "b_halves[:, :columns]"
    text = render(
        "candidate/product_of_halves.py.j2",
        name=name,
        formula=f"{'a' if left_rows else 'a.t()'} @ {'b.t()' if right_rows else 'b'}",
        accuracy="as accurate as in single precision" if scheme.low else "as accurate as in TF32",
        left_rows=left_rows,
        right_rows=right_rows,
        band=band,
        low=scheme.low,
        merged=product_merged.name_of(left_rows, right_rows, shared=shared) if scheme.merged else "",
        shared=shared,
        share_steps=64 * product_merged.LEAST_PARTS,
        width="b_halves.shape[0]" if right_rows else "b_halves.shape[1]" if padded else "columns",
        small=SMALL,
        least=LEAST_DEPTH,
        count="2 * padded" if scheme.low else "padded",
        wide={"a": height, "b": columns if padded or not right_rows else "columns"},
        left="a_halves" if left_rows else "a_halves.t()[:rows]",
        right=right,
    )
    return text.rstrip()
