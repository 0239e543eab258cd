"""Sizes at which a reference was captured: what follows a size of the inputs does so, a literal of the user's stays."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.backward import propose_pair
from kforge.task import Call, capture
from kforge.task.backward import gradient_task
from tests.engine.support import compare, function_task, leaves, load_model, proposals

Shape = tuple[int, ...]
PLACES = "torch.stack([torch.randperm(10)[:6] for _ in range(8)], 1)"


def places(columns: int, rows: int = 6) -> torch.Tensor:
    return torch.stack([torch.randperm(10)[:rows] for _ in range(columns)], 1)


@pytest.mark.parametrize("operator", ["scatter(0, idx, src)", "scatter_add(0, idx, src)", "scatter(0, idx, 2.0)"])
def test_a_literal_width_that_equals_an_inputs(operator: str, tmp_path: Path) -> None:
    """A base of ten rows of eight stays one for narrower updates: they are refused, and eight columns are right."""
    body = f"return torch.zeros(10, 8, dtype=src.dtype).{operator} + src.sum()"
    task = function_task(body, f"{PLACES}, torch.randn(6, 8)", tmp_path, "idx, src")
    candidate = proposals(task)[0]
    compare(task, candidate, tmp_path)
    with pytest.raises(ValueError, match="== 8"):
        load_model(candidate, tmp_path)()(places(5), torch.randn(6, 5))


def test_a_width_that_follows_an_inputs(tmp_path: Path) -> None:
    """A base as wide as an input is, and a range as long, are so at other widths."""
    body = "return torch.zeros(10, src.shape[1], dtype=src.dtype).scatter(0, idx, src) + torch.arange(src.shape[1])"
    task = function_task(body, f"{PLACES}, torch.randn(6, 8)", tmp_path, "idx, src")
    calls = [Call((places(n, rows), torch.randn(rows, n))) for n, rows in ((8, 6), (5, 6), (13, 3))]
    compare(task, proposals(task)[0], tmp_path, calls)


@pytest.mark.parametrize(
    ("body", "shape", "refused"),
    [
        ("return torch.ones(8) * x", (5, 8), (5, 1)),
        ("return x.expand(8) + 1", (8,), (1,)),
        ("return F.adaptive_avg_pool2d(x, 8) * 2", (1, 2, 8, 8), (1, 2, 12, 12)),
        ("return x.reshape(6, 4) * 2", (4, 6), (2, 12)),
        ("return sum(x[:, k] for k in range(x.shape[1]))", (6, 5), (6, 7)),
        ("return torch.cdist(x[None], x[None].flip(1)) * 2", (30, 6), (7, 6)),
        ("return x.squeeze() * 2", (6, 5), (6, 1)),
        ("return x + torch.arange(x.shape[1])", (6, 1), (6, 5)),
    ],
)
def test_what_holds_at_one_size_only(body: str, shape: Shape, refused: Shape, tmp_path: Path) -> None:
    """Numbers of the reference's own that equal a size: no other size is taken for right."""
    task = function_task(body, f"torch.randn{shape}", tmp_path)
    candidate = proposals(task)[0]
    compare(task, candidate, tmp_path)
    with pytest.raises(ValueError, match="these kernels need"):
        load_model(candidate, tmp_path)()(torch.randn(refused))


@pytest.mark.parametrize(
    ("body", "shape", "other"),
    [
        ("return torch.cat([x, torch.zeros(x.shape[0], 6)])", (8, 6), (5, 6)),
        ("return x.sum() + torch.arange(x.shape[0])", (9,), (4,)),
        ("return x.sum(1) / x.shape[1]", (6, 2), (6, 7)),
        ("return x * 16", (16, 4), (5, 3)),
        ("return x.reshape(x.shape[1], x.shape[0]) * 2", (4, 6), (3, 8)),
        ("return x.reshape(x.shape[1], x.shape[0]) * 2", (6, 6), (5, 5)),
        ("return x.reshape(-1, x.shape[1]) * 2", (6, 1, 5), (6, 2, 5)),
        ("return x.sum() / x.numel()", (6, 7), (5, 3)),
        ("return torch.cat([x, x]) * (2 * x.shape[0])", (6, 7), (5, 3)),
        ("return x.repeat(3, 1).flip(0).cumsum(0)", (4, 6), (5, 3)),
    ],
)
def test_numbers_that_follow_a_size(body: str, shape: Shape, other: Shape, tmp_path: Path) -> None:
    """At another size a candidate gives what the reference gives, or refuses the size by its own error."""
    task = function_task(body, f"torch.randn{shape}", tmp_path)
    candidate = proposals(task)[0]
    x = torch.randn(other)
    compare(task, candidate, tmp_path)
    try:
        found = leaves(load_model(candidate, tmp_path)()(x))
    except ValueError as error:
        assert "these kernels need" in str(error)
    else:
        torch.testing.assert_close(found[0], task.make_reference()(x))


def test_squares_of_any_size(tmp_path: Path) -> None:
    """Equal sizes that the reference takes for each other's stay equal: any square is right, all else is refused."""
    body = "turned = x.reshape(*x.shape[::-1])\nreturn turned.reshape(turned.shape[1], -1).sin() - turned"
    task = function_task(body, "torch.randn(9, 9)", tmp_path)
    candidate = proposals(task)[0]
    compare(task, candidate, tmp_path, [Call((torch.randn(n, n),), {}) for n in (9, 6, 1)])
    with pytest.raises(ValueError, match=r"x.shape\[-1\] == x.shape\[0\]"):
        load_model(candidate, tmp_path)()(torch.randn(1, 5))


def test_a_derivatives_sizes_follow_its_inputs(tmp_path: Path) -> None:
    """The zeros that autograd gathers a gradient into are as large as the input, at other sizes as well."""
    inputs = "torch.randn(16, 32), torch.randint(32, (16, 20))"
    task = gradient_task(function_task("return torch.gather(x, 1, idx) * 2", inputs, tmp_path, "x, idx"))
    candidate = next(propose_pair(task, capture(task), arch="sm_90a", device="cpu"))
    shapes = ((16, 32, 20), (7, 32, 20), (5, 32, 20))
    calls = [
        Call((torch.randn(n, m, requires_grad=True), torch.randint(m, (n, k)), torch.randn(n, k))) for n, m, k in shapes
    ]
    compare(task, candidate, tmp_path, calls)


@pytest.mark.parametrize(
    ("body", "captured", "call"),
    (
        ("return torch.logsumexp(x, -1), (x.round() - x.round().sum(0)).sum(-1, dtype=torch.float64)", (5, 6), (5, 0)),
        ("v = (x + 1)[..., 1:]\nreturn v", (12, 1), (11, 2)),
        ("return x.flatten() * 2, x.sum() * 0 + 3", (2, 6), (0, 6)),
    ),
)
def test_nothing_in_a_dimension(body: str, captured: Shape, call: Shape, tmp_path: Path) -> None:
    """Sums of nothing, results that were empty when captured, single values beside a kernel without elements."""
    task = function_task(body, f"torch.randn{captured}", tmp_path)
    compare(task, proposals(task)[0], tmp_path, [Call((torch.randn(call),)), task.make_call()])
