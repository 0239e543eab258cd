"""Operators by name, once each; chains of library calls; accumulating writes; writes through .data; strides."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.engine.graph.importer import HANDLERS, handles
from kforge.environment.layouts import LAYOUTS
from kforge.errors import TaskError
from kforge.task import Call, capture
from tests.engine.support import compare, function_task, proposals, task_from

CELL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(12, 20)
        self.out = nn.Linear(20, 12)

    def forward(self, x, h):
        for _ in range(2):
            h = self.cell(x, h)
            x = torch.tanh(self.out(h))
        return x, h


def get_inputs():
    return [torch.randn(8, 12), torch.randn(8, 20)]
"""
HIDDEN = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(9))

    def forward(self, x):
        WRITE
        return x * self.w


def get_inputs():
    return [torch.randn(8, 9)]
"""


def test_an_operator_has_one_handler() -> None:
    """A second handler for a name is an error: which one stood would depend on the order of imports."""
    capture_names = dict(HANDLERS)
    taken = next(iter(HANDLERS), "")
    if not taken:
        handles("an_operator_of_this_test")(len)
        taken = "an_operator_of_this_test"
    with pytest.raises(ValueError, match="two handlers"):
        handles(taken)(len)
    HANDLERS.pop("an_operator_of_this_test", None)
    assert {n: HANDLERS[n] for n in capture_names} == capture_names


def test_cells_in_a_chain(tmp_path: Path) -> None:
    """Kernels of two sizes in turn between library calls: each is launched for its own number of elements."""
    task = task_from(CELL, tmp_path)
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize("write", ["self.w.data.mul_(0.5)", "self.w.data[2:] *= 2", "self.w.data = self.w * 2"])
def test_writes_through_data_are_refused(write: str, tmp_path: Path) -> None:
    """One line that says what to write instead, in the place of a crash inside torch."""
    with pytest.raises(TaskError, match=r"through \.data") as caught:
        capture(task_from(HIDDEN.replace("WRITE", write), tmp_path))
    assert caught.value.exit_code == 2 and "no_grad" in (caught.value.hint or "")


def test_reading_data_is_fine(tmp_path: Path) -> None:
    """What only reads .data has a graph."""
    assert capture(task_from(HIDDEN.replace("WRITE", "x = x + self.w.data.abs()"), tmp_path)).graph_module is not None


def test_accumulating_into_a_named_value(tmp_path: Path) -> None:
    """Rows with repeated indices are added, also where the line that adds them gives the result a name."""
    body = "x = x.clone()\nx = x.index_add(0, i, y)\nreturn x * 2"
    inputs = "torch.randn(6, 9), torch.tensor([0, 1, 1, 5]), torch.randn(4, 9)"
    task = function_task(body, inputs, tmp_path, "x, i, y")
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize("layout", ["transposed", "dense_permuted", "channels_last", "strided"])
@pytest.mark.parametrize("body", ["return torch.triu(x)", "return torch.tril(x, 1) * 2"])
def test_strides_of_triangles(body: str, layout: str, tmp_path: Path) -> None:
    """A triangle is contiguous, whatever its operand is."""
    task = function_task(body, "torch.randn(2, 6, 5, 4)", tmp_path)
    call = Call(tuple(LAYOUTS[layout](t) for t in task.make_call().args), {})
    compare(task, proposals(task)[0], tmp_path, [call])
