"""Forward/backward pairs of the engine: outputs and gradients against autograd in float64, on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine import propose_pair
from kforge.errors import LaunchError, NoCandidate
from kforge.kernel.candidate import Candidate
from kforge.task import Task, capture
from kforge.task.backward import gradient_task
from tests.engine.support import compare, function_task, load_model, task_from

NORM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x)


def get_init_inputs():
    return [40]


def get_inputs():
    return [torch.randn(9, 40)]
"""


def _pair(task: Task) -> tuple[Task, Candidate]:
    derived = gradient_task(task)
    return derived, next(propose_pair(derived, capture(derived), arch="sm_90a", device="cpu"))


def _compare(task: Task, folder: Path) -> Candidate:
    """Outputs and gradients under every kind of upstream gradient."""
    derived, candidate = _pair(task)
    compare(derived, candidate, folder, [derived.make_call(v) for v in range(derived.n_variants)])
    return candidate


def test_layer_norm_with_both_parameters(tmp_path: Path) -> None:
    """dx by rows, dweight and dbias by columns, in kernels of their own that only inputs and weight are kept for."""
    task = task_from(NORM, tmp_path)
    text = _compare(task, tmp_path).files["op_kforge.py"]
    assert "ctx.save_for_backward(x, norm_weight)" in text
    assert "    if needs_norm_weight or needs_norm_bias:\n" in text  # frozen parameters cost no kernel
    assert "return Differentiable.apply(x, self.norm.weight, self.norm.bias)" in text


def carried_pair(task: Task) -> Candidate:
    """The first pair whose kernel over rows adds up the columns, too."""
    derived = gradient_task(task)
    pairs = propose_pair(derived, capture(derived), arch="sm_90a", device="cpu")
    return next(c for c in pairs if "_carried" in c.files["op_kforge.py"])


def test_sums_over_rows_by_the_kernel_of_the_rows(tmp_path: Path) -> None:
    """A norm's gradients in one walk over its rows, however many there are: blocks add up some of them at a time."""
    task = task_from(NORM, tmp_path)
    candidate = carried_pair(task)
    assert "norm_weight_in" in candidate.files["op_backward_kforge.cu"]
    model, reference = load_model(candidate, tmp_path)(40), task.make_reference().double()
    for rows in (1, 26000):  # most blocks have none, or more than they add up at a time
        x, upstream = torch.randn(rows, 40, requires_grad=True), torch.randn(rows, 40)
        found = torch.autograd.grad(model(x), [x, *model.parameters()], upstream)
        exact = x.detach().double().requires_grad_()
        wanted = torch.autograd.grad(reference(exact), [exact, *reference.parameters()], upstream.double())
        for have, want in zip(found, wanted, strict=True):
            assert (have.double() - want).norm() <= 1e-6 * want.norm()


def test_instance_norm_without_running_statistics(tmp_path: Path) -> None:
    """It is a batch norm whose statistics are computed from the input: its gradients need nothing else."""
    inputs = "torch.randn(3, 4, 5, 6), torch.rand(4), torch.rand(4)"
    _compare(function_task("return F.instance_norm(x, weight=w, bias=b)", inputs, tmp_path, "x, w, b"), tmp_path)


def test_what_repeats_or_drops_elements(tmp_path: Path) -> None:
    """Mirrored borders and copies of neighbours add up, what shrinking dropped gets nothing."""
    body = "return F.softshrink(x), F.hardshrink(x), F.interpolate(x, scale_factor=2), F.pad(x, (1, 2), mode='reflect')"
    _compare(function_task(body, "torch.randn(2, 3, 8)", tmp_path), tmp_path)


def test_softmax_through_a_product(tmp_path: Path) -> None:
    """The softmax is computed anew in the backward's kernel, from the inputs."""
    candidate = _compare(
        function_task("return torch.softmax(x * y, -1)", "torch.randn(5, 33), torch.randn(5, 33)", tmp_path, "x, y"),
        tmp_path,
    )
    assert set(candidate.files) == {"op_kforge.py", "op_kforge.cu", "op_backward_kforge.cu"}


def test_mean_cross_entropy(tmp_path: Path) -> None:
    """A scalar loss: its upstream gradient is a number, the ignored target gets zeros."""
    body = "return F.cross_entropy(x, t)"
    _compare(
        function_task(body, "torch.randn(6, 21), torch.tensor([0, 20, -100, 3, 3, 7])", tmp_path, "x, t"), tmp_path
    )


def test_a_second_derivative_is_refused(tmp_path: Path) -> None:
    """Differentiating the gradient raises; it is never silently wrong."""
    task = function_task("return x * torch.sigmoid(x)", "torch.randn(4, 8)", tmp_path)
    _, candidate = _pair(task)
    x = torch.randn(4, 8, requires_grad=True)
    y = load_model(candidate, tmp_path)()(x)
    torch.autograd.grad(y.sum(), x, retain_graph=True)
    with pytest.raises(LaunchError, match="requires grad"):
        torch.autograd.grad(y.sum(), x, create_graph=True)


def test_what_has_no_pair_is_named(tmp_path: Path) -> None:
    """An operator without a kernel ends with its name."""
    task = function_task("return torch.linalg.inv(x)", "torch.eye(4) + 0.1", tmp_path)
    with pytest.raises(NoCandidate, match="linalg_inv"):
        _pair(task)


def test_running_statistics_follow_the_forward(tmp_path: Path) -> None:
    """A batch norm in training: outputs, gradients under every upstream, and statistics after each call as torch's."""
    text = NORM.replace("nn.LayerNorm(dim)", "nn.BatchNorm1d(dim)")
    task = task_from(text, tmp_path)
    candidate = _compare(task, tmp_path)
    model, reference = load_model(candidate, tmp_path)(40), task.make_reference()
    model.load_state_dict(reference.state_dict())
    for _ in range(2):
        x = torch.randn(9, 40, requires_grad=True)
        model(x).sum().backward()
        reference(x)
    for have, want in zip(model.buffers(), reference.buffers(), strict=True):
        torch.testing.assert_close(have, want)


def test_group_norm_in_two_kernels(tmp_path: Path) -> None:
    """Statistics and the input's gradient by the kernel that has the group, the channels' sums by another."""
    text = NORM.replace("nn.LayerNorm(dim)", "nn.GroupNorm(4, dim)").replace("randn(9, 40)", "randn(3, 40, 6)")
    candidate = _compare(task_from(text, tmp_path), tmp_path)
    body = candidate.files["op_kforge.py"].partition("def differentiate")[2].partition("\nclass ")[0]
    assert {
        line.split("(")[0].strip().rpartition("_")[0] for line in body.splitlines() if "  op_backward_" in line
    } == {
        "op_backward_1",
        "op_backward_2",
    }


@pytest.mark.parametrize(
    ("layer", "shape"),
    (
        ("nn.Conv2d(6, 6, 3, padding=1, stride=2, groups=6)", "2, 6, 9, 8"),
        ("nn.Conv2d(3, 4, 3, padding=1, stride=2)", "2, 3, 9, 8"),
    ),
)
def test_small_convolutions(layer: str, shape: str, tmp_path: Path) -> None:
    """Depthwise filters, several a channel, and those with few terms: images, filters and biases."""
    text = NORM.replace("nn.LayerNorm(dim)", layer).replace("randn(9, 40)", f"randn({shape})")
    _compare(task_from(text, tmp_path), tmp_path)


@pytest.mark.parametrize(
    "how",
    (
        "(9, 4), mode='bilinear'",
        "(25, 35), mode='bilinear'",
    ),
)
def test_linear_upsampling(how: str, tmp_path: Path) -> None:
    """Every element gathers its shares, in one kernel or, of many results, in one for each dimension."""
    _compare(function_task(f"return F.interpolate(x, {how})", "torch.randn(2, 3, 5, 7)", tmp_path), tmp_path)
