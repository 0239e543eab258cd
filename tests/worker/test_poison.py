"""On the CPU, fresh memory of a child holds the pattern that the judge asked for, small blocks and large ones alike."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kforge.task.call import Call
from kforge.worker import Child
from kforge.worker.poison import PATTERNS, ZEROS, unwritten
from tests.worker.sources import DOUBLE, body, candidate

ONE = Call((torch.ones(1),))


@pytest.mark.parametrize("count", [3, 40, 1000, 1 << 20])
def test_both_patterns_reach_fresh_memory(fork: Callable[..., Child], count: int) -> None:
    """torch.empty holds one pattern in one call, the other in the next, whatever the block's size and its past."""
    lines = (
        f"for _ in range(20): torch.full(({count},), 7.0)  # freed blocks of this size, to be handed out again",
        f"return torch.empty({count})",
    )
    child = fork(body(*lines))
    assert child.in_force()["poison"].startswith("in force")
    for pattern in (*PATTERNS, ZEROS, PATTERNS[0]):
        assert bool(unwritten(child.call(ONE, pattern=pattern).outputs, pattern).all())


def test_a_value_that_was_written_is_no_pattern(fork: Callable[..., Child]) -> None:
    """Of an output of which half was written, the other half is found, element by element."""
    reply = fork(body("y = torch.empty(10)", "y[::2] = 0.5", "return y")).call(ONE, pattern=PATTERNS[1])
    assert unwritten(reply.outputs, PATTERNS[1]).tolist() == [False, True] * 5


def test_without_launches_nothing_is_written(fork: Callable[..., Child]) -> None:
    """launch=False leaves a candidate without kernels as it is: what it returns does not depend on any."""
    child = fork(candidate(DOUBLE))
    assert torch.equal(child.call(ONE, launch=False).outputs, child.call(ONE).outputs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64, torch.bool, torch.int64, torch.complex64])
def test_the_mask_covers_every_dtype(dtype: torch.dtype) -> None:
    """One flag an element, for every element size."""
    raw = torch.full((6 * torch.empty(0, dtype=dtype).element_size(),), PATTERNS[0], dtype=torch.uint8)
    x = raw.view(dtype).view(2, 3)
    x[0, 1] = 1
    assert unwritten(x, PATTERNS[0]).tolist() == [True, False, True, True, True, True]
    assert unwritten(x[1:, 0].as_strided((1,), (2,), 3), PATTERNS[0]).tolist() == [True]  # dense, at any stride
