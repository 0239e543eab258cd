"""Tensor maps as arguments, and Hopper's asynchronous instructions on the emulator: values, planted bugs."""

import importlib.util
from pathlib import Path

import pytest
import torch

from kforge.errors import EmulatorError, LaunchError
from kforge.kernel import Kernel, TensorMap

FOLDER = Path(__file__).parent / "hopper"
spec = importlib.util.spec_from_file_location("hopper_linear", FOLDER / "linear_kforge.py")
assert spec is not None and spec.loader is not None
linear = importlib.util.module_from_spec(spec)
spec.loader.exec_module(linear)
SOURCE = (FOLDER / "linear_kforge.cu").read_text()


def _run(source: str = SOURCE, rows: int = 144) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, w = torch.randn(rows, 200).bfloat16(), torch.randn(136, 200).bfloat16()
    bias, residual, y = (
        torch.randn(136).bfloat16(),
        torch.randn(rows, 136).bfloat16(),
        torch.empty(rows, 136).bfloat16(),
    )
    shared = 2 * (128 + 128) * 128 + 1024
    constants = {"STAGES": 2, "GROUP": 2}
    kernel = Kernel("linear_gelu_add", source, grid="blocks", block=384, shared=shared, constants=constants)
    kernel(TensorMap(x, (128, 64), 128), TensorMap(w, (128, 64), 128), bias, residual, y, rows, 136, 200, 1)
    linear_result = torch.nn.functional.linear(x.double(), w.double(), bias.double())
    return y.double(), torch.nn.functional.gelu(linear_result) + residual.double()


def test_product_is_right() -> None:
    """A persistent product with tails in all dimensions and a ring that wraps agrees with float64."""
    y, expected = _run()
    assert (y - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mma_wait<0>();", ""),
        ("barrier_wait(&full[stage], parity);", ""),
        ("(uint64_t)1 << 62", "(uint64_t)2 << 62"),
        ("barrier_wait(&full[stage], parity);", "barrier_wait(&full[stage], parity ^ 1);"),
        ("barrier_expect(&full[stage], A_BYTES + B_BYTES);", "barrier_expect(&full[stage], A_BYTES);"),
        ("                mma_fence();\n", ""),
    ],
)
def test_planted_bug_is_found(old: str, new: str) -> None:
    """A missing wait, the wrong phase, swizzle or byte count, a missing fence: wrong or an error, never right."""
    assert old in SOURCE
    try:
        y, expected = _run(SOURCE.replace(old, new))
    except EmulatorError:
        return
    assert not (y - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize(
    ("x", "box", "options", "says"),
    [
        (torch.zeros(8, 72)[:, :68].half()[:, :66], (8, 64), {"swizzle": 128}, "multiple of 16"),
        (torch.zeros(65).half()[1:].view(8, 8), (8, 8), {}, "no multiple of 16 bytes"),
        (torch.zeros(8, 64).half(), (257, 64), {}, "between 1 and 256"),
        (torch.zeros(8, 128).half(), (8, 128), {"swizzle": 128}, "more than the swizzle's 128"),
        (torch.zeros(64, 8).half().t(), (8, 64), {}, "must be contiguous"),
    ],
)
def test_rules_are_named(x: torch.Tensor, box: tuple, options: dict, says: str) -> None:
    """What the driver would refuse is refused before, with the rule."""
    with pytest.raises(LaunchError, match=says):
        TensorMap(x, box, **options).encode("argument 'map'")


HELPERS = """
#include <cuda.h>
#include <cuda_fp16.h>
#include <stdint.h>
__device__ unsigned address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void init(uint64_t* b) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(address(b)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ void expect(uint64_t* b, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(address(b)), "r"(bytes) : "memory");
}
__device__ void wait(uint64_t* b) {
    asm volatile("{\\n.reg .pred p;\\nagain:\\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;\\n"
                 "@p bra done;\\nbra again;\\ndone:\\n}" :: "r"(address(b)) : "memory");
}
"""
COPY = """
extern "C" __global__ void copy{rank}(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to,
                                      int bytes, int a, int b) {{
    __shared__ __align__(1024) unsigned char box[4096];
    __shared__ uint64_t barrier;
    unsigned elected = 0;
    asm volatile("{{\\n.reg .pred p;\\nelect.sync _|p, 0xffffffff;\\nselp.u32 %0, 1, 0, p;\\n}}" : "=r"(elected));
    if (!elected) return;
    init(&barrier);
    expect(&barrier, bytes);
    asm volatile("cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {{{ats}}}], [%3];"
                 :: "r"(address(box)), "l"(&from), "r"(a), "r"(address(&barrier)) : "memory");
    wait(&barrier);
    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{tos}}}], [%1];"
                 :: "l"(&to), "r"(address(box)), "r"(b) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}}
"""


def copies() -> str:
    """A kernel for each rank: a box at (a, a, ...) of one tensor to (b, b, ...) of another."""
    ranks = range(1, 6)
    return HELPERS + "".join(COPY.format(rank=r, ats=", ".join(["%2"] * r), tos=", ".join(["%2"] * r)) for r in ranks)


def test_maps_overlap_no_written_memory() -> None:
    """A map onto memory that the kernel writes is refused, also where an earlier call of that kind was right."""
    kernel = Kernel("copy2", copies(), grid=1, block=32, writes=["to"])
    x = torch.randn(16, 24).half()
    y, at = torch.zeros(8, 24).half(), 0
    for _ in range(2):
        kernel(TensorMap(x[:8], (2, 16)), TensorMap(y, (2, 16)), 64, at, 1)
    assert torch.equal(y[1:3, 1:17], x[:2, :16])
    with pytest.raises(LaunchError, match="overlap"):
        kernel(TensorMap(x[:8], (2, 16)), TensorMap(x[4:12], (2, 16)), 64, at, 1)


BOXES = [(1, 0, "zero"), (2, 32, "nan"), (3, 64, "zero"), (4, 128, "nan"), (5, 0, "nan")]


def copied(rank: int, swizzle: int, oob: str, at: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What a kernel wrote of a box at (at, at, ...), and what it should have; NaN as 77."""
    sizes, box = (3, 5, 4, 6, 24)[-rank:], (2, 3, 2, 3, 16)[-rank:]
    x, y = torch.randn(sizes).half(), torch.full((8,) * (rank - 1) + (24,), -9.0).half()
    kernel = Kernel(f"copy{rank}", copies(), grid=1, block=32, writes=["to"])
    got = y.to(device)
    maps = [TensorMap(t, box, swizzle=swizzle, oob=oob) for t in (x.to(device), got)]
    kernel(*maps, 2 * torch.Size(box).numel(), at, 1)
    padded = torch.full([s + 40 for s in sizes], 0.0 if oob == "zero" else float("nan")).half()
    padded[tuple(slice(20, 20 + s) for s in sizes)] = x
    wanted = y.clone()
    wanted[tuple(slice(1, 1 + b) for b in box)] = padded[tuple(slice(20 + at, 20 + at + b) for b in box)]
    return got.cpu().nan_to_num(77.0), wanted.nan_to_num(77.0)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("at", [-2, 3])
def test_boxes_of_every_rank(box: tuple[int, int, str], at: int) -> None:
    """A box partly outside of a tensor arrives with zeros or NaN there, and is written inside only."""
    got, wanted = copied(*box, at, "cpu")
    assert torch.equal(got, wanted)


def products(n: int, kind: str, registers: bool) -> str:
    """A warpgroup's 64 x n product of one step of depth; operands along the depth, in swizzled lines of 32 bytes."""
    wide = kind == "tf32"
    element, k = ("float", 8) if wide else ("__half", 16)
    d, one = n // 2, "1" if wide else "1, 0" if registers else "1, 0, 0"
    sums = ", ".join(f"%{i}" for i in range(d))
    a = f"{{%{d}, %{d + 1}, %{d + 2}, %{d + 3}}}" if registers else f"%{d}"
    given = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])' if registers else '"l"(descriptor(left))'
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(d))
    b = f"%{d + (4 if registers else 1)}"
    return (
        HELPERS
        + f"""
__device__ uint64_t descriptor(const void* tile) {{
    return (uint64_t)(address(tile) >> 4) | 1ull << 16 | (uint64_t)(256 >> 4) << 32 | 3ull << 62;
}}
__device__ void load(void* to, const CUtensorMap* map, uint64_t* barrier) {{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {{0, 0}}], [%2];" :: "r"(address(to)), "l"(map), "r"(address(barrier)) : "memory");
}}
extern "C" __global__ void multiply(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                                    float* y) {{
    __shared__ __align__(1024) {element} left[64 * {k}], right[{n} * {k}];
    __shared__ uint64_t barrier;
    const int t = threadIdx.x, row = t / 32 * 16 + t % 32 / 4;
    if (t == 0) {{
        init(&barrier);
        expect(&barrier, sizeof left + sizeof right);
        load(left, &x, &barrier);
        load(right, &w, &barrier);
    }}
    __syncthreads();
    wait(&barrier);
    float d[{d}];
    for (int i = 0; i < {d}; ++i) d[i] = 1.0f;
    unsigned a[4];
    for (int i = 0; i < 4; ++i) {{  // rows of 32 bytes in 16-byte halves, swapped in every second four rows
        const int r = row + i % 2 * 8, byte = ((i / 2) ^ (r / 4 % 2)) * 16 + t % 4 * 4;
        a[i] = *(const unsigned*)((const char*)left + r * 32 + byte);
    }}
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, 1, 0;\\n"
        "wgmma.mma_async.sync.aligned.m64n{n}k{k}.f32.{kind}.{kind} {{{sums}}}, {a}, {b}, p, -1, {one};\\n}}"
        : {outs} : {given}, "l"(descriptor(right)));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < {d}; ++i) y[(row + i / 2 % 2 * 8) * {n} + i / 4 * 8 + t % 4 * 2 + i % 2] = d[i];
}}
"""
    )


FORMS = [(8, "f16", True), (24, "f16", False), (16, "tf32", True), (40, "tf32", False)]


def multiplied(n: int, kind: str, registers: bool, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """1 - x w^T by one instruction, and as it is."""
    dtype, k = (torch.float32, 8) if kind == "tf32" else (torch.float16, 16)
    x, w = torch.randint(-4, 5, (64, k)).to(dtype), torch.randint(-4, 5, (n, k)).to(dtype)
    y = torch.empty(64, n, device=device)
    kernel = Kernel("multiply", products(n, kind, registers), grid=1, block=128)
    kernel(TensorMap(x.to(device), (64, k), swizzle=32), TensorMap(w.to(device), (n, k), swizzle=32), y)
    return y.cpu(), 1 - x.float() @ w.float().t()


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_products(form: tuple[int, str, bool]) -> None:
    """The left operand in registers or in memory, in halves and TF32, with a sign."""
    got, wanted = multiplied(*form, "cpu")
    assert torch.equal(got, wanted)
