"""The source pass finds shared declarations and inline PTX, and keeps line numbers."""

from __future__ import annotations

import pytest

from kforge.kernel.emulator import ptx
from kforge.kernel.emulator.source import insert_constants, mask, translate


def body(text: str) -> str:
    """The translated text without the table of entry points."""
    return translate(text, "a.cu", []).text.split('#line 1 "kernel table"')[0]


@pytest.mark.parametrize(("declaration", "variables"), [
    ("__shared__ float a[4][5], b;", ["float (&a)[4][5]", "float (&b)"]),
    ("__shared__ alignas(16) float4* p[2];", ["float4 *(&p)[2]"]),
    ("static __shared__ typename X<A, B>::T t;", ["typename X<A, B>::T (&t)"]),
    ("volatile __shared__ int v[N < 3 ? 4 : 5];", ["volatile int (&v)[N < 3 ? 4 : 5]"]),
    ("__shared__ struct { int a, b; } s[3];", ["struct { int a, b; } (&s)[3]"]),
    ("extern __shared__ __align__(128) char raw[];", ["char * raw = ::kforge_emulator::DynamicShared{}"]),
    ("extern __shared__ float rows[][32];", ["float (*rows)[32]"]),
])  # fmt: skip
def test_shared_declarations(declaration, variables):
    """Each declarator becomes a reference into the block's arena with its own type."""
    text = body(f"void k() {{ {declaration} }}")
    assert "__shared__" not in text
    for v in variables:
        assert " ".join(v.split()) in " ".join(text.replace("* ", "* ").split()).replace("char* raw", "char * raw")


def test_comments_strings_and_macros_are_left_alone():
    """Words inside comments, strings and directives are no declarations."""
    text = 'const char* s = "__shared__ int x;"; // __shared__ int y;\n#define D __shared__ int z\n/* asm("x"); */\n'
    assert text in body(text)
    assert mask('a"b"c//d\ne') == "a   c   \ne"


def test_line_numbers_survive():
    """A declaration over three lines and a multi-line asm keep what follows on its line."""
    text = 'void k() {\n__shared__ float\n a[3],\n b;\nasm volatile(\n"trap;"\n);\nmarker; }\n'
    out = body(text).splitlines()
    assert out[0] == '#line 1 "a.cu"'
    assert out.index("marker; }") == text.splitlines().index("marker; }") + 1


def test_what_must_run_in_order():
    """Blocks are spread over OS threads only where nothing can depend on their order."""
    assert not translate("__device__ const float t[2] = {1, 2};", "a.cu", []).sequential
    for text in (
        "atomicAdd(p, 1);",
        "volatile float* q;",
        "__device__ int counter;",
        'asm("trap;");',
        "__threadfence();",
    ):
        assert translate(text, "a.cu", []).sequential


def test_cluster_dims_are_read():
    """__cluster_dims__ of a kernel is found, with missing dimensions 1."""
    found = translate("__global__ void __cluster_dims__(2, 4) __launch_bounds__(128) k(int* p) {}", "a.cu", []).clusters
    assert found == {"k": (2, 4, 1)}


def test_constants_go_after_the_last_top_level_include():
    """Constants follow the last include outside conditions, and lines keep their numbers."""
    text = "#include <a>\n#ifdef X\n#include <b>\n#endif\nint x;\n"
    assert insert_constants(text, "f.cu", ["#define N 3"]) == (
        '#include <a>\n#define N 3\n#line 2 "f.cu"\n#ifdef X\n#include <b>\n#endif\nint x;\n'
    )


@pytest.mark.parametrize(("instruction", "rest"), [
    ("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", ' {%0}, %1;" : "+f"(d) : "l"(a)'),
    ("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32", ' [%0], %1;" :: "r"(a), "r"(1)'),
    ("cp.async.bulk.tensor.2d.shared::cluster.global.tile", ' [%0], [%1, {%2, %3}];" :: "r"(a)'),
    ("@p", ' bra L;"'),
])  # fmt: skip
def test_unknown_ptx_is_gpu_only(instruction, rest):
    """Instructions outside the whitelist become a call that names them."""
    assert ptx.translate(f'"{instruction}{rest}') == f'::kforge_emulator::gpu_only("{instruction}")'


def test_floats_without_a_value_are_marked_where_code_runs():
    """A local's declaration is followed by its mark on the same line; members, constexpr and set ones have none."""
    text = (
        "struct P { float m; };\nconstexpr float f() { float y; return 0; }\ntemplate <class T> void k() {\n"
        "float m, n = g(1, 2), c[4];\nif constexpr (N > 1) { T v; use(v); }\nconst float w = 1.f; }\n"
    )
    out = body(text).splitlines()[1:]
    assert out[3] == "float m, n = g(1, 2), c[4]; KFORGE_UNSET(m); KFORGE_UNSET(c);"
    assert out[4] == "if constexpr (N > 1) { T v; KFORGE_UNSET(v); use(v); }"
    assert [line for line in out if "KFORGE_UNSET" in line] == out[3:5]
