"""Intrinsics, half types, vectors, atomics and globals compute CUDA's values."""

from __future__ import annotations

import ctypes

import numpy as np
import torch

from kforge.kernel.emulator import load

SOURCE = "values"


def test_integer_intrinsics(launch):
    """Bit and integer intrinsics give the values of the CUDA documentation."""
    out = np.full(64, -999.0)
    launch("integers", 1, 1, out)
    expected = [
        8, 64, 31, 32, 63, 4, 0, 2**31, 0x77553311, -15, 3, 2, 1, 2, 15, -2, 36 - 2, 17, 5, 6, 3, 1 << 31 | 1,
        2, 2, 1.5, 7, 0x02000304,
    ]  # fmt: skip
    expected[16] = 3 * 7 + 2 * 6 + 1
    assert out[: len(expected)].tolist() == expected
    assert out[len(expected)] == -999.0


def test_float_intrinsics(launch):
    """fp32 intrinsics agree with the exact value to fp32 accuracy; conversions saturate as the instruction does."""
    out = np.full(64, -999.0)
    launch("floats", 1, 1, out)
    e = [
        np.e, np.log(2), 3, 8, np.sin(0.5), np.cos(0.5), 0.25, 0.5, 0.125, 0.25, 3, 10, 1, 0, 0x3F800000, 2, 3,
        0x3FF00000, 3, 2, -2, 3, -3, 2**31 - 1, 0, 0, -2, 100, 0.5204998778130465, 1 + 2**-23, 1,
        np.float32(1 / 3) - 2**-25, 0.5, 1, 2, 8, 1, 1, -1, 0.5,
    ]  # fmt: skip
    np.testing.assert_allclose(out[: len(e)], e, rtol=1.2e-7, atol=1e-30)
    assert out[29] == 1 + 2**-23 and out[30] == 1 and out[31] < 1 / 3
    assert out[len(e)] == -999.0


def test_half_types(launch):
    """half, bfloat16 and fp8 round as torch does, operators and device-only functions alike."""
    n = 400
    x = torch.linspace(-6, 6, n)
    out = np.zeros((10, n), np.float32)
    launch("halves", 4, 128, x.numpy(), out, n)
    h, b = x.half(), x.bfloat16()
    got = torch.from_numpy(out)
    one = torch.tensor(1.0).half()
    assert torch.equal(got[0], (h * h + one).float())
    assert torch.equal(got[1], (h.double() * h.double() + 1).half().float())
    assert torch.equal(got[2], (b * b).float())
    assert torch.equal(got[3], h.float().exp().half().float())
    assert torch.equal(got[4], (h * h).float() + 2)
    assert torch.equal(got[5], torch.maximum(h, one).float() + (h > one).float() + (h < one).float())
    assert torch.equal(got[6], x.to(torch.float8_e4m3fn).float())
    assert torch.equal(got[7], x.to(torch.float8_e5m2).float())
    fused = (b.double() * b.double() + b.double()).bfloat16().float() + b.float().tanh().bfloat16().float()
    assert torch.equal(got[8], fused)
    assert torch.equal(got[9], 2 * h.float())


def test_vector_types_and_cached_access(launch):
    """float4, uint2, ushort4 with make_*, loads and stores with cache hints, in a grid-stride loop."""
    n = 1000
    x = np.random.default_rng(0).standard_normal((n, 4), dtype=np.float32)
    u = np.random.default_rng(1).integers(0, 2**32, (n, 2), dtype=np.uint32)
    y, v = np.zeros_like(x), np.zeros((n, 4), np.uint16)
    launch("vectors", 3, 64, x, y, u, v, n)
    assert np.array_equal(y, x[:, [3, 2, 1, 0]] * np.array([1, 1, 2, 1], np.float32))
    assert np.array_equal(v, u.view(np.uint16).reshape(n, 4))


def test_atomics(launch):
    """Every atomic operation, on every type CUDA has it for, ends with the sequential result."""
    n = 512
    i, u, longs = np.zeros(6, np.int32), np.zeros(7, np.uint32), np.zeros(3, np.uint64)
    i[4] = -1
    f, d = np.zeros(1, np.float32), np.zeros(1)
    h, h2, b = np.zeros(1, np.float16), np.zeros(2, np.float16), np.zeros(1, np.uint16)
    launch("atomics", 4, 128, i, u, longs, f, d, h, h2, b)
    total = n * (n - 1) // 2
    assert i.tolist() == [total, -total, n - 1, -(n - 1), 0, 3 * n]
    xor = int(np.bitwise_xor.reduce(np.arange(n)))
    assert u.tolist() == [2**32 - 1, xor, n % 5, (-n) % 5, n - 1, 9, 2 * n]
    assert longs.tolist() == [n << 33, n - 1, 5]
    assert (f[0], d[0], h[0], *h2.tolist()) == (256.0, 128.0, 512.0, 512.0, 1024.0)
    assert torch.from_numpy(b.view(np.int16)).view(torch.bfloat16).item() == 256.0  # 257 is no bfloat16: sticks at 256


def test_last_block_adds_up(launch):
    """The threadfence-and-counter reduction works, twice: the __device__ counter keeps its value between launches."""
    x = np.random.default_rng(0).integers(-5, 5, 32 * 20).astype(np.float32)
    for _ in range(2):
        partial, total = np.zeros(20, np.float32), np.zeros(1, np.float32)
        launch("last_block", 20, 64, x, partial, total)
        assert total[0] == x.sum()


def test_decoupled_look_back(launch):
    """Blocks that wait for earlier blocks find them done."""
    x = np.random.default_rng(0).integers(-5, 5, 5000).astype(np.float32)
    y = np.zeros_like(x)
    launch("look_back", 20, 256, x, y, x.size)
    assert np.array_equal(y, x.cumsum())


def test_name_expressions_and_constants(launch):
    """Templates in namespaces with default arguments; __constant__ and __device__ const tables."""
    table, offsets = np.array([1.0, 10.0, 100.0, 1000.0]), np.array([5.0, 7.0])
    k = np.arange(50)
    for kernel, dtype, factor in (("scaled::scale<float>", np.float32, 2), ("scaled::scale<double, 3>", np.float64, 3)):
        x, y = k.astype(dtype), np.zeros(50, dtype)
        launch(kernel, 1, 64, x, y, ctypes.c_float(0.5) if dtype == np.float32 else ctypes.c_double(0.5), 50)
        assert np.array_equal(y, k * factor + 0.5 + table[k % 4] + offsets[k % 2])


def test_parameters_by_value(launch):
    """Structs, vectors, half, bool and char arrive by value; sizes are checked against the kernel's."""

    class Params(ctypes.Structure):
        _fields_ = [("scale", ctypes.c_float), ("shift", ctypes.c_int * 3), ("x", ctypes.c_void_p)]

    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    params = Params(2.0, (ctypes.c_int * 3)(0, 0, 7), x.ctypes.data)
    half = ctypes.c_uint16(int(np.float16(0.5).view(np.uint16)))
    launch("by_value", 1, 32, params, (ctypes.c_float * 4)(0, 0, 0, 30), half, True, ctypes.c_char(b"\x03"), y)
    assert np.array_equal(y, 2 * x + 7 + 30 + 0.5 + 100 + 3)


def test_indices_in_three_dimensions(launch):
    """threadIdx, blockIdx and their dimensions, under __CUDA_ARCH__."""
    out = np.zeros(24 * 60, np.int32)
    launch("indices", (2, 3, 4), (3, 4, 5), out)
    assert np.array_equal(out.reshape(24, 60), np.arange(24)[:, None] * 1000 + np.arange(60))


def test_language(launch, capfd):
    """__noinline__, lambdas, pragmas, std::max, cuComplex and printf work as in CUDA."""
    p = np.zeros(4, np.float32)
    launch("language", 2, 1, p)
    assert p.tolist() == [-4, -3, -5, -3]
    assert capfd.readouterr().out == "block 0 of 2\nblock 1 of 2\n"


def test_host_parts_of_libcudacxx():
    """cuda::std numbers and cuda::atomic_ref come from CCCL's own host code."""
    source = """#include <cuda/std/complex>
#include <cuda/atomic>
extern "C" __global__ void k(float* p, int* n) {
  cuda::std::complex<float> c(1, 2);
  p[threadIdx.x] = (c * c).real();
  cuda::atomic_ref<int, cuda::thread_scope_device>(*n).fetch_add(2, cuda::memory_order_relaxed);
}"""
    p, n = np.zeros(8, np.float32), np.zeros(1, np.int32)
    program = load(source, "k.cu", ["k"])
    program.launch("k", (1, 1, 1), (8, 1, 1), 0, [ctypes.c_void_p(a.ctypes.data) for a in (p, n)])
    assert (p == -3).all() and n[0] == 16


def test_extremes_that_propagate_nan():
    """max.NaN and min.NaN give NaN where either operand is one, which max and min do not."""
    source = """extern "C" __global__ void k(const float* a, const float* b, float* high, float* low, float* plain) {
  const int t = threadIdx.x;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(high[t]) : "f"(a[t]), "f"(b[t]));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(low[t]) : "f"(a[t]), "f"(b[t]));
  asm("max.f32 %0, %1, %2;" : "=f"(plain[t]) : "f"(a[t]), "f"(b[t]));
}"""
    a = np.array([1, np.nan, 2, -np.inf, np.nan], np.float32)
    b = np.array([3, 1, np.nan, -5, np.nan], np.float32)
    high, low, plain = (np.zeros(5, np.float32) for _ in range(3))
    program = load(source, "k.cu", ["k"])
    arrays = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, high, low, plain)]
    program.launch("k", (1, 1, 1), (5, 1, 1), 0, arrays)
    np.testing.assert_array_equal(high, [3, np.nan, np.nan, -5, np.nan])
    np.testing.assert_array_equal(low, [1, np.nan, np.nan, -np.inf, np.nan])
    np.testing.assert_array_equal(plain, [3, 1, 2, -5, np.nan])


def test_a_float_without_an_initial_value_is_nan():
    """A maximum and a sum that begin without a value are NaN, and so is an array; what is set is not."""
    source = """
    extern "C" __global__ void unset(const float* x, float* y, int n) {
        float top, sum;
        float parts[2];
        float set = 2.f;
        for (int i = 0; i < n; ++i) { top = x[i] > top ? x[i] : top; sum += x[i]; parts[i % 2] += x[i]; }
        y[0] = top; y[1] = sum; y[2] = parts[1]; y[3] = set;
    }"""
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, dtype=np.float32)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x, y)]
    load(source, "a.cu", ["unset"]).launch("unset", (1, 1, 1), (1, 1, 1), 0, [*pointers, ctypes.c_int(4)])
    assert np.isnan(y[:3]).all() and y[3] == 2
