"""Convolutions in other forms: transposed as ordinary ones, in three dimensions as in two; infinities and NaN."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.calls.precision import lowering
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for
from kforge.engine.handlers.transposed import phases
from kforge.engine.proposing import make_plan
from kforge.engine.switches import Switches
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import compare, function_task

BODY = """
plain = F.conv_transpose3d(x, w, b).relu()
padded = F.conv_transpose2d(y, u, b, (2, 1), (1, 2), (1, 0)) * 2
grouped = F.conv_transpose1d(z, v, c, 2, 1, 1, 3, 3).tanh()
rows_after = torch.softmax(F.conv_transpose2d(y, u, b, 2, 1, 1), 1)
return plain, padded, grouped, rows_after
"""
INPUTS = (
    "torch.randn(2, 6, 3, 4, 5), torch.randn(6, 4, 3, 2, 3), torch.randn(4), torch.randn(2, 6, 4, 5), "
    "torch.randn(6, 4, 3, 5), torch.randn(2, 6, 9), torch.randn(6, 4, 4), torch.randn(12)"
)
CALLS = {"conv3d": 1, "conv2d": 2 + 4, "conv1d": 2}


def planned(task: Task) -> Candidate:
    """The first candidate of the plan that gathers."""
    plan, programs = make_plan(task, capture(task), Switches(library=True, gathered=True))
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    return write_candidate(plan, choices, "a test", None, [lowering(step) for step in plan.parts.calls])


def test_by_ordinary_convolutions(tmp_path: Path) -> None:
    """Results are the transposed convolution's, of other sizes and of inputs that are not finite, too."""
    task = function_task(BODY, INPUTS, tmp_path, "x, w, b, y, u, z, v, c")
    candidate = planned(task)
    source = candidate.files["op_kforge.py"]
    assert {name: source.count(f" = torch.{name}(") for name in CALLS} == CALLS and "transpose" not in source
    call = task.make_call()
    odd = list(call.args)
    for which in (0, 3, 5):
        odd[which] = torch.randn(3, *odd[which].shape[1:-1], 7)
        odd[which].view(-1)[5], odd[which].view(-1)[-1] = float("nan"), float("inf")
    compare(task, candidate, tmp_path, [call, Call(tuple(odd))])


def test_depth_as_channels(tmp_path: Path) -> None:
    """A convolution of few channels in three dimensions is one in two, of other sizes and of infinities, too."""
    body = "return F.conv3d(x, w, b, (2, 1, 2), (0, 1, 2), (1, 2, 1)).tanh()"
    task = function_task(
        body, "torch.randn(2, 3, 7, 6, 5), torch.randn(4, 3, 3, 2, 3), torch.randn(4)", tmp_path, "x, w, b"
    )
    candidate = planned(task)
    assert "torch.conv2d(" in candidate.files["op_kforge.py"] and "conv3d" not in candidate.files["op_kforge.py"]
    call = task.make_call()
    odd = torch.randn(3, 3, 8, 5, 6)
    odd[1, 1, 2, 3, 4], odd[2, 0, 5, 0, 0] = float("nan"), float("inf")
    compare(task, candidate, tmp_path, [call, Call((odd, *call.args[1:]))])


@pytest.mark.parametrize("stride", (1, 2, 3))
@pytest.mark.parametrize("dilation", (1, 2, 3))
def test_every_tap_is_in_one_phase(stride: int, dilation: int) -> None:
    """All taps of a dimension occur once, and where a remainder has none there are no phases."""
    found = phases(5, stride, 1, dilation, 0)
    if found is None:
        assert stride > 1 and dilation % stride == 0
    else:
        assert sorted(t for phase in found for t in phase.taps) == list(range(5))
