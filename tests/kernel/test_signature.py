"""Signatures read from CUDA source: what is resolved, and what is refused rather than guessed."""

from __future__ import annotations

import pytest

from kforge.errors import BuildError
from kforge.kernel.signature import kernel_names, last_top_level_include, parse_signature, read_signature

SOURCE = """\
#include <cuda_fp16.h>
#include "tile.cuh"
#ifdef WIDE
#include "wide.cuh"
#endif
#define real float
template <typename T, int VEC = 4>
__global__ void __launch_bounds__(256) softmax(const T* __restrict__ x, T* __restrict__ y, int rows, long long cols) {}
extern "C" __global__ __launch_bounds__(BLOCK, 2) void vectors(
    float4* a, const half2* const b, std::uint32_t c, bool flag, unsigned int const* k, float z[], const size_t n,
    const __grid_constant__ CUtensorMap map, float eps = 1.0f) {}
extern "C" {
__global__ void macro(real* q, int n) {}
__global__ void structure(Params p) {}
__global__ void nested(float** q) {}
__global__ void reference(float& q) {}
__global__ void half_by_value(float* q, __half h) {}
__global__ void empty(void) {}
}
namespace norm {
__global__ void rows(int n) {}
}
template <> __global__ void softmax<int, 1>(const int* x, int* y, int rows, long long cols) {}
__device__ void helper(int n) {}
// __global__ void comment(int n) {}
"""


@pytest.mark.parametrize(
    ("expression", "types", "expected"),
    [
        ("softmax<T, VEC>", {"T": "x"}, "softmax(const T* x, T* y, int rows, long long cols)"),
        ("softmax<__half, 4>", {}, "softmax(const __half* x, __half* y, int rows, long long cols)"),
        (
            "vectors",
            {},
            "vectors(float4* a, const __half2* b, unsigned int c, bool flag, const unsigned int* k, float* z, "
            "unsigned long long n, CUtensorMap map, float eps)",
        ),
        ("rows", {}, "norm::rows(int n)"),
        ("norm::rows", {}, "norm::rows(int n)"),
        ("empty", {}, "empty()"),
    ],
)
def test_reads(expression: str, types: dict[str, str], expected: str) -> None:
    """Parameter names and canonical types come from the source."""
    assert str(read_signature(SOURCE, expression, types)) == expected


def test_qualifiers() -> None:
    """extern "C", template parameters and launch bounds are read as well."""
    vectors = read_signature(SOURCE, "vectors", {})
    softmax = read_signature(SOURCE, "softmax<T, VEC>", {"T": "x"})
    assert (vectors.extern_c, vectors.launch_bounds, vectors.template) == (True, ("BLOCK", "2"), ())
    assert (softmax.extern_c, softmax.launch_bounds, softmax.template) == (False, ("256",), ("T", "VEC"))
    assert [p.bound for p in softmax.params] == [True, True, False, False]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("macro", "cannot resolve parameter 'real* q': the source redefines 'real'"),
        ("structure", "cannot resolve parameter 'Params p': 'Params' is not a built-in CUDA type"),
        ("nested", "a pointer to a pointer is not a tensor"),
        ("reference", "cannot resolve parameter 'float& q'"),
        ("half_by_value", "a __half cannot be passed by value; pass a float"),
        ("softmax", "'T' is not a built-in CUDA type"),
        ("comment", "source has no __global__ function 'comment' (it has: "),
        ("empty<1>", "'empty<1>' has template arguments, but empty is no template"),
        ("softmax<T, 1, 2>", "has 3 template arguments, softmax takes 2"),
        ("soft max", "'soft max' is not a kernel's name or name expression"),
    ],
)
def test_refuses(expression: str, message: str) -> None:
    """What the source does not settle is an error that says which parameter and why."""
    with pytest.raises(BuildError) as caught:
        read_signature(SOURCE, expression, {"T": "x"} if "<T" in expression else {})
    assert message in caught.value.message


@pytest.mark.parametrize("line", ["using uint = float;", "typedef float uint;", "#define uint float"])
def test_redefined_builtin_is_refused(line: str) -> None:
    """A built-in name to which the source gives another meaning is not taken at face value."""
    with pytest.raises(BuildError, match="the source redefines 'uint'"):
        read_signature(f"{line}\n__global__ void k(uint* p) {{}}\n", "k", {})


def test_given_signature() -> None:
    """`signature=` takes a parameter list or a whole declaration, and is refused when it is neither."""
    assert str(parse_signature("const float* x, int n", "k", {})) == "k(const float* x, int n)"
    assert str(parse_signature("void k(const T* x, int n);", "k", {"T": "x"})) == "k(const T* x, int n)"
    with pytest.raises(BuildError, match="signature of k is not a parameter list"):
        parse_signature("const float* x, int n {", "k", {})


def test_kernel_names() -> None:
    """Only __global__ functions are kernels; comments and device functions are not."""
    names = kernel_names(SOURCE)
    assert "softmax" in names and "norm::rows" in names
    assert "helper" not in names and "comment" not in names


def test_last_include_is_top_level() -> None:
    """Constants go behind the last #include that is in no #if."""
    assert SOURCE[: last_top_level_include(SOURCE)].endswith('#include "tile.cuh"\n')
    assert last_top_level_include("__global__ void k() {}") == 0
