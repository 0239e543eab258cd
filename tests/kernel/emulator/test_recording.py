"""Launches that are kept can be run again elsewhere: memory, alignment, scalars and names as they were."""

from __future__ import annotations

import pytest
import torch

from kforge.kernel import Kernel
from kforge.kernel.emulator.checked import run_checked
from kforge.kernel.emulator.recording import Recording, as_launched, recording

SOURCE = """
extern "C" __global__ void shift(const float* x, float* y, int n, float by) {
    int i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) y[i] = x[i + STEP] + by;
}
"""


def shift(step: int = 0) -> Kernel:
    return Kernel("shift", source=SOURCE, grid="(ceil_div(n, 32), 1, 1)", block="(32, 1, 1)", constants={"STEP": step})


def run(kernel: Kernel, x: torch.Tensor, by: float = 1.0) -> torch.Tensor:
    y = torch.empty_like(x)
    with torch.no_grad():
        kernel(x, y, x.numel(), by)
    return y


def test_a_launch_is_kept_with_the_memory_it_saw() -> None:
    """The kernel, its geometry and the inputs' bytes; the call itself answers as always."""
    x = torch.arange(40.0)
    with recording() as kept:
        assert torch.equal(run(shift(), x), x + 1)
    (launch,) = kept.launches
    assert (launch.kernel, launch.grid, launch.block) == ("shift", (2, 1, 1), (32, 1, 1)) and kept.seconds > 0
    inputs = next(b for b in kept.buffers if b.name.endswith(":x"))
    assert inputs.data[-160:] == x.numpy().tobytes()


def test_outside_nothing_is_kept_and_equal_launches_once() -> None:
    """A recording takes what runs within it; the same geometry and scalars again add nothing."""
    kernel, x = shift(), torch.ones(8)
    run(kernel, x)
    with recording() as kept:
        for by in (1.0, 1.0, 2.0):
            run(kernel, x, by)
    assert len(kept.launches) == 2


def test_a_finding_speaks_of_the_launch_itself() -> None:
    """An offset view keeps its alignment, and the byte named counts from the view's own first one."""
    x = torch.ones(65)[1:]
    with recording() as kept:
        run(shift(step=1), x)
    finding, *_ = map(as_launched, run_checked(kept.launches, kept.buffers, orders=(0,)).findings)
    assert (finding["kind"], finding["buffer"], finding["offset"], finding["nbytes"]) == (
        "out_of_bounds",
        "x",
        256,
        256,
    )
    assert finding["launch"] == 0 and finding["access"] == "read"


def test_views_of_one_tensor_are_one_piece_of_memory() -> None:
    """Arguments that overlap keep doing so."""
    x = torch.arange(64.0)
    with recording() as kept, torch.no_grad():
        Kernel("pair", source=PAIR, grid="(1, 1, 1)", block="(32, 1, 1)")(x[:48], x[16:], torch.empty(32))
    names = [b.name for b in kept.buffers]
    assert sum("a/b" in name for name in names) == 1 and len(names) == 2


PAIR = """
extern "C" __global__ void pair(const float* a, const float* b, float* y) {
    y[threadIdx.x] = a[threadIdx.x] + b[threadIdx.x];
}
"""


@pytest.mark.parametrize("limit", [Recording(limit=8), Recording(most_s=-1.0)])
def test_limits_leave_launches_out_by_name(limit: Recording) -> None:
    """Beyond the bytes or the seconds a launch is not kept, and its kernel is named."""
    kernel, x = shift(), torch.ones(8)
    with recording(limit) as kept:
        run(kernel, x)
        run(kernel, torch.ones(9))
    assert set(kept.left_out) == {"shift"} and len(kept.launches) <= 1
