"""Short forms of logarithms: as exact as the functions that they stand for, and those wherever they do not hold."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from kforge.task import Call
from tests.engine.support import compare, function_task, load_model, proposals

ODD = (0.0, -0.0, math.inf, -math.inf, math.nan, -1.0, 1.0, 1e-40, 3e38, 1e-30, -1e-40, 20.0, -104.0)


def units(have: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Distances in units in the last place of the true values in single precision."""
    return (have.double() - truth).abs() / torch.exp2(torch.frexp(truth).exponent.double() - 24)


def test_errors_of_short_forms(tmp_path: Path) -> None:
    """Over all binades from 2^-30 on log(1 + e^-|x|) errs by 3 units (e^x alone by 2), quotients' logarithms by 5,
    the logistic function of -|x| and |x| by 3."""
    body = "return torch.log1p(torch.exp(-x.abs())), torch.log(y) - torch.log(z), torch.sigmoid(-x), torch.sigmoid(x)"
    task = function_task(body, "*[torch.rand(9) for _ in range(3)]", tmp_path, "x, y, z")
    candidate = proposals(task)[0]
    source = candidate.files["op_kforge.cu"]
    assert "log1p_unit(" in source and "log_ratio(" in source and "sigmoid(" in source and "log1pf(" not in source
    x = torch.cat([torch.linspace(0, 21, 300_001), torch.logspace(-30, 6, 20_001, base=2.0)])
    y = torch.exp2(torch.linspace(-60, 60, x.numel()))
    z = torch.where(torch.arange(x.numel()) % 2 == 0, y * (1 + 1e-4 * torch.sin(x)), torch.exp2(20 * torch.sin(x)))
    with torch.no_grad():
        low, ratio, down, up = load_model(candidate, tmp_path)()(x, y, z)
    assert units(low, torch.log1p(torch.exp(-x.double()))).max() <= 3
    assert units(down, torch.sigmoid(-x.double())).max() <= 3 and units(up, torch.sigmoid(x.double())).max() <= 3
    y, z = y.double(), z.double()
    truth = torch.where((y / z - 1).abs() < 0.1, torch.log1p((y - z) / z), y.log() - z.log())
    assert units(ratio, truth)[truth != 0].max() <= 5


@pytest.mark.parametrize(
    "body",
    (
        "return F.kl_div(torch.log(y), x, reduction='none'), torch.special.xlogy(x, y), x.log() - y.log()",
        "sigmoid = torch.sigmoid(x)\n"
        "return F.silu(x), sigmoid * sigmoid, F.softplus(x), F.softplus(y, 2.0, 9.0), F.logsigmoid(x)",
    ),
)
def test_ends_of_the_range(body: str, tmp_path: Path) -> None:
    """Zeros, negative numbers, infinities, NaN and what is no normal number, each with each, as torch."""
    task = function_task(body, "torch.rand(40, 9) + 0.01, torch.rand(40, 9) + 0.01", tmp_path, "x, y")
    odd = torch.tensor(ODD)
    pairs = (odd.repeat_interleave(len(ODD)).view(len(ODD), -1), odd.repeat(len(ODD)).view(len(ODD), -1))
    compare(task, proposals(task)[0], tmp_path, [task.make_call(), Call(pairs)])


def test_in_double(tmp_path: Path) -> None:
    """Doubles keep their own functions."""
    body = "return F.softplus(x), F.kl_div(torch.log(y), x, reduction='sum'), x.log() - y.log()"
    task = function_task(body, "torch.rand(70).double(), torch.rand(70).double()", tmp_path, "x, y")
    compare(task, proposals(task)[0], tmp_path)
