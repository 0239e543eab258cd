"""What plan `standard` finds beyond the task's own inputs: other sizes, hidden terms, boundaries, unsteady answers."""

from __future__ import annotations

from collections.abc import Callable

import hand_written as kernels
import pytest
import torch

from kforge.environment.acceptance import Pool, limits_for, ulp
from kforge.environment.inputs import Case
from kforge.environment.preparation import Prepared
from kforge.environment.report import Report, Status
from kforge.kernel.candidate import Candidate
from kforge.task.tolerance import Tolerance

Judge = Callable[..., Report]

FAINT_CU = """
extern "C" __global__ void faint(const float* x, const float* z, float* y, int n, int cols) {
    int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n) y[i] = 2.f + sinf(x[i]) + 1e-9f * z[i % cols];
}
extern "C" __global__ void spare(float* y) { y[0] = 0.f; }
"""
FAINT_PY = """
import torch
from torch import nn
from kforge.kernel import Module

source = Module("faint_kforge.cu")
faint = source.kernel("faint", grid="(ceil_div(n, 128), 1, 1)", block="(128, 1, 1)")
spare = source.kernel("spare", grid=1, block=1)


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.z = nn.Parameter(torch.ones(width))

    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        faint(x, self.z, y, x.numel(), x.size(1))
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
"""


def faint(*changes: tuple[str, str]) -> Candidate:
    python, cuda = FAINT_PY, FAINT_CU
    for old, new in changes:
        assert old in python or old in cuda, old
        python, cuda = python.replace(old, new), cuda.replace(old, new)
    return Candidate("faint_kforge.py", {"faint_kforge.py": python, "faint_kforge.cu": cuda})


def test_inputs_that_the_reference_rejects_are_not_asked_of_a_candidate(judge: Judge) -> None:
    """add_ refuses an expanded tensor, and so does a copy back into it: that is no failed call of the candidate's."""
    copies = (
        "        accumulate(\n            total,",
        "        given, total = total, total.contiguous()\n        accumulate(\n            total,",
    )
    back = ("        return total", "        return given if given is total else given.copy_(total)")
    report = judge("accumulate", kernels.candidate("accumulate", copies, back), "standard")
    assert report.status is Status.VERIFIED, report.failure


def test_a_size_written_into_the_kernel_is_wrong_elsewhere(judge: Judge) -> None:
    """Right for 200 columns and silently wrong for others: quick cannot see it, standard names the shape."""
    fixed = kernels.candidate("softmax", ("c < cols; c += 64) out", "c < 200; c += 64) out"))
    assert judge("softmax", fixed, "quick").status is Status.VERIFIED
    report = judge("softmax", fixed, "standard")
    assert report.status in (Status.WRONG, Status.CRASHED)  # what it writes beyond its output may end its process
    assert report.status is Status.CRASHED or "shape" in report.failure


def test_a_candidate_may_refuse_other_sizes(judge: Judge) -> None:
    """An error of its own instead of a wrong answer is honest: verified, and the report says what is refused."""
    check = "        if x.shape != (48, 200):\n            raise ValueError('48 x 200 only')\n"
    strict = kernels.candidate("softmax", ("        x = x.contiguous()", check + "        x = x.contiguous()"))
    report = judge("softmax", strict, "standard")
    assert report.status is Status.VERIFIED, report.failure
    assert any("refused by the candidate" in line and "48 x 200 only" in line for line in report.not_tested)


def test_an_error_inside_a_kernel_is_no_refusal(judge: Judge) -> None:
    """A kernel that faults at another size has not refused it."""
    wild = kernels.candidate(
        "softmax", ("out[c] = expf(in[c] - m) / sum", "out[cols == 200 ? c : c + (1ll << 40)] = expf(in[c] - m) / sum")
    )
    assert judge("softmax", wild, "standard").status is Status.CRASHED


def test_a_term_below_the_tolerance_is_missed_by_influence(judge: Judge) -> None:
    """Without its parameter the answers are within every bound; with the parameter made large they do not follow."""
    assert judge("faint", faint(), "standard").status is Status.VERIFIED
    report = judge("faint", faint((" + 1e-9f * z[i % cols]", "")), "standard")
    assert report.status is Status.WRONG and "does not follow z" in report.failure, report.failure


def test_kernels_that_no_case_launches_are_named(judge: Judge) -> None:
    """The report says which of a candidate's kernels were never tested."""
    report = judge("faint", faint(), "standard")
    assert "never launched: spare" in report.not_tested


def test_answers_that_differ_from_run_to_run_are_reported(judge: Judge) -> None:
    """Every second call rounds otherwise: within the bound, hence no failure, and said."""
    flip = kernels.candidate(
        "softmax",
        ("int rows, int cols)", "int rows, int cols, int odd)"),
        ("expf(in[c] - m) / sum", "odd ? expf(in[c] - m) / sum : expf(in[c] - m) * (1.f / sum)"),
        ("class ModelNew", "KEPT = {}\n\n\nclass ModelNew"),
        ("        x = x.contiguous()", "        x = x.contiguous()\n        KEPT['odd'] = not KEPT.get('odd', False)"),
        ("x.size(0), x.size(1))", "x.size(0), x.size(1), int(KEPT['odd']))"),
    )
    report = judge("softmax", flip, "quick")
    assert report.status is Status.VERIFIED, report.failure
    assert any("from run to run" in line for line in report.warnings)


def test_the_boundary_of_a_comparison_is_met(judge: Judge) -> None:
    """v >= 0.5 differs from v > 0.5 at one value, which the plan plants; inputs are exact, so nothing is forgiven."""
    report = judge("argmax", kernels.candidate("argmax", ("= v > 0.5f", "= v >= 0.5f")), "standard")
    assert report.status is Status.WRONG and "with round" in report.failure, report.failure


def test_bounds_are_wider_on_derived_sizes_only(prepared: Callable[[str], Prepared]) -> None:
    """Precision is asked for at the task's sizes; at derived ones errors may grow with the root of the size."""
    ready = prepared("softmax")
    assert ready.leniency(Case()) == 1.0 and ready.leniency(Case(shape="minus")) == 4.0
    assert ready.leniency(Case(shape="wide")) == pytest.approx(4.0 * (4099 / 200) ** 0.5)


def test_half_outputs_report_their_bias_in_units() -> None:
    """Rounding to nearest has a signed mean near 0, rounding down one near -0.5, and at most one unit."""
    expected = torch.rand(200, 300, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    unit = ulp(expected, torch.bfloat16)
    near, down = (Pool(torch.bfloat16, limits_for(torch.bfloat16, Tolerance())) for _ in range(2))
    near.add(expected.bfloat16(), expected.bfloat16(), expected)
    down.add(((expected / unit).floor() * unit).bfloat16(), expected.bfloat16(), expected)
    assert near.mean_ulp == pytest.approx(0.0, abs=0.01) and near.largest_ulp == pytest.approx(0.5, abs=0.01)
    assert down.mean_ulp == pytest.approx(-0.5, abs=0.01) and down.largest_ulp == pytest.approx(1.0, abs=0.01)
    assert Pool(torch.float32, limits_for(torch.float32, Tolerance())).mean_ulp is None
