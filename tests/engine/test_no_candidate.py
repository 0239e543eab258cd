"""What the engine cannot do ends as NoCandidate that names the operator, never as a torch-only candidate."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.errors import NoCandidate
from tests.engine.support import function_task, proposals


@pytest.mark.parametrize(
    ("body", "operator"),
    (
        ("return x @ x.t()", "mm"),
        ("return torch.cumsum(x, -1)", "cumsum"),
        ("return F.conv2d(x[None, None], x[None, None, :3, :3])", "conv"),
        ("return torch.sort(x, -1).values", "sort"),
        ("return F.max_pool1d(x[None], 2)", "max_pool"),
        ("return torch.fft.fft(x).abs()", "fft"),
        ("return F.dropout(x, 0.5)", "dropout"),
        ("x.mul_(2)\nreturn x + 1", "in-place"),
    ),
)
def test_operator_is_named(body: str, operator: str, tmp_path: Path) -> None:
    """The error carries the operator that no kernel covers, and a hint."""
    with pytest.raises(NoCandidate) as caught:
        proposals(function_task(body, "torch.randn(8, 8)", tmp_path))
    assert operator in caught.value.operator
    assert caught.value.exit_code == 1
