"""Rows shared by several blocks: chunks in registers and shared memory, joined through memory, on any kind of input."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.families import Target
from kforge.engine.families import row as rows
from kforge.errors import KforgeError
from kforge.task import Call
from tests.engine.support import SCHEDULES, compare, forced, function_task, leaves, load_model

NORMALISERS = """
normed = F.layer_norm(x, (x.shape[-1],))
return torch.softmax(x, -1), torch.log_softmax(x, -1), normed, x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
"""
SMALL = {"BLOCK": 64, "ITEMS": 2, "STAGED": 16}


def source(candidate) -> str:
    (text,) = [text for name, text in candidate.files.items() if name.endswith(".cu")]
    return text


@pytest.mark.parametrize("body", ("return torch.softmax(x, -1)", "return F.layer_norm(x, (x.shape[-1],))", NORMALISERS))
@pytest.mark.parametrize("staged", (0, 8, 16))
def test_widths(body: str, staged: int, tmp_path: Path) -> None:
    """Widths that vectors divide and that they do not, rows of one column, last chunks that are nearly empty."""
    torch.manual_seed(staged)
    task = function_task(body, "torch.randn(2, 500)", tmp_path)
    candidate = forced(task, "split", **{**SMALL, "STAGED": staged})
    compare(task, candidate, tmp_path, [Call((torch.randn(2, w),)) for w in (1, 257, 2000, 2561)])


def test_rows_that_are_not_aligned(tmp_path: Path) -> None:
    """A contiguous tensor that begins one element past a vector's boundary."""
    task = function_task(NORMALISERS, "torch.randn(2, 500)", tmp_path)
    flat = torch.randn(2 * 1024 + 1)
    compare(task, forced(task, "split", **SMALL), tmp_path, [Call((flat[1:].view(2, 1024),))])


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float64))
def test_dtypes(dtype: torch.dtype, tmp_path: Path) -> None:
    """A value may take the place of a narrower or a wider one in its slot; rounding to half happens once."""
    name = str(dtype)
    body = "return F.layer_norm(x, (x.shape[-1],), w), torch.softmax(x + w, -1), torch.softmax(x, -1), x.sum(-1)"
    task = function_task(body, f"torch.randn(2, 264, dtype={name}), torch.randn(264, dtype={name})", tmp_path, "x, w")
    calls = [Call((torch.randn(2, w).to(dtype), torch.randn(w).to(dtype))) for w in (264, 1999)]
    compare(task, forced(task, "split", **{**SMALL, "ITEMS": 1}), tmp_path, calls)


@pytest.mark.parametrize("dtype", (torch.float16, torch.float64))
def test_softmax_written_for_another_dtype(dtype: torch.dtype, tmp_path: Path) -> None:
    """In softmax the exponentials take over the slots of the row, of whatever size its elements are."""
    task = function_task("return torch.softmax(x, -1)", f"torch.randn(2, 264, dtype={dtype})", tmp_path)
    candidate = forced(task, "split", **SMALL)
    assert source(candidate).count("SLOT> x_in(slots);") == source(candidate).count("SLOT> power(slots);") == 1
    compare(task, candidate, tmp_path, [Call((torch.randn(2, w).to(dtype),)) for w in (1024, 1111)])


def test_nan_and_infinities(tmp_path: Path) -> None:
    """They come out where torch puts them, also where they are in one block's chunk alone."""
    body = "return (torch.softmax(x, -1), torch.log_softmax(x, -1), torch.logsumexp(x, -1), x.amax(-1), x.argmin(-1))"
    task = function_task(body, "torch.randn(7, 600)", tmp_path)
    x = torch.randn(7, 600)
    x[1] = -torch.inf
    x[2, 5] = torch.nan
    x[3, 599] = torch.inf
    x[4, :400] = -torch.inf
    x[5, 3], x[5, 590] = torch.nan, torch.inf
    x[6, 2], x[6, 3] = torch.inf, -torch.inf
    compare(task, forced(task, "split", **SMALL), tmp_path, [Call((x,))])


def test_several_inputs_before_and_after(tmp_path: Path) -> None:
    """A residual and a mask before, a gate and a weight after: two loads are held, what is computed takes a slot."""
    body = """
h = torch.where(m, x + r, 0.0)
y = F.layer_norm(h, (h.shape[-1],), w) * torch.sigmoid(g)
return y, torch.softmax(h * 0.5, -1), h
"""
    shape = "torch.randn(3, 700), torch.randn(3, 700), torch.rand(3, 700) > 0.2, torch.randn(3, 700), torch.randn(700)"
    task = function_task(body, shape, tmp_path, "x, r, m, g, w")
    torch.manual_seed(1)
    calls = [task.make_call()]
    x, r, g = (torch.randn(2, 1501) for _ in range(3))
    calls.append(Call((x, r, torch.rand(2, 1501) > 0.5, g, torch.randn(1501))))
    compare(task, forced(task, "split", **SMALL), tmp_path, calls)


@pytest.mark.parametrize("first", (0.0, 1e4))
@pytest.mark.parametrize("offset", (0.0, 1e3, -1e5))
def test_moments_of_shifted_data(offset: float, first: float, tmp_path: Path) -> None:
    """Large offsets, and a first value far from all others, cost layer norm and variance no more than torch."""
    task = function_task("return F.layer_norm(x, (x.shape[-1],)), x.var(-1)", "torch.randn(4, 500)", tmp_path)
    torch.manual_seed(0)
    x = torch.randn(40, 3000) + offset
    x[:, 0] += first
    compare(task, forced(task, "split", **SMALL), tmp_path, [Call((x,))])


def test_quotients_by_a_row_value(tmp_path: Path) -> None:
    """Division by a value of the row: rounded as a division, by zero, infinity, NaN and numbers near both ends too."""
    task = function_task("return x / x.amax(-1, keepdim=True)", "torch.randn(9, 500)", tmp_path)
    x = torch.randn(9, 500)
    tops = (1.0, 0.0, torch.inf, torch.nan, 1e-40, 3e38, 1.5e-38, 3e-31, 7.0)
    for row, top in enumerate(tops):
        x[row] = -x[row].abs() * min(top, 1.0) if top else -x[row].abs()
        x[row, row * 50] = top
    x[8, 3] = -torch.inf
    candidate = forced(task, "split", **SMALL)
    assert "Divisor<float>" in source(candidate)
    compare(task, candidate, tmp_path, [Call((x,))])


def test_results_repeat_bitwise(tmp_path: Path) -> None:
    """Partial results are joined in one order, whichever block comes first."""
    task = function_task(NORMALISERS, "torch.randn(3, 1300)", tmp_path)
    model = load_model(forced(task, "split", **SMALL), tmp_path)()
    call = task.make_call()
    first = leaves(task.run(model, call))
    for _ in range(5):
        assert all(torch.equal(a, b) for a, b in zip(first, leaves(task.run(model, call)), strict=True))


def test_a_row_has_no_more_blocks_than_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three blocks that fit on a multiprocessor two are counted on; what would take more is refused."""
    monkeypatch.setitem(SCHEDULES, "split", lambda p, t, n: rows._split(p, t, n, Target(multiprocessors=2)))
    task = function_task("return torch.softmax(x, -1)", "torch.randn(2, 500)", tmp_path)
    candidate = forced(task, "split", **SMALL)
    each = SMALL["BLOCK"] * (4 * SMALL["ITEMS"] + SMALL["STAGED"])
    compare(task, candidate, tmp_path, [Call((torch.randn(2, 4 * each),))])
    with pytest.raises(KforgeError, match="ITEMS"):
        load_model(candidate, tmp_path)()(torch.randn(2, 60 * each))
