"""What once came out wrong, or ended in a traceback: the smallest task that showed it, and its right answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.errors import NoCandidate
from kforge.task import Call
from tests.engine.support import compare, function_task, leaves, load_model, proposals, task_from

COUNTER = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(6))

    def forward(self, x):
        self.n.add_(x.mean(0))
        return RESULT


def get_inputs():
    return [torch.randn(ROWS, 6)]
"""
POOLED = """
import torch
from torch import nn
import torch.nn.functional as F

MODE = "eval"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn = nn.BatchNorm2d(16)

    def forward(self, x):
        return torch.relu(self.bn(F.max_pool2d(x, 3, 2, 1)))


def get_inputs():
    return [torch.randn(1, 16, 1, 28)]
"""


@pytest.mark.parametrize("result", ["self.n", "self.n * 1.0"])
@pytest.mark.parametrize("rows", [70, 5000])
def test_a_state_that_is_updated_and_used(rows: int, result: str, tmp_path: Path) -> None:
    """The old value is read once, whatever is stored in its place first; in a second call as well."""
    task = task_from(COUNTER.replace("RESULT", result).replace("ROWS", str(rows)), tmp_path)
    for candidate in proposals(task)[:3]:
        model, reference = load_model(candidate, tmp_path)(), task.make_reference()
        for seed in (0, 1):
            call = task.make_call(seed=seed)
            for have, want in zip(leaves(task.run(model, call)), leaves(task.run(reference, call)), strict=True):
                assert torch.allclose(have, want, atol=1e-6)
            assert torch.allclose(model.n, reference.n, atol=1e-6)


def test_threads_beyond_the_last_row_add_nothing(tmp_path: Path) -> None:
    """Sums into places of a running sum along columns: the lanes that repeat the last column do not count it again."""
    inputs = "torch.randn(6, 40), torch.tensor([0, 0, 1, 5, 1, 2])"
    task = function_task("return torch.zeros_like(x).index_add(0, i, x.cumsum(0))", inputs, tmp_path, "x, i")
    for candidate in proposals(task)[:3]:
        compare(task, candidate, tmp_path)


def test_strides_of_a_norm_behind_a_pool(tmp_path: Path) -> None:
    """Dimensions of size one: a norm looks at what the pool made of the strides, not at the input's."""
    task = task_from(POOLED, tmp_path)
    x = torch.randn(1, 16, 1, 28).as_strided((1, 16, 1, 28), (1, 1, 16, 16))
    compare(task, proposals(task)[0], tmp_path, [Call((x,), {})])


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("return x.any(1), x.all(1)", "torch.randint(0, 2, (5, 6), dtype=torch.uint8)"),
        ("return x.any(), x.all(), x.any(1), x.all(0)", "torch.zeros(0, 5, dtype=torch.bool)"),
        ("return x.clamp(min=float('nan'))", "torch.randn(5, 6)"),
        ("return x.double() * 0.1", "torch.randint(0, 99, (5, 6))"),
        ("return x.double().std(1)", "torch.randint(0, 99, (5, 6))"),
        ("return F.max_pool2d(x.sum(-1), 3, 2, 1).sum(-1)", "torch.randn(3, 9, 4, 8)"),
        ("return x // 0.1, x // -0.5, x // x.roll(1)", "torch.tensor([1.0, 0.3, -0.7, 0.0, 5.5, -1.0, float('inf')])"),
        ("return F.batch_norm(x, x.mean((0, 2, 3)), x.var((0, 2, 3)) + 1)", "torch.randn(4, 6, 5, 5)"),
        ("return F.batch_norm(x, x.mean((0, 2)), x.var((0, 2)), x[0, :, 0])", "torch.randn(4, 6, 25).bfloat16()"),
    ],
)
def test_values(body: str, inputs: str, tmp_path: Path) -> None:
    """Truth of nothing and of bytes, bounds that are no number, whole numbers in double precision."""
    task = function_task(body, inputs, tmp_path)
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize(
    ("body", "inputs", "operator"),
    [
        ("return torch.bincount(x)", "torch.randint(0, 9, (30,))", "bincount"),
        ("return torch.special.airy_ai(x)", "torch.randn(5, 6)", "airy_ai"),
        ("return torch.mode(x, 1).values", "torch.randn(5, 6)", "mode"),
        ("return x.view(torch.int32) + 1", "torch.randn(5, 6)", "view"),
        ("return x.norm() * torch.gather(x.norm(), 0, torch.tensor(0))", "torch.randn(5, 6)", "gather"),
    ],
)
def test_what_has_no_kernel_is_said(body: str, inputs: str, operator: str, tmp_path: Path) -> None:
    """No candidate, with the operator's name, in the place of a traceback."""
    with pytest.raises(NoCandidate) as caught:
        proposals(function_task(body, inputs, tmp_path))
    assert operator in (caught.value.operator or "")


def test_inputs_that_share_memory_and_are_written(tmp_path: Path) -> None:
    """Such a reference has no graph: what torch.export makes of it reads old values."""
    task = function_task("x.add_(y)\nreturn x * y", "*[torch.randn(6, 9)] * 2", tmp_path, "x, y")
    with pytest.raises(NoCandidate, match="share memory"):
        proposals(task)
