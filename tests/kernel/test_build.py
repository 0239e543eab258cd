"""Builds with no GPU and no driver: NVRTC and nvcc, the include shim, errors, the cache, resource figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kforge.errors import BuildError
from kforge.kernel.build import COMPILERS, BuildRequest, build, nvcc, nvrtc, read_only_cache
from kforge.kernel.build.request import parse_resources
from kforge.kernel.occupancy import occupancy
from kforge.kernel.prepare import literal, prepare, substitute
from tests.patience import PATIENCE_S

TEMPLATE = """\
#include <cuda_fp16.h>
template <typename T, int VEC>
__global__ void __launch_bounds__(256) copy(const T* x, T* y, int64_t n) {
    __shared__ float s[256];
    s[threadIdx.x] = (float)x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = (T)(s[255 - threadIdx.x] * VEC);
}
extern "C" __global__ void one(float* x) { x[0] = 1.0f; }
"""
needs_nvrtc = pytest.mark.skipif(not nvrtc.is_available()[0], reason=nvrtc.is_available()[1])
needs_nvcc = pytest.mark.skipif(not nvcc.is_available()[0], reason=nvcc.is_available()[1])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty build cache."""
    monkeypatch.setenv("KFORGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("kforge.kernel.build._in_process", {})
    return tmp_path / "cache"


def _request(text: str, *kernels: str, compiler: str = "auto") -> BuildRequest:
    return BuildRequest(text, "k.cu", kernels, "sm_90a", compiler=compiler)


@pytest.mark.parametrize("compiler", [pytest.param("nvrtc", marks=needs_nvrtc), pytest.param("nvcc", marks=needs_nvcc)])
def test_builds_templates_for_a_named_architecture(compiler: str, cache: Path) -> None:
    """Each compiler turns template instances and extern "C" kernels into a cubin with symbols and ptxas's figures."""
    built = build(_request(TEMPLATE, "copy<__half, 4>", "copy<float, 2>", "one", compiler=compiler))
    assert built.cubin[:4] == b"\x7fELF"
    assert set(built.names) == {"copy<__half, 4>", "copy<float, 2>", "one"}
    assert built.names["one"] == "one" and built.names["copy<float, 2>"].startswith("_Z4copyIfLi2EE")
    figures = built.resources["copy<__half, 4>"]
    assert (figures.shared, figures.spill_bytes, figures.barriers) == (1024, 0, 1)
    assert 0 < figures.registers <= 64


@needs_nvrtc
def test_line_info(cache: Path) -> None:
    """Cubins carry line information under the source's own name."""
    built = build(_request(prepare(TEMPLATE, "mine.cu", {}, {}), "one", compiler="nvrtc"))
    assert b".nv_debug_line" in built.cubin or b".debug_line" in built.cubin
    assert b"mine.cu" in built.cubin


@needs_nvrtc
def test_error_is_the_compilers_first_error_line(cache: Path) -> None:
    """A BuildError's message is the first error with file and line as in the user's source; the log is whole."""
    source = '#include <cuda_fp16.h>\n\nextern "C" __global__ void k(float* x) {\n  x[0] = undefined_name;\n}\n'
    with pytest.raises(BuildError) as caught:
        build(_request(prepare(source, "bad.cu", {"BLOCK": 256}, {}), "k"))
    assert caught.value.message == 'bad.cu(4): error: identifier "undefined_name" is undefined'
    assert "x[0] = undefined_name;" in caught.value.hint
    assert "1 error detected" in caught.value.log


@needs_nvrtc
def test_unknown_kernel_is_an_error(cache: Path) -> None:
    """A name expression that does not exist in the source fails the build."""
    with pytest.raises(BuildError):
        build(_request(TEMPLATE, "absent<float>", compiler="nvrtc"))


SHIM = {
    "limits and constants": """
        #include <cstdint>
        #include <cmath>
        #include <math.h>
        #include <float.h>
        #include <cfloat>
        #include <limits>
        #include <climits>
        #include <stdint.h>
        extern "C" __global__ void k(float* x, std::uint32_t n, int64_t m, double* d, uint8_t* u) {
            constexpr float low = std::numeric_limits<float>::lowest();
            constexpr float inf = std::numeric_limits<float>::infinity();
            float v = fmaxf(-INFINITY, NAN) + FLT_MAX + FLT_EPSILON + low + inf + (float)M_PI;
            if (n == UINT_MAX || m == INT64_MAX || std::numeric_limits<int>::max() == INT_MAX) x[0] = v;
            d[0] = DBL_MAX; u[0] = UINT8_MAX;
        }""",
    "nothing included": """
        extern "C" __global__ void k(float* x, uint32_t n, size_t m, uint64_t l) {
            if (threadIdx.x < n) x[m] = -INFINITY + (isnan(x[l]) ? NAN : expf(x[0]));
        }""",
    "runtime and standard names": """
        #include <cuda_runtime.h>
        #include <cuda_bf16.h>
        #include <algorithm>
        #include <type_traits>
        #include <utility>
        #include <cassert>
        #include <cstdio>
        extern "C" __global__ void k(float* x, __nv_bfloat16* b) {
            assert(x != nullptr);
            if constexpr (std::is_same_v<float, float>) x[0] = std::max(std::sqrt(x[0]), std::exp(x[1]));
            std::swap(x[0], x[1]);
            b[0] = __float2bfloat16(std::min(x[0], 1.0f));
            if (std::isnan(x[0])) printf("%f", x[0]);
        }""",
    "libcu++ beside the shim": """
        #include <cstdint>
        #include <limits>
        #include <cmath>
        #include <cuda/std/cstdint>
        #include <cuda/std/limits>
        #include <cuda/std/cmath>
        #include <cooperative_groups.h>
        extern "C" __global__ void k(float* x, int64_t n) {
            cooperative_groups::this_thread_block().sync();
            x[n] = cuda::std::numeric_limits<float>::max() + INFINITY;
        }""",
    "philox": """
        #include <kforge/philox.h>
        extern "C" __global__ void k(float* x, const long long* seed) { x[0] = kforge_uniform(seed, 5); }""",
}


@needs_nvrtc
@pytest.mark.parametrize("name", SHIM)
def test_shim(name: str, cache: Path) -> None:
    """What people write for nvcc builds with NVRTC, without a warning."""
    built = build(_request(SHIM[name], "k", compiler="nvrtc"))
    assert "warning" not in built.log


def test_constants_go_behind_the_includes() -> None:
    """Constants and types come after the last top-level #include, and lines keep their numbers."""
    text = prepare("#include <a.h>\n#include <b.h>\nint x;\n", "k.cu", {"BLOCK": 256, "EPS": 0.5}, {"T": "__half"})
    assert text == (
        '#line 1 "k.cu"\n#include <a.h>\n#include <b.h>\n#include <cuda_fp16.h>\n#define BLOCK 256\n#define EPS 0.5\n'
        'using T = __half;\n#line 3 "k.cu"\nint x;\n'
    )


def test_names_in_the_expression_are_substituted_only() -> None:
    """A name of the name expression is put in there and defined nowhere else; literals are C++."""
    assert substitute("softmax<T, VEC + 1>", "ns::softmax", {"VEC": 4}, {"T": "float"}) == "ns::softmax<float, 4 + 1>"
    assert "VEC" not in prepare("int x;\n", "k.cu", {"VEC": 4}, {}, {"VEC"})
    assert [literal(v) for v in (True, -3, 1.5, "float4")] == ["true", "(-3)", "1.5", "float4"]
    with pytest.raises(BuildError, match="a constant cannot be inf"):
        literal(float("inf"))


@needs_nvrtc
def test_cache_is_hit_and_read_only_misses_are_named(cache: Path) -> None:
    """The same request is built once; in a read-only cache a miss names the specialisation."""
    first = build(_request(TEMPLATE, "one"))
    again = build(_request(TEMPLATE, "one"))
    assert again.path == first.path and len(list((cache / "cubin").glob("*/kernel.cubin"))) == 1
    with read_only_cache():
        assert build(_request(TEMPLATE, "one")).cubin == first.cubin
        with pytest.raises(BuildError, match=r"not in the read-only cache: copy\(VEC=2, T=float\)"):
            build(BuildRequest(TEMPLATE, "k.cu", ("copy<float, 2>",), "sm_90a", what="copy(VEC=2, T=float)"))


@needs_nvrtc
def test_a_header_enters_the_key(cache: Path) -> None:
    """Requests that differ in text, kernels, architecture or included packages are different entries."""
    paths = {
        build(request).path
        for request in (
            BuildRequest(TEMPLATE, "k.cu", ("one",), "sm_90a"),
            BuildRequest(TEMPLATE + "\n", "k.cu", ("one",), "sm_90a"),
            BuildRequest(TEMPLATE, "k.cu", ("one",), "sm_80"),
            BuildRequest(TEMPLATE, "k.cu", ("one",), "sm_90a", include_keys=("cutlass 4.2",)),
        )
    }
    assert len(paths) == 4


@needs_nvrtc
def test_two_processes_build_once(cache: Path, root: Path) -> None:
    """Two processes that want the same cubin at once get one entry, built by one of them, and no debris."""
    script = (
        "import sys; from kforge.kernel.build import BuildRequest, build; import pathlib\n"
        "built = build(BuildRequest(pathlib.Path(sys.argv[1]).read_text(), 'k.cu', ('copy<float, 4>',), 'sm_90a'))\n"
        "print(built.path, built.from_cache)"
    )
    source = cache.parent / "k.cu"
    source.write_text(TEMPLATE)
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", script, str(source)]
    runs = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [run.communicate(timeout=PATIENCE_S)[0].split() for run in runs]
    assert [run.returncode for run in runs] == [0, 0]
    assert answers[0][0] == answers[1][0]
    assert sorted(a[1] for a in answers) == ["False", "True"]
    assert [p for p in (cache / "cubin").iterdir() if p.name.startswith(".")] == []


@needs_nvcc
@needs_nvrtc
def test_nvcc_where_nvrtc_lacks_a_header(cache: Path) -> None:
    """A source with a host header that NVRTC cannot open goes to nvcc by itself."""
    source = '#include <vector>\nextern "C" __global__ void k(float* x) { x[0] = 1; }\n'
    assert build(_request(source, "k")).compiler.startswith("nvcc")
    with pytest.raises(BuildError, match=r'(could not|cannot) open source file "vector"'):
        build(_request(source, "k", compiler="nvrtc"))


def test_unknown_compiler_is_listed(cache: Path) -> None:
    """An unknown compiler is refused with those that exist."""
    with pytest.raises(BuildError, match="unknown compiler 'clang'; there are auto, nvrtc, nvcc"):
        build(_request(TEMPLATE, "one", compiler="clang"))
    assert list(COMPILERS) == ["nvrtc", "nvcc"]


def test_spills_are_read_from_the_log() -> None:
    """Registers, stack, spills, barriers and static shared memory are read for each entry, not for called functions."""
    log = """\
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Function properties for f
    96 bytes stack frame, 100 bytes spill stores, 120 bytes spill loads
ptxas info    : Used 255 registers, used 2 barriers, 2048 bytes smem, 400 bytes cmem[0]
ptxas info    : Function properties for helper
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""
    figures = parse_resources(log)
    assert list(figures) == ["f"]
    f = figures["f"]
    assert (f.registers, f.barriers, f.shared, f.stack, f.spill_bytes) == (255, 2, 2048, 96, 220)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "share", "limit"),
    [
        (256, 32, 0, 1.0, "warps"),
        (1024, 64, 0, 0.5, "registers"),
        (256, 255, 0, 0.125, "registers"),
        (128, 16, 100 << 10, 0.125, "shared"),
        (32, 16, 0, 0.5, "blocks"),
    ],
)
def test_occupancy(threads: int, registers: int, shared: int, share: float, limit: str) -> None:
    """Theoretical occupancy on sm_90 is what NVIDIA's calculator gives, with the limiting resource named."""
    found = occupancy("sm_90a", threads, registers, shared)
    assert found is not None
    assert (found.share, found.limit) == (share, limit)


def test_occupancy_of_an_unknown_architecture() -> None:
    """No limits are made up for an architecture that is not in the table."""
    assert occupancy("sm_20", 256, 32, 0) is None
