"""Reading and writing at given places: gathers, scatters, parts replaced, structure of matrices."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.errors import NoCandidate
from tests.engine.support import compare, function_task, proposals, task_from

INPUTS = "torch.randn(6, 9), torch.randn(6, 9), torch.randint(0, 6, (6, 9)), torch.randperm(6)[:4]"
READS = """
return (torch.gather(x, 0, i), torch.index_select(x, 0, j) * 2, torch.take_along_dim(x, i % 5, 1), x[j], x[:, j],
        F.embedding(j, x, padding_idx=0), F.one_hot(j, 7), x.masked_fill(y > 0, -1.0), torch.where(y > 0, x, y))
"""
WRITES = """
return (torch.scatter(x, 0, j[:, None], y), torch.scatter(x, 1, j[:, None], 2.5) + 1, x.index_fill(0, j, 3.0),
        torch.index_put(x, (j,), y[:4]), x.select_scatter(y[0], 0, 2), torch.index_copy(x, 0, j, y[:4] * 2))
"""
SHAPES = """
return (torch.tril(x) + torch.triu(y, 1), torch.diagonal(x, 1) * 2, torch.diag_embed(x[0]), torch.cat([x, y[:, :4]], 1),
        torch.stack([x, y], 1), torch.outer(x[0], y[:, 1]), torch.meshgrid(x[0] + 1, y[0] * 2, indexing="ij")[0] * 2)
"""


@pytest.mark.parametrize("body", (READS, WRITES, SHAPES))
def test_values(body: str, tmp_path: Path) -> None:
    """Every one of these gives what eager torch gives, strides and dtypes included."""
    task = function_task(body, INPUTS, tmp_path, "x, y, i, j")
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize(
    "body",
    (
        "return torch.scatter_add(x, 0, i, y)",
        "return torch.index_add(x, 0, j, y[:4]) * 2",
        "return torch.index_put(x * 0, (j, j), y[0, :4], accumulate=True).sum(1)",
    ),
)
def test_accumulation(body: str, tmp_path: Path) -> None:
    """Repeated places add up; what follows reads the finished sums."""
    task = function_task(body, INPUTS, tmp_path, "x, y, i, j")
    candidate = proposals(task)[0]
    assert "atomicAdd" in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path)


def test_accumulation_of_integers(tmp_path: Path) -> None:
    """Counts of classes by scatter_add are exact."""
    body = "ones = torch.ones_like(i, dtype=torch.int32)\nreturn (y[:, :7] * 0).int().scatter_add(1, i, ones)"
    task = function_task(body, INPUTS, tmp_path, "x, y, i, j")
    compare(task, proposals(task)[0], tmp_path)


def test_order_of_sums_may_be_forbidden(tmp_path: Path) -> None:
    """With the constraint `deterministic` a sum of floats by atomics has no candidate, and the message says why."""
    text = "import torch\n\nCONSTRAINTS = ['deterministic']\n\n\ndef reference(x, i):\n"
    text += "    return torch.scatter_add(x, 0, i, x)\n\n\ndef get_inputs():\n"
    text += "    return [torch.randn(4, 5), torch.randint(0, 4, (4, 5))]\n"
    with pytest.raises(NoCandidate, match="differ from run to run"):
        proposals(task_from(text, tmp_path))


@pytest.mark.parametrize(
    ("body", "operator"),
    (
        ("return torch.masked_scatter(x, y > 0, y)", "masked_scatter"),
        ("return F.embedding(j, x, max_norm=1.0)", "embedding_renorm"),
        ("return x[y > 0]", "index"),
        ("return torch.scatter_add(i.short(), 0, i, i.short())", "scatter_add"),
    ),
)
def test_refusals(body: str, operator: str, tmp_path: Path) -> None:
    """What depends on the order of elements, or on data for its size, is refused by the operator's name."""
    with pytest.raises(NoCandidate) as caught:
        proposals(function_task(body, INPUTS, tmp_path, "x, y, i, j"))
    assert operator in caught.value.operator
