"""Batches of products by a precision scheme (precision.py): one conversion, batched products, one mending kernel.

Both operands lie along the depth, so that each line of a whole batch is scaled by the kernel that scales rows; what
does not lie so is written that way first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kforge.engine.calls.converted import CONVERTED
from kforge.engine.calls.vendor import RATES, TF32_RATE, CallStep, Lowering
from kforge.engine.emit.kernelcode import render
from kforge.engine.families import product_merged
from kforge.engine.families.product_parts import PROCESSORS

if TYPE_CHECKING:
    from kforge.engine.emit.hostcode import Host

PRODUCTS = '''\
def add_products(sums, a, b, scale, keep):
    """sums * keep + scale * a @ b for batches of halves, summed in single precision; a CPU has no such product."""
    if not sums.is_cuda:
        torch.baddbmm(sums, a.float(), b.float(), beta=keep, alpha=scale, out=sums)
    else:
        torch.baddbmm(sums, a, b, out_dtype=torch.float32, beta=keep, alpha=scale, out=sums)'''


def pays(scheme: str, batches: int, rows: int, columns: int, depth: int) -> bool:
    """Whether a batch of products of these sizes is predicted to be faster by a scheme than by the library's call."""
    from kforge.engine.calls import precision

    fits = scheme != CONVERTED and columns % 8 == 0 and min(rows, columns) >= precision.LEAST
    whole = 2 * batches * rows * columns * depth
    rate = RATES["float32"] if precision.SCHEMES[scheme].low else TF32_RATE
    deep = depth >= precision.LEAST_DEPTH or not precision.SCHEMES[scheme].low
    return fits and deep and seconds(scheme, batches, rows, columns, depth) < 5e-6 + whole / rate


def seconds(scheme: str, batches: int, rows: int, columns: int, depth: int) -> float:
    """Predicted time; the right operand is taken to lie across the depth, so that it is turned first."""
    from kforge.engine.calls import precision

    turned = 8 * batches * columns * depth / precision.RATE_OF_BYTES
    return turned + precision.seconds(scheme, rows, columns, depth, batches)


def lowering(step: CallStep) -> Lowering:
    """A batch of products by its scheme."""
    from kforge.engine.calls import precision

    scheme = precision.SCHEMES[step.call.scheme]
    name = f"products_of_{'two_halves' if scheme.low else 'halves'}"

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        return [f"{', '.join(b.name for b in step.results)} = {name}({', '.join(operands)})"]

    kernels = [precision.kernel("rows", scheme, left) for left in (True, False)]
    kernels.append(precision.kernel("mend", scheme, batched=True))
    kernels += [product_merged.merged(True, True, batched=True)] if scheme.merged else []
    helper = render(
        "candidate/products_of_halves.py.j2",
        name=name,
        accuracy="as accurate as in single precision" if scheme.low else "as accurate as in TF32",
        low=scheme.low,
        merged=product_merged.name_of(True, True, batched=True) if scheme.merged else "",
        small=precision.SMALL,
        least=precision.LEAST_DEPTH,
    )
    batches, rows, columns = (s.hint() for s in step.result.shape)
    taken = seconds(scheme.name, batches, rows, columns, step.call.operands[0].shape[2].hint())
    idea = f"batches of {precision.IDEAS[scheme.low]}" + (", all in one kernel of ours" if scheme.merged else "")
    unique = tuple({k.name: k for k in kernels}.values())
    adding = PROCESSORS if scheme.merged else PRODUCTS
    return Lowering(lines, taken, idea, unique, (adding, helper.rstrip()))
