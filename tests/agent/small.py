"""A task of the smallest kind, and candidates for it: right, wrong, without an end, against a rule."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.kernel.candidate import Candidate

if TYPE_CHECKING:
    from kforge.agent.workbench import Workbench

TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, scale=2.0):
        return x * scale + 1.0


def get_inputs():
    return [torch.randn(16, 64)]
"""

KERNEL = """
extern "C" __global__ void scale(const float* x, float* y, float factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = BODY;
}
"""

MODULE = """
import torch
from torch import nn

from kforge.kernel import Kernel

kernel = Kernel("scale", source="small_kforge.cu", grid="(ceil_div(n, 64), 1, 1)", block="(64, 1, 1)"SHARED)


class ModelNew(nn.Module):
    def forward(self, x, SECOND):
        answer = torch.empty_like(x)
        x = x.contiguous()
        y = torch.empty_like(x)
        BEFORE
        kernel(x, y, float(SECOND_NAME), x.numel())
        return answer.copy_(y)
"""


def candidate(
    body: str = "x[i] * factor + 1.0f",
    *,
    before: str = "pass",
    second: str = "scale=2.0",
    shared: str = "",
    prelude: str = "",
    idea: str = "",
    parent: str | None = None,
) -> Candidate:
    """One that computes `body` in its kernel and runs `before` ahead of it; second: forward's second parameter;
    prelude: what stands before the kernel."""
    module = MODULE.replace("SECOND_NAME", second.partition("=")[0]).replace("SECOND", second)
    module = module.replace("BEFORE", before).replace("SHARED", f', shared="{shared}"' if shared else "")
    files = {"small_kforge.py": module, "small_kforge.cu": prelude + KERNEL.replace("BODY", body)}
    return Candidate("small_kforge.py", files, proposer="test", idea=idea, parent=parent)


RIGHT = candidate(idea="one thread an element")
WRONG = candidate("x[i] * factor", idea="without the 1")
ENDLESS = candidate("x[i] * factor + 1.0f + 0.0f", before="while x is not None: x = x.contiguous()", idea="never ends")
FAST_MATH = candidate("__fdividef(x[i] * factor, 1.0f) + 1.0f", idea="an approximate division")


@dataclass
class Opened:
    """A workbench and the events that it told."""

    bench: Workbench
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The data of the events of one kind, in order."""
        return [data for name, data in self.events if name == kind]
