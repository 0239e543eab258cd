"""Barriers, warp operations and shared memory give what CUDA defines, in every thread order."""

from __future__ import annotations

import numpy as np
import pytest

SOURCE = "warps"
ORDERS = (0, 1, 2, 3, 11)


@pytest.mark.parametrize("width", [32, 16, 8])
@pytest.mark.parametrize("order", ORDERS)
def test_shuffles(launch, width, order):
    """The four shuffles read the lane that PTX's definition names, for each width."""
    n = 96
    x = np.arange(100, 100 + n, dtype=np.int32)
    y = np.zeros((4, n), np.int32)
    launch("shuffles", 1, n, x, y, width, order=order)
    lane = np.arange(n)
    first = lane - lane % width
    assert (y[0] == x[first + 5 % width]).all()
    assert (y[1] == x[np.where(lane % width >= 3, lane - 3, lane)]).all()
    assert (y[2] == x[np.where(lane % width + 3 < width, lane + 3, lane)]).all()
    partner = (lane % 32) ^ 9
    inside = partner <= (lane % 32 | (width - 1))
    assert (y[3] == x[np.where(inside, lane - lane % 32 + partner, lane)]).all()


def test_shuffles_of_any_type(launch):
    """double, float, half and integers of both signs and widths travel whole."""
    out = np.zeros(32)
    launch("shuffle_types", 1, 32, out)
    partner = np.arange(32) ^ 1
    assert np.array_equal(out, partner * (1 + 1e2 + 1e4 + 1e6 + 1e8 + 1e10))


@pytest.mark.parametrize("order", ORDERS)
def test_votes_match_and_reduce(launch, order):
    """Votes, match, reduce, __activemask, and two groups of one warp that meet apart from each other."""
    out = np.zeros((64, 12), np.uint32)
    launch("votes", 1, 64, out, order=order)
    lane = np.arange(64) % 32
    assert (out[:, 0] == sum(1 << i for i in range(0, 32, 3))).all()
    assert (out[:, 1] == 0).all() and (out[:, 2] == 1).all()
    assert (out[:, 3] == [sum(1 << i for i in range(32) if i % 4 == v % 4) for v in lane]).all()
    assert (out[:, 4] == 0xFFFFFFFF).all()
    assert (out[:, 5] == 1).all()
    assert (out[:, 6] == 496).all()
    assert (out[:, 7].view(np.int32) == -9).all()
    assert (out[:, 8] == np.bitwise_xor.reduce(np.arange(32) * 3)).all()
    assert (out[:, 9] == np.where(lane < 16, 120, 16)).all()
    assert (out[:, 10] == np.where(lane < 7, 0x7F, 0)).all()
    assert (out[:, 11] == 2).all()


def test_barriers_that_count(launch):
    """__syncthreads_count, _and and _or combine the predicates of the whole block."""
    out = np.zeros((100, 3), np.int32)
    launch("barrier_votes", 1, 100, out)
    assert (out == [20, 1, 1]).all()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("kernel", "dtype", "block"), [("sums<float, 64>", "f4", 64), ("sums<double, 128>", "f8", 128)]
)
def test_static_shared_in_templates(launch, kernel, dtype, block, order):
    """Each instantiation has its own variables; several declarators in one statement work."""
    x = np.random.default_rng(0).integers(-9, 9, (40, block)).astype(dtype)
    y = np.zeros_like(x)
    launch(kernel, 40, block, x, y, order=order)
    assert np.array_equal(y, np.broadcast_to(x.sum(1, keepdims=True) * block, x.shape))


def test_transpose(launch):
    """A two-dimensional aligned tile in shared memory."""
    x = np.random.default_rng(1).standard_normal((96, 96), dtype=np.float32)
    y = np.zeros_like(x)
    launch("transpose", (3, 3), (32, 8), x, y, 96)
    assert np.array_equal(y, x.T)


def test_dynamic_shared(launch):
    """extern __shared__ with an alignment attribute, carved up by hand, beside a union in static memory."""
    n = 300
    x = np.arange(n, dtype=np.float32)
    y = np.zeros(n, np.float32)
    launch("dynamic", 1, 128, x, y, n, shared=8 * n)
    assert np.array_equal(y, x[::-1])


@pytest.mark.parametrize(("kernel", "expected"), [
    ("file_scope", np.arange(64) % 4 * 10), ("in_macro", 63 - np.arange(64)),
])  # fmt: skip
def test_unusual_declarations(launch, kernel, expected):
    """Shared variables at file scope and inside a macro."""
    y = np.zeros(64, np.int32)
    launch(kernel, 1, 64, y)
    assert np.array_equal(y, expected)


def test_unwritten_shared_memory_is_nan(launch):
    """Static and dynamic memory of every block start as NaN."""
    y = np.zeros(64, np.float32)
    launch("unwritten", 2, 32, y, shared=128)
    assert np.isnan(y).all()


@pytest.mark.parametrize("order", ORDERS)
def test_early_return(launch, order):
    """Threads that left do not hold up a barrier, as on sm_70 and later; warps count their live lanes."""
    n, y = 100, np.full(256, -1, np.int32)
    launch("early_exit", 1, 256, y, n, order=order)
    last = np.where(np.arange(n) < 96, 32, 4)
    assert np.array_equal(y[:n], n - 1 - np.arange(n) + last)
    assert (y[n:] == -1).all()


@pytest.mark.parametrize("order", ORDERS)
def test_named_barriers(launch, order):
    """bar.arrive and bar.sync hand over between two warps."""
    y = np.zeros(32, np.int32)
    launch("named_barriers", 1, 64, y, order=order)
    assert np.array_equal(y, (31 - np.arange(32)) ** 2)


@pytest.mark.parametrize("order", ORDERS)
def test_spinning_threads_let_others_run(launch, order):
    """A warp that polls a flag with atomics sees what another warp of its block sets."""
    y = np.zeros(32, np.int32)
    launch("handoff", 1, 64, y, order=order)
    assert (y == 7).all()
