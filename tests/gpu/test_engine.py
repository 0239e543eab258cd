"""The engine's kernels on a real GPU: examples, every schedule at its own size, determinism, speed of the main rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine import propose
from kforge.task import Call, capture, load_task
from tests.engine.support import _close, forced, function_task, leaves, load_model
from tests.engine.test_examples import EXAMPLES

pytestmark = pytest.mark.gpu

NORMS = """
normed = F.layer_norm(x, (x.shape[-1],))
return torch.softmax(x, -1), torch.log_softmax(x, -1), normed, x.sum(-1), x.var(-1), torch.logsumexp(x, -1)
"""


def agree(want: list[torch.Tensor], got: list[torch.Tensor]) -> None:
    for w, g in zip(want, got, strict=True):
        assert (w.shape, w.dtype, w.stride()) == (g.shape, g.dtype, g.stride())
        if w.is_floating_point():
            tolerance = 1e-5 if w.dtype == torch.float32 else 1e-2
            scale = float(w.abs().nan_to_num(0.0, 0.0, 0.0).max())
            assert torch.allclose(w, g, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        else:
            assert torch.equal(w, g)


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, root: Path, tmp_path: Path) -> None:
    """Every candidate of every example agrees with eager torch on all variants, the large ones included."""
    task = load_task(root / "examples" / f"{name}.py")
    init = task.init_call()
    reference = task.make_reference(device="cuda")
    for candidate in propose(task, capture(task), arch="sm_90a", device="cuda:0"):
        model = load_model(candidate, tmp_path)(*init.args, **init.kwargs).cuda()
        model.load_state_dict(reference.state_dict())
        for variant in range(task.n_variants):
            with torch.device("cuda"):  # drawn there: half a gigabyte of randn takes seconds on a host
                call = task.make_call(variant, device="cuda")
            agree(leaves(task.run(reference, call)), leaves(task.run(model, call)))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
@pytest.mark.parametrize(
    ("schedule", "rows", "cols"),
    (
        ("warp", 1000, 1000),
        ("block", 300, 16384),
        ("stream", 200, 50001),
        ("split", 64, 393216),
        ("split", 7, 100001),
        ("share", 3, 3000000),
        ("thread", 500, 300),
    ),
)
def test_schedules(schedule: str, rows: int, cols: int, dtype: torch.dtype, tmp_path: Path) -> None:
    """Each schedule at a size of its own, with widths that vectors divide and that they do not; bitwise repeatable."""
    body = NORMS if schedule != "share" else "return x.sum(-1), x.var(-1), torch.logsumexp(x, -1), x.argmax(-1)"
    task = function_task(body, "torch.randn(4, 200)", tmp_path)
    model = load_model(forced(task, schedule), tmp_path)().cuda()
    reference = task.make_reference(device="cuda")
    call = Call((torch.randn(rows, cols, device="cuda").to(dtype),))
    first = leaves(task.run(model, call))
    agree(leaves(task.run(reference, call)), first)
    for again in range(20):
        assert all(torch.equal(a, b) for a, b in zip(first, leaves(task.run(model, call)), strict=True)), again


@pytest.mark.parametrize("offset", (0.0, 1e3, -1e5))
@pytest.mark.parametrize("first", (0.0, 1e4))
def test_split_is_as_exact_as_eager(offset: float, first: float, tmp_path: Path) -> None:
    """Offsets and a first value far from all others: no more than twice eager's error against double."""
    body = "return torch.softmax(x, -1), F.layer_norm(x, (x.shape[-1],)), x / x.std(-1, keepdim=True)"
    task = function_task(body, "torch.randn(4, 200)", tmp_path)
    model = load_model(forced(task, "split"), tmp_path)().cuda()
    reference = task.make_reference(device="cuda")
    x = torch.randn(64, 131072, device="cuda") + offset
    x[:, 0] += first
    wanted, got = (leaves(task.run(m, Call((x,)))) for m in (reference, model))
    for want, have, exact in zip(wanted, got, leaves(task.run(reference, Call((x.double(),)))), strict=True):
        _close(want, have, exact)


def test_split_with_rows_that_are_not_aligned_and_hostile(tmp_path: Path) -> None:
    """NaN and infinities in one chunk of a row that begins one element past a vector's boundary."""
    body = "return torch.softmax(x, -1), torch.log_softmax(x, -1), torch.logsumexp(x, -1), x.amax(-1)"
    task = function_task(body, "torch.randn(4, 200)", tmp_path)
    model = load_model(forced(task, "split"), tmp_path)().cuda()
    x = torch.randn(8 * 200000 + 1, device="cuda")[1:].view(8, 200000)
    x[1] = -torch.inf
    x[2, 199999] = torch.nan
    x[3, 5] = torch.inf
    x[4, :150000] = -torch.inf
    agree(leaves(task.run(task.make_reference(device="cuda"), Call((x,)))), leaves(task.run(model, Call((x,)))))


def test_split_on_two_streams(tmp_path: Path) -> None:
    """Two launches whose blocks wait for each other share the GPU and both end, with the results of one alone."""
    task = function_task("return torch.softmax(x, -1)", "torch.randn(4, 200)", tmp_path)
    model = load_model(forced(task, "split"), tmp_path)().cuda()
    calls = [Call((torch.randn(200, 393216, device="cuda"),)) for _ in range(2)]
    alone = [task.run(model, call) for call in calls]
    streams = [torch.cuda.Stream() for _ in calls]
    torch.cuda.synchronize()
    for _ in range(10):
        together = []
        for stream, call in zip(streams, calls, strict=True):
            with torch.cuda.stream(stream):
                together.append(task.run(model, call))
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))


def test_other_variants_are_captured_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest row to prepare for and the evidence on literals come from one capture of each other variant."""
    captured = []

    def counting(task, variant=0, **options):
        captured.append(variant)
        return capture(task, variant, **options)

    task = load_task(root / "examples" / "softmax.py")
    first = capture(task)
    monkeypatch.setattr("kforge.task.capture", counting)
    next(propose(task, first, arch="sm_90a", device="cuda:0"))
    assert sorted(captured) == list(range(1, task.n_variants))
