"""A small task with a hand-written candidate for it, and what the tests of the export do with them."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from kforge.agent.verify import VerifyOptions, verify
from kforge.environment.report import Report
from kforge.export.evidence import Evidence
from kforge.export.package import Export, Options, prepare_export
from kforge.kernel.candidate import Candidate
from kforge.task import load_task

TASK = '''"""Scales each row and adds a bias."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim, scale=1.5):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.arange(dim, dtype=torch.float32))

    def forward(self, x):
        return x * self.scale + self.bias


def get_init_inputs():
    return [24]


def get_inputs():
    return [torch.randn(6, 24)]


def get_input_variants():
    return [lambda: [torch.randn(5, 24)]]
'''

MODULE = '''"""Scales each row and adds a bias, by one kernel."""

import torch
import torch.nn as nn
from kforge.kernel import Kernel

WIDTHS = [4, 2, 1]

shift = Kernel(
    "shift<T, VEC>",
    source="shift_kforge.cu",
    grid="ceil_div(n, BLOCK * VEC)",
    block="BLOCK",
    constants={"BLOCK": 64, "VEC": 4},
    types={"T": "x"},
    tune={"VEC": WIDTHS, "BLOCK": [64, 128]},
    require={"VEC": "aligned(x, VEC * sizeof(T)) and aligned(bias, VEC * sizeof(T)) and cols % VEC == 0"},
    tuned=[("n > 4096", {"BLOCK": 128}), (True, {})],
)


def like(result, source):
    """`result` with the strides that torch's pointwise operators give it for `source`."""
    return result if source.is_contiguous() else torch.empty_like(source).copy_(result)


class ModelNew(nn.Module):
    def __init__(self, dim, scale=1.5):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.arange(dim, dtype=torch.float32))

    def forward(self, x):
        given = x
        if x.dim() != 2:
            raise ValueError("x must have 2 dimensions")
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel() > 0:
            shift(x, self.bias, y, self.scale, x.numel(), x.shape[1])
        y = like(y, given)
        return y
'''

SOURCE = """#include <cuda_runtime.h>

template <typename T, int VEC>
__global__ void shift(const T* x, const T* bias, T* y, float scale, long long n, int cols) {
    const long long first = (static_cast<long long>(blockIdx.x) * BLOCK + threadIdx.x) * VEC;
    for (int k = 0; k < VEC; ++k) {
        const long long i = first + k;
        if (i < n) y[i] = x[i] * scale + bias[i % cols];
    }
}
"""


TRITON = '''"""Scales and shifts by one Triton kernel."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

WIDTH = 256


@triton.jit
def scale_shift(x, bias, y, scale, n, cols, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * scale + tl.load(bias + at % cols, mask=at < n), mask=at < n)


def like(result, source):
    return result if source.is_contiguous() else torch.empty_like(source).copy_(result)


class ModelNew(nn.Module):
    def __init__(self, dim, scale=1.5):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.arange(dim, dtype=torch.float32))

    def forward(self, x):
        given = x
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
        if n > 0:
            scale_shift[grid](x, self.bias, y, self.scale, n, x.shape[1], BLOCK=WIDTH)
        return like(y, given)
'''


def write_project(folder: Path) -> tuple[Path, Path]:
    """(op.py, the candidate's module), written below `folder`."""
    (folder / "out").mkdir(parents=True, exist_ok=True)
    task, module = folder / "shift.py", folder / "out" / "shift_kforge.py"
    task.write_text(TASK)
    module.write_text(MODULE)
    module.with_name("shift_kforge.cu").write_text(SOURCE)
    return task, module


def judge(task: Path, module: Path, state: Path, device: str = "cpu") -> Report:
    """The report of plan quick, kept in `state`."""
    report, _ = verify(task, module, VerifyOptions(plan="quick", device=device, state=state), lambda kind, data: None)
    return report


def candidate(module: str = MODULE, source: str = SOURCE) -> Candidate:
    """The candidate as files."""
    return Candidate("shift_kforge.py", {"shift_kforge.py": module, "shift_kforge.cu": source})


def unverified(folder: Path, module: str = MODULE, options: Options | None = None, source: str = SOURCE) -> Export:
    """An export of the small task without a report: what may be written without the minutes of a judgement."""
    task, _ = write_project(folder)
    evidence = Evidence(candidate(module, source), task, None, problem="it was never verified")
    return prepare_export(load_task(task), evidence, options or Options())


def on_the_emulator(package: Any, made: Candidate, folder: Path) -> Any:
    """The package's operator on CPU tensors, its launches going to the candidate's kernels on the emulator."""
    from kforge.worker.construct import import_module

    operator = importlib.import_module(f"{package.__name__}._operator")
    kernels = importlib.import_module(f"{package.__name__}._kernels").kernels
    made.write(folder / f"own_{package.__name__}")
    own = import_module(folder / f"own_{package.__name__}" / made.module)
    for name, value in vars(own).items():
        if type(value).__name__ == "Kernel":
            setattr(type(kernels), name, staticmethod(value))
    name = operator.QUALIFIED.split("::")[1]
    operator._library.impl(name, operator._launch, "CPU")
    if operator.BACKWARD == "kernels":
        operator._library.impl(f"{name}_backward", operator._derive, "CPU")
    return operator.operator
