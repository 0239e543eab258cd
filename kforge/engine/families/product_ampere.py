"""Products in 16 bits on the tensor cores of Ampere and later: tiles by cp.async, fragments by ldmatrix, mma.sync.

A block computes BM x BN sums, each warp 64 x 64 of them in registers, from a ring of STAGES tiles in shared memory.
"""

from __future__ import annotations

from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.families.product_parts import Parts

RATE = 2.2e14  # operations a second, on an A100
LEAST_SHARED = 101376  # bytes that a block may have on every architecture from 8.0 on

LINES = '''\
def lines(x, *shape):
    """x in this shape; a padded copy where its lines are not 16 bytes aligned."""
    x = x.view(shape)
    if shape[-1] % 8 or x.data_ptr() % 16:
        padded = x.new_zeros(*shape[:-1], -(-shape[-1] // 8) * 8)
        padded[..., : shape[-1]] = x
        x = padded
    return x'''


def ampere(parts: Parts, name: str) -> KernelCode:
    """The kernel for a product."""
    batches, rows, cols, depth = parts.hints()
    wide = batches * -(-rows // 128) * -(-cols // 128) >= 100
    constants: dict[str, int | str] = {"BM": 128 if wide else 64, "BN": 128, "STAGES": 3, "GROUP": 8}
    tune: dict[str, tuple[int | str, ...]] = {"BM": (128, 64), "BN": (128, 256, 64), "STAGES": (4, 3, 2)}
    tune |= {"GROUP": (8, 16, 4)}
    across = "max(1, ceil_div(cols, BN))" if parts.row_bytes else "ceil_div(cols, BN)"
    return parts.kernel(
        name,
        "cuda/product_ampere.cu.j2",
        "tensor cores, fed by asynchronous copies",
        constants,
        tune,
        helpers=(),
        require={"STAGES": f"STAGES * (BM + BN) * 128 <= {LEAST_SHARED}"},
        grid=f"ceil_div(rows, BM) * {across}" + (" * batches" if parts.product.batch else ""),
        block="BM * BN // 128",
        shared="max(STAGES * (BM + BN) * 128, BM * BN // 128 * 80)",
        operands=tuple((f"lines({buffer}, {{}})", shape) for buffer, shape in parts.shapes()),
        functions=(LINES,),
        seconds=6e-6 + 2.0 * batches * rows * cols * depth / RATE,
        **parts.left_behind(f"{across} * (BN // 64)", "ceil_div(rows, BM) * (BM // 64)"),
    )
