"""The lock of a GPU: judging goes together, timing goes alone. It is a file lock, so that no GPU is needed here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kforge.worker import gpu_lock
from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
OTHER = "from kforge.worker import gpu_lock\nwith gpu_lock('cuda:7', shared={}): print('held', flush=True); input()"


def _other(shared: bool) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", OTHER.format(shared)], cwd=ROOT, **pipes)  # type: ignore[call-overload]


@pytest.mark.parametrize("mine", [True, False], ids=["judging", "timing"])
@pytest.mark.parametrize("theirs", [True, False], ids=["judging", "timing"])
def test_only_judging_goes_together(mine: bool, theirs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process gets the GPU at once where both judge; where one times, only when this one has let go."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with gpu_lock("cuda:7", shared=mine):
        other = _other(theirs)
        assert other.stdout is not None
        held = _readable(other.stdout, 1.5 if not (mine and theirs) else PATIENCE_S)
        assert held is (mine and theirs)
    assert other.stdout.readline() == "held\n"
    other.communicate("\n", timeout=PATIENCE_S)
    assert other.returncode == 0


def _readable(stream: object, timeout_s: float) -> bool:
    import select

    return bool(select.select([stream], [], [], timeout_s)[0])
