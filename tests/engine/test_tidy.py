"""The last pass over generated CUDA: what goes, what stays, and how lines are laid out."""

from __future__ import annotations

from kforge.engine.emit.tidy import tidy

HELPERS = """// The smaller of two.
template <typename V>
__device__ V smaller(V a, V b) {
    return a < b ? a : b;
}

// The larger of two.
template <typename V>
__device__ V larger(V a, V b) {
    return a > b ? a : b;
}

#if __CUDA_ARCH__ >= 800
__device__ float smaller(float a, float b) {
    return fminf(a, b);
}

__device__ float larger(float a, float b) {
    return fmaxf(a, b);
}
#endif

struct Largest {
    static __device__ float join(float a, float b) { return larger(a, b); }
};
"""
KERNEL = """// {title}
__global__ void __launch_bounds__(128) f(const float* x, float* y, int cols) {{
    const long long row = blockIdx.x;  // smaller is not called here
    __shared__ float partials_1[4];
    // the loop
#pragma unroll
    for (int k = 0; k < 4; ++k) {{
        {body}
    }}
}}
"""


def kernel(body: str, title: str = "A kernel.") -> str:
    return KERNEL.format(body=body, title=title)


def test_what_no_kernel_uses_goes() -> None:
    """Helpers that only comments or other unused helpers mention go, with their overloads; used ones stay."""
    text = tidy(f"{HELPERS}\n{kernel('y[k] = Largest::join(x[k], partials_1[k]);')}")
    assert "smaller(" not in text and text.count("larger(") == 3 and "#if" in text and "#endif" in text
    text = tidy(f"{HELPERS}\n{kernel('y[k] = x[k];')}")
    assert text.startswith("// A kernel.") and "#if" not in text


def test_constants_that_nothing_reads_go() -> None:
    """A constant that is not read goes, and what was read for it alone; one with an effect of its own stays."""
    text = tidy(kernel("const int a = k + 1;\n        const int b = a * 2;\n        const int c = atomicAdd(y, 1);"))
    assert "int a" not in text and "int b" not in text and "atomicAdd" in text and "long long row" not in text
    assert "long long row" in tidy(kernel("y[row] = 1;"))
    assert "int a = 0, b = k" in tidy(kernel("const int a = 0, b = k;\n        y[b] = 1;"))


def test_layout() -> None:
    """Pragmas stand over their loops, a lone numbered name loses its number, a comment follows a blank line."""
    text = tidy(kernel("y[k] = partials_1[k];"))
    assert "\n    #pragma unroll\n    for" in text
    assert "__shared__ float partials[4];\n\n    // the loop" in text and "y[k] = partials[k];" in text


def test_long_lines_are_folded_where_they_bind_least() -> None:
    """A statement keeps its tokens, within the width, broken outside of brackets first; template lists stay whole."""
    terms = " + ".join(f"shared_value_{k} * larger<float, 4>(x[k], y[k + {k}])" for k in range(1, 7))
    text = tidy(kernel(f"y[k] = {terms};"))
    assert max(map(len, text.splitlines())) <= 120
    assert "".join(text.split()).count("".join(f"y[k] = {terms};".split())) == 1
    lines = [line.strip() for line in text.splitlines() if "shared_value" in line]
    assert all(line.startswith(("y[k] =", "+ ")) for line in lines if line.count("shared_value"))
    assert tidy(text) == text
