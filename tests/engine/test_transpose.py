"""Transposing kernels: tiles through shared memory, whatever is fused with them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.proposing import make_plan
from kforge.task import Call, capture
from tests.engine.support import compare, function_task, load_model, proposals


@pytest.mark.parametrize(
    ("body", "shape"),
    (
        ("return x.transpose(1, 2).contiguous()", (2, 65, 33)),
        ("return x.permute(2, 1, 0).contiguous() * 2", (3, 70, 5)),
        ("return x.permute(0, 2, 3, 1).contiguous()", (2, 3, 5, 70)),
        ("return torch.relu(x.transpose(1, 2)).contiguous() + 1", (2, 65, 33)),
        ("return x.permute(0, 2, 1).reshape(x.shape[0], -1) + 1", (3, 40, 70)),
        ("return x.transpose(1, 2).contiguous() * 2", (2, 3, 1500)),
        ("return x.transpose(1, 2).contiguous() * 2", (2, 1500, 3)),
    ),
)
def test_tiles(body: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Sizes off every tile and batches; the transposing kernel is the first candidate and gives torch's values."""
    task = function_task(body, f"torch.randn({shape})", tmp_path)
    candidate = proposals(task)[0]
    assert "_tile[across" in candidate.files["op_kforge.cu"]
    smaller = tuple(max(2, s // 2) for s in shape) if len(shape) < 4 else (1, *shape[1:3], 7)
    compare(task, candidate, tmp_path, [task.make_call(), Call((torch.randn(smaller),))])


@pytest.mark.parametrize("dtype", ("bfloat16", "bool"))
def test_dtypes(dtype: str, tmp_path: Path) -> None:
    """Elements move as they are."""
    task = function_task("return x.t().contiguous()", f"(torch.randn(70, 37) * 3).to(torch.{dtype})", tmp_path)
    compare(task, proposals(task)[0], tmp_path)


def test_mixed_layouts(tmp_path: Path) -> None:
    """Two operands, one of them transposed, and a vector along each dimension."""
    body = "return x + y.t() * a - b[:, None]"
    inputs = "torch.randn(40, 70), torch.randn(70, 40), torch.randn(70), torch.randn(40)"
    task = function_task(body, inputs, tmp_path, "x, y, a, b")
    candidate = proposals(task)[0]
    assert "y_tile" in candidate.files["op_kforge.cu"] and "x_tile" not in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path)


@pytest.mark.parametrize("size", (8, 64))
@pytest.mark.parametrize("count", (1, 6))
def test_many_operands_and_places(count: int, size: int, tmp_path: Path) -> None:
    """Tiles are as small as the room for all operands asks; values that depend on the place are known there."""
    terms = " + ".join(f"{name}.transpose(1, 2)" for name in "xyzuvw"[:count])
    body = f"return (({terms}) * torch.where(torch.arange(x.shape[2])[:, None] < 4, 1.0, -1.0)).contiguous()"
    given = ", ".join([f"torch.randn(2, 70, {size})"] * count)
    task = function_task(body, given, tmp_path, ", ".join("xyzuvw"[:count]))
    candidate = next(c for c in proposals(task) if "_tile[across" in c.files["op_kforge.cu"])
    compare(task, candidate, tmp_path)


def test_results_that_keep_a_transposed_layout(tmp_path: Path) -> None:
    """A pointwise result of a transposed view lies as the view does: it is written in its own order, without tiles."""
    task = function_task("return torch.relu(x.transpose(1, 2)) + 1", "torch.randn(2, 65, 36)", tmp_path)
    candidate = proposals(task)[0]
    assert "_tile" not in candidate.files["op_kforge.cu"] and "load<VEC>(x + i)" in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path)


def test_inner_dimension_that_stays(tmp_path: Path) -> None:
    """Where the last dimension stays last, reads are coalesced anyway: no tiles."""
    task = function_task("return x.transpose(1, 2).contiguous()", "torch.randn(2, 5, 3, 64)", tmp_path)
    assert all(p.cols for p in make_plan(task, capture(task))[1])
    candidate = proposals(task)[0]
    assert "__shared__" not in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path)


def test_nothing_is_copied_where_torch_copies_nothing(tmp_path: Path) -> None:
    """contiguous() of a transposed view of what already lies so is the view itself: the result shares its memory."""
    task = function_task("return x.t().contiguous()", "torch.randn(70, 37)", tmp_path)
    model = load_model(proposals(task)[0], tmp_path)()
    x = torch.randn(37, 70).t()
    assert model(x).data_ptr() == x.data_ptr() and model(torch.randn(1, 5)).shape == (5, 1)
    assert model(x.contiguous()).data_ptr() != x.data_ptr()
