"""Products of three matrices in the cheaper order, and in the order that was written where something is not finite.

Both orders add the same terms, with the same kind of roundings. They differ where an infinity or a NaN meets zeros and
both signs: one pass looks for those, and if there are any, two kernels that do nothing otherwise multiply as written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kforge.engine.calls.vendor import CallStep, Lowering
from kforge.engine.emit.kernelcode import KernelCode, alone, render

if TYPE_CHECKING:
    from kforge.engine.emit.hostcode import Host

CHAIN = "chain"
"""The scheme of such a call."""
RESULTS = ("as_written", "odd")
"""What is left beside the library's result: that in the other order if something is not finite, and 1 then, else 0."""
LEAST = 1_000_000_000  # operations of a chain that is worth another order
GAIN = 2.0  # by which the other order has to be cheaper

ORDERS = {
    True: '''\
def product_from_the_right(a, b, c):
    """a @ b @ c as a @ (b @ c); as (a @ b) @ c where an operand is not finite, and 1 if one is."""
    result = torch.mm(a, torch.mm(b, c))
    odd, first = odd_in(a, b, c), torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    multiply_if(odd, a, b, first)
    return result, multiply_if(odd, first, c, torch.empty_like(result)), odd''',
    False: '''\
def product_from_the_left(a, b, c):
    """a @ (b @ c) as (a @ b) @ c; as it is written where an operand is not finite, and 1 if one is."""
    result = torch.mm(torch.mm(a, b), c)
    odd, first = odd_in(a, b, c), torch.empty((b.shape[0], c.shape[1]), dtype=a.dtype, device=a.device)
    multiply_if(odd, b, c, first)
    return result, multiply_if(odd, a, first, torch.empty_like(result)), odd''',
}
"""By whether the last two are multiplied first."""
HELPERS = '''\
def odd_in(a, b, c):
    """1 on the device where one of these has an infinity or a NaN."""
    flag = torch.zeros(1, dtype=torch.int32, device=a.device)
    mark_odd(a, b, c, flag, a.numel(), b.numel(), c.numel())
    return flag


def multiply_if(flag, a, b, result):
    """The product into `result` where the flag is set."""
    multiply_again(a, b, flag, result, *result.shape, a.shape[1], *a.stride(), *b.stride())
    return result'''


def work(sizes: tuple[int, int, int, int], right: bool) -> int:
    """Operations of (m, k) @ (k, n) @ (n, p), the last two first or not."""
    m, k, n, p = sizes
    return 2 * (k * n * p + m * k * p if right else m * k * n + m * n * p)


def lowering(step: CallStep, seconds: float) -> Lowering:
    """The three products' two, and what mends. seconds: of the products as the library computes them."""
    right = bool(step.call.facts["right"])

    def lines(step: CallStep, host: Host, operands: list[str], variables: Mapping[str, str]) -> list[str]:
        results, way = ", ".join(b.name for b in step.results), "right" if right else "left"
        return [f"{results} = product_from_the_{way}({', '.join(operands)})"]

    kernels = (
        _kernel("mark_odd", "chain_marks", "1024", "BLOCK", {"BLOCK": 256}, ("a", "b", "c")),
        _kernel(
            "multiply_again", "chain_mend", "ceil_div(rows, TILE) * ceil_div(columns, TILE)", "TILE * TILE",
            {"TILE": 16}, ("a", "b"),
        ),
    )  # fmt: skip
    return Lowering(lines, seconds + 1e-4, "products in the cheaper order", kernels, (HELPERS, ORDERS[right]))


def _kernel(
    name: str, source: str, grid: str, block: str, constants: dict[str, int], strided: tuple[str, ...]
) -> KernelCode:
    text = render(f"cuda/{source}.cu.j2", name=name)
    return alone(name, CHAIN, text, (), constants, grid=grid, block=block, strided=strided)
