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
    finding = as_launched(run_checked(kept.launches, kept.buffers, orders=(0,)).findings[0], kept)
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


CHAIN = """
extern "C" __global__ void place(long long* order, float* y, int n) {
    if (threadIdx.x < n) { order[threadIdx.x] = n - 1 - threadIdx.x; y[threadIdx.x] = 0.f; }
}
extern "C" __global__ void gather(const long long* index, const float* x, float* y, int n) {
    if (threadIdx.x < n) y[threadIdx.x] = x[index[threadIdx.x]];
}
extern "C" __global__ void beyond(const float* z, float* y, int n) {
    if (threadIdx.x <= n) y[threadIdx.x % n] = z[threadIdx.x];
}
"""


def chain(x: torch.Tensor) -> None:
    """Indices from one kernel, a gather by them, then a kernel that reads one element too far."""
    order, y, z = torch.full((8,), 1 << 40), torch.empty(8), torch.empty(8)
    with torch.no_grad():
        for name, args in (("place", (order, z, 8)), ("gather", (order, x, z, 8)), ("beyond", (z, y, 8))):
            Kernel(name, source=CHAIN, grid="(1, 1, 1)", block="(32, 1, 1)")(*args)


def test_kept_launches_that_did_not_run_hand_their_results_on() -> None:
    """After a crash launches are kept without running: a later one reads what an earlier one writes, not leftovers.

    So the kernel that is named is the faulty one, with its own parameter, though its memory is another kernel's too.
    """
    with recording(Recording(only=True)) as kept:
        chain(torch.arange(8.0))
    findings = [as_launched(f, kept) for f in run_checked(kept.launches, kept.buffers, orders=(0,)).findings]
    assert [(f["kernel"], f["buffer"], f["launch"]) for f in findings] == [("beyond", "z", 2)]


def test_what_others_write_in_between_is_not_lost() -> None:
    """Memory that changes between two kept launches has no buffer in common: the later launch sees the change."""
    x = torch.arange(8.0)
    double = Kernel("shift", source=SOURCE, grid="(1, 1, 1)", block="(32, 1, 1)", constants={"STEP": 0})
    y = torch.empty(8)
    with recording(Recording(only=True)) as kept, torch.no_grad():
        double(x, y, 8, 1.0)
        x += 1
        double(x, y, 8, 2.0)
    read = [launch.args[0] for launch in kept.launches]
    written = [launch.args[1] for launch in kept.launches]
    assert read[0] != read[1] and written[0] == written[1]
