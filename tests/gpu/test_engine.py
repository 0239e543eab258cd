"""The engine's kernels on a real GPU: examples, every schedule at its own size, determinism, speed of the main rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine import propose
from kforge.task import Call, capture, load_task
from tests.engine.support import forced, function_task, leaves, load_model
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
            assert torch.allclose(w, g, rtol=tolerance, atol=tolerance * float(w.abs().max()), equal_nan=True)
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
