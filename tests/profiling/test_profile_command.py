"""`kforge profile` and `kforge diff` as a user calls them, on a machine that may have no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kforge.profiling.drawing import can_write_png
from kforge.store.index import Index
from tests.patience import PATIENCE_S

OP = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x) + 0.1


def get_inputs():
    return [torch.randn(64, 512)]
"""
CU = """// y = exp(x) + 0.1
extern "C" __global__ void exp_add(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = expf(x[i]) + 0.1f;
}
"""
MODULE = """import torch

from kforge.kernel import Kernel

exp_add = Kernel("exp_add", "op_kforge.cu", grid="(ceil_div(n, 256), 1, 1)", block="256")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        exp_add(x, y, x.numel())
        return y
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "op.py").write_text(OP)
    for name, source in (("one", CU), ("two", CU.replace("0.1f", "0.1"))):
        (folder / name).mkdir()
        (folder / name / "op_kforge.py").write_text(MODULE)
        (folder / name / "op_kforge.cu").write_text(source)
    return folder


def _kforge(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kforge", *words]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "COLUMNS": "100"}
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.fixture(scope="module")
def profiled(project: Path) -> dict[str, object]:
    done = _kforge(
        project, "profile", "op.py", "two", "--device", "cpu", "--json", "--svg", "roof.svg", "--png", "p/roof.png"
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_the_last_line_is_one_object(profiled: dict, project: Path) -> None:
    """target, roofline with bound and headroom, findings; here the double literal is found with its line."""
    assert profiled["target"] == "emulator" and profiled["exit_code"] == 0
    assert profiled["roofline"]["bound"] == "latency" and profiled["roofline"]["headroom"] is None
    assert profiled["roofline"]["source"] == "data sheet"
    assert 1 <= len(profiled["findings"]) <= 3
    found = {f["tool"]: f for f in profiled["findings"]}
    assert found["precision_headroom"]["places"] == [["op_kforge.cu", 4]]
    assert {m["source"] for m in profiled["missing"]} >= {"ncu", "timeline"}
    assert (project / "roof.svg").read_text().startswith("<svg")
    if can_write_png():
        assert Path(profiled["png"]).read_bytes()[:4] == b"\x89PNG"
    else:
        assert profiled["png"] is None
    line = profiled["lines"]["op_kforge.cu"]["lines"]["4"]
    assert line["values"]["excess"] == 1.0
    assert any(row["text"].lstrip("@!P0123456789 ").startswith("LDG") for row in line["sass"])


def test_a_profile_is_kept_for_the_diff(profiled: dict, project: Path) -> None:
    """One file a candidate and target, readable as evidence."""
    from kforge.agent.profile import saved

    evidence = saved(str(profiled["candidate"]), project / ".kforge")
    assert evidence is not None and evidence.kernels[0].name == "exp_add"


def test_lines_and_text_for_a_person(project: Path) -> None:
    """The source with a figure beside the line that moves bytes; the finding in words; what is missing."""
    done = _kforge(project, "profile", "op.py", "two", "--device", "cpu", "--lines", "--metric", "bytes")
    assert done.returncode == 0, done.stderr
    assert "latency bound" in done.stdout and "double precision where the task has none" in done.stdout
    row = next(line for line in done.stdout.splitlines() if "y[i] = expf" in line)
    assert row.split()[0] == "262k"  # 128 KB read and written
    assert "missing: ncu" in done.stdout


def test_the_ablation_options(project: Path) -> None:
    """--feedback takes none, raw and tools; anything else is a usage error that lists them."""
    wrong = _kforge(project, "profile", "op.py", "two", "--feedback", "some")
    assert wrong.returncode == 2 and "none, raw, tools" in wrong.stderr


def test_a_diff_has_a_figure_before_and_after(project: Path) -> None:
    """From the builds' SASS: the line with the double literal has more instructions than its float twin."""
    done = _kforge(project, "diff", "one", "two", "--metric", "instructions", "--json")
    assert done.returncode == 0, done.stderr
    (file,) = json.loads(done.stdout.splitlines()[-1])["files"]
    assert file["metric"] == "instructions"
    before = next(r["before"] for r in file["lines"] if r["tag"] == "-")
    after = next(r["after"] for r in file["lines"] if r["tag"] == "+")
    assert 0 < before < after
    text = _kforge(project, "diff", "one", "two").stdout
    assert "before" in text and "+    if (i < n) y[i] = expf(x[i]) + 0.1;" in text


def test_what_does_not_build_is_compared_without_figures(project: Path, tmp_path: Path) -> None:
    """One line says why there are none; the diff and its exit code stay."""
    for name, source in (("a", CU), ("b", CU.replace("expf", "no_such_function"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "op_kforge.py").write_text(MODULE)
        (tmp_path / name / "op_kforge.cu").write_text(source)
    done = _kforge(project, "diff", str(tmp_path / "a"), str(tmp_path / "b"))
    assert done.returncode == 0 and "@@" in done.stdout
    assert "no figures" in done.stderr and "no_such_function" in done.stderr


def test_a_plain_diff_stays_one(project: Path) -> None:
    """--plain asks no compiler and shows no figures."""
    done = _kforge(project, "diff", "one", "two", "--plain")
    assert done.returncode == 0 and "before" not in done.stdout and "@@" in done.stdout


def test_a_gpu_that_is_absent_brings_its_architecture(project: Path) -> None:
    """Its data sheet bounds what was built for it, whatever is built where no GPU is named."""
    done = _kforge(project, "profile", "op.py", "two", "--device", "cpu", "--gpu", "L40S", "--json")
    data = json.loads(done.stdout.splitlines()[-1])
    assert (data["arch"], data["roofline"]["ceilings"]) == ("sm_89", "NVIDIA L40S")
    assert data["kernels"][0]["registers"] > 0


def test_inputs_too_large_for_the_emulator_leave_the_static_part(project: Path) -> None:
    """No call of 64 MiB is traced: build, instructions and the floor are told, and that the trace is missing."""
    (project / "large.py").write_text(OP.replace("64, 512", "4096, 4096"))
    done = _kforge(project, "profile", "large.py", "two", "--device", "cpu", "--json")
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout.splitlines()[-1])
    missing = {item["source"]: item["reason"] for item in data["missing"]}
    assert missing["trace"] == "inputs of 64 MB are too large for the emulator's trace"
    assert data["kernels"][0]["registers"] > 0 and data["roofline"]["bound"] == "memory"


def test_the_ledger(project: Path) -> None:
    """Expected against achieved gain a tool, from the run index."""
    empty = _kforge(project, "profile", "--ledger", "--json")
    assert json.loads(empty.stdout)["ledger"] == []
    with Index(project / ".kforge" / "index.sqlite") as index:
        index.start_run("r", "op.py", project)
        index.add_advice("r", source="tiling", advice="tile", parent="p", child="c", expected=(1.5, 2.5), achieved=1.5)
    told = _kforge(project, "profile", "--ledger")
    row = next(line for line in told.stdout.splitlines() if line.startswith("tiling"))
    assert row.split() == ["tiling", "1", "1", "2.00x", "1.50x", "0.88"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "needs a task"),
        (("op.py", "--variant", "7"), "no variant 7"),
        (("op.py", "--metric", "heat"), "--metric heat"),
        (("op.py", "--gpu", "V100"), "known: A100, H100"),
        (("none.py",), "no such file: none.py"),
        (("op.py", "--arch", "sm_999"), "'sm_999' is not an architecture"),
        (("op.py", "--svg", "/proc/roof.svg"), "/proc cannot be written"),
    ],
)
def test_wrong_use_is_told_in_one_line(project: Path, words: tuple[str, ...], message: str) -> None:
    """Exit code 2 and what there is instead."""
    done = _kforge(project, "profile", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
