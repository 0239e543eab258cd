"""The static resource report, and the registry of launchers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from kforge.errors import BuildError, LaunchError, MissingError, UsageError
from kforge.kernel import Kernel, build_only, kernel_report, overrides, static_report
from kforge.kernel import launchers as registry
from kforge.kernel.build import nvrtc
from kforge.kernel.launchers import LAUNCHERS, Geometry, driver

pytestmark = pytest.mark.skipif(not nvrtc.is_available()[0], reason=nvrtc.is_available()[1])

CU = """\
#include <cuda_fp16.h>
template <typename T, int VEC>
__global__ void scale(const T* x, T* y, int n) {
    __shared__ float s[BLOCK];
    s[threadIdx.x] = (float)x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = (T)(s[BLOCK - 1 - threadIdx.x] * VEC);
}
extern "C" __global__ void fill(float* y) { y[threadIdx.x] = 1.0f; }
"""
MODULE = """\
import os
from pathlib import Path
import torch
from kforge.kernel import Kernel, Module

open(os.environ["MUST_NOT_RUN"])
BLOCK = 512
module = Module(Path(__file__).with_name("scale_kforge.cu"))
scale = Kernel("scale<T, VEC>", module, grid="(n,)", block="BLOCK", constants={"BLOCK": 512, "VEC": 4},
               types={"T": "x"})
fill = module.kernel("fill", block=(64, 2), shared=4096, constants={"BLOCK": BLOCK and 512})
single = Kernel("fill", source="scale_kforge.cu", block=64, constants={"BLOCK": 256})
"""


@pytest.fixture
def candidate(tmp_path: Path) -> Path:
    """A candidate's folder, whose module cannot be run."""
    (tmp_path / "scale_kforge.py").write_text(MODULE.replace("BLOCK and 512", "512"))
    (tmp_path / "scale_kforge.cu").write_text(CU)
    return tmp_path


def test_report_of_a_candidate_runs_nothing_of_it(candidate: Path) -> None:
    """Kernels are found in the syntax tree and built at their declared constants, with registers and occupancy."""
    rows = static_report(candidate, "sm_90a", types={"T": "__half"})
    assert sorted((r["name"], r["constants"]["BLOCK"]) for r in rows) == [("fill", 256), ("fill", 512), ("scale", 512)]
    scale = next(r for r in rows if r["name"] == "scale")
    assert (scale["shared"], scale["spill_bytes"], scale["types"]) == (2048, 0, {"T": "__half"})
    assert scale["occupancy"] == 1.0 and scale["registers"] > 0
    assert Path(scale["cubin"]).is_file()


def test_report_of_the_constants_that_calls_come_to(tmp_path: Path) -> None:
    """What `require` rules out for every call of an element type is not what is built; overrides in force are."""
    (tmp_path / "wide_kforge.cu").write_text(
        "template <typename T, int VEC> __global__ void wide(const T* x, T* y, int n) { if (n > VEC) y[0] = x[0]; }"
    )
    (tmp_path / "wide_kforge.py").write_text(
        'wide = Kernel("wide<T, VEC>", source="wide_kforge.cu", grid="1", block=32, types={"T": "x"},\n'
        '              constants={"VEC": 8}, tune={"VEC": [8, 4, 2]},\n'
        '              require={"VEC": "VEC * sizeof(T) <= 16 and n % VEC == 0 and aligned(x, 4)"})\n'
    )
    with overrides({"wide": {"VEC": 2}}):
        given = static_report(tmp_path, "sm_90a")
    found = [*static_report(tmp_path, "sm_90a"), *static_report(tmp_path, "sm_90a", element="__half"), *given]
    assert [row["constants"]["VEC"] for row in found] == [4, 8, 2]
    assert [row["types"]["T"] for row in found] == ["float", "__half", "float"]


def test_report_of_source_text() -> None:
    """Plain source text is reported as well; what does not compile is a BuildError."""
    rows = static_report('extern "C" __global__ void one(float* x) { x[0] = 1; }\n')
    assert [(r["name"], r["arch"], r["occupancy"]) for r in rows] == [("one", "sm_90a", None)]
    with pytest.raises(BuildError, match="error"):
        static_report('extern "C" __global__ void one(float* x) { x[0] = y; }\n')


def test_report_of_what_calls_resolved_to() -> None:
    """kernel_report has one row per configuration that calls came to, with their types and shared memory."""
    kernel = Kernel(
        "scale<T, VEC>", CU, block="BLOCK", shared="n * 4", constants={"BLOCK": 64, "VEC": 1}, types={"T": "x"}
    )
    with build_only():
        for dtype in (torch.float32, torch.float16, torch.float32):
            kernel(torch.zeros(64, dtype=dtype), torch.zeros(64, dtype=dtype), 24 << 10)
    rows = kernel_report(kernel, "sm_90a")
    assert [r.types["T"] for r in rows] == ["float", "__half"]
    assert all(r.shared == 256 and r.occupancy_limit == "shared" for r in rows)
    assert rows[0].occupancy == 2 * 2 / 64


def test_launchers_say_whether_and_why() -> None:
    """Every launcher is listed with its state and a reason; unknown and unusable ones are named errors."""
    states = registry.launchers()
    assert list(states) == ["driver", "cupy", "cuda_core"] == list(LAUNCHERS)
    assert all(isinstance(usable, bool) and reason for usable, reason in states.values())
    with pytest.raises(UsageError, match="unknown launcher 'opencl'; there are driver, cupy, cuda_core"):
        registry.get("opencl")
    for name in (n for n, (usable, _) in states.items() if not usable):
        with pytest.raises(MissingError, match=f"launcher {name} cannot be used here: "):
            registry.get(name)


def test_cupy_refuses_clusters() -> None:
    """CuPy cannot launch clusters and says so before it loads anything."""
    with pytest.raises(LaunchError, match="CuPy cannot launch clusters"):
        LAUNCHERS["cupy"].bind(None, (), Geometry((2, 1, 1), (32, 1, 1), cluster=(2, 1, 1)), 0)


def test_driver_structures_match_cudas_headers(tmp_path: Path) -> None:
    """The launch structures by ctypes have the sizes and offsets of cuda.h."""
    source = """
#include <cuda.h>
#include <cstddef>
#include <cstdio>
int main() {
    std::printf("%zu %zu %zu %zu %zu %zu", sizeof(CUlaunchConfig), offsetof(CUlaunchConfig, hStream),
                offsetof(CUlaunchConfig, attrs), offsetof(CUlaunchConfig, numAttrs), sizeof(CUlaunchAttribute),
                offsetof(CUlaunchAttribute, value));
    std::printf(" %d %d", (int)CU_LAUNCH_ATTRIBUTE_COOPERATIVE, (int)CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    std::printf(" %d %d", (int)CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                (int)CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
    std::printf(" %d", (int)CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
}
"""
    (tmp_path / "layout.cpp").write_text(source)
    includes = [f"-I{p}" for p in nvrtc.include_dirs()[2:]]
    subprocess.run(["g++", "-w", *includes, "-o", "layout", "layout.cpp"], cwd=tmp_path, check=True)
    done = subprocess.run(["./layout"], cwd=tmp_path, capture_output=True, text=True, check=True)
    import ctypes

    config, attribute = driver.Config, driver._Attribute
    expected = [
        *(ctypes.sizeof(config), config.stream.offset, config.attributes.offset, config.n_attributes.offset),
        *(ctypes.sizeof(attribute), attribute.value.offset, driver._COOPERATIVE, driver._CLUSTER),
        *(driver.MAX_DYNAMIC_SHARED, driver.NON_PORTABLE_CLUSTER, driver._SHARED_OPTIN),
    ]
    assert done.stdout.split() == [str(n) for n in expected]


def test_importing_the_package_is_light() -> None:
    """Importing kforge.kernel loads neither torch nor a parser."""
    script = (
        "import sys, kforge.kernel; print([m for m in ('torch', 'tree_sitter', 'cupy', 'cuda') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
