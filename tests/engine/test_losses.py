"""Losses against eager torch: one kernel to a scalar where nothing but a sum is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.task import Call
from tests.engine.support import compare, forced, function_task, load_model, plan_of, proposals

PAIR = "torch.randn(33, 70), torch.randn(33, 70)"
CLASSES = "torch.randn(33, 70), torch.randint(0, 70, (33,))"
IMAGE = "torch.randn(3, 7, 8, 9), torch.randint(0, 7, (3, 8, 9))"

SCALARS = {
    "distances": (
        "F.mse_loss(x, y), F.l1_loss(x, y), F.huber_loss(x, y, delta=0.7), "
        "F.smooth_l1_loss(x, y, beta=0.5), (x * y).max()"
    ),
    "logarithms": (
        "F.kl_div(x, y.abs()), F.kl_div(x, y, log_target=True, reduction='batchmean'), F.poisson_nll_loss(x, y.abs())"
    ),
    "decisions": (
        "F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), F.hinge_embedding_loss(x, y.sign()), "
        "F.binary_cross_entropy_with_logits(x, y, pos_weight=y[0].abs())"
    ),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_takes_one_kernel(name: str, tmp_path: Path) -> None:
    """Everything is summed in one launch by several blocks whose shares the last one joins, in a fixed order."""
    task = function_task(f"return {SCALARS[name]}", PAIR, tmp_path, "x, y")
    candidate = forced(task, "share", SHARE=512, BLOCK=64, ITEMS=2)
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    compare(task, candidate, tmp_path)


@pytest.mark.parametrize(
    ("body", "inputs"),
    (
        ("F.cross_entropy(x, y), F.cross_entropy(x, y, ignore_index=3, label_smoothing=0.1)", CLASSES),
        ("F.cross_entropy(x, y, weight=x[0].abs() + 0.1, reduction='sum'), F.multi_margin_loss(x, y)", CLASSES),
        ("F.cross_entropy(x, y, reduction='none')", IMAGE),
        ("F.cross_entropy(x, y.softmax(-1)), F.cosine_embedding_loss(x, y, y[:, 0].sign())", PAIR),
    ),
)
def test_losses_of_rows(body: str, inputs: str, tmp_path: Path) -> None:
    """Losses that need a result of each row first."""
    task = function_task(f"return {body}", inputs, tmp_path, "x, y")
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_targets_that_end(reduction: str, tmp_path: Path) -> None:
    """Classes behind the first -1 are none, which torch's own decomposition takes for class 0; NaN is no loss."""
    targets = "torch.tensor([[1, 2, -1, 0, 0], [0, -1, 3, 0, 0], [4, 3, 2, 1, 0], [-1, 0, 0, 0, 0]])"
    body = f"return F.multilabel_margin_loss(x, t, reduction={reduction!r})"
    task = function_task(body, f"torch.randn(4, 5), {targets}", tmp_path, "x, t")
    x, t = task.make_call().args
    odd = x.clone()
    odd[0, 3], odd[1, 2] = torch.nan, -torch.inf
    compare(task, proposals(task)[0], tmp_path, [task.make_call(), Call((odd, t))])
    row = function_task(body, f"torch.randn(5), {targets}[0]", tmp_path, "x, t")
    compare(row, proposals(row)[0], tmp_path)


def test_a_loss_of_a_row_is_computed_where_the_row_is(tmp_path: Path) -> None:
    """Between the two kernels there is one number a row, not the row's maximum and its sum."""
    parts = plan_of(function_task("return F.cross_entropy(x, y)", CLASSES, tmp_path, "x, y")).parts
    assert [b.kind for b in parts.temporaries] == ["temporary"] and len(parts.programs) == 2


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_label_smoothing_is_a_share_of_the_classes(reduction: str, tmp_path: Path) -> None:
    """Torch writes it as a number, e / n: for other numbers of classes it would be wrong, so that n is checked."""
    body = f"return F.cross_entropy(x, t, label_smoothing=0.1, reduction={reduction!r})"
    task = function_task(body, "torch.randn(6, 20), torch.randint(0, 20, (6,))", tmp_path, "x, t")
    (candidate, *_) = proposals(task)
    compare(task, candidate, tmp_path)
    model = load_model(candidate, tmp_path)()
    with pytest.raises(ValueError, match=r"x\.shape\[-?1\] == 20"):
        model(torch.randn(6, 21), torch.randint(0, 21, (6,)))
    assert model(torch.randn(9, 20), torch.randint(0, 20, (9,))).shape == ((9,) if reduction == "none" else ())
