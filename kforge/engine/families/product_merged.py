"""The three products of the `split` scheme as one kernel of ours on Hopper's tensor cores (calls/precision.py).

An operand's two halves are loaded once a tile and step, partial sums are added in registers, and any size has the rate
of a round one. The tiles of 128 x 128, the ring and the clusters are those of product.py. Where there are few tiles the
depth is divided into shares, whose sums another kernel adds up.
"""

from __future__ import annotations

from kforge.engine.emit.kernelcode import KernelCode, alone, render

RATE = 5.5e14  # operations a second on an H200, all three products counted
PROCESSORS = 132
LEAST_PARTS = 8  # parts of 64 steps of a share
SHARED = 2048  # bytes beside the ring, what aligning it takes among them


def shares_for(rows: int, columns: int, depth: int) -> int:
    """How many shares of the depth give every multiprocessor a tile; 1 where tiles alone nearly do."""
    tiles = -(-rows // 128) * -(-columns // 128)
    return max(1, min(PROCESSORS // tiles, depth // (64 * LEAST_PARTS)))


def name_of(left_rows: bool, right_rows: bool, batched: bool = False, shared: bool = False) -> str:
    """The kernel's name: whether each operand's rows, or its columns, lie along the depth; several of each or one."""
    ways = f"{'r' if left_rows else 'c'}{'r' if right_rows else 'c'}"
    return f"multiply_{'batches_of_' if batched else 'shares_of_' if shared else ''}halves_{ways}"


def merged(left_rows: bool, right_rows: bool, batched: bool = False, shared: bool = False) -> KernelCode:
    """The kernel for operands that lie along the depth, or across it; in batches those that lie along it.

    shared: for several shares of the depth.
    """
    along = {"tile_along" if rows else "tile_down" for rows in (left_rows, right_rows)}
    name = name_of(left_rows, right_rows, batched, shared)
    tiles = "ceil_div(rows, 128 * CLUSTER) * ceil_div(width, 128)"
    tiles += " * batches" if batched else " * shares" if shared else ""
    how = {"left_along": left_rows, "right_along": right_rows, "batched": batched, "shared": shared}
    return alone(
        name,
        "merged",
        render("cuda/product_merged.cu.j2", name=name, **how),
        ("pack", "product", "product_f16", "hopper", "merged", f"boxes_{3 if batched else 2}d", *along),
        {"STAGES": 6, "CLUSTER": 1, "GROUP": 8},
        grid=f"min({tiles}, processors // CLUSTER) * CLUSTER",
        block="384",
        shared=f"STAGES * 32768 + {SHARED}",
        cluster="CLUSTER",
        tune={"STAGES": (6, 5, 4), "CLUSTER": (1, 2), "GROUP": (8, 16, 4)},
    )


def adding() -> KernelCode:
    """The kernel that adds shares up, always in the same order."""
    text, tune = render("cuda/product_shares.cu.j2"), {"BLOCK": (256, 128, 512)}
    return alone("add_shares", "merged", text, (), {"BLOCK": 256}, grid="ceil_div(n, BLOCK)", block="BLOCK", tune=tune)
