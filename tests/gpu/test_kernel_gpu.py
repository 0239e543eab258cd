"""Kernel on a GPU: every launcher, streams, devices, shared memory, clusters, graphs, refusals, torch.compile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kforge.errors import BuildError, LaunchError
from kforge.kernel import (
    Kernel,
    build_only,
    kernel_report,
    launches,
    native,
    overrides,
    philox,
    prepared,
    read_only_cache,
    target_arch,
)
from kforge.kernel import launchers as registry
from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Limits, Zygote
from tests.kernel.test_tensor_map import BOXES, FORMS, SPANS, copied, landed, multiplied

pytestmark = pytest.mark.gpu

SCALE = """\
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <typename T, int VEC>
__global__ void scale(const T* __restrict__ x, T* __restrict__ y, long long n, float factor, bool negate) {
    const long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) * VEC;
    for (int k = 0; k < VEC; ++k)
        if (i + k < n) y[i + k] = (T)((float)x[i + k] * (negate ? -factor : factor));
}
"""


def _scale() -> Kernel:
    return Kernel(
        "scale<T, VEC>",
        SCALE,
        grid="ceil_div(n, 256 * VEC)",
        block=256,
        constants={"VEC": 4},
        types={"T": "x"},
        tune={"VEC": [4, 2, 1]},
        require={"VEC": "aligned(x, sizeof(T) * VEC) and n % VEC == 0"},
    )


@pytest.fixture(params=["driver, native", *registry.LAUNCHERS])
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each launcher in turn, the driver's with the native call and without; skipped with its reason where missing."""
    name, _, way = request.param.partition(", ")
    usable, reason = registry.LAUNCHERS[name].is_available()
    if way:
        module, reason = native.load()
        usable = usable and module is not None
    else:
        monkeypatch.setattr(native, "load", lambda: (None, "not in this test"))
    if not usable:
        pytest.skip(reason)
    monkeypatch.setenv("KFORGE_LAUNCHER", name)
    yield name


def test_native_call_is_in_force_here() -> None:
    """On a GPU machine with a C compiler and Python's headers a repeated call is made by native code."""
    module, reason = native.load()
    assert module is not None, reason
    kernel, x, y = _scale(), torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")
    args = (x, y, 4096, 2.0, False)
    kernel(*args)
    y.zero_()
    with launches() as counts:
        assert kernel._native is not None and kernel._native(kernel._plans, args)
        assert torch.equal(y, x * 2) and counts["scale"] == 1
        kernel(*args)
        assert counts["scale"] == 2


def test_native_call_in_a_candidates_process(tmp_path: Path) -> None:
    """A candidate's process, which may compile nothing, has the native call from its warm parent."""
    text = """\
import torch
from kforge.kernel import native
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x + (native.load()[0] is not None)
"""
    with Zygote() as parent, parent.fork(tmp_path / "box", "cuda:0", "run", Limits(call_s=30.0)) as child:
        child.load(Candidate("op_kforge.py", {"op_kforge.py": text}), Call(), {})
        assert child.call(Call((torch.zeros(3, device="cuda"),))).outputs.tolist() == [1.0, 1.0, 1.0]


def test_refusals_after_good_calls(launcher: str) -> None:
    """A repeated call refuses what the first would have refused, in the same words, whoever makes the call."""
    kernel, x, y = _scale(), torch.randn(4096, device="cuda"), torch.zeros(4096, device="cuda")
    for _ in range(3):
        kernel(x, y, 4096, 2.0, False)
    leaf = x.clone().requires_grad_()
    with torch.no_grad():
        for _ in range(3):
            kernel(leaf, y, 4096, 2.0, False)
    for args, words in (
        ((leaf, y, 4096, 2.0, False), "argument 'x' requires grad"),
        ((x, y.cpu(), 4096, 2.0, False), "argument 'y' is on cpu, but 'x' is on cuda:0"),
        ((x, x, 4096, 2.0, False), "argument 'y' is written and overlaps argument 'x'"),
        ((x, y.double(), 4096, 2.0, False), "argument 'y' is float64"),
        ((x.view(64, 64).t(), y, 4096, 2.0, False), "argument 'x' is not contiguous"),
        ((x, y, 2**64, 2.0, False), "does not fit long long"),
        ((x, y, 4096, 1e39, False), "'factor' = 1e\\+39 does not fit float"),
        ((x, y, 4096, 2.0, 0), "'negate' is a bool and got int 0"),
        ((x, y, 4096, 2.0), "takes 5 arguments"),
    ):
        for _ in range(2):
            with pytest.raises(LaunchError, match=words):
                kernel(*args)


def test_results_by_each_launcher(launcher: str) -> None:
    """Every launcher gives the right values for every element type, size and alignment, on first and later calls."""
    kernel = _scale()
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for n, offset in ((1 << 20, 0), (1001, 1), (6, 2), (1, 0)):
            x = torch.randn(n + offset, device="cuda").to(dtype)[offset:]
            y = torch.zeros_like(x)
            for negate in (False, True):
                kernel(x, y, n, 2.0, negate)
                assert torch.equal(y, x * (-2 if negate else 2)), (dtype, n, offset)


def test_two_launchers_at_least() -> None:
    """On a GPU machine at least the driver's launcher and one more are usable."""
    assert sum(usable for usable, _ in registry.launchers().values()) >= 2


def test_current_stream(launcher: str) -> None:
    """A launch goes to torch's current stream: it waits for what that stream waits for, and not for others."""
    kernel = _scale()
    x, y = torch.ones(1 << 16, device="cuda"), torch.zeros(1 << 16, device="cuda")
    kernel(x, y, x.numel(), 1.0, False)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)  # 0.1 s on this stream
        x.fill_(3)
        kernel(x, y, x.numel(), 2.0, False)
    assert not side.query()
    side.synchronize()
    assert torch.equal(y, torch.full_like(y, 6.0))


def test_large_shared_memory(launcher: str) -> None:
    """More than 48 KB of dynamic shared memory is opted into, up to the device's limit, beyond which it is named."""
    source = """\
extern "C" __global__ void reverse(const float* x, float* y, int n) {
    extern __shared__ float s[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) s[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = s[n - 1 - i];
}
"""
    kernel = Kernel("reverse", source, block=1024, shared="n * 4")
    for n in (1000, 13 * 1024, 50 * 1024, 14 * 1024, 50 * 1024):  # a smaller request must not undo a larger one
        x = torch.randn(n, device="cuda")
        y = torch.zeros_like(x)
        kernel(x, y, n)
        assert torch.equal(y, x.flip(0)), n
    if launcher != "cupy":
        x = torch.randn(64 * 1024, device="cuda")
        with pytest.raises(LaunchError, match="reverse: 262144 bytes of dynamic shared memory"):
            kernel(x, torch.zeros_like(x), x.numel())


CLUSTER = """\
#include <cooperative_groups.h>
extern "C" __global__ void ranks(int* y) {
    cooperative_groups::cluster_group cluster = cooperative_groups::this_cluster();
    __shared__ int mine;
    if (threadIdx.x == 0) mine = blockIdx.x * 10;
    cluster.sync();
    const int next = (cluster.block_rank() + 1) % cluster.num_blocks();
    if (threadIdx.x == 0) y[blockIdx.x] = *cluster.map_shared_rank(&mine, next);
    cluster.sync();
}
"""


@pytest.mark.parametrize("size", [2, 8, 16])
def test_cluster(size: int, launcher: str) -> None:
    """Blocks of a cluster read each other's shared memory; a launcher that cannot launch clusters says so."""
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("clusters need compute capability 9.0")
    kernel = Kernel("ranks", CLUSTER, grid=2 * size, block=32, cluster=(size, 1, 1))
    y = torch.zeros(2 * size, dtype=torch.int32, device="cuda")
    if not registry.LAUNCHERS[launcher].clusters:
        with pytest.raises(LaunchError, match="cannot launch clusters"):
            kernel(y)
        return
    kernel(y)
    expected = [(c * size + (r + 1) % size) * 10 for c in range(2) for r in range(size)]
    assert y.tolist() == expected


def test_cooperative(launcher: str) -> None:
    """A cooperative launch synchronises the whole grid."""
    source = """\
#include <cooperative_groups.h>
extern "C" __global__ void total(const int* x, int* partial, int* y) {
    if (threadIdx.x == 0) partial[blockIdx.x] = x[blockIdx.x];
    cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        int sum = 0;
        for (int i = 0; i < gridDim.x; ++i) sum += partial[i];
        y[0] = sum;
    }
}
"""
    kernel = Kernel("total", source, grid=64, block=32, cooperative=True)
    x = torch.arange(64, dtype=torch.int32, device="cuda")
    partial, y = torch.zeros_like(x), torch.zeros(1, dtype=torch.int32, device="cuda")
    kernel(x, partial, y)
    assert y.item() == 64 * 63 // 2


def test_graph_capture_and_replay(launcher: str) -> None:
    """A kernel that is built can be captured, workspace included, and a replay computes anew."""
    source = """\
extern "C" __global__ void square(const float* x, float* y, int n, float* workspace) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { workspace[i] = x[i]; y[i] = workspace[i] * workspace[i]; }
}
"""
    kernel = Kernel("square", source, grid="ceil_div(n, 128)", block=128, workspace="n * 4")
    x, y = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
    kernel(x, y, 1000)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, y, 1000)
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, torch.full_like(y, 9.0))


def test_build_during_capture_is_refused() -> None:
    """A build that would be needed during capture raises; another shape of a built kernel is captured all the same."""
    kernel = _scale()
    x, y = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
    refused = pytest.raises(LaunchError, match="would have to be built and loaded during CUDA graph capture")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        kernel(x, y, 1000, 2.0, False)
    torch.cuda.synchronize()
    kernel(x[:500], y[:500], 500, 2.0, False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, y, 1000, 4.0, False)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, x * 4)


def test_preparation_during_capture_is_refused() -> None:
    """A weight that would be derived inside a capture raises; one that is prepared is captured."""
    weight = torch.ones(8, device="cuda")
    refused = pytest.raises(LaunchError, match="a prepared weight would have to be computed during CUDA graph capture")
    with refused, torch.cuda.graph(torch.cuda.CUDAGraph()):
        prepared(weight, torch.neg)
    torch.cuda.synchronize()
    prepared(weight, torch.neg)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = prepared(weight, torch.neg) * 2
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [-2.0] * 8


def test_philox_draws_anew_on_each_replay() -> None:
    """A seed pair drawn inside a graph differs between replays and follows manual_seed."""
    source = """\
#include <kforge/philox.h>
extern "C" __global__ void draw(const long long* seed, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = kforge_uniform(seed, i);
}
"""
    draw = Kernel("draw", source, grid="ceil_div(n, 256)", block=256)
    y = torch.zeros(1 << 16, device="cuda")
    draw(philox(y.numel()), y, y.numel())
    assert abs(y.mean().item() - 0.5) < 0.01
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        draw(philox(y.numel()), y, y.numel())
    results = []
    for seed in (1, None, 1):
        if seed is not None:
            torch.manual_seed(seed)
        graph.replay()
        results.append(y.clone())
    assert torch.equal(results[0], results[2]) and not torch.equal(results[0], results[1])


def test_refusals() -> None:
    """Gradients, devices that differ and overlap are refused on the GPU as on the CPU."""
    kernel = _scale()
    x, y = torch.randn(8, device="cuda"), torch.zeros(8, device="cuda")
    kernel(x, y, 8, 1.0, False)
    with pytest.raises(LaunchError, match="argument 'x' requires grad"):
        kernel(x.requires_grad_(), y, 8, 1.0, False)
    x = x.detach()
    with pytest.raises(LaunchError, match=r"argument 'y' is on cpu, but 'x' is on cuda:0"):
        kernel(x, y.cpu(), 8, 1.0, False)
    with pytest.raises(LaunchError, match="argument 'y' is written and overlaps argument 'x'"):
        kernel(x, x, 8, 1.0, False)


def test_read_only_cache_and_warm_step() -> None:
    """What a build-only call built runs in a read-only cache; another specialisation is named and refused."""
    kernel = Kernel(
        "fill", 'extern "C" __global__ void fill(float* y) { y[0] = VALUE; }\n', block=1, constants={"VALUE": 20481}
    )
    y = torch.zeros(1, device="cuda")
    with build_only(), launches() as counts:
        kernel(y)
    assert (y.item(), counts["fill"]) == (0, 0)
    with read_only_cache():
        kernel(y)
        assert y.item() == 20481
        with overrides({"fill": {"VALUE": 20482}}), pytest.raises(BuildError, match=r"fill\(VALUE=20482\)"):
            kernel(y)


def test_from_a_fresh_thread(launcher: str) -> None:
    """A thread that has not touched CUDA launches as well, and threads do not mix up their arguments."""
    kernel = _scale()
    xs = [torch.full((4096,), float(i), device="cuda") for i in range(4)]
    ys = [torch.zeros(4096, device="cuda") for _ in range(4)]
    kernel(xs[0], ys[0], 4096, 1.0, False)
    torch.cuda.synchronize()

    def work(i: int) -> None:
        for _ in range(200):
            kernel(xs[i], ys[i], 4096, float(i), False)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert [y.unique().tolist() for y in ys] == [[float(i * i)] for i in range(4)]


def test_large_index() -> None:
    """Sizes beyond 2^31 elements are passed and indexed in 64 bits."""
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("needs 12 GiB of free GPU memory")
    kernel = _scale()
    n = (1 << 31) + 4
    x = torch.ones(n, dtype=torch.float16, device="cuda")
    y = torch.zeros_like(x)
    kernel(x, y, n, 2.0, False)
    assert y[-4:].tolist() == [2.0] * 4 and y[:4].tolist() == [2.0] * 4


def test_compile() -> None:
    """torch.compile keeps the kernel as one operator, with CUDA graphs too."""
    kernel = _scale()

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel(x + 1, y, x.numel(), 3.0, False)
        return y * 2

    with torch.no_grad():
        for mode in ("default", "reduce-overhead"):
            compiled = torch.compile(function, fullgraph=True, mode=mode)
            for n in (1024, 4096):
                x = torch.randn(n, device="cuda")
                for _ in range(3):
                    assert torch.allclose(compiled(x), (x + 1) * 6)


def test_report_for_this_device(tmp_path: Path) -> None:
    """The resource report is for the device's own architecture."""
    kernel = _scale()
    x, y = torch.randn(8, device="cuda"), torch.zeros(8, device="cuda")
    kernel(x, y, 8, 1.0, False)
    (row,) = kernel_report(kernel, target_arch("cuda"))
    assert row.arch == target_arch("cuda") and row.registers > 0 and row.occupancy is not None


@pytest.mark.skipif("torch.cuda.device_count() < 2")
def test_second_device() -> None:
    """A launch goes to the tensors' device, whichever is current."""
    kernel = _scale()
    x = torch.randn(1024, device="cuda:1")
    y = torch.zeros_like(x)
    for _ in range(2):
        kernel(x, y, 1024, 2.0, False)
        assert torch.equal(y, x * 2) and torch.cuda.current_device() == 0


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("at", [-1, 2])
def test_tensor_copies(box: tuple[int, int, str], at: int) -> None:
    """Tensor maps encoded by the driver copy boxes as the emulator's do, partly outside of a tensor too."""
    got, wanted = copied(*box, at, "cuda")
    assert torch.equal(got, wanted)


@pytest.mark.parametrize("swizzle", SPANS)
def test_places_of_copied_lines(swizzle: int) -> None:
    """Lines shorter than the swizzle's span lie as the emulator puts them."""
    found, wanted = landed(swizzle, "cuda")
    assert found == wanted


@pytest.mark.parametrize("form", FORMS)
def test_tensor_core_forms(form: tuple[int, str, bool]) -> None:
    """wgmma on what tensor copies leave in shared memory gives what the emulator gives."""
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("wgmma is Hopper's alone")
    got, wanted = multiplied(*form, "cuda")
    assert torch.equal(got, wanted)
