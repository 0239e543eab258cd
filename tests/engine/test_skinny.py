"""Products with a vector, as row reductions with what surrounds them in the same kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.support import compare, function_task, proposals


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return x @ y, torch.mv(x, y) * 2, z", "torch.randn(70, 300), torch.randn(300), torch.tensor(1.0) + 0"),
        ("return x @ y * z", "torch.randn(1, 300), torch.randn(300, 70), torch.randn(70)"),
        ("return torch.bmm(x, y) + z", "torch.randn(3, 33, 40), torch.randn(3, 40, 1), torch.randn(33, 1)"),
        ("return torch.addmv(z, x, y, beta=2, alpha=3)", "torch.randn(9, 40), torch.randn(40), torch.randn(9)"),
        ("return torch.dot(x, y) + z", "torch.rand(5000), torch.rand(5000), torch.tensor([1.0])"),
        ("return torch.outer(x, y) + z", "torch.randn(33), torch.randn(40), torch.randn(33, 40)"),
    ),
)
def test_products(body: str, inputs: str, tmp_path: Path) -> None:
    """One kernel each, equal to torch within its own error."""
    body = body.replace(", z", ", z + 1") if body.endswith(", z") else body
    task = function_task(body, inputs, tmp_path, "x, y, z")
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize("dtype", ("bfloat16", "float64"))
def test_rows_that_share_the_vector(dtype: str, tmp_path: Path) -> None:
    """Many long rows: several of them per block read the vector once; the last block has fewer rows."""
    inputs = f"torch.randn(530, 1026, dtype=torch.{dtype}), torch.randn(1026, 1, dtype=torch.{dtype})"
    task = function_task("return torch.tanh(x @ y / 32)", inputs, tmp_path, "x, y")
    candidate = proposals(task)[0]
    assert "ROWS" in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path)


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("return F.gelu(F.linear(x, y, z))", "torch.randn(3, 1030), torch.randn(321, 1030), torch.randn(321)"),
        ("return x @ y.t() + z", "torch.randn(321, 1030), torch.randn(4, 1030), torch.randn(4)"),
    ),
)
def test_few_rows_or_columns(body: str, inputs: str, tmp_path: Path) -> None:
    """A small batch through a linear layer: one kernel reads the weight once and applies bias and activation."""
    task = function_task(body, inputs, tmp_path, "x, y, z")
    candidate = proposals(task)[0]
    assert (
        candidate.files["op_kforge.cu"].count("__global__") == 1 and "torch.mm" not in candidate.files["op_kforge.py"]
    )
    compare(task, candidate, tmp_path)


def test_wide_products_are_not_ours(tmp_path: Path) -> None:
    """A product of two matrices is no reduction of products here."""
    task = function_task("return torch.relu(x @ y)", "torch.randn(40, 50), torch.randn(50, 60)", tmp_path, "x, y")
    assert all("row_sum" not in c.files["op_kforge.cu"] for c in proposals(task))
