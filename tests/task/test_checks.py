"""Functions that look at values only to refuse some are traced without that look, and compute the same."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.task import capture, load_task
from kforge.task.checks import unchecked


@pytest.mark.parametrize("function", (torch.quantile, torch.nanquantile))
def test_quantiles_are_those_of_torch(function: Any) -> None:
    """Every way to ask for quantiles gives torch's values, shapes and strides."""
    torch.manual_seed(0)
    own = unchecked(function)
    x = torch.randn(3, 4, 5)
    x[0, 0, 0] = torch.nan
    asked = (0.3, 1.0, torch.tensor(0.4), torch.tensor([0.2, 0.7]))
    for dim, keepdim, q, kind in itertools.product(
        (None, 0, -1), (False, True), asked, ("linear", "lower", "higher", "midpoint", "nearest")
    ):
        want = function(x, q, dim, keepdim, interpolation=kind)
        have = own(x, q, dim, keepdim, interpolation=kind)
        torch.testing.assert_close(have, want, rtol=0, atol=0, equal_nan=True)
        steps = [[s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] for t in (want, have)]
        assert steps[0] == steps[1]
    with pytest.raises(RuntimeError, match="range"):
        own(x, 1.5)


@pytest.mark.parametrize(
    "body",
    (
        "return F.gaussian_nll_loss(x, y, z)",
        "return F.gaussian_nll_loss(x, y, z[:, 0], full=True, reduction='none')",
        "return torch.distributions.Normal(x, z).log_prob(y)",
        "return torch.distributions.Categorical(logits=x).entropy()",
    ),
)
def test_checks_do_not_hinder_a_capture(body: str, tmp_path: Path) -> None:
    """What raises for some values is captured all the same; its graph computes what the reference does."""
    path = tmp_path / "op.py"
    path.write_text(
        f"import torch\nimport torch.nn.functional as F\n\n\ndef reference(x, y, z):\n    {body}\n\n\n"
        "def get_inputs():\n    return [torch.randn(6, 9), torch.randn(6, 9), torch.rand(6, 9) + 0.1]\n"
    )
    task = load_task(path)
    validates = torch.distributions.Distribution._validate_args  # torch's compiler turns it off when it is imported
    captured = capture(task)
    assert not captured.failure
    call = task.make_call()
    want = task.run(task.make_reference(), call)
    (have,) = captured.module(*call.args)
    torch.testing.assert_close(have, want)
    assert torch.distributions.Distribution._validate_args is validates
