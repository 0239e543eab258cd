"""build, then run: a Kernel builds in one process and is served from what was left in the next."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Zygote

SOURCE = """extern "C" __global__ void add_one(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1.0f;
}
"""
MODULE = """
import torch
from kforge.kernel import Kernel

add_one = Kernel("add_one", source="op_kforge.cu", grid="(ceil_div(n, BLOCK), 1, 1)", block="(BLOCK, 1, 1)",
                 constants={"BLOCK": 128}, tune={"BLOCK": [128, 64]})


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.full_like(x, -1.0)
        add_one(x, y, x.numel())
        return y
"""


def test_warm_builds_and_run_only_launches(zygote: Zygote, tmp_path: Path) -> None:
    """warm builds without a launch; in *run* the kernel gives right values, is counted, and a miss is named."""
    box = tmp_path / "box"
    add_one = Candidate("op_kforge.py", {"op_kforge.py": MODULE, "op_kforge.cu": SOURCE})
    call = Call((torch.rand(1000),))
    with zygote.fork(box, phase="build") as build:
        build.load(add_one, Call(), {})
        assert build.warm(call) > 0
    with zygote.fork(box, phase="run") as run:
        run.load(add_one, Call(), {})
        reply = run.call(call)
        assert torch.equal(reply.outputs, call.args[0] + 1)
        assert reply.launches == {"add_one": 1}
        assert "aten.full_like.default" in reply.ops
        assert run.call(Call((torch.rand(33),))).launches == {"add_one": 1}  # one build serves every size
        run.load(add_one, Call(), {}, overrides={"add_one": {"BLOCK": 64}})
        with pytest.raises(ChildFailed) as caught:
            run.call(call)
        assert caught.value.kind == "raised" and caught.value.error["kind"] == "build"
        assert "read-only cache" in caught.value.error["message"]


def test_a_build_error_keeps_its_log(zygote: Zygote, tmp_path: Path) -> None:
    """What the compiler said comes back as the build error's log."""
    broken = Candidate("op_kforge.py", {"op_kforge.py": MODULE, "op_kforge.cu": SOURCE.replace("y[i]", "nothing[i]")})
    with zygote.fork(tmp_path / "box", phase="build") as build:
        build.load(broken, Call(), {})
        with pytest.raises(ChildFailed) as caught:
            build.warm(Call((torch.rand(10),)))
    assert caught.value.error["kind"] == "build" and "nothing" in caught.value.error["log"]
