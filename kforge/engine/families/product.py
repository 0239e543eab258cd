"""Products of matrices in 16 bits on tensor cores, with what follows in the same kernel: a schedule per architecture.

Hopper: one thread keeps a ring of tiles in shared memory full by tensor copies, two warpgroups multiply them by wgmma
(128 x BN sums in registers), and each block goes from tile to tile. In a cluster of two, blocks one below the other
share the right operand's tiles. With TURNS 2 each warpgroup has tiles of its own, and what one does with its sums is
done while the other multiplies. Ampere and later: product_ampere.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from kforge.engine.emit.cgen import BYTES, Types
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.families import Target, register
from kforge.engine.families.product_ampere import ampere
from kforge.engine.families.product_cost import BYTES_PER_SECOND, MULTIPROCESSORS, STEP, fastest, multiplying
from kforge.engine.families.product_parts import PROCESSORS, Parts, multiplies, parts_of
from kforge.engine.families.product_rows import WIDEST, limit
from kforge.engine.graph.ir import Program

SHARED, SLABS = 232448, 21504  # bytes: of a block; of the sums on their way, with what aligning the ring takes

TENSOR_MAP = '''\
def tensor_map(x, lines, *shape):
    """x in this shape, to be copied by tiles of `lines` x 64; padded where its lines are not 16 bytes aligned."""
    if 0 in shape:
        shape = (*(1 for _ in shape[1:]), 8)
        x = x.new_zeros(shape)
    x = x.view(shape)
    if shape[-1] % 8 or x.data_ptr() % 16:
        padded = x.new_empty(*shape[:-1], -(-shape[-1] // 8) * 8)[..., : shape[-1]]
        x = padded.copy_(x)
    return TensorMap(x, (*(1 for _ in shape[2:]), lines, 64), swizzle=128, l2=256)'''


@register("product")
def product(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to programs of one product of dense matrices in 16 bits, or of batches of them."""
    if target.arch == "sm_90a":  # wgmma is this one architecture's
        parts = parts_of(program, types, "const __grid_constant__ CUtensorMap {}", ("int processors",))
        if parts is not None and (not parts.whole_rows or target.steps(program.cols) <= WIDEST):
            yield _hopper(parts, f"{name}_product")
    elif (parts := parts_of(program, types, "const {element}* __restrict__ {}")) is not None:
        yield ampere(parts, f"{name}_product")


def _hopper(parts: Parts, name: str) -> KernelCode:
    constants, tune = _schedule(parts)
    across = "max(1, ceil_div(cols, BN))" if parts.row_bytes else "ceil_div(cols, BN)"
    tiles = f"ceil_div(rows, 128 * CLUSTER) * {across}" + (" * batches" if parts.product.batch else "")
    lines = [128 if parts.along[0] else 64, 64]
    sides = zip(parts.shapes(), lines, strict=True)
    near = {"prefetch"} if parts.values["fetched"]["soon"] else set()
    return parts.kernel(
        name,
        "cuda/product.cu.j2",
        "Hopper's tensor cores, fed by tensor copies",
        constants,
        tune,
        helpers={"hopper", *near, *_layouts(parts)},
        require={
            "STAGES": f"STAGES * (128 + BN) * 128 + {SLABS} <= {SHARED}",
            "TURNS": "TURNS * BN <= 256",
            "CLUSTER": "BN >= 64 * CLUSTER",
            **({"BN": "cols <= BN"} if parts.whole_rows else {}),
        },
        grid=f"min({tiles}, processors // CLUSTER) * CLUSTER",
        block="384",
        shared=f"STAGES * (128 + BN) * 128 + {SLABS}",
        cluster="CLUSTER",
        operands=tuple((f"tensor_map({buffer}, {n}, {{}})", shape) for (buffer, shape), n in sides),
        counts=(f"processors({parts.product.left.buffer.name})",),
        functions=(PROCESSORS, TENSOR_MAP),
        seconds=_seconds(parts),
        limit=limit(parts.program) if parts.whole_rows else "",
        **parts.left_behind("max(1, ceil_div(cols, BN))", "ceil_div(rows, 128 * CLUSTER) * CLUSTER * 8"),
    )


def _schedule(parts: Parts) -> tuple[dict[str, int | str], dict[str, tuple[int | str, ...]]]:
    """The constants that were the fastest on an H200, and what they are tuned among.

    Where both operands lie along the depth and are large, a tile of 256 columns for both warpgroups; else 128 columns
    for each in turn, the right operand's part shared by two blocks; 64 columns where that leaves processors idle.
    Shares of the depth are about as many as multiprocessors, one tile each. Whole rows give a tile's width.
    """
    batches, rows, cols, depth = parts.hints()
    down = -(-rows // 128)
    tiles = {n: batches * down * -(-cols // n) for n in STEP}
    chosen: dict[str, int | str] = {"BN": 128, "STAGES": 6, "CLUSTER": 2, "TURNS": 2, "GROUP": 8}
    if parts.whole_rows:
        chosen |= {"BN": min(n for n in STEP if n >= cols), "STAGES": 4, "CLUSTER": 1, "TURNS": 1}
    elif parts.product.shares > 1:
        _, n = fastest(batches, rows, cols, depth)
        chosen |= {"BN": n, "STAGES": 4 if n == 256 else 6, "CLUSTER": 1 if n == 64 or down % 2 else 2, "TURNS": 1}
    elif all(parts.along) and tiles[256] >= 2 * MULTIPROCESSORS:
        chosen = {"BN": 256, "STAGES": 4, "CLUSTER": 1, "TURNS": 1, "GROUP": 16}
    elif 2 * tiles[128] < MULTIPROCESSORS:
        chosen |= {"BN": 64, "CLUSTER": 1, "TURNS": 1}
    elif down % 2 and down < 8:  # a cluster's second block would often have nothing
        chosen |= {"CLUSTER": 1}
    among: dict[str, tuple[int | str, ...]] = {"BN": (256, 128, 64), "STAGES": (6, 5, 4, 3), "CLUSTER": (1, 2)}
    if parts.whole_rows:  # longer rows than the captured ones take the next wider tile
        among["BN"] = (64, 128, 256)
    return chosen, among | {"TURNS": (1, 2), "GROUP": (16, 8, 4)}


def _layouts(parts: Parts) -> set[str]:
    """Which ways of lying in shared memory, and which ranks of tensor maps, the source must know."""
    ranks = {f"boxes_{2 + side.batched}d" for side in (parts.product.left, parts.product.right)}
    return ranks | {f"tile_{'along' if along else 'down'}" for along in parts.along}


def _seconds(parts: Parts) -> float:
    """Predicted: whole rounds of tiles over the multiprocessors, and a part of the traffic beside them."""
    batches, rows, cols, depth = parts.hints()
    whole = [b for b in parts.program.buffers if b.name in parts.pointers and len(b.shape) > 1]
    traffic = sum(BYTES[b.dtype] for b in whole) * batches * rows * cols
    return 5e-6 + multiplying(batches, rows, cols, depth) + 0.3 * traffic / BYTES_PER_SECOND


__all__ = ["multiplies", "product"]
