"""Predicted time of a product in 16 bits on tensor cores, and into how many shares its depth is divided."""

from __future__ import annotations

STEP = {256: 7.5e-7, 128: 3.9e-7, 64: 2.3e-7}  # seconds of 64 steps of depth of a tile 128 x BN, on an H200
MULTIPROCESSORS = 132
BYTES_PER_SECOND = 4e12  # of operands, and of the sums' way to memory
CACHE = 1e13  # bytes a second that all multiprocessors together were seen to take from the second-level cache
LAUNCH = 4e-6  # seconds of the kernel that adds shares up
LEAST_STEPS = 8  # of a share: filling the ring and writing the sums take about as long
MOST_SHARES = 128
GAIN = 0.9  # of the time of a whole product, from which on shares are tried


def fastest(batches: int, rows: int, cols: int, depth: int) -> tuple[float, int]:
    """Seconds of multiplying, and the BN of the tiles: whole rounds of them over the multiprocessors, or what the tiles
    read from the second-level cache."""
    steps, found = -(-depth // 64), []
    for n, step in STEP.items():
        tiles = batches * -(-rows // 128) * -(-cols // n)
        found.append((max(-(-tiles // MULTIPROCESSORS) * step * steps, tiles * (128 + n) * 2 * depth / CACHE), n))
    return min(found)


def multiplying(batches: int, rows: int, cols: int, depth: int) -> float:
    """Seconds of multiplying, or of reading the operands once."""
    seconds, _ = fastest(batches, rows, cols, depth)
    return max(seconds, 2 * batches * (rows + cols) * depth / BYTES_PER_SECOND)


def divided(batches: int, rows: int, cols: int, depth: int, shares: int) -> float:
    """Seconds of a product in so many shares of the depth: their sums are written as floats and read again."""
    each = -(-depth // (64 * shares)) * 64
    apart = LAUNCH + 8 * shares * batches * rows * cols / BYTES_PER_SECOND if shares > 1 else 0.0
    return multiplying(batches * shares, rows, cols, each) + apart


def shares_for(batches: int, rows: int, cols: int, depth: int) -> int:
    """How many shares of the depth are predicted to be the fastest; 1 where a whole product is nearly as fast."""
    most = max(1, min(MOST_SHARES, depth // (64 * LEAST_STEPS)))
    times = {n: divided(batches, rows, cols, depth, n) for n in range(1, most + 1)}
    best = min(times, key=lambda n: times[n])
    return best if times[best] < GAIN * times[1] else 1
