"""Gradients of an export: the candidate's own backward where it can leave, else the reference's, never silent zeros."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support import MODULE, TRITON, candidate, on_the_emulator, unverified, write_project

from kforge.errors import ExportError
from kforge.export.evidence import Evidence
from kforge.export.package import Options, prepare_export
from kforge.export.verifying import translated_candidate
from kforge.task import load_task

PAIR = (
    MODULE[: MODULE.index("class ModelNew")]
    + '''SUMS = """
extern "C" __global__ void column_sum(const float* x, float* y, int rows, int cols) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    float sum = 0.0f;
    for (int row = 0; row < rows; ++row) sum += x[row * cols + col];
    y[col] = sum;
}
"""
column_sum = Kernel("column_sum", SUMS, "ceil_div(cols, 64)", "64")


class Shift(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias, scale):
        given = x
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel() > 0:
            shift(x, bias, y, scale, x.numel(), x.shape[1])
        ctx.save_for_backward(bias)
        ctx.scale = scale
        return like(y, given)

    @staticmethod
    def backward(ctx, grad):
        (bias,) = ctx.saved_tensors
        grad = grad.contiguous()
        dx, dbias = torch.empty_like(grad), torch.empty_like(bias)
        if ctx.needs_input_grad[0] and grad.numel() > 0:
            shift(grad, torch.zeros_like(bias), dx, ctx.scale, grad.numel(), grad.shape[1])
        column_sum(grad, dbias, grad.shape[0], grad.shape[1])
        return dx, dbias, None


class ModelNew(nn.Module):
    def __init__(self, dim, scale=1.5):
        super().__init__()
        self.scale = scale
        self.bias = nn.Parameter(torch.arange(dim, dtype=torch.float32))

    def forward(self, x):
        return Shift.apply(x, self.bias, self.scale)
'''
)


def _gradients(call: Any, upstream: torch.Tensor) -> list[torch.Tensor]:
    x = torch.arange(30.0).reshape(5, 6).requires_grad_()
    bias = torch.linspace(-1, 1, 6).requires_grad_()
    return list(torch.autograd.grad(call(x, bias), [x, bias], upstream))


def _reference(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return x * 1.5 + bias


@pytest.mark.parametrize("backward", ["auto", "recompute"])
def test_gradients_are_right_under_every_upstream(tmp_path: Path, loaded: Any, backward: str) -> None:
    """By the candidate's kernels and by the reference run again: dense, stride-0 and strided upstream gradients."""
    export = unverified(tmp_path, PAIR, Options(name=f"pair_{backward}", backward=backward))
    assert export.backward == ("kernels" if backward == "auto" else "recompute")
    package = loaded(export)
    operator = on_the_emulator(package, candidate(PAIR), tmp_path)
    torch.manual_seed(0)
    for upstream in (torch.randn(5, 6), torch.randn(6).expand(5, 6), torch.randn(5, 12)[:, ::2]):
        for found, right in zip(_gradients(operator, upstream), _gradients(_reference, upstream), strict=True):
            torch.testing.assert_close(found, right)
    x = torch.ones(5, 6, requires_grad=True)
    (only,) = torch.autograd.grad(operator(x, torch.ones(6)).sum(), x)
    torch.testing.assert_close(only, torch.full((5, 6), 1.5))
    with pytest.raises(RuntimeError, match="once only"):
        torch.autograd.grad(operator(x, torch.ones(6)).sum(), x, create_graph=True)
    torch.library.opcheck(operator, (x, torch.ones(6, requires_grad=True)))


def test_the_translated_pair_is_what_is_judged(tmp_path: Path) -> None:
    """Its candidate goes through an autograd.Function over both translated functions, launching the same Kernels."""
    export = unverified(tmp_path, PAIR)
    text = translated_candidate(export).files["shift_kforge.py"]
    assert "TranslatedPair.apply(x, self.bias)" in text
    assert "column_sum(grad, dbias, grad.shape[0], grad.shape[1])" in text
    compile(text, "shift_kforge.py", "exec")


def test_gradients_that_nobody_needs_are_not_computed(tmp_path: Path, loaded: Any) -> None:
    """The flags that the candidate's backward asks for are the operator's; what is not needed has no memory."""
    export = unverified(tmp_path, PAIR, Options(name="pair_needs"))
    operator = on_the_emulator(loaded(export), candidate(PAIR), tmp_path)
    module = importlib.import_module("pair_needs._operator")
    assert "needs_0=needs_[0]" in (tmp_path / "to/pair_needs/src/pair_needs/_operator.py").read_text()
    kernels = type(importlib.import_module("pair_needs._kernels").kernels)
    launched = []
    shift = kernels.shift
    kernels.shift = staticmethod(lambda *given: (launched.append("shift"), shift(*given)))
    x, bias = torch.ones(5, 6), torch.ones(6, requires_grad=True)
    torch.testing.assert_close(*torch.autograd.grad(operator(x, bias).sum(), bias), torch.full((6,), 5.0))
    assert launched == ["shift"]  # forward alone
    for given in ([x, bias], [x.to("meta"), bias.to("meta")]):
        unneeded, needed = module._backward([torch.ones_like(given[0])], [False, True], *given)
        assert (unneeded.numel(), needed.shape) == (0, (6,))
    assert "ctx.needs_input_grad[0]" in translated_candidate(export).files["shift_kforge.py"].split("TranslatedPair")[1]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("return Shift.apply(x, self.bias, self.scale)", "return Shift.apply(x, x, self.scale)", "one tensor"),
        ("save_for_backward(bias)", "save_for_backward(y)", "it saves y, which is neither an input nor a parameter"),
        ("dx, dbias, None", "dx, dbias", "as many gradients as forward has arguments"),
        ("ctx.needs_input_grad[0]", "ctx.anything", "uses ctx in a way that is not translated"),
    ],
)
def test_a_backward_that_cannot_leave_stays_behind(tmp_path: Path, old: str, new: str, why: str) -> None:
    """The forward leaves all the same, gradients are recomputed, and the reason is in VERIFICATION.md."""
    export = unverified(tmp_path, PAIR.replace(old, new))
    assert export.backward == "recompute"
    assert why in export.without


def test_gradients_that_nobody_judged_stay_behind(tmp_path: Path) -> None:
    """A report without gradients does not carry a backward."""
    task, _ = write_project(tmp_path)
    evidence = Evidence(candidate(PAIR), task, {"cases": [], "backward": None}, problem="for this test")
    evidence = replace(evidence, report={"cases": [{"label": "variant 0, seed 0", "passed": True}], "backward": None})
    export = prepare_export(load_task(task), evidence, Options())
    assert export.backward == "recompute"
    assert "its gradients were not judged" in export.without


def test_what_changes_in_place_is_declared(tmp_path: Path, loaded: Any) -> None:
    """The schema marks it, the operator changes the caller's tensor and returns nothing; the layer returns it."""
    task, _ = write_project(tmp_path)
    task.write_text(
        task.read_text().replace("return x * self.scale + self.bias", "return x.mul_(self.scale).add_(self.bias)")
    )
    module = MODULE.replace("y = like(y, given)\n        return y", "given.copy_(y)\n        return given")
    evidence = Evidence(candidate(module), task, None, problem="it was never verified")
    export = prepare_export(load_task(task), evidence, Options(name="pair_in_place"))
    assert export.interface.mutated == ("x",)
    package = loaded(export)
    operator = on_the_emulator(package, candidate(module), tmp_path)
    assert str(operator._schema).endswith("shift(Tensor(a!) x, Tensor bias) -> ()")
    x, bias = torch.ones(5, 6).t().contiguous().t(), torch.arange(6.0)
    assert operator(x, bias) is None
    assert torch.equal(x, 1.5 + bias.expand(5, 6))
    runtime = importlib.import_module("pair_in_place._runtime")
    assert "no gradients" in runtime.differentiated({"x": torch.ones(3, requires_grad=True)}, {})
    assert runtime.differentiated({"x": torch.ones(3)}, {}) == ""
    text = (tmp_path / "to" / "pair_in_place" / "src" / "pair_in_place" / "ops.py").read_text()
    assert "operator_(x, state_['bias'])\n        return x\n" in text


def test_a_triton_candidate_is_wrapped_with_triton_op(tmp_path: Path, loaded: Any) -> None:
    """Its kernels leave as they are; the schema follows from annotations, the fake is the forward on fake tensors."""
    pytest.importorskip("triton")
    export = unverified(tmp_path, TRITON, Options(name="triton_shift"))
    package = loaded(export, "triton")
    operator = importlib.import_module("triton_shift._operator").operator
    assert str(operator._schema).endswith("shift(Tensor x, Tensor bias) -> Tensor")
    with torch._subclasses.fake_tensor.FakeTensorMode():
        y = operator(torch.empty(3, 24), torch.empty(24))
    assert y.shape == (3, 24)
    text = (tmp_path / "to" / "triton_shift" / "src" / "triton_shift" / "_operator.py").read_text()
    assert "torch.library.triton_op(QUALIFIED, _launch" in text
    assert package.NAMESPACE.startswith("triton_shift_")


def test_a_triton_candidate_has_one_format(tmp_path: Path) -> None:
    """aot, hf and kernelbench take Kernels; the refusal names what to do."""
    from kforge.export.exporting import _layout

    export = unverified(tmp_path, TRITON)
    assert _layout(export, "extension") == "triton"
    with pytest.raises(ExportError, match="does not leave in format aot"):
        _layout(export, "aot")
    with pytest.raises(ExportError, match="takes Triton candidates"):
        _layout(unverified(tmp_path), "triton")
