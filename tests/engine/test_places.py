"""Operators that read or join at computed places: grid_sample, antialiased resampling, searches, joining scatters."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.errors import NoCandidate
from kforge.task import Call
from tests.engine.support import compare, function_task, proposals

IMAGE, GRID = "torch.randn(2, 3, 9, 7)", "torch.rand(2, 5, 6, 2) * 2.6 - 1.3"


@pytest.mark.parametrize("corners", (False, True))
@pytest.mark.parametrize("mode", ("bilinear", "nearest", "bicubic"))
def test_grid_sample(mode: str, corners: bool, tmp_path: Path) -> None:
    """All three rules for places outside of the image, in one kernel each, for other sizes too."""
    rules = ("zeros", "border", "reflection")
    body = "return " + ", ".join(f"F.grid_sample(x, y, {mode!r}, {rule!r}, {corners})" for rule in rules)
    task = function_task(body, f"{IMAGE}, {GRID}", tmp_path, "x, y")
    other = Call((torch.randn(3, 2, 4, 8), torch.rand(3, 2, 3, 2) * 4 - 2))
    compare(task, proposals(task)[0], tmp_path, [task.make_call(), other])


def test_grid_sample_of_volumes(tmp_path: Path) -> None:
    """Eight neighbours of a place in three dimensions, and the place from an affine map."""
    body = "g = F.affine_grid(y, (2, 3, 4, 5, 6), align_corners=False)\nreturn F.grid_sample(x, g, align_corners=False)"
    task = function_task(body, "torch.randn(2, 3, 5, 4, 6), torch.randn(2, 3, 4) * 0.7", tmp_path, "x, y")
    compare(task, proposals(task)[0], tmp_path)


def test_grid_sample_reads_nothing_outside(tmp_path: Path) -> None:
    """Infinities at the border weigh nothing for places beyond it, as in torch."""
    task = function_task("return F.grid_sample(x, y, align_corners=True)", f"{IMAGE}, {GRID}", tmp_path, "x, y")
    x = torch.randn(2, 3, 9, 7)
    x[:, :, -1] = torch.inf
    grid = torch.full((2, 5, 6, 2), 3.0)
    grid[:, 0] = 0.0
    compare(task, proposals(task)[0], tmp_path, [Call((x, grid))])


@pytest.mark.parametrize("mode", ("bilinear", "bicubic"))
def test_antialiased(mode: str, tmp_path: Path) -> None:
    """Smaller, larger, and mixed; a filter too wide for one kernel goes through memory between the dimensions."""
    body = f"""
a = F.interpolate(x, (5, 4), mode={mode!r}, antialias=True)
b = F.interpolate(x, scale_factor=(0.4, 2.0), mode={mode!r}, antialias=True)
return a, b, F.interpolate(x, (3, 11), mode={mode!r}, antialias=True, align_corners=True) * 2
"""
    task = function_task(body, "torch.randn(2, 3, 23, 17)", tmp_path)
    compare(task, proposals(task)[0], tmp_path)


def test_searches(tmp_path: Path) -> None:
    """Equal boundaries, values beyond both ends, NaN, boundaries in no order: torch's bin; counts of bins are exact."""
    body = """
edges = y[0]
return (torch.bucketize(x, edges), torch.bucketize(x, edges, right=True, out_int32=True), torch.searchsorted(y, x),
        torch.searchsorted(y, x, side="right") * 2, torch.histc(z, 7, -1, 1), torch.histc(z, 5))
"""
    inputs = "torch.randn(4, 30).round(decimals=1), torch.randn(4, 13).round(decimals=1).sort(-1)[0], torch.randn(200)"
    task = function_task(body, inputs, tmp_path, "x, y, z")
    call = task.make_call()
    call.args[0][0, :3] = torch.tensor([torch.nan, torch.inf, -torch.inf])
    x, y, z = call.args
    compare(task, proposals(task)[0], tmp_path, [call, Call((x, -y, z)), Call((x, y[:, torch.randperm(13)], z))])


@pytest.mark.parametrize("kind", ("sum", "prod", "mean", "amax", "amin"))
def test_scatter_reduce(kind: str, tmp_path: Path) -> None:
    """What meets at a place is joined, with what was there or without it; halves in single precision."""
    body = f"""
return (x.scatter_reduce(0, i, y, {kind!r}), x.scatter_reduce(1, i, y, {kind!r}, include_self=False),
        h.scatter_reduce(0, i, g, {kind!r}))
"""
    inputs = "torch.randn(6, 9), torch.randn(6, 9), torch.randint(0, 6, (6, 9)), "
    inputs += "torch.randn(6, 9).half(), torch.randn(6, 9).half()"
    task = function_task(body, inputs, tmp_path, "x, y, i, h, g")
    compare(task, proposals(task)[0], tmp_path)


def test_other_scatters(tmp_path: Path) -> None:
    """Rows joined by one index a row, places through the whole tensor, 64-bit counts, parts with a step."""
    body = """
z = x.clone()
z[:, 1::3] = y[:, :3]
return (x.index_reduce(0, j, y[:4], "amax"), x.put(j, y[0, :4]), i.scatter_add(1, i, i), z, x[j, j], w[j % 2, :, j],
        torch.diagonal_scatter(x, y[0, :6]), F.embedding_bag(i, x, mode="mean"), F.embedding_bag(i, x, mode="max"))
"""
    inputs = "torch.randn(6, 9), torch.randn(6, 9), torch.randint(0, 6, (6, 9)), torch.tensor([3, 1, 3, 0]), "
    task = function_task(body, inputs + "torch.randn(2, 5, 4)", tmp_path, "x, y, i, j, w")
    call = task.make_call()
    call.args[3].copy_(torch.tensor([3, 1, 2, 0]))
    compare(task, proposals(task)[0], tmp_path, [call])


def test_distances(tmp_path: Path) -> None:
    """Every vector against every other, in each norm, batched as well."""
    norms = ", ".join(f"torch.cdist(x, y, p={p})" for p in ("2.0", "1.0", "3.0", "float('inf')"))
    task = function_task(f"return {norms}, torch.dist(x, x * 2)", "torch.randn(2, 5, 7), torch.randn(2, 4, 7)",
                         tmp_path, "x, y")  # fmt: skip
    compare(task, proposals(task)[0], tmp_path)


def test_arithmetic(tmp_path: Path) -> None:
    """Integers rounded down and towards zero, shifts, extremes that pass over NaN, decimals, fake quantisation."""
    body = """
return (i // 3, i // -3, torch.div(i, 4, rounding_mode="trunc"), i >> 2, i << 3, torch.fmax(x, y), torch.fmin(x, y),
        torch.hypot(x, y), torch.copysign(x, y), torch.signbit(x), torch.round(x, decimals=2), F.rrelu(x),
        torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -8, 7), torch.lgamma(x.abs() + 0.5))
"""
    task = function_task(body, "torch.arange(-20, 20), torch.randn(40), torch.randn(40)", tmp_path, "i, x, y")
    call = task.make_call()
    call.args[2][1:4] = torch.nan
    compare(task, proposals(task)[0], tmp_path, [call])


@pytest.mark.parametrize(
    ("body", "operator"),
    (
        ("return F.embedding_bag(j, x, torch.tensor([0, 2]), mode='mean', padding_idx=1)", "_embedding_bag"),
        ("return x.int().scatter_reduce(0, i, y.int(), 'mean')", "scatter_reduce"),
    ),
)
def test_refusals(body: str, operator: str, tmp_path: Path) -> None:
    """Bags whose sizes depend on data, and means of integers, are refused by name."""
    inputs = "torch.randn(6, 9), torch.randn(6, 9), torch.randint(0, 6, (6, 9)), torch.tensor([3, 1, 2, 0])"
    with pytest.raises(NoCandidate) as caught:
        proposals(function_task(body, inputs, tmp_path, "x, y, i, j"))
    assert operator in caught.value.operator or "constant" in caught.value.operator


def test_pairs_and_counts(tmp_path: Path) -> None:
    """Each pair of vectors once; how often numbers occur, with weights, those beyond the last bin left out."""
    body = "return F.pdist(x), F.pdist(x, 1.0), torch.bincount(i, minlength=7)[:7], torch.bincount(i, y, 7)[:5]"
    inputs = "torch.randn(53, 6), torch.randint(9, (40,)), torch.randn(40)"
    task = function_task(body, inputs, tmp_path, "x, i, y")
    compare(task, proposals(task)[0], tmp_path)


def test_pairs_of_any_number(tmp_path: Path) -> None:
    """A candidate captured at one number of vectors serves others, of none and of many pairs."""
    task = function_task("return F.pdist(x)", "torch.randn(7, 5)", tmp_path)
    calls = [Call((torch.randn(n, width),)) for n, width in ((0, 5), (1, 5), (2, 1), (3, 8), (64, 5), (301, 3))]
    compare(task, proposals(task)[0], tmp_path, calls)
