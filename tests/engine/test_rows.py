"""Row programs: every schedule against eager torch, on odd widths, hostile values and several dtypes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine import proposing
from kforge.engine.families import Target, kernels_for
from kforge.engine.proposing import make_plan
from kforge.task import Call, capture
from tests.engine.support import compare, forced, function_task, proposals

NORMALISERS = """
mean = x.mean(-1, keepdim=True)
normed = F.layer_norm(x, (x.shape[-1],))
return torch.softmax(x, -1), torch.log_softmax(x, -1), normed, x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
"""
REDUCTIONS = """
return (x.sum(-1), x.mean(-1), x.amax(-1), x.amin(-1), x.argmax(-1), x.argmin(-1), x.var(-1), x.std(-1),
        torch.logsumexp(x, -1), x.norm(dim=-1), x.norm(p=1, dim=-1), x.max(-1), (x > 0).any(-1), (x > -9).all(-1))
"""
SMALL = {"BLOCK": 64, "ITEMS": 2}


@pytest.mark.parametrize("schedule", ("warp", "block", "stream", "thread"))
def test_normalisers(schedule: str, tmp_path: Path) -> None:
    """Softmax, log_softmax, layer norm and RMS norm fuse into one kernel and are right at widths off every tile."""
    task = function_task(NORMALISERS, "torch.randn(5, 129)", tmp_path)
    candidate = forced(task, schedule, **({} if schedule == "thread" else SMALL))
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    torch.manual_seed(0)
    compare(task, candidate, tmp_path, [Call((torch.randn(40, w),)) for w in (1, 31, 127, 128, 129, 1000)])


@pytest.mark.parametrize("schedule", ("warp", "block", "stream", "thread", "share"))
def test_reductions(schedule: str, tmp_path: Path) -> None:
    """Fourteen reductions over the last dimension in one kernel, ties and first indices included."""
    task = function_task(REDUCTIONS, "torch.randn(6, 200).round(decimals=1)", tmp_path)
    compare(task, forced(task, schedule, SHARE=64, **SMALL), tmp_path)


def test_long_rows_by_several_blocks(tmp_path: Path) -> None:
    """One block per row is not enough: chunks joined through memory give softmax and layer norm all the same."""
    task = function_task(NORMALISERS, "torch.randn(2, 500)", tmp_path)
    candidate = forced(task, "split", BLOCK=64, ITEMS=3)
    assert "ticket = atomicAdd" in candidate.files["op_kforge.cu"]
    compare(task, candidate, tmp_path, [Call((torch.randn(2, w),)) for w in (500, 3000)])


@pytest.mark.parametrize("schedule", ("block", "stream", "split", "share"))
def test_rows_that_begin_within_a_vector(schedule: str, tmp_path: Path) -> None:
    """Rows of odd length move as vectors of memory, whatever the width and wherever the tensor begins."""
    body = "return x / x.abs().mean(-1, keepdim=True) * w, torch.log_softmax(x, -1)"
    if schedule == "share":
        body = "return x.sum(-1), x.amax(-1), x.argmin(-1), torch.logsumexp(x, -1), (x * w).sum(-1), x.var(-1)"
    task = function_task(body, "torch.randn(3, 259), torch.randn(259)", tmp_path, "x, w")
    candidate = forced(task, schedule, SHARE=64, **SMALL)
    assert "% VEC);  // elements of another row before this one" in candidate.files["op_kforge.cu"]
    torch.manual_seed(0)
    calls = [Call((torch.randn(5, width), torch.randn(width))) for width in (259, 258, 256, 9, 1, 1021)]
    calls.append(Call((torch.randn(4 * 259 + 1)[1:].view(4, 259), torch.randn(259))))  # no vector is aligned
    compare(task, candidate, tmp_path, calls)


@pytest.mark.parametrize("schedule", ("warp", "block", "stream", "thread"))
def test_rows_with_nan_and_infinities(schedule: str, tmp_path: Path) -> None:
    """NaN and infinities come out where torch puts them; a row of -inf is NaN for softmax, -inf for logsumexp."""
    body = """
    return (torch.softmax(x, -1), torch.log_softmax(x, -1), torch.logsumexp(x, -1), x.amax(-1), x.amin(-1),
            x.argmax(-1), x.argmin(-1), x.sum(-1), F.relu(x), x.clamp(-1, 1))
    """.strip()
    task = function_task(body, "torch.randn(7, 66)", tmp_path)
    x = torch.randn(7, 66)
    x[1] = -torch.inf
    x[2, 5] = torch.nan
    x[3, 7] = torch.inf
    x[4, :40] = -torch.inf
    x[5, 3], x[5, 60] = torch.nan, torch.inf
    x[6, 2], x[6, 3] = torch.inf, -torch.inf
    compare(task, forced(task, schedule, **SMALL), tmp_path, [Call((x,))])


@pytest.mark.parametrize("schedule", ("block", "stream"))
@pytest.mark.parametrize("dtype", ("float16", "bfloat16", "float64"))
def test_dtypes(schedule: str, dtype: str, tmp_path: Path) -> None:
    """Half types are computed in float and rounded once, double in double; outputs keep the input's dtype."""
    body = "return F.layer_norm(x, (x.shape[-1],), w), torch.softmax(x + w, -1), x.sum(-1), x.max(-1)"
    inputs = f"torch.randn(4, 264, dtype=torch.{dtype}), torch.randn(264, dtype=torch.{dtype})"
    task = function_task(body, inputs, tmp_path, "x, w")
    compare(task, forced(task, schedule, **SMALL), tmp_path)


@pytest.mark.parametrize("schedule", ("block", "stream", "share"))
def test_variance_of_shifted_data(schedule: str, tmp_path: Path) -> None:
    """Values near 100 that spread by 0.01: the mean is subtracted first, nothing cancels."""
    task = function_task("return x.var(-1), x.std(-1)", "torch.randn(4, 1500) * 0.01 + 100", tmp_path)
    compare(task, forced(task, schedule, SHARE=64, **SMALL), tmp_path)


def test_long_sums_of_one_sign(tmp_path: Path) -> None:
    """A long row of positive values: no running sum swallows small terms."""
    task = function_task("return x.sum(-1), x.mean(-1), x.norm(dim=-1)", "torch.rand(1, 300000)", tmp_path)
    for schedule in ("stream", "share"):
        compare(task, forced(task, schedule, BLOCK=64, VEC=1, ITEMS=4, BLOCKS=2, SHARE=1024), tmp_path)


@pytest.mark.parametrize("schedule", ("thread", "block"))
def test_middle_dimension(schedule: str, tmp_path: Path) -> None:
    """Reductions over a dimension that is not the last one, softmax over it included."""
    body = "return torch.softmax(x, 1), x.mean(1), x.var(1), x.amax(1, keepdim=True), x.argmax(1)"
    task = function_task(body, "torch.randn(3, 37, 45)", tmp_path)
    candidate = forced(task, schedule, SPLIT=4, **SMALL)
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    compare(task, candidate, tmp_path)


def test_group_norm_is_one_kernel(tmp_path: Path) -> None:
    """Group norm splits channels by a view; the kernel walks the original layout."""
    task = function_task("return F.group_norm(x, 2, w, w)", "torch.randn(2, 4, 5, 6), torch.randn(4)", tmp_path, "x, w")
    candidate = proposals(task)[0]
    assert len(candidate.files["op_kforge.cu"].split("__global__")) - 1 <= 3  # one program, at most three schedules
    compare(task, candidate, tmp_path)


def test_scalar_losses(tmp_path: Path) -> None:
    """Full reductions to a scalar, deterministic, with the mean over kept targets of a cross entropy."""
    body = "return F.cross_entropy(x, t), F.mse_loss(x, x.flip(0)), F.huber_loss(x, x.flip(0)), (x * 2).mean()"
    inputs = "torch.randn(6, 50), torch.tensor([1, 2, -100, 4, 5, 49])"
    task = function_task(body, inputs, tmp_path, "x, t")
    compare(task, proposals(task)[0], tmp_path)


def test_kernel_limits_fall_back(tmp_path: Path) -> None:
    """A candidate made for short rows takes long ones too, by its streaming kernel."""
    task = function_task("return torch.softmax(x, -1)", "torch.randn(4, 100)", tmp_path)
    compare(task, proposals(task)[0], tmp_path, [Call((torch.randn(2, w),)) for w in (100, 1500, 40000)])


def test_rows_that_are_only_reduced_are_streamed(tmp_path: Path) -> None:
    """Long rows of which results alone are stored: blocks of few warps stream them; then come those that hold them."""
    task = function_task("return x.amax(-1)", "torch.randn(2200, 8192)", tmp_path)
    plan, (program,) = make_plan(task, capture(task))
    first, second = kernels_for(program, plan.types, "op", Target())
    assert (first.schedule, second.schedule) == ("reduce", "block_reduce")
    assert first.constants["BLOCK"] == 128 and not first.limit, "four tiles a row, of any length"


@pytest.mark.parametrize(
    ("cols", "dtype", "wanted"), ((512, "", (64, 4, 2)), (768, "", (96, 4, 2)), (512, ".half()", (64, 8, 1)))
)
def test_a_block_holds_its_row_and_no_more(cols: int, dtype: str, wanted: tuple[int, int, int], tmp_path: Path) -> None:
    """Few short rows are held by blocks whose every vector has columns: BLOCK * VEC * ITEMS is the row's length."""
    task = function_task("return torch.softmax(x, -1)", f"torch.randn(8, {cols}){dtype}", tmp_path)
    plan, (program,) = make_plan(task, capture(task))
    block = next(k for k in kernels_for(program, plan.types, "op", Target()) if k.schedule == "block")
    assert tuple(block.constants[name] for name in ("BLOCK", "VEC", "ITEMS")) == wanted
    assert next(held for condition, held in block.tuned if condition == f"cols == {cols}")["BLOCK"] == wanted[0]


def test_lengths_beyond_the_captured_ones_get_the_schedule_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Captured at few short rows, a softmax that will meet long ones takes a block, then several blocks;
    many short rows get a warp each, and so do not the few, whose warps would leave the GPU idle."""
    monkeypatch.setattr(proposing, "_target", lambda *_: Target(longest=131072))

    def order(rows: int, cols: int) -> list[str]:
        task = function_task("return torch.softmax(x, -1)", f"torch.randn({rows}, {cols})", tmp_path)
        module = proposals(task)[0].files["op_kforge.py"]
        return [line.split("(")[0].strip().removeprefix("op_") for line in module.splitlines() if "(x, y, rows" in line]

    assert order(128, 1024) == ["block", "split", "stream"]
    assert order(65536, 1024) == ["warp", "block", "split", "stream"]


def test_blocks_fit_the_captured_width(tmp_path: Path) -> None:
    """No thread of a block is without columns at the width that was captured; other widths get a class's block."""
    task = function_task("return torch.softmax(x, -1)", "torch.randn(2, 2560)", tmp_path)
    candidate = proposals(task)[0]
    assert '"BLOCK": 160, "VEC": 4, "ITEMS": 4' in candidate.files[candidate.module]
    compare(task, candidate, tmp_path, [task.make_call(), *(Call((torch.randn(2, w),)) for w in (2559, 4096))])
