"""Convolutions by halves and channels-last: errors against float64 on data that halves hold and on other data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from kforge.engine.calls import halved, precision
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for
from kforge.engine.proposing import make_plan
from kforge.engine.switches import Switches
from kforge.task import capture
from tests.engine.support import function_task, load_model
from tests.engine.test_precision import tf32

Function = Callable[..., torch.Tensor]
CASES: dict[str, tuple[str, Function, tuple[int, ...], tuple[int, ...]]] = {
    "strided": (
        "torch.relu(F.conv2d(x, w, b, stride=2, padding=1)) * 2",
        lambda x, w, b: torch.relu(F.conv2d(x, w, b, stride=2, padding=1)) * 2,
        (3, 34, 6, 5),
        (5, 34, 3, 2),
    ),
    "transposed": (
        "F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1).amax(1)",
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1).amax(1),
        (3, 34, 3, 4),
        (34, 5, 3, 3),
    ),
    "dilated 1-D": (
        "F.conv1d(x, w, b, dilation=2)",
        lambda x, w, b: F.conv1d(x, w, b, dilation=2),
        (3, 34, 9),
        (5, 34, 3),
    ),
}


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways are used at sizes for which they would not pay."""
    monkeypatch.setattr(halved, "pays", lambda *_: True)
    monkeypatch.setattr(halved, "worthwhile", lambda *_: True)
    monkeypatch.setattr(halved, "SMALL", 0)


def kinds(x_shape: tuple[int, ...], w_shape: tuple[int, ...], transposed: bool) -> dict[str, tuple[Any, Any]]:
    """Inputs and filters of every kind that the scheme must survive."""
    x, w = torch.randn(x_shape), torch.randn(w_shape)
    out, into = (1, 0) if transposed else (0, 1)
    ones = [1] * (x.dim() - 2)
    scales = torch.exp2(torch.rand(x_shape[1]) * 32 - 16)
    small, large, broken, filters = x.clone(), x.clone(), x.clone(), w.clone()
    small[1] *= 1e-6
    large[1] *= 1e7
    broken[1, 3, 0] = torch.nan
    filters.select(out, 2).mul_(1e15)
    filters.select(out, 1).mul_(1e-12)
    return {
        "normal": (x, w),
        "an image of small values": (small, w),
        "an image of large values": (large, w),
        "an image with a NaN": (broken, w),
        "filters of all sizes": (x, filters),
        "scales of channels": (
            x * scales.view(1, -1, *ones),
            w / scales.view([-1 if d == into else 1 for d in range(w.dim())]),
        ),
        "zeros": (x * (torch.arange(3) != 1).view(3, 1, *ones), w),
    }


@pytest.mark.parametrize("case", CASES)
def test_errors(case: str, tmp_path: Path) -> None:
    """For each image the error stays within twice that of TF32; what halves cannot hold is computed again."""
    body, function, x_shape, w_shape = CASES[case]
    inputs = f"torch.randn{x_shape}, torch.randn{w_shape}, torch.randn(5)"
    task = function_task(f"return {body}", inputs, tmp_path, "x, w, b")
    plan, programs = make_plan(task, capture(task), Switches(library=True, halved=True))
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    calls = [precision.lowering(step) for step in plan.parts.calls]
    model = load_model(write_candidate(plan, choices, "a test", None, calls), tmp_path)()
    for kind, (x, w) in kinds(x_shape, w_shape, case == "transposed").items():
        b = torch.randn(5)
        wanted, base, exact = (
            function(x, w, b),
            function(tf32(x), tf32(w), b),
            function(x.double(), w.double(), b.double()),
        )
        got = model(x, w, b)
        assert got.stride() == wanted.stride() and torch.equal(got.isnan(), wanted.isnan()), kind
        for image in range(3):
            finite = wanted[image].isfinite() & exact[image].isfinite()
            mine, theirs, truth = (t[image][finite].double() for t in (got, base, exact))
            if truth.numel():
                rms = float((mine - truth).square().mean().sqrt())
                allowed = 2 * float((theirs - truth).square().mean().sqrt()) + 1e-6 * float(truth.abs().max())
                assert rms <= allowed, f"{kind}, image {image}: {rms:.3g}, allowed {allowed:.3g}"


def test_small_ones_are_left_to_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A convolution too small to gain is torch's own, in its own format and at its own precision."""
    monkeypatch.setattr(halved, "SMALL", 1 << 30)
    body, function, x_shape, w_shape = CASES["strided"]
    inputs = f"torch.randn{x_shape}, torch.randn{w_shape}, torch.randn(5)"
    task = function_task(f"return {body}", inputs, tmp_path, "x, w, b")
    plan, programs = make_plan(task, capture(task), Switches(library=True, halved=True))
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    calls = [precision.lowering(step) for step in plan.parts.calls]
    model = load_model(write_candidate(plan, choices, "a test", None, calls), tmp_path)()
    call = task.make_call()
    torch.testing.assert_close(model(*call.args), function(*call.args), rtol=1e-6, atol=1e-6)


def test_channels_last_chain(tmp_path: Path) -> None:
    """Between two convolutions nothing is converted: kernels work on dense channels-last tensors."""
    body = "return F.relu(F.conv2d(F.relu(F.conv2d(x, w, b)), u))"
    inputs = "torch.randn(2, 34, 6, 7), torch.randn(5, 34, 3, 3), torch.randn(5), torch.randn(4, 5, 2, 1)"
    task = function_task(body, inputs, tmp_path, "x, w, b, u")
    plan, programs = make_plan(task, capture(task), Switches(library=True, last=True))
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    calls = [precision.lowering(step) for step in plan.parts.calls]
    candidate = write_candidate(plan, choices, "a test", None, calls)
    source = candidate.files["op_kforge.py"]
    assert source.count("= channels_last_conv2d(") == 2
    assert len(programs) == 5  # x, w and u; the first relu; the last one with its transpose
    call = task.make_call()
    wanted, got = task.make_reference()(*call.args), load_model(candidate, tmp_path)()(*call.args)
    assert got.stride() == wanted.stride()
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-4)


def test_two_convolutions_by_halves(tmp_path: Path) -> None:
    """Each convolution of a candidate has kernels for its own filters, stride and padding."""
    body = "return F.conv2d(F.conv2d(x, w, padding=1).relu(), u, stride=2).relu()"
    inputs = "torch.randn(2, 34, 6, 7), torch.randn(5, 34, 3, 3), torch.randn(4, 5, 2, 1)"
    task = function_task(body, inputs, tmp_path, "x, w, u")
    plan, programs = make_plan(task, capture(task), Switches(library=True, halved=True))
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    calls = [precision.lowering(step) for step in plan.parts.calls]
    model = load_model(write_candidate(plan, choices, "a test", None, calls), tmp_path)()
    x, w, u = task.make_call().args
    x[1] *= 1e6  # by the kernels that mend
    torch.testing.assert_close(model(x, w, u), task.make_reference()(x, w, u), rtol=3e-2, atol=3e-2)
