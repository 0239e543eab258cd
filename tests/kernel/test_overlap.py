"""Whether strided regions share bytes, against brute force."""

from __future__ import annotations

import itertools
import random

from kforge.kernel.overlap import extent, overlap

Layout = tuple[list[int], list[int], int]


def _bytes(address: int, layout: Layout) -> set[int]:
    shape, strides, size = layout
    indices = itertools.product(*map(range, shape))
    return {
        address + sum(i * s for i, s in zip(ix, strides, strict=True)) * size + u for ix in indices for u in range(size)
    }


def test_against_brute_force() -> None:
    """The exact search agrees with listing all bytes, for random small layouts."""
    random.seed(0)
    for _ in range(3000):
        a, b = (_random_layout(), _random_layout())
        distance = random.randint(-20, 20)
        expected = bool(_bytes(0, a) & _bytes(distance, b))
        assert overlap(0, a, distance, b) == expected, (a, b, distance)


def _random_layout() -> Layout:
    dims = random.randint(0, 3)
    strides = [random.randint(0, 6) for _ in range(dims)]
    return (
        [random.randint(0 if random.random() < 0.05 else 1, 3) for _ in range(dims)],
        strides,
        random.choice([1, 2, 4]),
    )


def test_interleaved_views_are_disjoint() -> None:
    """The query and key parts of one packed buffer interleave and do not overlap, even when large."""
    part = ([4096, 32, 128], [3 * 32 * 128, 3 * 128, 1], 2)
    assert not overlap(0, part, 128 * 2, part)
    assert overlap(0, part, 127 * 2, part)


def test_extent() -> None:
    """An extent ends with the last element; an empty tensor spans nothing."""
    assert extent((4, 8), (16, 1), 4) == (3 * 16 + 7 + 1) * 4
    assert extent((4, 0), (16, 1), 4) == 0
    assert extent((), (), 8) == 8
