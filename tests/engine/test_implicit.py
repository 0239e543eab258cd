"""Convolutions by a kernel of ours on tensor cores: errors on every kind of data, and where they are proposed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kforge.engine.calls import halved, implicit, precision
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for
from kforge.engine.proposing import make_plan, propose
from kforge.engine.switches import Switches
from kforge.task import capture
from tests.engine.support import function_task, load_model
from tests.engine.test_precision import tf32


def kinds(x: torch.Tensor, w: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Images and filters of distributions that a scheme must survive."""
    channels = torch.exp2(torch.rand(x.shape[1]) * 32 - 16)[:, None, None]
    outlier = x.clone()
    outlier[1, 3, 2, 5] = 6e4
    return {
        "normal": (x, w),
        "one sign": (x.abs(), w.abs()),
        "small": (x * 1e-6, w * 1e-12),
        "one outlier": (outlier, w),
        "scales along the sum": (x * channels, w / channels),
        "zero and one": ((x > 0).float(), (w > 0).float()),
    }


def test_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of TF32 whatever the data, and what is not finite is so where torch has it."""
    monkeypatch.setattr(implicit, "pays", lambda *_: True)
    monkeypatch.setattr(halved, "SMALL", 0)
    body = "return F.conv2d(x, w, padding=(1, 0), dilation=(2, 1)) * 2 + 1"
    task = function_task(body, "torch.randn(2, 20, 6, 12), torch.randn(70, 20, 3, 3)", tmp_path, "x, w")
    plan, programs = make_plan(task, capture(task), Switches(library=True, implicit=True))
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    model = load_model(
        write_candidate(plan, choices, "a test", None, [precision.lowering(s) for s in plan.parts.calls]), tmp_path
    )()

    def convolved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w, padding=(1, 0), dilation=(2, 1)) * 2 + 1

    x, w = torch.randn(2, 20, 6, 12), torch.randn(70, 20, 3, 3) / 20
    for kind, (a, b) in kinds(x, w).items():
        exact, base, got = convolved(a.double(), b.double()), convolved(tf32(a), tf32(b)), model(a, b)
        allowed = 1.05 * float((base - exact).square().mean().sqrt()) + 2**-23 * float(exact.square().mean().sqrt())
        assert float((got - exact).square().mean().sqrt()) <= allowed, kind
    x[0, 3, 2, 5], w[7, 11, 0, 0] = torch.inf, torch.nan
    wanted, got = convolved(x, w), model(x, w)
    assert torch.equal(wanted.isnan(), got.isnan()) and torch.equal(wanted.isinf(), got.isinf())


@pytest.mark.parametrize("rank", (1, 2, 3))
def test_one_kernel_after_the_conversion(rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a convolution and what follows element by element are one kernel after the conversion, in all ranks."""
    monkeypatch.setattr(implicit, "pays", lambda *_: True)
    body = f"return F.mish(F.conv{rank}d(x, w, padding=1))"
    sizes = ", ".join(["8"] * rank), ", ".join(["3"] * rank)
    task = function_task(body, f"torch.randn(2, 64, {sizes[0]}), torch.randn(128, 64, {sizes[1]})", tmp_path, "x, w")
    found = list(propose(task, capture(task), arch="sm_90a", device="cuda:0"))
    own = [c.files["op_kforge.cu"] for c in found if "_convolution<" in c.files["op_kforge.py"]]
    assert own and all(text.count("__global__") == 4 for text in own)  # images, filters, what they cannot hold
