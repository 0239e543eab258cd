"""What a reference changes beside returning: kernels leave the same buffers and inputs behind."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.proposing import make_plan
from kforge.kernel.candidate import Candidate
from kforge.task import Task, capture, clone_call
from tests.engine.support import function_task, leaves, load_model, proposals
from tests.engine.test_norms import norm_task


def same_twice(task: Task, candidate: Candidate, folder: Path) -> None:
    """Outputs, state and inputs after each of two calls, and which output is which input."""
    init = task.init_call()
    model, reference = load_model(candidate, folder)(*init.args, **init.kwargs), task.make_reference()
    model.load_state_dict(reference.state_dict())
    model.train(reference.training)
    for seed in range(2):
        call = task.make_call(seed=seed)
        ours, theirs = clone_call(call), clone_call(call)
        with torch.no_grad():
            got, wanted = model(*ours.args), reference(*theirs.args)
        for have, want in zip(leaves(got), leaves(wanted), strict=True):
            torch.testing.assert_close(have, want)
            for x, y in zip(ours.args, theirs.args, strict=True):
                assert (have.data_ptr() == x.data_ptr()) == (want.data_ptr() == y.data_ptr())
        for x, y in zip(ours.args, theirs.args, strict=True):
            torch.testing.assert_close(x, y)
        for name, value in reference.state_dict().items():
            torch.testing.assert_close(model.state_dict()[name], value)


@pytest.mark.parametrize(
    ("layer", "inputs"),
    (
        ("nn.BatchNorm1d(37)", "torch.randn(16, 37)"),
        ("nn.BatchNorm2d(6)", "torch.randn(3, 6, 5, 8).bfloat16()"),
        ("nn.InstanceNorm2d(6, track_running_stats=True)", "torch.randn(3, 6, 5, 8)"),
    ),
)
def test_running_statistics(layer: str, inputs: str, tmp_path: Path) -> None:
    """Running mean, unbiased running variance and the counter follow as in torch, call after call."""
    task = norm_task(layer, inputs, tmp_path, "train")
    [candidate, *_] = proposals(task)
    source = candidate.files["op_kforge.py"]
    if "BatchNorm" in layer:  # the kernel writes into the buffers; the mean over a batch of instances comes later
        assert ".copy_(" not in source[source.index("def forward") :]
    same_twice(task, candidate, tmp_path)


def test_a_counter_costs_no_kernel(tmp_path: Path) -> None:
    """num_batches_tracked is written by one thread of the kernel that is there anyway."""
    task = norm_task("nn.BatchNorm1d(37)", "torch.randn(16, 37)", tmp_path, "train")
    [program] = make_plan(task, capture(task))[1]
    assert [s.buffer.dtype for s in program.stores if s.once] == ["int64"]


@pytest.mark.parametrize(
    ("body", "copies"),
    (
        ("x.add_(y)\nreturn x.sum(-1)", False),
        ("x.relu_()\nreturn x", False),
        ("x.sub_(x.mean(-1, keepdim=True))\nreturn y + x", False),
        ("x.copy_(x.flip(-1))\nreturn y * 2", True),
        ("old = x * 1\nx.mul_(2)\nreturn y + (old - old.mean(-1, keepdim=True))", True),
    ),
)
def test_inputs_changed_in_place(body: str, copies: bool, tmp_path: Path) -> None:
    """The caller's tensor has the new values. Where a kernel still needs old ones they go to other memory first."""
    task = function_task(body, "torch.randn(6, 40), torch.randn(6, 40)", tmp_path, "x, y")
    [candidate, *_] = proposals(task)
    assert ("new_x = torch.empty" in candidate.files["op_kforge.py"]) == copies
    same_twice(task, candidate, tmp_path)


def test_a_strided_input_gets_the_new_values(tmp_path: Path) -> None:
    """The kernel works on a contiguous copy; what it wrote goes back to where the input lies."""
    task = function_task("x.mul_(2)\nreturn x + 1", "torch.randn(6, 40)", tmp_path)
    [candidate, *_] = proposals(task)
    x = torch.randn(40, 6)
    wanted = x * 2
    with torch.no_grad():
        load_model(candidate, tmp_path)()(x.t())
    torch.testing.assert_close(x, wanted)
