"""Kernel on CPU tensors: right results through the emulator, and every refusal with its text."""

from __future__ import annotations

import copy
import secrets
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

from kforge.errors import BuildError, LaunchError
from kforge.kernel import Kernel, Module, build_only, kernels, launches, overrides
from kforge.kernel.arguments import _device
from kforge.kernel.build import cache_root

SCALE = """\
extern "C" __global__ void scale(const float* __restrict__ x, float* __restrict__ y, int rows, long long cols,
                                 float factor, bool negate) {
    for (long long c = threadIdx.x; c < cols; c += blockDim.x) {
        const long long i = blockIdx.x * cols + c;
        y[i] = x[i] * (negate ? -factor : factor) + OFFSET;
    }
}
"""


pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.fixture
def scale(both_ways: str) -> Kernel:
    """y = x * factor + OFFSET over rows x cols floats."""
    return Kernel("scale", SCALE, grid="(rows, 1, 1)", block="BLOCK", constants={"BLOCK": 64, "OFFSET": 1})


def _call(kernel: Kernel, *args: Any, **kwargs: Any) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        kernel(*args, **kwargs)
    return caught.value


def test_result(scale: Kernel) -> None:
    """A call on CPU tensors runs the kernel's own source and writes its result; names may be used for arguments."""
    x = torch.randn(5, 37)
    y = torch.empty_like(x)
    scale(x, y, 5, 37, 2.0, False)
    assert torch.equal(y, x * 2 + 1)
    scale(x, y, cols=37, rows=5, factor=3, negate=True)
    assert torch.equal(y, x * -3 + 1)
    scale(x, y, numpy.int64(5), numpy.int32(37), numpy.float32(4), False)
    assert torch.equal(y, x * 4 + 1)


X, Y = torch.zeros(4, 8), torch.zeros(4, 8)
BAD_CALLS = [
    ((X, Y, 4), "scale takes 6 arguments (x, y, rows, cols, factor, negate), 3 were given"),
    ((X, Y, 4, 8, 1.0, False, 0), "scale takes 6 arguments (x, y, rows, cols, factor, negate), 7 were given"),
    ((X.half(), Y, 4, 8, 1.0, False), "scale: argument 'x' is float16, but float* takes float32"),
    ((X, Y.double(), 4, 8, 1.0, False), "scale: argument 'y' is float64, but float* takes float32"),
    ((X.t(), Y, 4, 8, 1.0, False), "scale: argument 'x' is not contiguous (shape (8, 4), strides (1, 8))"),
    ((X, X, 4, 8, 1.0, False), "scale: argument 'y' is written and overlaps argument 'x' in memory"),
    ((X, 5, 4, 8, 1.0, False), "scale: argument 'y' is a pointer and got int 5"),
    ((X, Y, 4.0, 8, 1.0, False), "scale: argument 'rows' is an int and got float 4.0"),
    ((X, Y, 2**31, 8, 1.0, False), "scale: argument 'rows' = 2147483648 does not fit int (-2147483648 to 2147483647)"),
    ((X, Y, 4, 2**63, 1.0, False), "scale: argument 'cols' = 9223372036854775808 does not fit long long"),
    ((X, Y, 4, 8, "a", False), "scale: argument 'factor' is a float and got str 'a'"),
    ((X, Y, 4, 8, 1e39, False), "scale: argument 'factor' = 1e+39 does not fit float"),
    ((X, Y, 4, 8, 10**400, False), "scale: argument 'factor' = 1000"),
    ((X, Y, 4, 8, torch.tensor(1.0), False), "scale: argument 'factor' is a float and got a tensor"),
    ((X, Y, 4, 8, 1.0, 1), "scale: argument 'negate' is a bool and got int 1"),
    ((X, Y, -1, 8, 1.0, False), "scale: grid '(rows, 1, 1)' gives (-1, 1, 1), which is negative"),
    ((X.to_sparse(), Y, 4, 8, 1.0, False), "scale: argument 'x' has layout torch.sparse_coo"),
    (
        (torch.zeros(33, dtype=torch.uint8)[1:].view(-1), Y, 4, 8, 1.0, False),
        "scale: argument 'x' is uint8, but float* takes float32",
    ),
]


@pytest.mark.parametrize(("args", "message"), BAD_CALLS)
def test_refused_calls(scale: Kernel, args: tuple, message: str) -> None:
    """A call that the signature does not allow is refused before launch, with the parameter's name."""
    assert _call(scale, *args).message.startswith(message)


def test_refused_after_a_good_call(scale: Kernel) -> None:
    """The fast path of a repeated call refuses what the first call would have refused."""
    scale(X, Y, 4, 8, 1.0, False)
    assert "does not fit long long" in _call(scale, X, Y, 4, 2**63, 1.0, False).message
    assert "'rows' is an int and got float 4.0" in _call(scale, X, Y, 4.0, 8, 1.0, False).message
    assert "'factor' = 1e+39 does not fit float" in _call(scale, X, Y, 4, 8, 1e39, False).message
    assert "'factor' is a float and got a tensor" in _call(scale, X, Y, 4, 8, torch.tensor(1.0), False).message
    assert "'negate' is a bool and got int 0" in _call(scale, X, Y, 4, 8, 1.0, 0).message
    storage = torch.zeros(64)
    scale(storage[:32], storage[32:], 4, 8, 1.0, False)
    assert "overlaps argument 'x'" in _call(scale, storage[:32], storage[31:63], 4, 8, 1.0, False).message


def test_keyword_errors(scale: Kernel) -> None:
    """Keywords that are unknown, missing or given twice are named."""
    assert _call(scale, X, Y, 4, 8, 1.0, neg=1).message.startswith("scale has no parameter 'neg'")
    assert _call(scale, X, Y, 4, 8, negate=False).message == "scale: argument 'factor' is missing"
    assert _call(scale, X, Y, 4, 8, 1.0, False, x=X).message == "scale: argument 'x' is given twice"


def test_gradients_are_refused(scale: Kernel) -> None:
    """An argument that requires grad raises while grad mode is on, on the first call and on a repeated one."""
    x = torch.ones(4, 8, requires_grad=True)
    assert (
        "argument 'x' requires grad, and a bare Kernel has no backward" in _call(scale, x, Y, 4, 8, 1.0, False).message
    )
    with torch.no_grad():
        scale(x, Y, 4, 8, 1.0, False)
    assert "requires grad" in _call(scale, x, Y, 4, 8, 1.0, False).message


def test_misaligned_pointer() -> None:
    """A pointer that is no multiple of its element, which CUDA cannot load, is refused."""
    kernel = Kernel("k", 'extern "C" __global__ void k(const float4* x) {}\n')
    assert "is at an address that is no multiple of 16" in _call(kernel, torch.zeros(9)[1:]).message


def test_mixed_devices() -> None:
    """Tensors of two devices are refused with both devices named."""
    with pytest.raises(LaunchError, match=r"k: argument 'y' is on meta, but 'x' is on cpu"):
        _device("k", {"x": X, "y": Y.to("meta")})
    with pytest.raises(LaunchError, match=r"'y' is on meta; kernels run on cuda and cpu tensors"):
        _device("k", {"y": Y.to("meta")})


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        ("(1, n)", 32, "k: grid.y = 65536 exceeds 65535"),
        ("(1, 1, n)", 32, "k: grid.z = 65536 exceeds 65535"),
        ("n * n", 32, "k: grid.x = 4294967296 exceeds 2147483647"),
        ("(1, 1, 1, 1)", 32, "gives (1, 1, 1, 1), not up to three integers"),
        ("n / 2", 32, "gives 32768.0, not up to three integers"),
        (1, "n", "k: block.x = 65536 exceeds 1024"),
        (1, (64, 32), "a block of (64, 32, 1) has 2048 threads; 1 to 1024 are possible"),
        (1, (1, 1, 65), "k: block.z = 65 exceeds 64"),
        (1, 0, "a block of (0, 1, 1) has 0 threads"),
    ],
)
def test_launch_limits(grid: Any, block: Any, message: str) -> None:
    """CUDA's limits on grid and block are checked before launch and named."""
    kernel = Kernel("k", 'extern "C" __global__ void k(float* x, int n) {}\n', grid=grid, block=block)
    assert message in _call(kernel, torch.zeros(1), 65536).message


def test_launch_bounds_and_cluster() -> None:
    """More threads than __launch_bounds__ allows, or a grid that clusters do not divide, are refused."""
    source = 'extern "C" __global__ void __launch_bounds__(BLOCK / 1) k(float* x, int n) {}\n'
    kernel = Kernel("k", source, block="n", constants={"BLOCK": 128})
    bounded = Kernel("k", source.replace("BLOCK / 1", "BLOCK"), block="n", constants={"BLOCK": 128})
    kernel(torch.zeros(1), 128)
    assert "256 threads a block exceed __launch_bounds__(BLOCK) = 128" in _call(bounded, torch.zeros(1), 256).message
    clustered = Kernel("k", source, grid="n", block=32, cluster=(2, 1, 1), constants={"BLOCK": 128})
    assert "grid.x = 3 is no multiple of cluster.x = 2" in _call(clustered, torch.zeros(1), 3).message


def test_empty_grid_launches_nothing(scale: Kernel) -> None:
    """A grid of no blocks returns quietly and counts no launch."""
    with launches() as counts:
        scale(X[:0], Y[:0], 0, 8, 1.0, False)
        assert counts["scale"] == 0
        scale(X, Y, 4, 8, 1.0, False)
        scale(X, Y, 4, 8, 1.0, False)
    assert launches() == {"scale": 2}


def test_null_pointer() -> None:
    """None is a null pointer."""
    source = """extern "C" __global__ void k(float* y, const float* bias) { y[0] = bias ? bias[0] : -1.0f; }\n"""
    kernel = Kernel("k", source, block=1)
    y = torch.zeros(1)
    kernel(y, None)
    assert y.item() == -1
    kernel(y, torch.tensor([7.0]))
    assert y.item() == 7


def test_types_follow_the_tensor() -> None:
    """`types={"T": "x"}` gives one instance per element type, and holds the other T pointers to it."""
    source = """\
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <typename T>
__global__ void twice(const T* x, T* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = (T)((float)x[threadIdx.x] * 2); }
"""
    kernel = Kernel("twice<T>", source, block=32, types={"T": "x"})
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = torch.arange(5).to(dtype)
        y = torch.zeros_like(x)
        kernel(x, y, 5)
        assert torch.equal(y, x * 2)
    assert "'y' is float32, but __half* (T) takes float16" in _call(kernel, X.half(), Y, 5).message
    assert "'x' gives T its type and must be a tensor" in _call(kernel, None, Y, 5).message


def test_strided_and_interleaved_arguments() -> None:
    """A pointer in `strided` may be a view; views that interleave may be written, overlapping ones not."""
    source = """\
extern "C" __global__ void negate(const float* x, float* y, int n, long long sx, long long sy) {
    if (threadIdx.x < n) y[threadIdx.x * sy] = -x[threadIdx.x * sx];
}
"""
    kernel = Kernel("negate", source, block=32, strided=("x", "y"))
    packed = torch.arange(16.0)
    for _ in range(2):
        packed[1::2] = 0
        kernel(packed[0::2], packed[1::2], 8, 2, 2)
        assert torch.equal(packed[1::2], -packed[0::2])
    assert "overlaps argument 'x'" in _call(kernel, packed[0::2], packed[2:], 7, 2, 1).message


def test_lazy_views_are_refused() -> None:
    """A conjugate or negation that torch has only noted is refused, after calls with plain views of its shape too."""
    complex_kernel = Kernel(
        "k", 'extern "C" __global__ void k(const float2* x, float* y) { y[0] = x[0].y; }\n', block=1
    )
    z, y = torch.tensor([1 + 2j, 3 + 4j]), torch.zeros(1)
    real_kernel = Kernel(
        "r", 'extern "C" __global__ void r(const float* x, float* y) { y[0] = x[0]; }\n', strided=("x",)
    )
    for _ in range(3):
        complex_kernel(z, y)
        assert y.item() == 2
        real_kernel(z.imag, y)
        assert y.item() == 2
    assert "'x' is a lazy conjugate or negation" in _call(complex_kernel, z.conj(), y).message
    assert "'x' is a lazy conjugate or negation" in _call(real_kernel, z.conj().imag, y).message


def test_writes_names_a_const_pointer() -> None:
    """A const pointer in `writes` is checked like a written one."""
    source = 'extern "C" __global__ void k(const float* x, const float* y) { ((float*)y)[0] = x[0]; }\n'
    kernel = Kernel("k", source, block=1, writes=("y",))
    assert "'y' is written and overlaps argument 'x'" in _call(kernel, X, X).message
    Kernel("k", source, block=1)(X, X)


@pytest.mark.parametrize("zeroed", [True, False])
def test_workspace(zeroed: bool) -> None:
    """The parameter `workspace` gets fresh memory of the size asked, zeroed on request, and callers do not pass it."""
    source = """\
extern "C" __global__ void k(float* y, int n, float* workspace) {
    if (!ZEROED) workspace[n - 1] = 0;
    atomicAdd(&workspace[n - 1], 1.0f);
    __syncthreads();
    if (threadIdx.x == 0) y[0] = workspace[n - 1];
}
"""
    kernel = Kernel("k", source, block=1, workspace="n * 4", zeroed=zeroed, constants={"ZEROED": int(zeroed)})
    y = torch.zeros(1)
    for _ in range(2):
        kernel(y, 100)
        assert y.item() == 1


REQUIRE = {"VEC": "aligned(x, 4 * VEC) and n % VEC == 0"}
VECTOR = 'extern "C" __global__ void k(const float* x, float* y, int n) { y[0] = VEC * 1000 + BLOCK; }\n'


def _vector(**keywords: Any) -> Kernel:
    declaration: dict[str, Any] = {
        "constants": {"VEC": 4, "BLOCK": 64},
        "tune": {"VEC": [4, 2, 1], "BLOCK": [32, 64]},
        "require": REQUIRE,
    }
    return Kernel("k", VECTOR, block=1, **{**declaration, **keywords})


def _chosen(kernel: Kernel, n: int, offset: int = 0) -> float:
    y = torch.zeros(1)
    kernel(torch.zeros(64)[offset : offset + n], y, n)
    return y.item()


def test_require_falls_back_in_tune_order() -> None:
    """Where a condition fails the constant takes its next value in tune order, by alignment and by size."""
    kernel = _vector()
    assert [_chosen(kernel, n) for n in (8, 6, 7)] == [4064, 2064, 1064]
    assert [_chosen(kernel, 8, offset) for offset in (0, 2, 1, 4)] == [4064, 2064, 1064, 4064]


def test_none_holds() -> None:
    """If no value meets the condition, the call raises and names values and condition."""
    kernel = _vector(tune={"VEC": [4, 2]})
    x = torch.zeros(64)
    error = _call(kernel, x[:7], torch.zeros(1), 7)
    assert error.message == "k: no value of VEC in [4, 2] meets its condition: aligned(x, 4 * VEC) and n % VEC == 0"
    plain = _vector(require={"n": "n <= 16"})
    assert _call(plain, x[:17], torch.zeros(1), 17).message == "k requires n <= 16 (of n), which does not hold"


def test_tuned_first_match_wins() -> None:
    """`tuned` is a list of shape classes: the first condition that holds decides, and `require` still applies."""
    tuned = [("n >= 16", {"BLOCK": 32, "VEC": 2}), (True, {"BLOCK": 128})]
    kernel = _vector(tuned=tuned)
    assert [_chosen(kernel, n) for n in (32, 8, 7)] == [2032, 4128, 1128]
    assert _chosen(kernel, 17) == 1032


def test_overrides() -> None:
    """overrides() wins over tuned and declared values while it lasts; an unknown constant is named."""
    kernel = _vector(tuned=[(True, {"BLOCK": 128})])
    assert _chosen(kernel, 8) == 4128
    with overrides({"k": {"BLOCK": 32, "VEC": 2}}):
        assert _chosen(kernel, 8) == 2032
        assert _chosen(kernel, 7) == 1032
    assert _chosen(kernel, 8) == 4128
    with overrides({"k": {"STAGES": 3}}):
        assert "k has no constant STAGES to override" in _call(kernel, X, torch.zeros(1), 8).message


def test_overrides_reach_templates() -> None:
    """A template is found by its name alone and as it is declared, which is how a tuning space names it."""
    source = "template <int N> __global__ void fill(float* y) { y[0] = N; }"
    kernel = Kernel("fill<N>", source, block=1, constants={"N": 3})
    y = torch.zeros(1)
    for name in ("fill", "fill<N>"):
        with overrides({name: {"N": 5}}):
            kernel(y)
        assert y.item() == 5
        kernel(y)
        assert y.item() == 3


def test_build_only_builds_and_does_not_launch() -> None:
    """Within build_only() a call builds what it needs and leaves its outputs alone."""
    block = 1024 + secrets.randbelow(1 << 20)  # that no earlier run has built
    kernel = _vector(constants={"VEC": 4, "BLOCK": block})
    before = sum(1 for _ in cache_root().rglob("*"))
    with build_only(), launches() as counts:
        assert _chosen(kernel, 8) == 0
    assert counts == {} and sum(1 for _ in cache_root().rglob("*")) > before
    assert _chosen(kernel, 8) == 4000 + block


def test_definition_errors() -> None:
    """A declaration that does not fit the source is a BuildError when the Kernel is constructed."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"grid": "rows"}, "k: 'rows' names 'rows'; it may use BLOCK, VEC, n"),
        ({"grid": "x"}, "k: 'x' names 'x'"),
        ({"require": {"VEC": "aligned(z, 16)"}}, "k: aligned(z, ...) in 'aligned(z, 16)': no pointer parameter 'z'"),
        ({"require": {"VEC": "sizeof(T) == 4"}}, "'T' is not in types"),
        ({"tune": {"TILE": [1]}}, "k: tune names 'TILE', which is not in constants"),
        ({"tuned": [(True, {"TILE": 1})]}, "k: tuned sets 'TILE', which is not in constants"),
        ({"writes": ("n",)}, "k: writes names 'n', which is no pointer parameter"),
        ({"strided": ("q",)}, "k: strided names 'q'"),
        ({"constants": {"n": 1, "VEC": 1, "BLOCK": 1}}, "k: 'n' is both a constant and a parameter"),
        ({"workspace": 64}, "k: workspace= needs a pointer parameter named 'workspace'"),
        ({"zeroed": True}, "k: zeroed=True without a workspace"),
    ]
    for keywords, message in cases:
        with pytest.raises(BuildError) as caught:
            _vector(**keywords)
        assert message in caught.value.message


def test_source_beside_the_file(tmp_path: Path) -> None:
    """A source is named relative to the file that constructs the Kernel; a missing one is named with the folder."""
    (tmp_path / "scale.cu").write_text(SCALE)
    code = compile("kernel = Kernel('scale', 'scale.cu', constants={'OFFSET': 0})", "mod.py", "exec")
    namespace = {"Kernel": Kernel, "__file__": str(tmp_path / "mod.py"), "__name__": "mod"}
    exec(code, namespace)
    assert namespace["kernel"].name == "scale"  # type: ignore[attr-defined]
    with pytest.raises(BuildError, match=r"no source file 'absent.cu' in "):
        Kernel("k", "absent.cu")


def test_signature_where_the_source_hides_it() -> None:
    """A macro in the parameters is refused, and `signature=` settles it."""
    source = '#define REAL float\nextern "C" __global__ void k(REAL* y) { y[0] = 5; }\n'
    with pytest.raises(BuildError, match="cannot resolve parameter 'REAL"):
        Kernel("k", source, block=1)
    y = torch.zeros(1)
    Kernel("k", source, block=1, signature="float* y")(y)
    assert y.item() == 5


def test_tensor_map_is_refused_clearly() -> None:
    """A plain tensor for a tensor map parameter is refused with the parameter's name and the remedy."""
    kernel = Kernel("k", 'extern "C" __global__ void k(const __grid_constant__ CUtensorMap map, float* y) {}\n')
    assert "argument 'map' is a CUtensorMap and got" in _call(kernel, X, Y).message


def test_module_shares_one_cubin() -> None:
    """Kernels of one Module that resolve to the same constants are built together, once."""
    source = """\
template <int N> __global__ void first(float* y) { y[0] = N; }
extern "C" __global__ void second(float* y) { y[0] = BLOCK; }
"""
    module = Module(source)
    first = module.kernel("first<N>", block=1, constants={"N": 3, "BLOCK": 32})
    second = module.kernel("second", block=1, constants={"BLOCK": 32})
    y = torch.zeros(1)
    first(y)
    assert y.item() == 3
    second(y)
    assert y.item() == 32
    requests = [module.request(k.definition, {**k.definition.constants}, {}, "sm_90a") for k in (first, second)]
    assert requests[0].kernels == requests[1].kernels == ("first<3>", "second")
    assert requests[0].text == requests[1].text


def test_registry_and_copies() -> None:
    """Live kernels are listed, and copying a module that holds one does not copy it."""
    kernel = _vector()
    assert kernel in kernels()
    assert copy.deepcopy({"kernel": kernel})["kernel"] is kernel
