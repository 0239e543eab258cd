"""What is there without launches: computed by something else, or copied, constant, never written."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kforge.environment.written import computed_elsewhere
from kforge.worker.poison import PATTERNS


def reply(*outputs: torch.Tensor) -> Any:
    """The part of a CallReply that is looked at."""
    return SimpleNamespace(outputs=outputs)


X = torch.arange(1000, dtype=torch.float32) + 0.25
Y = X * 2.0 + 0.125
UNWRITTEN = torch.full((4000,), PATTERNS[0], dtype=torch.uint8).view(torch.float32)


def elsewhere(right: torch.Tensor, without: torch.Tensor, *given: torch.Tensor) -> float | None:
    return computed_elsewhere(reply(right), reply(without), PATTERNS[0], list(given))


def test_the_share_that_others_computed() -> None:
    """All but 100 of 1,000 elements are there without launches: nine tenths."""
    without = torch.cat([UNWRITTEN[:100], Y[100:]])
    assert elsewhere(Y, without, X) == pytest.approx(0.9)
    assert elsewhere(Y, UNWRITTEN, X) == 0.0


def test_copies_and_constants_need_no_kernel() -> None:
    """Values of inputs or parameters in any order, a fill, infinities: nothing was computed."""
    assert elsewhere(X, X.flip(0).flip(0), X) == 0.0
    assert elsewhere(X.half().float(), X.half().float(), X.half()) == 0.0
    assert elsewhere(torch.full((1000,), 3.0), torch.full((1000,), 3.0), X) == 0.0
    masked = torch.full((1000,), float("-inf"))
    assert elsewhere(masked, masked, X) == 0.0


def test_what_differs_with_launches_was_written_by_them() -> None:
    """A kernel that adds to an answer in place: what was there before is not the answer."""
    assert elsewhere(Y, Y - 1.0, X) == 0.0


def test_small_and_whole_numbers_tell_nothing() -> None:
    """Sixty-three elements, or integers: None, to be asked again of another case."""
    assert elsewhere(Y[:63], Y[:63], X) is None
    assert elsewhere(Y.long(), Y.long(), X) is None
    assert elsewhere(Y, Y[:500], X) is None
