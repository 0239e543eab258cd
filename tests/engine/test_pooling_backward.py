"""What pooling hands back: gradients of maxima and means over windows, against autograd in float64."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.support import function_task
from tests.engine.test_backward import _compare


@pytest.mark.parametrize(
    "body",
    (
        "return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)",
        "return F.max_pool2d(x, 2), F.adaptive_avg_pool2d(x, (3, 4)), F.avg_pool2d(x, (3, 2), (4, 3), (1, 0))",
    ),
)
def test_gradients_of_windows(body: str, tmp_path: Path) -> None:
    """Windows that overlap, that leave gaps, that lie partly in the padding; what no window covers gets nothing."""
    _compare(function_task(body, "torch.randn(2, 3, 9, 12)", tmp_path), tmp_path)
