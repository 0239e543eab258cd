"""Exports on a GPU: built, installed, their own tests run there, and used in a small training script."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge.export.exporting import Exported
from kforge.kernel.candidate import Candidate
from kforge.worker import Zygote

pytestmark = pytest.mark.gpu
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "export"))

TRAINING = """
import torch, shift_kernels
from shift_kernels import reference

shift_kernels.outside_domain("raise")
losses = []
for kind in (shift_kernels.Shift, reference.Model):
    torch.manual_seed(0)
    first = torch.nn.Linear(24, 24).cuda()
    layer = kind(24).cuda()
    x = torch.randn(6, 24, device="cuda")
    optimiser = torch.optim.SGD([*first.parameters(), *layer.parameters()], lr=1e-3)
    for step in range(5):
        optimiser.zero_grad()
        loss = layer(first(x)).square().mean()
        loss.backward()
        optimiser.step()
    losses.append(float(loss))
assert abs(losses[0] - losses[1]) <= 1e-4 * abs(losses[1]), losses
"""


NORM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(x)


def get_init_inputs():
    return [512]


def get_inputs():
    return [torch.randn(300, 512)]
"""


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote() as warm:
        yield warm


def _judged(task: Path, candidate: Candidate, state: Path, zygote: Zygote, backward: bool = False) -> None:
    """Judge a candidate on the GPU, untimed (so small a task may well be slower), and keep the report in `state`."""
    from kforge.agent.session import Session
    from kforge.environment import evaluate, prepare
    from kforge.task import load_task
    from kforge.task.backward import gradient_task

    loaded = gradient_task(load_task(task)) if backward else load_task(task)
    session = Session(state, task, {"candidate": candidate.module}, lambda kind, data: None, "verify")
    with session.recorded():
        session.event("task_loaded", task=loaded.name, form=loaded.form.value, digest=loaded.digest)
        session.proposed(candidate)
        ready = prepare(loaded, "cuda:0", folder=session.work)
        options = {"device": "cuda:0", "zygote": zygote, "reference": ready, "timing": False, "repro": None}
        report = evaluate(loaded, candidate, "quick", **options)  # type: ignore[arg-type]
        session.evaluated(report)
        session.finish(status=report.status.value, verdict=report.verdict.value, exit_code=0, best=candidate.digest)
    assert report.status.value == "verified", report.failure


def _exported(
    folder: Path, task: Path, module: Path, layout: str, zygote: Zygote | None = None, plan: str = "quick"
) -> Exported:
    from kforge.export.exporting import Request, export

    request = Request(module, folder / "to", folder / ".kforge", layout=layout, plan=plan, task=task, device="cuda:0")
    return export(request, lambda kind, data: None, zygote)


@pytest.mark.parametrize("layout", ["extension", "aot"])
def test_export_passes_its_own_tests_on_the_gpu(
    tmp_path: Path, zygote: Zygote, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """opcheck, gradients, compile, side stream, graph replay, layouts: all of the package's tests run, none skipped.

    A few steps of training with it end at the reference's loss.
    """
    from support import candidate, write_project

    task, module = write_project(tmp_path)
    _judged(task, candidate(), tmp_path / ".kforge", zygote)
    # Both formats hold the same translated forward: it is judged for one of them.
    tried = _exported(tmp_path, task, module, layout, zygote, "quick" if layout == "aot" else "none").tried
    assert tried is not None
    assert (tried.failed, tried.skipped) == (0, 0)
    assert tried.passed >= 20
    if layout == "aot":
        monkeypatch.syspath_prepend(str(tmp_path / "to" / "src"))
        exec(TRAINING, {})


def test_a_pair_leaves_with_its_own_backward(tmp_path: Path, zygote: Zygote) -> None:
    """The engine's pair is verified with its gradients; the package's gradient tests run on its kernels."""
    from kforge.engine import propose_pair
    from kforge.task import capture, load_task
    from kforge.task.backward import gradient_task

    (tmp_path / "norm.py").write_text(NORM)
    derived = gradient_task(load_task(tmp_path / "norm.py"))
    candidate = next(propose_pair(derived, capture(derived, device="cuda:0"), arch="sm_90a", device="cuda:0"))
    candidate.write(tmp_path / "out")
    _judged(tmp_path / "norm.py", candidate, tmp_path / ".kforge", zygote, backward=True)
    done = _exported(tmp_path, tmp_path / "norm.py", tmp_path / "out" / "norm_kforge.py", "aot", zygote)
    assert done.export.backward == "kernels"
    assert done.tried is not None
    assert (done.tried.failed, done.tried.skipped) == (0, 0)


def test_a_triton_candidate_leaves_with_triton_op(tmp_path: Path, zygote: Zygote) -> None:
    """Judged on the GPU, traced through by torch.compile, its package's tests pass."""
    from support import TRITON, write_project

    task, _ = write_project(tmp_path)
    module = tmp_path / "triton" / "shift_kforge.py"
    candidate = Candidate(module.name, {module.name: TRITON})
    candidate.write(module.parent)
    _judged(task, candidate, tmp_path / ".kforge", zygote)
    done = _exported(tmp_path, task, module, "extension", zygote)
    assert done.tried is not None
    assert (done.tried.failed, done.tried.skipped) == (0, 0)


PRODUCT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self, depth, cols):
        super().__init__()
        self.linear = nn.Linear(depth, cols, dtype=torch.bfloat16)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_init_inputs():
    return [384, 256]


def get_inputs():
    return [torch.randn(512, 384, dtype=torch.bfloat16)]
"""
VALUES = """
import torch, product_kernels
from product_kernels import reference

product_kernels.outside_domain("raise")
torch.manual_seed(0)
ours = product_kernels.Product(384, 256).cuda()
theirs = reference.Model(384, 256).cuda()
theirs.load_state_dict(ours.state_dict())
x = torch.randn(512, 384, dtype=torch.bfloat16, device="cuda")
with torch.no_grad():
    found, right = ours(x), theirs.double()(x.double())
error = (found.double() - right).square().mean().sqrt() / right.square().mean().sqrt()
assert error < 2**-8, float(error)
launch = getattr(torch.ops, product_kernels.NAMESPACE).launch_product_product.default
y = torch.empty(512, 256, dtype=torch.bfloat16, device="cuda")
try:
    launch(x, [128, 64, 32, 256, 0, 0], x, [64, 64, 128, 256, 0, 0], ours.linear.bias.detach(), y, 512, 256, 384, 132)
except (RuntimeError, ValueError) as error:
    assert "more than the swizzle's 32" in str(error), error
else:
    raise AssertionError("a box wider than its swizzle was launched")
"""


def test_a_kernel_fed_by_tensor_maps_leaves(tmp_path: Path, zygote: Zygote) -> None:
    """The engine's own product on Hopper: the package's tests run on its maps, compiled and from cubins; a map that TMA
    forbids is refused in words."""
    import zipfile

    from kforge.engine import propose
    from kforge.export.exporting import Request, export
    from kforge.task import capture, load_task

    path, state = tmp_path / "product.py", tmp_path / ".kforge"
    path.write_text(PRODUCT)
    task = load_task(path)
    proposed = propose(task, capture(task, device="cuda:0"), arch="sm_90a", device="cuda:0")
    candidate = next(c for c in proposed if any("CUtensorMap" in text for text in c.files.values()))
    candidate.write(tmp_path / "out")
    module = tmp_path / "out" / candidate.module
    _judged(path, candidate, state, zygote)
    done = _exported(tmp_path, path, module, "extension", zygote, "none")
    assert done.tried is not None
    assert (done.tried.failed, done.tried.skipped) == (0, 0)
    with zipfile.ZipFile(done.tried.wheel) as wheel:
        wheel.extractall(tmp_path / "installed")
    request = Request(module, tmp_path / "aot", state, "aot", path, plan="none", build=False, device="cuda:0")
    export(request, lambda kind, data: None)
    running = [
        subprocess.Popen(
            [sys.executable, "-c", VALUES],
            env=os.environ | {"PYTHONPATH": str(folder)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for folder in (tmp_path / "installed", tmp_path / "aot" / "src")
    ]
    for process in running:
        _, errors = process.communicate()
        assert process.returncode == 0, errors


ROWS = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(4096, 8192)]
"""


@pytest.mark.alone
def test_a_packages_benchmark_repeats_the_accepted_speed(tmp_path: Path) -> None:
    """The judge's ratio, within the noise of both measurements, by the script that ships."""
    from kforge.agent.verify import VerifyOptions, verify
    from kforge.engine import propose
    from kforge.export.exporting import Request, export
    from kforge.task import capture, load_task

    path = tmp_path / "rows.py"
    path.write_text(ROWS)
    task = load_task(path)
    candidate = next(iter(propose(task, capture(task, device="cuda:0"), arch="sm_90a", device="cuda:0")))
    candidate.write(tmp_path / "out")
    module, state = tmp_path / "out" / candidate.module, tmp_path / ".kforge"
    options = VerifyOptions(plan="quick", device="cuda:0", state=state)
    report, _ = verify(path, module, options, lambda kind, data: None)
    assert report.status.value == "verified" and report.speedup is not None
    request = Request(
        module, tmp_path / "to", state, "aot", path, force=True, plan="none", build=False, device="cuda:0"
    )
    export(request, lambda kind, data: None)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "to" / "src")}
    command = [sys.executable, "benchmarks/benchmark.py", "--check"]
    done = subprocess.run(command, cwd=tmp_path / "to", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("repeats"), done.stdout
