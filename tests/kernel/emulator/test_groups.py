"""Cooperative groups, clusters, matrix fragments, asynchronous copies and inline PTX."""

from __future__ import annotations

import numpy as np
import pytest
import torch

SOURCE = "groups"
ORDERS = (0, 1, 2, 3)


@pytest.mark.parametrize("order", ORDERS)
def test_tiles(launch, order):
    """Tiles of 8 and 32 reduce, shuffle, scan and vote among themselves; coalesced_threads finds the odd ones."""
    n = 64
    x = np.random.default_rng(3).integers(0, 90, n).astype(np.int32)
    y = np.zeros((6, n), np.int32)
    launch("tiles", 1, n, x, y, n, order=order)
    t = x.reshape(-1, 8)
    each = np.ones((1, 8), int)
    assert np.array_equal(y[0], (t.sum(1, keepdims=True) * each).ravel())
    assert np.array_equal(y[1], np.repeat(x.reshape(-1, 32).max(1) * 100, 32) + np.repeat(t.min(1), 8))
    rank = np.arange(8)
    moved = t[:, rank ^ 1] + 1000 * t[:, np.where(rank + 2 < 8, rank + 2, rank)] + 1000000 * np.arange(8)[:, None]
    assert np.array_equal(y[2], moved.ravel())
    inclusive = t.cumsum(1)
    assert np.array_equal(y[3], (inclusive * 1000 + inclusive - t).ravel())
    ballot = ((t & 1) << rank).sum(1, keepdims=True)
    assert np.array_equal(y[4], (ballot + 1000 * rank + 100000 * n).ravel())
    odd = (x & 1).reshape(2, 32)
    expected = np.where(odd == 1, odd.sum(1, keepdims=True) * 100 + odd.cumsum(1) - 1, -1)
    assert np.array_equal(y[5], expected.ravel())


@pytest.mark.parametrize("order", ORDERS)
def test_grid_sync(launch, order):
    """A cooperative launch keeps all blocks alive over grid.sync()."""
    x, y = np.zeros(512, np.int32), np.zeros(512, np.int32)
    launch("grid_sync", 8, 64, x, y, cooperative=True, order=order)
    assert np.array_equal(y, (511 - np.arange(512)) ** 2)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("cluster", [(1, 1, 1), (8, 1, 1), (16, 1, 1)])
def test_cluster_reads_its_neighbours_shared_memory(launch, cluster, order):
    """Blocks of a cluster see each other's static and dynamic shared memory; (1, 1, 1) takes __cluster_dims__."""
    size = 4 if cluster == (1, 1, 1) else cluster[0]
    x = np.random.default_rng(0).integers(1, 9, (32, 40)).astype(np.float32)
    y = np.zeros_like(x)
    launch("cluster_sum", 32, 32, x, y, 40, shared=160, cluster=cluster, order=order)
    groups = x.reshape(-1, size, 40)
    expected = np.roll(groups, -1, axis=1) / groups.sum((1, 2), keepdims=True)
    np.testing.assert_allclose(y, expected.reshape(32, 40), rtol=1e-6)


def test_wmma(launch):
    """wmma products of bfloat16 (fp32 sums), half (half sums) and signed char (int sums) equal torch's."""
    n = 32
    torch.manual_seed(0)
    a, b = torch.randn(n, n), torch.randn(n, n)
    c = torch.zeros(n, n)
    ab, bb = a.bfloat16(), b.bfloat16()
    launch(
        "wmma_product<__nv_bfloat16, float>", 1, 128,
        ab.view(torch.int16).numpy(), bb.view(torch.int16).numpy(), c.numpy(), n,
    )  # fmt: skip
    torch.testing.assert_close(c, ab.float() @ bb.float().T, rtol=1e-5, atol=1e-5)
    ah, bh, ch = a.half(), b.half(), torch.zeros(n, n).half()
    launch("wmma_product<__half, __half>", 1, 128, ah.numpy(), bh.numpy(), ch.numpy(), n)
    torch.testing.assert_close(ch.float(), ah.float() @ bh.float().T, rtol=2e-3, atol=2e-2)
    ai, bi = (torch.randint(-128, 127, (n, n), dtype=torch.int8) for _ in range(2))
    ci = torch.zeros(n, n, dtype=torch.int32)
    launch("wmma_product<signed char, int>", 1, 128, ai.numpy(), bi.numpy(), ci.numpy(), n)
    assert torch.equal(ci, ai.int() @ bi.int().T)


@pytest.mark.parametrize("order", ORDERS)
def test_ptx_matrix_product(launch, order):
    """cp.async, ldmatrix (inside a macro) and mma.sync with their register layouts give a product."""
    torch.manual_seed(1)
    a, b, c = torch.randn(16, 16).half(), torch.randn(8, 16).half(), torch.zeros(16, 8)
    launch("ptx_product", 1, 32, a.numpy(), b.numpy(), c.numpy(), order=order)
    torch.testing.assert_close(c, a.float() @ b.float().T, rtol=1e-5, atol=1e-5)


def test_ptx_scalars(launch):
    """ex2, special registers, packing conversions and vector loads."""
    x = np.linspace(-2, 2, 32, dtype=np.float32)
    y, u = np.zeros(32, np.float32), np.zeros(32, np.uint32)
    launch("ptx_scalars", 1, 32, x, y, u)
    np.testing.assert_allclose(y, np.exp2(x) + x[3], rtol=1e-6, atol=1e-6)
    assert np.array_equal(u, np.arange(32) + 0x40003F80)


def test_asynchronous_copies_arrive_at_the_wait(launch):
    """A kernel that waits reads the copy; one that forgets the wait reads poison."""
    x = np.arange(128, dtype=np.float32)
    good, bad = np.zeros(32, np.float32), np.zeros(32, np.float32)
    launch("pipeline", 1, 32, x, good, 1)
    launch("pipeline", 1, 32, x, bad, 0)
    assert np.array_equal(good, x[:32])
    assert np.isnan(bad).all()


def test_group_memcpy_async(launch):
    """memcpy_async of a block copies all bytes by wait()."""
    n = 101
    x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
    launch("group_copy", 1, 64, x, y, n, shared=4 * n)
    assert np.array_equal(y, x[::-1])
