"""Linear layers on the same rows as one product."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.calls import precision
from kforge.engine.handlers import products
from kforge.engine.proposing import propose
from kforge.task import Call, capture
from tests.engine.support import compare, function_task

INPUTS = (
    "torch.randn(2, 9, 32{t}), *(torch.randn(n, 32{t}) for n in (24, 40, 16)), torch.randn(24{t}), torch.randn(40{t})"
)
BODY = "return F.linear(x, q, b).tanh(), F.linear(x, k, c) * 2, F.linear(x, v) - 1"


def test_linear_layers_on_the_same_rows(tmp_path: Path) -> None:
    """Weights and biases lie one below the other, each result is a range of columns; of other sizes, too."""
    inputs = INPUTS.format(t=", dtype=torch.bfloat16")
    task = function_task(BODY, inputs, tmp_path, "x, q, k, v, b, c")
    candidate = next(
        c for c in propose(task, capture(task), arch="sm_90a", device="cpu") if "weights" in c.files["op_kforge.py"]
    )
    source = candidate.files["op_kforge.py"]
    assert source.count("= torch.addmm(") == 1 and source.count("= torch.mm(") == 1
    call = task.make_call()
    other = torch.randn(3, 5, 32).to(call.args[0].dtype)
    other[0, 0, 3], other[2, 1, 0] = float("nan"), float("inf")
    compare(task, candidate, tmp_path, [Call((other, *call.args[1:]))])


def test_rows_are_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a precision scheme the rows are made halves for all of them."""
    monkeypatch.setattr(products, "pays", lambda *_: True)
    monkeypatch.setattr(precision, "LEAST_DEPTH", 0)
    body = "return F.linear(x, q, b).relu(), F.linear(x, k) + 1, F.linear(x, v).tanh()"
    inputs = "torch.randn(70, 64), *(torch.randn(n, 64) for n in (40, 24, 64)), torch.randn(40)"
    task = function_task(body, inputs, tmp_path, "x, q, k, v, b")
    found = propose(task, capture(task), arch="sm_90a", device="cpu")
    candidate = next(c for c in found if "product_of_two_halves_rr(x, weights" in c.files["op_kforge.py"])
    assert candidate.files["op_kforge.py"].count("= product_of_two_halves_rr(") == 1
    compare(task, candidate, tmp_path)
