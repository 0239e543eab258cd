"""Kernels that take tensor maps leave: their launches describe a map as kforge's own, in C++ and in Python."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support import MODULE, SOURCE, unverified

from kforge.errors import LaunchError, UsageError
from kforge.export.formats import find_format
from kforge.export.package import Export, Options
from kforge.export.placing import place, sealed
from kforge.export.templates import render_template
from kforge.export.tensor_maps import tables
from kforge.kernel.tensor_map import DTYPES, FILLS, PROMOTIONS, SWIZZLES, TensorMap, dimensions

HALVES = torch.zeros(9000, dtype=torch.float16)
WORDS = torch.zeros(9000)
MAPS = [
    TensorMap(HALVES[:4096].view(64, 64), (64, 64), swizzle=128, l2=256),
    TensorMap(HALVES[:8448].view(2, 3, 4, 11, 32)[:, :, :, ::2], (1, 1, 2, 8, 32), swizzle=64, l2=0),
    TensorMap(HALVES[:72].view(1, 1, 72), (1, 7, 8), oob="nan"),
    TensorMap(HALVES[:3].view(1, 3), (1, 64)),
    TensorMap(HALVES[:256].view(8, 1, 32).expand(8, 5, 32), (2, 2, 16), swizzle=32),
    TensorMap(WORDS[:640].view(10, 64)[:, :40], (256, 4), tf32=True, l2=64),
    TensorMap(torch.zeros(48, dtype=torch.int8), (16,)),
    TensorMap(torch.zeros(4, 6, dtype=torch.float64), (2, 4), oob="nan", l2=64),
]
BROKEN = [
    TensorMap(HALVES[:144].view(2, 72)[:, :66].as_strided((2, 66), (66, 1)), (2, 64)),
    TensorMap(HALVES[1:65].view(8, 8), (8, 8)),
    TensorMap(HALVES[:512].view(8, 64), (257, 64)),
    TensorMap(HALVES[:512].view(8, 64), (0, 64)),
    TensorMap(HALVES[:1024].view(8, 128), (8, 128), swizzle=128),
    TensorMap(HALVES[:512].view(8, 64).t(), (8, 64)),
    TensorMap(HALVES[:512].view(8, 64), (8, 4)),
    TensorMap(HALVES[:512].view(8, 64), (8, 8, 8)),
    TensorMap(HALVES[:512].view(8, 64), (8, 8), swizzle=16),
    TensorMap(HALVES[:512].view(8, 64), (8, 8), l2=32),
    TensorMap(HALVES[:512].view(8, 64), (8, 8), tf32=True),
    TensorMap(HALVES[:0].view(0, 64), (8, 8)),
    TensorMap(HALVES[:64].view(1, 1, 1, 1, 1, 64), (1, 1, 1, 1, 1, 8)),
    TensorMap(torch.zeros(8, 8, dtype=torch.int32), (8, 8), oob="nan"),
    TensorMap(torch.zeros(8, 8, dtype=torch.complex64), (8, 8)),
]
PROGRAM = r"""
#include "tensor_map.h"

// A line a map: address, kind, bytes, rank, sizes, strides, number of options, options.
int main() {
    long long address, kind, bytes, rank, count, next;
    int64_t options[16];
    while (std::scanf("%lld %lld %lld %lld", &address, &kind, &bytes, &rank) == 4) {
        maps::MapSource x = {reinterpret_cast<const void*>(address), int(kind), bytes, rank, {}, {}, nullptr, 0};
        for (int i = 0; i < 2 * rank; ++i) {
            std::scanf("%lld", &count);
            if (i % rank < 5) (i < rank ? x.sizes : x.strides)[i % rank] = count;
        }
        std::scanf("%lld", &count);
        for (int i = 0; i < count; ++i) {
            std::scanf("%lld", &next);
            options[i] = next;
        }
        x.options = options;
        x.n_options = count;
        maps::MapDescription map;
        if (const char* refused = maps::describe(x, map)) {
            std::printf("refused: %s\n", refused);
            continue;
        }
        std::printf("%d %u", map.kind, map.rank);
        for (unsigned i = 0; i < map.rank; ++i) std::printf(" %llu", (unsigned long long)map.sizes[i]);
        for (unsigned i = 0; i + 1 < map.rank; ++i) std::printf(" %llu", (unsigned long long)map.strides[i]);
        for (unsigned i = 0; i < map.rank; ++i) std::printf(" %u", map.box[i]);
        std::printf(" %d %d %d\n", map.swizzle, map.promotion, map.fill);
    }
}
"""


def _given(given: TensorMap) -> str:
    """A line of the program's input."""
    x = given.x
    kind = DTYPES.get(str(x.dtype).removeprefix("torch."), -1)
    options = [*given.box, given.swizzle, given.l2, FILLS[given.oob], int(given.tf32)]
    numbers = [x.data_ptr(), kind, x.element_size(), x.dim(), *x.shape, *x.stride(), len(options), *options]
    return " ".join(map(str, numbers))


def _described(given: TensorMap) -> list[int]:
    """What kforge's own launch tells the driver."""
    kind, sizes, strides, box = dimensions(given, "map")
    codes = SWIZZLES[given.swizzle], PROMOTIONS[given.l2], FILLS[given.oob]
    return [kind, len(sizes), *sizes, *strides, *box, *codes]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_cpp_describes_a_map_as_the_kernel_does(tmp_path: Path) -> None:
    """Types, sizes, strides, boxes and codes are the same numbers, and the same maps are refused."""
    header = render_template("csrc/tensor_map.h.j2", {"title": "maps", "namespace": "maps", **tables()})
    (tmp_path / "tensor_map.h").write_text(header)
    (tmp_path / "main.cpp").write_text(PROGRAM)
    command = ["g++", "-std=c++17", "-Wall", "-Werror=format", "main.cpp", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    lines = "".join(f"{_given(m)}\n" for m in (*MAPS, *BROKEN))
    done = subprocess.run([tmp_path / "main"], input=lines, capture_output=True, text=True, check=True)
    found = done.stdout.splitlines()
    assert [list(map(int, line.split())) for line in found[: len(MAPS)]] == [_described(m) for m in MAPS]
    for line, broken in zip(found[len(MAPS) :], BROKEN, strict=True):
        assert line.startswith("refused: ")
        with pytest.raises(LaunchError):
            dimensions(broken, "map")


TILED = SOURCE.replace("const T* x,", "const __grid_constant__ CUtensorMap x,").replace(
    "x[i] * scale", "static_cast<T>(prefetched(&x)) * scale"
)
TILED = TILED.replace(
    "#include <cuda_runtime.h>\n",
    "#include <cuda.h>\n#include <cuda_runtime.h>\n\n"
    "__device__ float prefetched(const CUtensorMap* map) {\n"
    '    asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<unsigned long long>(map)) : "memory");\n'
    "    return 1.0f;\n}\n",
)
FED = (
    MODULE.replace("import Kernel\n", "import Kernel, TensorMap\n")
    .replace("aligned(x, VEC * sizeof(T)) and ", "")
    .replace("shift(x, self.bias,", "shift(tiles(x, 8), self.bias,")
    .replace(
        "def like(",
        'def tiles(x, *box):\n    """x by its lines."""\n    return TensorMap(x, (1, *box), swizzle=32)\n\n\ndef like(',
    )
)


def _fed(folder: Path, name: str, **options: Any) -> Export:
    """The small task by a kernel that is given its input as a tensor map."""
    return unverified(folder, FED, Options(name=name, **options), TILED)


def test_a_launch_takes_the_tensor_and_its_options(
    tmp_path: Path, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package's forward hands a map on as two arguments of its operator: the tensor, and box, swizzle, l2, fill."""
    package = loaded(_fed(tmp_path, "fed_extension"), "aot")
    kernels = sys.modules[f"{package.__name__}._kernels"]
    schema = getattr(torch.ops, package.NAMESPACE).launch_shift.default._schema
    assert [(a.name, str(a.type)) for a in schema.arguments[:3]] == [
        ("x", "Tensor"), ("x_map", "List[int]"), ("bias", "Tensor")
    ]  # fmt: skip
    with monkeypatch.context() as older:  # a GPU without tensor maps: the reference computes the calls
        older.setattr(torch.cuda, "is_available", lambda: True)
        older.setattr(torch.cuda, "get_device_capability", lambda index: (8, 0))
        assert kernels._lacks.__wrapped__(0) == "built for sm_90a; this GPU is sm_80"
        kernels._arch.cache_clear()
    given: list[Any] = []
    maps = sys.modules[f"{package.__name__}._tensor_maps"]
    x = torch.zeros(6, 24)
    maps.taking_maps(lambda *args: given.extend(args))(maps.TensorMap(x, (1, 8), swizzle=32), 3)
    assert given[0] is x
    assert given[1:] == [[1, 8, 32, 128, 0, 0], 3]

    class Driver:
        """Keeps what the encoder is given."""

        @staticmethod
        def cuTensorMapEncodeTiled(place: Any, kind: int, rank: int, address: Any, *rest: Any) -> int:
            given[:] = [address.value, kind, rank, *rest[0], *rest[1][: rank - 1], *rest[2], *rest[-3:]]
            return 0

    kernels._driver = lambda: Driver
    for tensor_map in MAPS:
        options = [*tensor_map.box, tensor_map.swizzle, tensor_map.l2, FILLS[tensor_map.oob], int(tensor_map.tf32)]
        found = kernels._map(tensor_map.x, options, "shift: x")
        assert ctypes.sizeof(found) == 128
        assert ctypes.addressof(found) % 64 == 0
        assert given == [tensor_map.x.data_ptr(), *_described(tensor_map)]
    for broken in BROKEN:
        options = [*broken.box, broken.swizzle, broken.l2, FILLS[broken.oob], int(broken.tf32)]
        with pytest.raises(ValueError, match="shift: x: "):
            kernels._map(broken.x, options, "shift: x")


def test_architectures_without_tensor_maps_are_refused(tmp_path: Path) -> None:
    """The refusal names the one that was asked for, before anything is compiled."""
    with pytest.raises(UsageError, match=r"shift_kforge\.py takes tensor maps, which sm_80 has not"):
        _fed(tmp_path, "fed_early", archs=("sm_90a", "sm_80"))


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_the_launch_compiles_for_hopper(tmp_path: Path) -> None:
    """The object holds an encoder that asks the driver for its function: no name is left open for libcuda."""
    export = _fed(tmp_path, "fed_built")
    place(tmp_path / "to", sealed(dict(find_format("extension")(export, "0.1.0"))))
    out = tmp_path / "launch.o"
    command = ["nvcc", "-std=c++17", "-gencode=arch=compute_90a,code=sm_90a", "-c", "csrc/launch.cu", "-o", str(out)]
    subprocess.run(command, cwd=tmp_path / "to", check=True, capture_output=True)
    symbols = subprocess.run(["nm", "-C", out], capture_output=True, text=True, check=True).stdout
    assert "::encode(" in symbols
    assert not [line for line in symbols.splitlines() if " U cu" in line and " U cuda" not in line]
