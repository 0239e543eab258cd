"""Exports on a GPU: built, installed, their own tests run there, and used in a small training script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
print("equal")
"""


def _export(folder: Path, layout: str) -> tuple[Path, object]:
    from support import judge, write_project

    from kforge.export.exporting import Request, export

    task, module = write_project(folder)
    report = judge(task, module, folder / ".kforge", "cuda:0")
    assert report.status.value == "verified", report.failure
    request = Request(module, folder / "to", folder / ".kforge", layout=layout, plan="quick", device="cuda:0")
    return folder / "to", export(request, lambda kind, data: None)


@pytest.mark.parametrize("layout", ["extension", "aot"])
def test_export_passes_its_own_tests_on_the_gpu(tmp_path: Path, layout: str) -> None:
    """opcheck, gradients, compile, side stream, graph replay, layouts: all of the package's tests run, none skipped."""
    _, done = _export(tmp_path, layout)
    tried = done.tried  # type: ignore[attr-defined]
    assert tried.failed == 0
    assert tried.passed >= 20
    assert tried.skipped == 0


def test_an_installed_export_trains(tmp_path: Path) -> None:
    """A few steps with the exported layer end at the reference's loss."""
    to, _ = _export(tmp_path, "aot")
    environment = os.environ | {"PYTHONPATH": str(to / "src")}
    command = [sys.executable, "-c", TRAINING]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["equal"], done.stderr
