"""Convolutions by a kernel of ours on tensor cores: errors on every kind of data, and where they are proposed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from kforge.engine.calls import framed, halved, implicit, precision
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for
from kforge.engine.proposing import make_plan, propose
from kforge.engine.switches import Switches
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import compare, function_task, load_model, task_from
from tests.engine.test_precision import tf32


def written(task: Task, switches: Switches) -> Candidate:
    """The first candidate of the plan made this way."""
    plan, programs = make_plan(task, capture(task), switches)
    choices = [kernels_for(p, plan.types, p.name, Target())[:1] for p in programs]
    return write_candidate(plan, choices, "a test", None, [precision.lowering(s) for s in plan.parts.calls])


def kinds(x: torch.Tensor, w: torch.Tensor) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Images and filters of distributions that a scheme must survive."""
    channels = torch.exp2(torch.rand(x.shape[1]) * 32 - 16)[:, None, None]
    outlier = x.clone()
    outlier[1, 3, 2, 5] = 6e4
    return {
        "normal": (x, w),
        "one sign": (x.abs(), w.abs()),
        "small": (x * 1e-6, w * 1e-12),
        "one outlier": (outlier, w),
        "scales along the sum": (x * channels, w / channels),
        "zero and one": ((x > 0).float(), (w > 0).float()),
    }


@pytest.mark.parametrize("form", ("padding=(1, 0), dilation=(2, 1)", "stride=(2, 3), padding=(1, 0)"))
def test_errors(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is that of TF32 whatever the data, and what is not finite is so where torch has it."""
    monkeypatch.setattr(implicit, "pays", lambda *_: True)
    monkeypatch.setattr(halved, "SMALL", 0)
    body = f"return F.conv2d(x, w, {form}) * 2 + 1"
    task = function_task(body, "torch.randn(2, 20, 6, 12), torch.randn(70, 20, 3, 3)", tmp_path, "x, w")
    model = load_model(written(task, Switches(library=True, implicit=True)), tmp_path)()

    def convolved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return eval(f"F.conv2d(x, w, {form}) * 2 + 1", {"F": F, "x": x, "w": w})

    x, w = torch.randn(2, 20, 6, 12), torch.randn(70, 20, 3, 3) / 20
    for kind, (a, b) in kinds(x, w).items():
        exact, base, got = convolved(a.double(), b.double()), convolved(tf32(a), tf32(b)), model(a, b)
        allowed = 1.05 * float((base - exact).square().mean().sqrt()) + 2**-23 * float(exact.square().mean().sqrt())
        assert float((got - exact).square().mean().sqrt()) <= allowed, kind
    x[0, 3, 2, 5], w[7, 11, 0, 0] = torch.inf, torch.nan
    wanted, got = convolved(x, w), model(x, w)
    assert torch.equal(wanted.isnan(), got.isnan()) and torch.equal(wanted.isinf(), got.isinf())


STEPPING = {
    "1d": ("conv1d", "2, 66, 23", "9, 66, 4", "stride=3, padding=2, dilation=2"),
    "every second": ("conv2d", "2, 66, 7, 9", "9, 66, 1, 1", "stride=2"),
    "more than its size": ("conv2d", "2, 6, 11, 9", "9, 6, 2, 2", "stride=3, padding=1"),
    "one way": ("conv2d", "2, 20, 7, 9", "9, 20, 3, 5", "stride=(1, 2), padding=(1, 2)"),
    "dilated": ("conv2d", "2, 6, 14, 15", "9, 6, 3, 3", "stride=(2, 3), padding=2, dilation=(2, 3)"),
    "3d": ("conv3d", "2, 6, 5, 6, 9", "9, 6, 3, 2, 3", "stride=(2, 1, 2), padding=1"),
}


@pytest.mark.parametrize("name", STEPPING)
def test_steps(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions that step over places, of inputs that halves hold exactly, and of other sizes."""
    monkeypatch.setattr(implicit, "pays", lambda *_: True)
    monkeypatch.setattr(halved, "SMALL", 0)
    operator, x, w, how = STEPPING[name]
    body = f"return F.{operator}(x, w, {how}) + 1"
    task = function_task(
        body, f"torch.randint(-4, 5, ({x},)).float(), torch.randint(-4, 5, ({w},)).float()", tmp_path, "x, w"
    )
    model = load_model(written(task, Switches(library=True, implicit=True)), tmp_path)()
    call = task.make_call()
    more = torch.randint(-4, 5, (3, *(s + 3 * (k > 0) for k, s in enumerate(call.args[0].shape[1:])))).float()
    for image in (call.args[0], more):
        given = Call((image, *call.args[1:]))
        assert torch.equal(task.run(model, given), task.run(task.make_reference(), given))


NARROW = {
    "bias and activation": ("conv2d", "2, 64, 6, 9", "10, 64, 3, 3", "padding=1", "bfloat16"),
    "steps": ("conv2d", "2, 70, 9, 9", "66, 70, 3, 3", "stride=2, padding=1", "float16"),
    "taps together": ("conv2d", "2, 16, 6, 9", "10, 16, 3, 4", "padding=(1, 2)", "bfloat16"),
    "1d": ("conv1d", "2, 65, 20", "12, 65, 5", "dilation=2, padding=3", "float16"),
    "3d": ("conv3d", "1, 64, 4, 5, 6", "8, 64, 3, 1, 3", "stride=(1, 2, 1), padding=(1, 0, 1)", "bfloat16"),
}


@pytest.mark.parametrize("name", NARROW)
def test_in_16_bits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions in 16 bits with what follows in one kernel, of other sizes, and of infinities and NaN."""
    monkeypatch.setattr(framed, "LEAST", 0)
    monkeypatch.setattr(framed, "ROOM", 1e9)
    operator, x, w, how, dtype = NARROW[name]
    given = ", ".join(f"torch.randn({sizes}, dtype=torch.{dtype})" for sizes in (x, w, w.split(",")[0]))
    task = function_task(f"return F.silu(F.{operator}(x, w, b, {how})) * 2", given, tmp_path, "x, w, b")
    candidate = written(task, Switches(library=True, implicit=True))
    assert candidate.files["op_kforge.cu"].count("__global__") == 3 and f"torch.{operator}" not in str(candidate.files)
    call = task.make_call()
    image, *others = call.args
    odd = torch.randn(3, *(s + 3 * (k > 0) for k, s in enumerate(image.shape[1:])), dtype=image.dtype)
    odd[1, 3, ..., 4], odd[2, 0, ..., 1] = float("inf"), float("nan")
    compare(task, candidate, tmp_path, [call, Call((odd, *others))])


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_two_of_other_channels(dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions that differ in nothing but their channels do not share what knows of these."""
    monkeypatch.setattr(implicit, "pays", lambda *_: True)
    monkeypatch.setattr(framed, "pays", lambda *_: True)
    monkeypatch.setattr(halved, "SMALL", 0)
    shapes = ((2, 64, 5, 6), (70, 64, 3, 3), (8, 70, 3, 3))
    given = ", ".join(f"torch.randint(-1, 2, {shape}).to(torch.{dtype})" for shape in shapes)
    body = "return F.conv2d(F.conv2d(x, w, padding=1).clamp(-8, 8), v, padding=1) * 2"
    task = function_task(body, given, tmp_path, "x, w, v")
    compare(task, written(task, Switches(library=True, implicit=True)), tmp_path)


MODULE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Conv2d(64, 8, 3, padding=1, dtype=torch.bfloat16)

    def forward(self, x):
        return self.layer(x).relu()


def get_inputs():
    return [torch.randn(2, 64, 5, 6, dtype=torch.bfloat16)]


def get_init_inputs():
    return []
"""


@pytest.mark.parametrize("shape", ((3, 40, 6, 9), (1, 40, 5, 8), (2, 64, 18), (2, 40, 3, 4, 5)))
def test_single_places_are_a_product(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Pointwise convolutions in 16 bits multiply images as they lie: one kernel with what follows, at other sizes."""
    rank = len(shape) - 2
    body = f"return F.silu(F.conv{rank}d(x, w, b)) + y"
    weight, result = (24, shape[1], *[1] * rank), (shape[0], 24, *shape[2:])
    given = ", ".join(f"torch.randn({s}, dtype=torch.bfloat16)" for s in (shape, weight, (24,), result))
    task = function_task(body, given, tmp_path, "x, w, b, y")
    candidate = written(task, Switches(library=True, implicit=True))
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    x, w, b, _ = task.make_call().args
    x = torch.randn(4, shape[1], *(s + 1 for s in shape[2:]), dtype=x.dtype)
    y = torch.randn(4, 24, *x.shape[2:], dtype=x.dtype)
    compare(task, candidate, tmp_path, [task.make_call(), Call((x, w, b, y))] if shape[0] > 1 else None)


@pytest.mark.parametrize("after", ("relu()", "flatten(2).transpose(1, 2) + p"))
def test_windows_side_by_side_are_a_product(after: str, tmp_path: Path) -> None:
    """Patches are written once and multiplied with the filters as they lie, for either order of the result."""
    shapes = ((3, 3, 12, 17), (24, 3, 4, 4), 24, (1, 12, 24))
    given = ", ".join(f"torch.randn({shape}, dtype=torch.bfloat16)" for shape in shapes)
    body = f"return F.conv2d(x, w, b, stride=4).{after}"
    task = function_task(body, given, tmp_path, "x, w, b, p")
    candidate = written(task, Switches(library=True, implicit=True))
    assert candidate.files["op_kforge.cu"].count("__global__") == 2 and "torch.conv2d" not in str(candidate.files)
    compare(task, candidate, tmp_path)


def test_sums_of_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two convolutions that are added one is in memory before the other's kernel, whichever kinds they are."""
    monkeypatch.setattr(framed, "pays", lambda *_: True)
    shapes = ((2, 64, 6, 8), (24, 64, 1, 1), (24, 64, 3, 3))
    given = ", ".join(f"torch.randn({shape}, dtype=torch.bfloat16)" for shape in shapes)
    body = "return (F.conv2d(x, w) + F.conv2d(x, v, padding=1)).relu()"
    task = function_task(body, given, tmp_path, "x, w, v")
    compare(task, written(task, Switches(library=True, implicit=True)), tmp_path)


def test_filters_are_moved_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's filters are moved once, and again when they change."""
    monkeypatch.setattr(framed, "LEAST", 0)
    task = task_from(MODULE, tmp_path)
    candidate = written(task, Switches(library=True, implicit=True))
    assert "prepared(weight, lambda weight: moved_" in candidate.files["op_kforge.py"]
    compare(task, candidate, tmp_path)
    model, reference = load_model(candidate, tmp_path)(), task.make_reference()
    x = task.make_call().args[0]
    for _ in range(2):
        with torch.no_grad():
            reference.layer.weight.add_(0.5)
            model.load_state_dict(reference.state_dict())
            assert torch.allclose(model(x), reference(x), rtol=0.02, atol=0.1)


@pytest.mark.parametrize("rank", (1, 2, 3))
def test_one_kernel_after_the_conversion(rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a convolution and what follows element by element are one kernel after the conversion, in all ranks."""
    monkeypatch.setattr(implicit, "pays", lambda *_: True)
    body = f"return F.mish(F.conv{rank}d(x, w, padding=1))"
    sizes = ", ".join(["8"] * rank), ", ".join(["3"] * rank)
    task = function_task(body, f"torch.randn(2, 64, {sizes[0]}), torch.randn(128, 64, {sizes[1]})", tmp_path, "x, w")
    found = list(propose(task, capture(task), arch="sm_90a", device="cuda:0"))
    own = [c.files["op_kforge.cu"] for c in found if "_convolution<" in c.files["op_kforge.py"]]
    assert own and all(text.count("__global__") == 4 for text in own)  # images, filters, what they cannot hold
