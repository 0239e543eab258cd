"""Integers, booleans and indices: equal where the reference decides, free where it promises nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kforge.environment.discrete import judge_booleans, judge_equal, judge_indices, judge_rounded
from kforge.environment.inputs import Case
from kforge.environment.preparation import prepare
from kforge.environment.provenance import judge_discrete
from kforge.task import load_task


def test_integers_are_bitwise() -> None:
    """One differing integer is found, counted and located."""
    base = torch.arange(12).view(3, 4)
    other = base.clone()
    other[1, 2] += 1
    assert judge_equal(base.clone(), base) == ""
    assert judge_equal(other, base) == "1 of 12 elements differ: 7 at [1, 2] where the reference gives 6"


def test_rounded_floats_may_differ_by_one_at_the_edge_only() -> None:
    """An integer cast from 2.9999999 may be 2 or 3; one cast from 2.7 may not."""
    exact = torch.tensor([2.99999999, 2.7, -1.2], dtype=torch.float64)
    base = torch.tensor([2, 2, -1])
    assert judge_rounded(torch.tensor([3, 2, -1]), base, exact, 1e-7) == ""
    assert judge_rounded(torch.tensor([2, 3, -1]), base, exact, 1e-7) != ""
    assert judge_rounded(torch.tensor([4, 2, -1]), base, exact, 1e-7) != ""


def test_whole_numbers_of_an_exact_baseline_are_equal() -> None:
    """A count lies at an integer, where a cast changes, but nothing was rounded on the way to it."""
    exact = torch.tensor([5.0, 2.0], dtype=torch.float64)
    base = torch.tensor([5, 2])
    assert judge_rounded(base.clone(), base, exact, 0.0) == ""
    assert judge_rounded(torch.tensor([6, 2]), base, exact, 0.0) != ""


def test_booleans_may_differ_inside_the_margin_only() -> None:
    """A comparison whose fp64 margin lies in the baseline's error may go either way; no other may."""
    base = torch.tensor([True, False, True])
    margin = torch.tensor([1e-9, -0.5, 0.5], dtype=torch.float64)
    assert judge_booleans(torch.tensor([False, False, True]), base, margin, 1e-7) == ""
    assert judge_booleans(torch.tensor([True, True, True]), base, margin, 1e-7) != ""
    assert judge_booleans(torch.tensor([False, False, True]), base) != ""


def test_an_off_by_one_index_is_wrong_unless_the_values_tie() -> None:
    """The fp64 value at the index decides; among equal extremes torch promises the first."""
    values = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.0, 1.0, 5.0, 5.0 - 1e-9]], dtype=torch.float64)
    base = torch.tensor([1, 2])
    assert judge_indices(base.clone(), base, values, 1) == ""
    assert judge_indices(torch.tensor([2, 2]), base, values, 1) != ""  # a later tie
    assert judge_indices(torch.tensor([2, 2]), base, values, 1, first_of_ties=False) == ""
    assert judge_indices(torch.tensor([1, 3]), base, values, 1) != ""
    assert judge_indices(torch.tensor([1, 3]), base, values, 1, bound=1e-7) == ""
    assert "out of range" in judge_indices(torch.tensor([1, 4]), base, values, 1)


def test_topk_indices_must_be_distinct() -> None:
    """Returning the best index twice is not the two best."""
    values = torch.tensor([[5.0, 5.0, 1.0]], dtype=torch.float64)
    base = torch.tensor([[0, 1]])
    assert judge_indices(torch.tensor([[1, 0]]), base, values, 1, first_of_ties=False) == ""
    assert "twice" in judge_indices(torch.tensor([[0, 0]]), base, values, 1, first_of_ties=False)


def test_a_flattened_argmax_is_judged_over_the_whole_tensor() -> None:
    """dim=None searches all elements; NaN is the extreme where there is one."""
    values = torch.tensor([[1.0, float("nan")], [7.0, 2.0]], dtype=torch.float64)
    assert judge_indices(torch.tensor(1), torch.tensor(1), values, None) == ""
    assert judge_indices(torch.tensor(2), torch.tensor(1), values, None) != ""


def judged(tmp_path: Path, body: str, answer: Callable[[torch.Tensor], torch.Tensor]) -> str:
    """What is said of `answer(right)` where the reference is `body` of x (40 x 33, normal)."""
    op = tmp_path / "op.py"
    op.write_text(
        f"import torch\ndef reference(x):\n    return {body}\ndef get_inputs():\n    return [torch.randn(40, 33)]\n"
    )
    prepared = prepare(load_task(op), "cpu", folder=tmp_path, entropy=1)
    expected = prepared.expected(Case())
    right = expected.outputs
    return judge_discrete(prepared.sources()[0], answer(right), right, expected.inner)


@pytest.mark.parametrize(
    "body", ["torch.round(x / 0.03).clamp(-127, 127).to(torch.int8)", "(torch.round(x / 0.03) + 3).to(torch.int32)"]
)
def test_a_quantised_value_is_off_by_one_at_the_edge_of_rounding_only(tmp_path: Path, body: str) -> None:
    """Every rounded value is whole; that is no reason to take its neighbour."""
    assert judged(tmp_path, body, lambda right: right.clone()) == ""
    assert "differ" in judged(tmp_path, body, lambda right: right + 1)


@pytest.mark.parametrize(
    "body",
    [
        "x.relu() > 0",
        "(x * 0.3).relu() > 0",
        "(x / 3).clamp(min=0) > 0",
        "torch.round(x) >= 1",
        "x.abs() > x",
        "x > x[:, 3:4]",
    ],
)
def test_a_comparison_of_what_was_only_selected_may_differ_nowhere(tmp_path: Path, body: str) -> None:
    """Half of relu's values tie with 0, exactly: a > that is a >= is wrong for all of them."""
    strict = ">=" if ">=" in body else ">"
    other = body.replace(strict, ">" if strict == ">=" else ">=")
    torch.manual_seed(0)
    swapped = eval(f"lambda x: {other}", {"torch": torch})
    assert judged(tmp_path, body, lambda right: right.clone()) == ""
    op = prepare(load_task(tmp_path / "op.py"), "cpu", folder=tmp_path, entropy=1)
    x = op.expected(Case()).call.args[0]
    assert not torch.equal(swapped(x), op.expected(Case()).outputs)
    assert "differ" in judged(tmp_path, body, lambda right: swapped(x))


@pytest.mark.parametrize(
    ("body", "other"),
    [
        ("(x * 0.3).relu() * 2 > 0", "(x * 0.3).relu() * 2 >= 0"),
        ("(x * 0.3).relu().sqrt() > 0", "x < 9"),
        ("x - x.amax(-1, keepdim=True) >= 0", "x - x.amax(-1, keepdim=True) > 0"),
        ("(x * 0.3).relu().argmin(-1)", "32 - (x * 0.3).relu().flip(-1).argmin(-1)"),
        ("(x * 0.3).neg().exp().log().relu().min(-1).indices", "32 - (x.neg() * 0.3).relu().flip(-1).argmin(-1)"),
        (
            "(x * 0.3).relu().sort(dim=-1, stable=True).indices",
            "32 - (x * 0.3).relu().flip(-1).sort(dim=-1, stable=True).indices",
        ),
        ("(x * 0.3).masked_fill(x > 0, float('nan')) * 2 > 0", "x > 0"),
    ],
)
def test_an_exact_tie_is_no_rounding(tmp_path: Path, body: str, other: str) -> None:
    """Zeros that a clamp makes of clearly negative values tie in truth, as NaN is NaN: torch decides."""
    answer = eval(f"lambda x: {other}", {"torch": torch})
    assert judged(tmp_path, body, lambda right: right.clone()) == ""
    op = prepare(load_task(tmp_path / "op.py"), "cpu", folder=tmp_path, entropy=1)
    x = op.expected(Case()).call.args[0]
    assert "differ" in judged(tmp_path, body, lambda right: answer(x))


@pytest.mark.parametrize(
    ("body", "other"),
    [
        # a multiply-add makes a remainder of what is 0 here, in one pass over the row or in two
        ("x * 0.3 - (x * 0.3).amax(-1, keepdim=True) >= 0", "x - x.amax(-1, keepdim=True) > 0"),
        # the mean of a constant row is that constant by luck of the order in which it is summed
        ("x[:, :1].expand(40, 33) - x[:, :1].expand(40, 33).mean(-1, keepdim=True) > 0", "x == x"),
        # products of equal numbers tie, and a sum in another order breaks the tie
        ("(x @ x[:7].repeat(2, 1).t()).argmax(-1)", "(x @ x[:7].t()).argmax(-1) + 7"),
        # which of equal values a median or a k-th value points to is said nowhere
        ("x.round().kthvalue(5, -1).indices", "32 - x.round().flip(-1).kthvalue(5, -1).indices"),
        ("x.round().median(0).indices", "39 - x.round().flip(0).median(0).indices"),
    ],
)
def test_a_tie_that_rounding_can_break_is_free(tmp_path: Path, body: str, other: str) -> None:
    """Where a right kernel may come out on the other side, either answer stands."""
    op = tmp_path / "op.py"
    judged(tmp_path, body, lambda right: right)
    prepared = prepare(load_task(op), "cpu", folder=tmp_path, entropy=1)
    expected = prepared.expected(Case())
    x, right = expected.call.args[0], expected.outputs
    answer = eval(f"lambda x: {other}", {"torch": torch})(x)
    inner = next(iter(expected.inner.values()))
    tied = inner.exact == 0 if right.dtype is torch.bool else torch.ones_like(right, dtype=torch.bool)
    assert judge_discrete(prepared.sources()[0], torch.where(tied, answer, right), right, expected.inner) == ""


def test_what_lies_at_a_threshold_is_not_firm(tmp_path: Path) -> None:
    """relu of a sum within its own error of 0 is 0 in both precisions, and may be above 0 in a right kernel."""
    op = tmp_path / "op.py"
    op.write_text(
        "import torch\ndef reference(x):\n    return (x[:, 0] * 3.0 + x[:, 1]).relu() * 2 > 0\n"
        "def get_inputs():\n    return [torch.randn(40, 2)]\n"
    )
    prepared = prepare(load_task(op), "cpu", folder=tmp_path, entropy=1)
    x = prepared.expected(Case()).call.args[0].clone()
    x[:, 1] = -(x[:, 0].double() * 3.0).float() - 1e-8
    intermediates = prepared._captured(0)[2]
    assert intermediates is not None
    from kforge.task import Call

    inner = next(iter(intermediates.values(prepared.reference(), Call((x,), {}), 0).values()))
    assert inner.firm is not None and not bool(inner.firm.any())
