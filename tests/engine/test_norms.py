"""Norms over channels, in training and eval form, against eager torch on the emulator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine import cost
from kforge.engine.families import broadcast
from kforge.engine.proposing import make_plan
from kforge.engine.switches import Switches
from kforge.task import Call, Task, capture
from tests.engine.support import compare, forced, function_task, load_model, proposals, task_from

IMAGES = "torch.randn(3, 6, 5, 8)"


def norm_task(layer: str, inputs: str, folder: Path, mode: str = "eval", after: str = "") -> Task:
    """A module with one layer; its running statistics are not those that it starts with."""
    return task_from(
        f"import torch\nfrom torch import nn\n\nMODE = '{mode}'\n\n\nclass Model(nn.Module):\n"
        f"    def __init__(self):\n        super().__init__()\n        self.norm = {layer}\n"
        "        for name, value in self.norm.state_dict().items():\n"
        "            if value.dim() == 1:\n                value.copy_(torch.rand(value.shape) + 0.5)\n\n"
        f"    def forward(self, x):\n        return self.norm(x){after}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n",
        folder,
    )


@pytest.mark.parametrize(
    ("layer", "inputs"),
    (
        ("nn.BatchNorm1d(37)", "torch.randn(16, 37)"),
        ("nn.BatchNorm2d(6)", f"{IMAGES}.bfloat16()"),
    ),
)
def test_batch_norm_with_running_statistics(layer: str, inputs: str, tmp_path: Path) -> None:
    """In eval form the norm is one pointwise kernel, what follows it included, and reads the running statistics."""
    task = norm_task(layer, inputs, tmp_path, after=".relu()")
    [candidate] = proposals(task)
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    compare(task, candidate, tmp_path)


@pytest.mark.parametrize(
    ("layer", "inputs", "schedule"),
    (
        ("nn.InstanceNorm1d(6)", "torch.randn(3, 6, 50)", "warp"),
        ("nn.InstanceNorm2d(6, affine=True)", IMAGES, "block"),
        ("nn.InstanceNorm3d(6)", "torch.randn(2, 6, 3, 4, 5)", "stream"),
        ("nn.GroupNorm(3, 6)", IMAGES, "block"),
    ),
)
def test_statistics_of_the_batch(layer: str, inputs: str, schedule: str, tmp_path: Path) -> None:
    """Statistics of an instance, a group or a batch and the normalised elements come from one kernel."""
    task = norm_task(layer, inputs, tmp_path)
    candidate = forced(task, schedule, BLOCK=64, ITEMS=4)
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    compare(task, candidate, tmp_path)


def test_instance_norm_of_other_sizes(tmp_path: Path) -> None:
    """The batch folded into the channels, and their weights repeated, hold for other sizes of batch and image."""
    task = function_task("return F.instance_norm(x, weight=w)", f"{IMAGES}, torch.rand(6)", tmp_path, "x, w")
    [candidate, *_] = proposals(task)
    w = torch.rand(6)
    compare(task, candidate, tmp_path, [Call((torch.randn(n, 6, h, 7), w)) for n, h in ((1, 3), (4, 9))])


def test_few_long_rows_are_reduced_apart(tmp_path: Path) -> None:
    """Where few rows are too long to be held, their results come first and a pointwise kernel does the rest."""
    task = function_task("return F.layer_norm(x, x.shape[1:])", "torch.randn(2, 4, 64, 128)", tmp_path)
    programs = make_plan(task, capture(task), Switches(apart=True))[1]
    assert [bool(p.reductions) for p in programs] == [True, False]
    [first, *_] = proposals(task)
    assert first.files["op_kforge.cu"].count("__global__") >= 2
    compare(task, first, tmp_path)


def test_one_value_has_no_variance(tmp_path: Path) -> None:
    """A batch of one value per channel is refused, as torch refuses it."""
    task = norm_task("nn.BatchNorm1d(8)", "torch.randn(4, 8)", tmp_path, "train")
    [candidate, *_] = proposals(task)
    model = load_model(candidate, tmp_path)()
    with torch.no_grad(), pytest.raises(ValueError, match=">= 2"):
        model(torch.randn(1, 8))


def test_what_rows_share_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a weight too large for the cache the blocks of all rows for one stretch of columns run together."""
    monkeypatch.setattr(broadcast, "LARGE", 0)
    monkeypatch.setattr(cost, "CACHE_BYTES", 0)
    task = function_task("return x * w + 1", "torch.randn(5, 130), torch.randn(130)", tmp_path, "x, w")
    first = proposals(task)[0]
    assert "op_rows<" in first.files["op_kforge.py"]
    compare(
        task, first, tmp_path, [Call((torch.randn(n, w), torch.randn(w))) for n, w in ((5, 130), (3, 2052), (1, 7))]
    )


@pytest.mark.parametrize("schedule", ("block", "stream", "split"))
def test_columns_of_several_dimensions_are_not_divided(schedule: str, tmp_path: Path) -> None:
    """Group norm: what lies as its columns do is addressed by their number; only the channel's weight divides."""
    body = "return F.group_norm(x, 3, weight, bias)"
    inputs = "torch.randn(4, 6, 5, 8), torch.randn(6), torch.randn(6)"
    task = function_task(body, inputs, tmp_path, "x, weight, bias")
    candidate = forced(task, schedule, BLOCK=64, ITEMS=1)
    cuda = candidate.files["op_kforge.cu"]
    assert "x_row + at" in cuda and "y_row + at" in cuda
    assert "% cols_1" not in cuda or "col_1]" in cuda, "an index that nothing reads is not worked out"
    compare(task, candidate, tmp_path)


def test_columns_held_in_registers(tmp_path: Path) -> None:
    """Softmax over a middle dimension of bfloat16, in tiles that the columns fill and in others."""
    task = function_task("return torch.softmax(x, 1)", "torch.randn(2, 300, 70).bfloat16()", tmp_path)
    held = next(c for c in proposals(task) if "registers" in c.idea and "neighbouring rows" in c.idea)
    assert '("cols <= 512", {"LANES": 32' in held.files["op_kforge.py"]
    sizes = ((16, 70), (200, 70), (500, 70), (512, 64), (3, 5))
    calls = [Call((torch.randn(2, cols, rows).bfloat16(),)) for cols, rows in sizes]
    compare(task, held, tmp_path, [task.make_call(), *calls])
