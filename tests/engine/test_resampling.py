"""Operators that read at computed places: upsampling, padding, rolls, sliding views."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.task import Call
from tests.engine.support import compare, function_task, proposals


@pytest.mark.parametrize(
    "body",
    (
        "return F.interpolate(x, scale_factor=2), F.interpolate(x, scale_factor=3), F.interpolate(x, size=(13, 5))",
        "return F.interpolate(x, scale_factor=2, mode='bilinear'), F.interpolate(x, size=(7, 19), mode='bilinear')",
        "return F.interpolate(x, size=(13, 5), mode='bilinear', align_corners=True) * 2",
        "return F.interpolate(x, scale_factor=1.5, mode='bicubic')",
        "return tuple(F.pad(x, (1, 2, 2, 1), mode) for mode in ('reflect', 'replicate', 'circular'))",
        "return F.pad(x, (1, 2, -1, 1), value=1.5), x.roll((1, -2), (2, 3)), x.roll(5)",
        "return x.unfold(-1, 3, 2).sum(-1), F.pixel_shuffle(x, 2), F.channel_shuffle(x, 2), x.remainder(0.7)",
    ),
)
def test_places(body: str, tmp_path: Path) -> None:
    """Torch's places, rounding and borders, in torch's memory order for channels-last images."""
    task = function_task(body, "torch.randn(1, 4, 9, 36)", tmp_path)
    calls = [Call((torch.randn(1, 4, 9, 36),))]
    if "unfold" not in body and "circular" not in body:
        calls.append(Call((torch.randn(1, 4, 9, 36).contiguous(memory_format=torch.channels_last),)))
    compare(task, proposals(task)[0], tmp_path, calls)


def test_integers_divided(tmp_path: Path) -> None:
    """The remainder has the sign of the divisor, fmod that of the dividend."""
    body = "return x % 3, x % -3, torch.fmod(x, 3), torch.fmod(x, -3), torch.remainder(y, -1.5), torch.fmod(y, 1.5)"
    task = function_task(body, "torch.arange(-7, 8), torch.randn(15) * 4", tmp_path, "x, y")
    compare(task, proposals(task)[0], tmp_path)
