"""Products at TF32's accuracy in two steps: operands in halves, one pass each; then a product of ours and what follows.

A half has TF32's ten bits of mantissa. An operand that lies along the depth is scaled row by row (precision.py). One
that lies across it would have to be read twice for that, so that it has one scale, found from a sample: its mean
exponent becomes 2. A column is marked where a value reaches 2^15, or where more than a few are under 2^-14. What a half
loses of a value under that is at most 2^-27 of the operand's typical ones, and the other operand has nothing more than
2^PEAK times its own typical ones to make up for it: at most 2^-14 of a typical term, a quarter of what TF32 loses of
each. What marked rows and columns meet is computed in single precision, by a kernel that finds nothing to do otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kforge.engine.calls.vendor import TF32_RATE, CallStep, Lowering, Operand
from kforge.engine.emit.kernelcode import Constant, KernelCode, alone, render

if TYPE_CHECKING:
    from kforge.engine.emit.hostcode import Host

CONVERTED = "converted"
RESULTS = ("left_halves", "right_halves", "row_units", "column_units")
"""What the conversion leaves beside the single-precision results of marked rows and columns."""
PEAK = 13
SAMPLES = 1024
OWN_RATE = 6e14  # operations a second of a product of ours on an H200
IDEA = "operands as scaled halves in one pass each, with TF32's mantissa at twice its rate"

ROWS = '''\
def rows_in_halves(x):
    """x in halves, each row times a power of two, and the units that take it away again."""
    halves = torch.empty(x.shape, dtype=torch.float16, device=x.device)
    units = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    halve_rows(x, halves, units, x.shape[1], x.shape[1], x.shape[0])
    return halves, units'''

COLUMNS = '''\
def columns_in_halves(x):
    """x in halves, all of it times one power of two, and a unit for each column that takes it away again."""
    depth, columns = x.shape
    halves = torch.empty(x.shape, dtype=torch.float16, device=x.device)
    units = torch.empty(columns + 1, dtype=torch.float32, device=x.device)
    common_scale(x, units, x.numel(), columns)
    halve_at_once(x, halves, units, depth, columns, max(64, -(-depth // 64)))
    return halves, units[:columns]'''


def pays(rows: int, columns: int, depth: int) -> bool:
    """Whether a product of these sizes is predicted to be no slower so than by the library's own call."""
    from kforge.engine.calls import precision

    work = 2 * rows * columns * depth
    fits = depth % 8 == 0 and columns % 8 == 0 and work >= precision.SMALL and min(rows, columns) >= precision.LEAST
    taken = seconds(rows, columns, depth) + work / OWN_RATE
    return fits and taken < 1.1 * work / TF32_RATE  # what follows costs less, too


def seconds(rows: int, columns: int, depth: int) -> float:
    """Predicted time of the conversion alone."""
    from kforge.engine.calls import precision

    return 1.2e-5 + (rows + columns) * depth * 6 / precision.RATE_OF_BYTES


def lowering(step: CallStep) -> Lowering:
    """The conversion, and the mending before the product. facts: which operands lie along the depth."""
    from kforge.engine.calls import precision

    left, right = step.call.facts["along"]
    kept = [_is_weight(operand) for operand in step.operands]
    whose = {(False, False): "operands", (True, False): "layer_before", (False, True): "layer", (True, True): "weights"}
    name = f"{whose[kept[0], kept[1]]}_in_halves_{'cr'[left]}{'cr'[right]}"

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{', '.join(b.name for b in step.results)} = {name}({', '.join(operands)})"]

    scheme, across = precision.SCHEMES[CONVERTED], not (left and right)
    kernels = [precision.kernel("rows", scheme, peak=PEAK if across else 0)] if left or right else []
    kernels += [_kernel("scale"), _kernel("once")] if across else []
    helper = render(
        "candidate/operands_in_halves.py.j2",
        name=name,
        formula=f"{'a' if left else 'a.t()'} @ {'b.t()' if right else 'b'}",
        left_rows=left,
        right_rows=right,
        left_kept=kept[0],
        right_kept=kept[1],
        small=precision.SMALL,
    )
    rows, columns = (s.hint() for s in step.result.shape)
    depth = step.call.operands[0].shape[1 if left else 0].hint()
    unique = (*kernels, precision.kernel("mend", scheme))
    helpers = [*([ROWS] if left or right else []), *([COLUMNS] if across else []), helper.rstrip()]
    return Lowering(lines, seconds(rows, columns, depth), IDEA, unique, tuple(helpers))


def _is_weight(operand: Operand) -> bool:
    """Whether an operand is a parameter itself, whose halves are derived ahead of time."""
    return (
        operand.buffer.kind == "parameter" and operand.shape == operand.buffer.shape and operand.order in ((), (0, 1))
    )


def _kernel(kind: str) -> KernelCode:
    """ "scale" finds the common scale of an operand, "once" converts it."""
    constants: dict[str, Constant] = {"BLOCK": 256}
    tune: dict[str, tuple[Constant, ...]] = {}
    require: dict[str, str] = {}
    name, grid, block = "common_scale", "max(1, ceil_div(columns, BLOCK))", "BLOCK"
    if kind == "once":
        name, constants = "halve_at_once", {"WARPS": 8, "VEC": 4}
        tune = {"WARPS": (8, 4, 16), "VEC": (4, 2, 1)}
        grid, block = "(ceil_div(columns, 32 * VEC), ceil_div(depth, share))", "32 * WARPS"
        require = {"VEC": "aligned(x, 4 * VEC) and aligned(halves, 2 * VEC) and columns % VEC == 0"}
    text, helpers = render(f"cuda/halves_{kind}.cu.j2", name=name, samples=SAMPLES), ("pack", "halves")
    return alone(name, CONVERTED, text, helpers, constants, grid=grid, block=block, tune=tune, require=require)
