"""Reductions over any set of dimensions in any layout, above all where rows, not columns, are neighbours in memory."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.task import Call
from tests.engine.support import compare, forced, function_task, proposals

MIDDLE = """
return (x.sum(1), x.mean(1), x.amax(1, keepdim=True), x.amin(1), x.argmax(1), x.argmin(1), x.prod(1), x.var(1),
        torch.logsumexp(x, 1), x.norm(dim=1), x.norm(p=1, dim=1), x.max(1), (x > 0).any(1), (x > -9).all(1))
"""


def test_middle_dimension(tmp_path: Path) -> None:
    """Fourteen reductions over the middle dimension in one kernel: odd sizes, ties, NaN, infinities, one column."""
    task = function_task(MIDDLE, "torch.randn(3, 70, 37).round(decimals=1)", tmp_path)
    candidate = forced(task, "columns", LANES=32, SPLIT=2, ITEMS=4)
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    x = torch.randn(2, 33, 65)
    x[0, 3, :9] = torch.nan
    x[1, 5:8, 2] = torch.inf
    x[1, :, 7] = -torch.inf
    x[0, :, 11] = torch.inf
    compare(task, candidate, tmp_path, [task.make_call(), Call((x,)), Call((torch.randn(2, 2, 3),))])


@pytest.mark.parametrize(("dtype", "schedule"), (("float16", "columns"), ("float64", "strips"), ("int64", "strips")))
def test_dtypes(dtype: str, schedule: str, tmp_path: Path) -> None:
    """Sums over the first dimension in every kind of type; halves are added in float and rounded once."""
    inputs = f"(torch.randn(90, 70) * 9).to(torch.{dtype})"
    task = function_task("return x.sum(0), x.amax(0), x.argmin(0)", inputs, tmp_path)
    compare(task, forced(task, schedule, LANES=64, SPLIT=4, BLOCKS=2), tmp_path)


def test_rows_abreast(tmp_path: Path) -> None:
    """Several neighbouring rows a thread in 16-bit types, widths that no vector divides among them."""
    body = "return x.sum(1), x.mean(1), x.amax(1), x.argmin(1), x.prod(1), x.norm(dim=1), (x > 0).any(1)"
    task = function_task(body, "torch.randn(2, 70, 72).bfloat16()", tmp_path)
    candidate = forced(task, "abreast_strips", LANES=32, SPLIT=2, ITEMS=4, VEC=4, BLOCKS=3)
    assert "Cascade<float> row_sum[VEC];" in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path, [task.make_call(), Call((torch.randn(2, 33, 35).bfloat16(),))])


@pytest.mark.parametrize("dims", ((0, 2), (1, 3), (0, 2, 3)))
def test_sets_of_dimensions(dims: tuple[int, ...], tmp_path: Path) -> None:
    """Adjacent or not, first, middle or last: torch's sum, maximum and variance."""
    keep = ", keepdim=True" if 1 in dims else ""
    body = f"return x.sum({dims}{keep}), x.amax({dims}{keep}), x.var({dims}{keep}), x.mean({dims}{keep})"
    task = function_task(body, "torch.randn(3, 4, 5, 6)", tmp_path)
    compare(task, proposals(task)[0], tmp_path)


def test_columns_in_two_loops(tmp_path: Path) -> None:
    """Columns of two dimensions with a row dimension between them are walked by nested loops, without division."""
    body = "return x.sum((0, 2)), torch.logsumexp(x, (0, 2)), x.std((0, 2), correction=0)"
    task = function_task(body, "torch.randn(5, 3, 11, 40)", tmp_path)
    candidate = forced(task, "strips", LANES=32, SPLIT=2, ITEMS=4, BLOCKS=3)
    compare(task, candidate, tmp_path)
    assert "for (long long col_0 = first; col_0 < end; ++col_0)" in candidate.files["op_kforge.cu"]


def test_softmax_over_an_outer_dimension(tmp_path: Path) -> None:
    """softmax, log_softmax and a scaling over dim 1 read and write coalesced; columns of -inf give NaN."""
    body = "return torch.softmax(x, 1), torch.log_softmax(x, 1), (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)"
    task = function_task(body, "torch.randn(2, 70, 33)", tmp_path)
    x = torch.randn(3, 41, 35)
    x[0, :, 3] = -torch.inf
    x[1, 4, 5] = torch.inf
    for schedule, split in (("columns", 4), ("held", 32)):
        candidate = forced(task, schedule, LANES=32, SPLIT=split, ITEMS=4)
        compare(task, candidate, tmp_path, [task.make_call(), Call((x,))])


def test_long_sums_of_one_sign_over_rows(tmp_path: Path) -> None:
    """Many rows of positive values: no running sum swallows small terms."""
    task = function_task("return x.sum(0), x.mean(0)", "torch.rand(40000, 3)", tmp_path)
    compare(task, forced(task, "strips", LANES=32, SPLIT=1, ITEMS=4, BLOCKS=1), tmp_path)


def test_strided_inputs(tmp_path: Path) -> None:
    """A transposed, a permuted, a sliced and an expanded input give torch's values."""
    task = function_task("return x.sum(1), x.argmax(1), x.amin((0, 2))", "torch.randn(4, 6, 8)", tmp_path)
    views = [
        torch.randn(8, 6, 4).transpose(0, 2),
        torch.randn(4, 8, 6).permute(0, 2, 1),
        torch.randn(4, 6, 16)[:, :, ::2],
        torch.randn(4, 1, 8).expand(4, 6, 8),
        torch.randn(4 * 6 * 8 + 1)[1:].view(4, 6, 8),
    ]
    compare(task, proposals(task)[0], tmp_path, [Call((v,)) for v in views])


def test_empty_reductions(tmp_path: Path) -> None:
    """No rows give an empty result, no columns the neutral element, as torch does."""
    task = function_task("return x.sum(1), x.prod(1), x.mean(1)", "torch.randn(4, 6, 8)", tmp_path)
    calls = [Call((torch.randn(s),)) for s in ((0, 6, 8), (4, 0, 8), (4, 6, 0))]
    compare(task, proposals(task)[0], tmp_path, calls)


def test_single_numbers(tmp_path: Path) -> None:
    """A tensor without dimensions is an input like any other, also where there is no other; its index is zero."""
    body = "return x * 2 + 1, x.mean() + x.argmax(), x.norm(), x.cumsum(0), torch.stack([x, x.exp()]), x.repeat(2, 3)"
    task = function_task(body, "torch.randn(())", tmp_path)
    compare(task, proposals(task)[0], tmp_path)
