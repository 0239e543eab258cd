"""Operators under a mode that was switched off: named with their count, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kforge.worker.beneath import Beneath


class Passing(TorchDispatchMode):
    """Sees every operator and calls it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def told(call: Callable[[torch.Tensor], object]) -> tuple[dict[str, int], bool]:
    beneath, x = Beneath(), torch.randn(8, 8)
    with torch.no_grad(), Passing():
        beneath.start()
        call(x)
        found = beneath.stop()
    return found, beneath.announced


def test_what_a_mode_sees_is_not_hidden() -> None:
    """Operators with a kernel, composite ones, views, library calls, reading a number: the mode was there."""

    def call(x: torch.Tensor) -> None:
        torch.nn.functional.linear(x, x).softmax(-1).reshape(-1)[3:].sum().item()
        x.t().contiguous().to(torch.float16)
        x.contiguous()
        torch.einsum("ij,jk->ik", x, x)

    assert told(call) == ({}, True)


def test_what_is_called_under_a_mode_switched_off_is_named() -> None:
    """By the operator that does the work, once a call; a composite one by its parts."""

    def call(x: torch.Tensor) -> None:
        y = torch.empty_like(x)
        with _disable_current_modes():
            y.copy_(torch.nn.functional.gelu(x) * 2.0 + x)
            torch.nn.functional.linear(x, x)
            x * 3.0

    found, announced = told(call)
    assert announced
    assert found == {
        "aten.gelu.hidden": 1,
        "aten.mul.hidden": 2,
        "aten.add.hidden": 1,
        "aten.copy_.hidden": 1,
        "aten.t.hidden": 1,
        "aten.mm.hidden": 1,
    }


def test_a_range_of_the_users_is_no_modes() -> None:
    """A range that only has the name of a mode's hides nothing."""

    def call(x: torch.Tensor) -> None:
        with _disable_current_modes(), torch.profiler.record_function("PythonDispatchMode"):
            torch.relu(x)

    assert told(call)[0]["aten.relu.hidden"] == 1


def test_a_torch_without_these_events_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is called hidden, and nothing was announced."""
    monkeypatch.delattr(torch._C._autograd, "_enable_profiler_legacy")
    assert told(lambda x: x * 2) == ({}, False)
