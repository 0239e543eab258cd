"""The mean of signed errors, which a root mean square does not see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

BIASED, BIASED_SURE, BIASED_ROWS = 0.1, 6.0, 128  # units of mean error that are told; standard errors; least rows


class Bias:
    """Errors in units in the last place, positive where they lead away from zero: of the candidate, of the baseline.

    A constant off by a fraction of a percent (a sum over 512 divided by 513) hardly shows in an RMS of roundings to 8
    bits, but its mean does, over many elements: those of unbiased roundings go to zero. Rows count as one error each,
    since a row's elements may share a factor. Told, and never a reason to fail: the acceptance rule is of RMS errors.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._sums = [[0.0, 0.0], [0.0, 0.0]]  # of the rows' means and of their squares, by side

    def add(self, candidate: torch.Tensor, baseline: torch.Tensor, expected: torch.Tensor) -> None:
        """One draw: errors in units, and the right values, whose signs count."""
        columns = expected.shape[-1] if expected.dim() > 1 else 1
        sign = expected.nan_to_num(0.0, 0.0, 0.0).sign()
        for sums, units in zip(self._sums, (candidate, baseline), strict=True):
            means = (units * sign).reshape(-1, max(1, columns)).mean(1)
            sums[0] += float(means.sum())
            sums[1] += float(means.square().sum())
        self.rows += means.numel()

    def told(self) -> tuple[float, float] | None:
        """Both means, where the candidate's is surely another and further from zero than the baseline's; else None."""
        if self.rows < BIASED_ROWS:
            return None
        means = [total / self.rows for total, _ in self._sums]
        spread = sum(max(0.0, sq / self.rows - m * m) for m, (_, sq) in zip(means, self._sums, strict=True))
        sure = abs(means[0] - means[1]) > BIASED_SURE * math.sqrt(spread / self.rows)
        return (means[0], means[1]) if sure and abs(means[0]) > abs(means[1]) + BIASED else None
