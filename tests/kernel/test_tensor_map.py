"""Tensor maps as arguments, and Hopper's asynchronous instructions on the emulator: values and rules."""

import pytest
import torch

from kforge.errors import EmulatorError, LaunchError
from kforge.kernel import Kernel, TensorMap


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
                 :: "r"(address(box)), "l"(&from), "r"(a), "r"(address(&barrier)), "r"(a * 8) : "memory");
    wait(&barrier);
    asm volatile("cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [%0, {{{tos}}}], [%1];"
                 :: "l"(&to), "r"(address(box)), "r"(b), "r"(b * 8) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}}
"""


def copies() -> str:
    """A kernel for each rank: a box at (..., a, 8 a) of one tensor to (..., b, 8 b) of another."""
    return HELPERS + "".join(
        COPY.format(rank=r, ats=", ".join(["%4", *["%2"] * (r - 1)]), tos=", ".join(["%3", *["%2"] * (r - 1)]))
        for r in range(1, 6)
    )


def test_maps_overlap_no_written_memory() -> None:
    """A map onto memory that the kernel writes is refused, also where an earlier call of that kind was right."""
    kernel = Kernel("copy2", copies(), grid=1, block=32, writes=["to"])
    x = torch.randn(16, 24).half()
    y, at = torch.zeros(8, 24).half(), 0
    for _ in range(2):
        kernel(TensorMap(x[:8], (2, 16)), TensorMap(y, (2, 16)), 64, at, 1)
    assert torch.equal(y[1:3, 8:], x[:2, :16])
    with pytest.raises(LaunchError, match="overlap"):
        kernel(TensorMap(x[:8], (2, 16)), TensorMap(x[4:12], (2, 16)), 64, at, 1)


def test_boxes_begin_at_16_bytes() -> None:
    """A box that begins within 16 bytes of a line is an error: on a GPU it is an illegal instruction."""
    kernel = Kernel("copy2", copies(), grid=1, block=32, writes=["to"])
    x, y = torch.zeros(4, 64, dtype=torch.uint8), torch.zeros(4, 64, dtype=torch.uint8)
    with pytest.raises(EmulatorError, match="8 bytes into a line"):
        kernel(TensorMap(x, (2, 16)), TensorMap(y, (2, 16)), 32, 1, 0)


BOXES = [(1, 0, "zero"), (2, 32, "nan"), (3, 64, "zero"), (4, 128, "nan"), (5, 0, "nan")]


def copied(rank: int, swizzle: int, oob: str, at: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What a kernel wrote of a box at (..., at, 8 at), and what it should have; NaN as 77."""
    sizes, box = (3, 5, 4, 6, 24)[-rank:], (2, 3, 2, 3, 16)[-rank:]
    x, y = torch.randn(sizes).half(), torch.full((8,) * (rank - 1) + (24,), -9.0).half()
    kernel = Kernel(f"copy{rank}", copies(), grid=1, block=32, writes=["to"])
    got = y.to(device)
    maps = [TensorMap(t, box, swizzle=swizzle, oob=oob) for t in (x.to(device), got)]
    kernel(*maps, 2 * torch.Size(box).numel(), at, 1)
    margins, ats = ([m] * (rank - 1) + [8 * m] for m in (4, at))
    around = [s + 2 * m for s, m in zip(sizes, margins, strict=True)]
    padded = torch.full(around, 0.0 if oob == "zero" else float("nan")).half()
    padded[tuple(slice(m, m + s) for s, m in zip(sizes, margins, strict=True))] = x
    wanted = y.clone()
    from_box = tuple(slice(m + a, m + a + b) for m, a, b in zip(margins, ats, box, strict=True))
    wanted[tuple(slice(1, 1 + b) for b in box[:-1])][..., 8:] = padded[from_box]
    return got.cpu().nan_to_num(77.0), wanted.nan_to_num(77.0)


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("at", [-1, 2])
def test_boxes_of_every_rank(box: tuple[int, int, str], at: int) -> None:
    """A box partly outside of a tensor arrives with zeros or NaN there, and is written inside only."""
    got, wanted = copied(*box, at, "cpu")
    assert torch.equal(got, wanted)


DUMP = """
extern "C" __global__ void dump(const __grid_constant__ CUtensorMap from, unsigned* y) {
    __shared__ __align__(1024) unsigned box[256];
    __shared__ uint64_t barrier;
    for (int i = threadIdx.x; i < 256; i += 32) box[i] = 0;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x == 0) {
        init(&barrier);
        expect(&barrier, 256);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %2}], [%3];"
                     :: "r"(address(box)), "l"(&from), "r"(0), "r"(address(&barrier)) : "memory");
        wait(&barrier);
    }
    __syncwarp();
    for (int i = threadIdx.x; i < 256; i += 32) y[i] = box[i];
}
"""
SPANS = (0, 32, 64, 128)


def test_shared_variables_count() -> None:
    """A block's variables and its dynamic memory together are at most 227 KB."""
    kernel = Kernel("dump", HELPERS + DUMP, grid=1, block=32, shared=232448)
    with pytest.raises(LaunchError, match="beside 1032 of variables; a block has at most 232448"):
        kernel(TensorMap(torch.zeros(8, 16).half(), (8, 16)), torch.zeros(256, dtype=torch.int32))


def landed(swizzle: int, device: str) -> tuple[list[int], list[int]]:
    """Where the 16-byte halves of eight lines of 32 bytes are in shared memory, and where they should be."""
    x, y = torch.arange(1, 129, dtype=torch.int16, device=device).view(8, 16), torch.zeros(256, dtype=torch.int32)
    kernel, y = Kernel("dump", HELPERS + DUMP, grid=1, block=32), y.to(device)
    kernel(TensorMap(x, (8, 16), swizzle=swizzle), y)
    found = y.cpu().view(torch.int16)[::8].tolist()
    pitch = max(swizzle, 32) // 16
    wanted = [line * pitch + half for line in range(8) for half in range(2)]
    if swizzle:
        wanted = [at ^ (at >> 3) % (swizzle // 16) for at in wanted]
    return [found.index(8 * k + 1) for k in range(16)], wanted


@pytest.mark.parametrize("swizzle", SPANS)
def test_lines_as_long_as_the_swizzle(swizzle: int) -> None:
    """A line that is shorter than the swizzle's span takes all of it in shared memory, as seen on an H200."""
    found, wanted = landed(swizzle, "cpu")
    assert found == wanted


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
