"""`kforge accept` and `kforge export` in processes of their own: what they print, write and refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "export"))
ROOT = Path(__file__).resolve().parents[2]


def kforge(*arguments: str, cwd: Path) -> tuple[int, dict[str, Any], str]:
    """(exit code, the last object of stdout, stderr) of a command with --json."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KFORGE_") or k == "KFORGE_CACHE"}
    done = subprocess.run(
        [sys.executable, "-m", "kforge", *arguments, "--json"],
        cwd=cwd,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    return done.returncode, json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with shift.py and a candidate of it that the emulator verified, in `out`."""
    from support import judge, write_project

    folder = tmp_path_factory.mktemp("export")
    task, module = write_project(folder)
    assert judge(task, module, folder / ".kforge").status.value == "verified"
    return folder


def test_accept_undo_and_export(project: Path) -> None:
    """An accepted candidate lies beside op.py, is exported from there, and undo takes it back."""
    code, said, narrated = kforge("accept", "shift.py", "out", cwd=project)
    assert (code, said["status"], said["entry"]) == (0, "verified", 1)
    assert [Path(f).name for f in said["files"]] == ["shift_kforge.cu", "shift_kforge.py"]
    assert said["domain"]["sizes"] == {"x": [[5, 6], [24, 24]]}
    assert said["domain"]["left_out"] == ["more than one case of input variant 1 (plan quick)"]
    assert "judged on sizes x 5..6 x 24\n" in narrated
    assert "kforge verify shift.py out/shift_kforge.py --plan full" in narrated
    options = ("--plan", "none", "--no-build")
    code, said, narrated = kforge("export", "shift_kforge.py", "--to", "package", *options, cwd=project)
    assert (code, said["package"], said["version"]) == (0, "shift_kernels", "0.1.0")
    assert said["stamps"] == ["EMULATOR ONLY", "UNTIMED"]
    assert said["not_run"] == ["build and tests of the package, as asked"]
    assert all(Path(f).is_file() for f in said["files"])
    assert "evidence: verified, untimed on emulator" in narrated
    code, said, _ = kforge("accept", "shift.py", "--undo", cwd=project)
    assert code == 0
    assert not (project / "shift_kforge.py").exists()


def test_refusals_name_the_reason(project: Path, tmp_path: Path) -> None:
    """What is not verified is refused by both commands with the error's kind, and nothing is written."""
    from support import write_project

    write_project(tmp_path)
    for arguments in (("export", "out", "--to", "package"), ("accept", "shift.py", "out")):
        code, said, _ = kforge(*arguments, cwd=tmp_path)
        assert (code, said["error"]["kind"]) == (1, "export")
        assert "was never verified" in said["error"]["message"]
    assert not (tmp_path / "package").exists()
    assert not (tmp_path / "shift_kforge.py").exists()
    code, said, _ = kforge("export", "out", "--to", "package", "--format", "wheel", cwd=project)
    assert (code, said["error"]["kind"]) == (2, "usage")
