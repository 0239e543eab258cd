"""Chains of products in the order that costs least."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.engine.calls import chains
from kforge.engine.proposing import propose
from kforge.task import Call, capture
from tests.engine.support import compare, function_task


def test_the_cheaper_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways round, of other sizes, and as it was written where an infinity or a NaN tells the orders apart."""
    monkeypatch.setattr(chains, "LEAST", 0)
    body = "return (a @ b @ c.T).relu(), c @ (b.T @ a.T), (a @ b @ c.T) * 2 @ d"
    inputs = "torch.randn(40, 30), torch.randn(30, 50), torch.randn(4, 50), torch.randn(4, 7)"
    task = function_task(body, inputs, tmp_path, "a, b, c, d")
    candidate = next(propose(task, capture(task), arch="sm_90a", device="cpu"))
    source = candidate.files["op_kforge.py"]
    assert source.count("= product_from_the_right(") == 1 and source.count("= product_from_the_left(") == 1
    call = task.make_call()
    a, b, c, d = (t.clone() for t in call.args)
    a[3, 5], b[7, 8], c[1, 9] = float("inf"), float("-inf"), float("nan")
    compare(task, candidate, tmp_path, [call, Call((a[:33], b, c, d))])


@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64"))
def test_other_types_stay_in_the_order_written(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products right after each other in other types are computed as they are written."""
    monkeypatch.setattr(chains, "LEAST", 0)
    kind = f"dtype=torch.{dtype}"
    inputs = f"torch.randn(24, 8, {kind}), torch.randn(8, 40, {kind}), torch.randn(40, 8, {kind})"
    task = function_task("return (a @ b @ c).relu()", inputs, tmp_path, "a, b, c")
    candidate = next(propose(task, capture(task), arch="sm_90a", device="cpu"))
    assert "product_from_the_" not in candidate.files["op_kforge.py"]
    compare(task, candidate, tmp_path)
