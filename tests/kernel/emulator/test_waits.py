"""Blocks that wait for other blocks, later ones included, run to their end; what can never end is a deadlock."""

from __future__ import annotations

import numpy as np
import pytest

from kforge.errors import EmulatorError

SOURCE = "waits"
ORDERS = (0, 1, 2, 3)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", [1, 3, 4])
def test_split_row(launch, blocks, order):
    """Blocks that share a row of a softmax wait for each other's part; rows are right, and so are the counters."""
    rows, cols = 7, 1000
    x = np.random.default_rng(1).standard_normal((rows, cols), dtype=np.float32) * 3
    y, part, arrived = np.zeros_like(x), np.full((rows, blocks, 2), np.nan, np.float32), np.zeros(rows + 1, np.uint32)
    launch("split_row<64>", rows * blocks, 64, x, y, rows, cols, blocks, part, arrived, shared=16 * 256, order=order)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    assert np.abs(y - e / e.sum(1, keepdims=True)).max() < 1e-7
    assert arrived.tolist() == [blocks] * rows + [rows * blocks]


@pytest.mark.parametrize("order", ORDERS)
def test_look_back(launch, order):
    """A scan in ticket order whose blocks read what earlier blocks publish."""
    n = 64 * 37 - 5
    x = np.random.default_rng(2).integers(-9, 9, n).astype(np.int32)
    y, status, tickets = np.zeros_like(x), np.zeros(37, np.uint64), np.zeros(1, np.uint32)
    launch("look_back", 37, 64, x, y, n, status, tickets, order=order)
    assert np.array_equal(y, np.cumsum(x))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", ["from_the_last", "by_atomics"])
def test_every_block_waits_for_the_next(launch, kernel, order):
    """All blocks of the grid are alive before the first one can end."""
    flag, y = np.zeros(150, np.int32), np.zeros(150, np.int32)
    launch(kernel, 150, 32, flag, y, order=order)
    assert flag.all() and y.tolist() == (list(range(150, 0, -1)) if kernel == "from_the_last" else list(range(150)))


def test_many_sleepers_let_later_blocks_start(launch):
    """More threads than run between two looks at the clock sleep until the last block of the grid has come."""
    come = np.zeros(1, np.uint32)
    launch("all_at_once", 80, 64, come)
    assert come[0] == 80


def test_deadlock_is_reported_and_names_the_lines(launch):
    """A flag that nobody sets: the error comes long before the time limit and has the line of the sleeping thread."""
    with pytest.raises(EmulatorError, match=r"never: deadlock: .*waits\.cu:127 \(__nanosleep\)") as error:
        launch("never", 3, 32, np.zeros(1, np.int32))
    assert "31 threads wait at waits.cu:128 (__syncthreads)" in error.value.message
    assert "block (1,0,0)" in error.value.message


def test_more_blocks_than_can_be_alive(launch):
    """A chain longer than the window ends with an error that states the limit."""
    n = 3000
    with pytest.raises(EmulatorError, match=r"2048 blocks are alive, the most that the emulator keeps \(65536 threads"):
        launch("from_the_last", n, 32, np.zeros(n, np.int32), np.zeros(n, np.int32))


def test_sleeping_without_waiting(launch):
    """Threads that only pass the time are no deadlock."""
    y = np.zeros(1, np.int32)
    launch("patient", 2, 64, y)
    assert y[0] == 128
