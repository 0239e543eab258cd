"""Random outputs are judged by keep rate, scaling, independence and what the generator does, not by bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kforge.environment import evaluate
from kforge.environment.inputs import Case
from kforge.environment.preparation import Prepared, prepare
from kforge.environment.randomness import Choices, draws_that_differ, judge
from kforge.environment.report import Report, Status
from kforge.kernel.candidate import Candidate
from kforge.task import load_task
from kforge.worker import Zygote

TASK = """
import torch


def reference(x):
    return torch.nn.functional.dropout(x, 0.01)


def get_inputs():
    return [torch.randn(4, 4)]
"""
CUDA = """
#include <kforge/philox.h>
extern "C" __global__ void dropout(const float* x, float* y, const long long* seed, int n) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = kforge_uniform(seed, i) < 0.7f ? x[i] * 2.f * (1.f / 0.7f) : x[i] * 0.f;
}
"""
PYTHON = """
import torch
from torch import nn
from kforge.kernel import Kernel, philox

dropout = Kernel("dropout", source="dropout_kforge.cu", grid="(ceil_div(n, 128), 1, 1)", block="(128, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        dropout(x, y, philox(x.numel(), x.device), x.numel())
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
"""


def candidate(old: str = "", new: str = "") -> Candidate:
    assert old in CUDA or old in PYTHON
    python, cuda = PYTHON.replace(old, new) if old else PYTHON, CUDA.replace(old, new) if old else CUDA
    return Candidate("dropout_kforge.py", {"dropout_kforge.py": python, "dropout_kforge.cu": cuda})


def test_an_honest_dropout_is_verified(judge: Callable[..., Report]) -> None:
    """Its draws are not torch's, and that is no mistake."""
    report = judge("dropout", candidate(), "standard")
    assert report.status is Status.VERIFIED, report.failure


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("< 0.7f ?", "< 0.8f ?", "keeps"),
        ("(1.f / 0.7f)", "1.f", "neither kept nor dropped"),
        ("(seed, i)", "(seed, i / 2)", "drawn alike"),
        ("(seed, i)", "(seed, i % 80)", "of neighbouring rows"),
        ("philox(x.numel(), x.device)", "torch.full((2,), 7, dtype=torch.long, device=x.device)", "another seed"),
        (": x[i] * 0.f", ": 0.001f", "neither kept nor dropped"),
    ],
)
def test_a_wrong_dropout_is_wrong(judge: Callable[..., Report], old: str, new: str, words: str) -> None:
    """Another rate, no scaling, one draw for two elements or for all rows, a fixed seed, a wrong dropped value."""
    report = judge("dropout", candidate(old, new), "quick")
    assert report.status is Status.WRONG and words in report.failure, report.failure


def test_the_two_values_of_a_dropout(prepared: Callable[[str], Prepared]) -> None:
    """Kept: scaled by 1/0.7; dropped: 0; the rate as the reference asks for it."""
    ready = prepared("dropout")
    expected = ready.expected(Case())
    found = ready.choices(Case(), expected)
    assert found is not None and found[0] is not None
    x = expected.call.args[0].double()
    assert torch.allclose(found[0].kept, x * 2 / 0.7, rtol=1e-6) and not bool(found[0].dropped.any())
    assert found[0].rate == pytest.approx(0.7) and 0 < found[0].kept_error < 1e-5


def test_fair_draws_pass() -> None:
    """300 fair masks of several rates and sizes: none is called dependent or of the wrong rate."""
    generator = torch.Generator().manual_seed(0)
    for number in range(300):
        rate, shape = (0.1, 0.5, 0.9)[number % 3], ((40, 70), (3, 5, 31), (2000,))[number // 3 % 3]
        kept = torch.rand(shape, generator=generator, dtype=torch.float64) + 1
        one = Choices(kept, torch.zeros_like(kept), 1e-7, 0.0, rate)
        answer = torch.where(torch.rand(shape, generator=generator) < rate, kept, 0.0).float()
        assert judge(one, answer) == ""


def test_elements_whose_two_values_are_alike_are_no_draws() -> None:
    """In small columns dropped is within the error of kept, but not the reverse: counted, only kept ones would be."""
    generator = torch.Generator().manual_seed(5)
    x = torch.rand(64, 100, generator=generator).double() + 0.5
    x[:, ::2] *= 1e-6
    choices = Choices(x / 0.7, x * 0.0, kept_error=1e-5, dropped_error=0.0, rate=0.7)
    for _ in range(50):
        keep = torch.rand(64, 100, generator=generator) < 0.7
        assert judge(choices, torch.where(keep, choices.kept, choices.dropped).float()) == ""


@pytest.mark.parametrize(("rate", "count", "draws"), [(0.5, 64, 1), (0.99, 64, 17), (0.5, 1, 30), (0.999, 10, None)])
def test_draws_that_must_differ(rate: float, count: int, draws: int | None) -> None:
    """64 elements of which one in 100 is dropped are the same twice in a quarter of all fair pairs."""
    x = torch.ones(count).double()
    assert draws_that_differ([None, Choices(x / rate, x * 0.0, 1e-7, 0.0, rate)]) == draws


def test_a_dropout_that_seldom_drops_is_verified(tmp_path: Path) -> None:
    """Two fair draws of a few elements are often alike: that is no fixed draw."""
    op = tmp_path / "dropout.py"
    op.write_text(TASK)
    fair = candidate("< 0.7f ? x[i] * 2.f * (1.f / 0.7f)", "< 0.99f ? x[i] * (1.f / 0.99f)")
    ready = prepare(load_task(op), "cpu", folder=tmp_path)
    with Zygote() as warm:
        for _ in range(6):
            report = evaluate(ready.task, fair, "quick", zygote=warm, reference=ready, repro=tmp_path)
            assert report.status is Status.VERIFIED, report.failure
