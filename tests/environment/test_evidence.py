"""Evidence bundles: what they hold, that they are read back whole, and that a changed one is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from kforge.environment import evidence
from kforge.environment.report import CaseResult, Gate, Report, Samples, Speedup, Status, VariantResult, Verdict
from kforge.errors import KforgeError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.worker.parcel import Parcel

CANDIDATE = Candidate("op_kforge.py", {"op_kforge.py": "class ModelNew: ...", "op_kforge.cu": "__global__ void f() {}"})
TASK = Parcel("op.py", {"op.py": "import helper\n", "helper.py": "x = 1\n"})
SPEEDUP = Speedup("eager", 1.5, (1.45, 1.55), 0.01)
REPORT = Report(
    task="op",
    candidate=CANDIDATE.digest,
    status=Status.VERIFIED,
    verdict=Verdict.FASTER,
    plan="quick",
    target="GPU",
    gates=(Gate("static", True),),
    cases=(CaseResult("variant 0, seed 0", True), CaseResult("variant 0, seed 1", True)),
    variants=(VariantResult("variant 0", Verdict.FASTER, SPEEDUP, (Samples("eager", "plain", (1.5, 1.6)),)),),
    speedup=SPEEDUP,
    environment={"seed": "12345678901234567890", "torch": "2.13.0"},
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    evidence.write(folder, TASK, CANDIDATE, REPORT, {"plan": "quick", "arch": None, "tolerance": {"rms": 4.0}})
    return folder


def test_a_bundle_comes_back_as_it_was(bundle: Path) -> None:
    """Task, candidate, report, options and seed are read back equal; raw samples and environment are files of it."""
    found = evidence.read(bundle)
    assert (found.task, found.candidate, found.report) == (TASK, CANDIDATE, REPORT)
    assert found.options == {"plan": "quick", "tolerance": {"rms": 4.0}} and found.seed == 12345678901234567890
    assert json.loads((bundle / "samples.json").read_text()) == [
        {"variant": "variant 0", "side": "eager", "wrapper": "plain", "unit": "ms", "samples": [1.5, 1.6]}
    ]
    assert json.loads((bundle / "environment.json").read_text())["target"] == "GPU"
    hashes = json.loads((bundle / "hashes.json").read_text())
    files = {path.relative_to(bundle).as_posix() for path in bundle.rglob("*") if path.is_file()}
    assert set(hashes["files"]) == files - {"hashes.json"} and found.digest == hashes["digest"]


@pytest.mark.parametrize(
    "name", ["report.json", "candidate/op_kforge.cu", "task/helper.py", "samples.json", "hashes.json"]
)
def test_a_changed_bundle_is_refused(bundle: Path, name: str) -> None:
    """A change of any file, the list of hashes included, is found and the file named; so is a file that is gone."""
    path = bundle / name
    text = path.read_text()
    path.write_text(text.replace("1", "2").replace("void", "char"))
    assert path.read_text() != text
    with pytest.raises(UsageError, match=name) as caught:
        evidence.read(bundle)
    assert caught.value.exit_code == 2
    path.unlink()
    with pytest.raises(UsageError, match=name):
        evidence.read(bundle)


def test_files_outside_are_not_read(bundle: Path, tmp_path: Path) -> None:
    """A list of hashes that names a file outside the bundle is refused, though its hash is right."""
    outside = tmp_path / "outside.py"
    outside.write_text("secret")
    listed = json.loads((bundle / "hashes.json").read_text())
    listed["files"]["candidate/../../outside.py"] = hashlib.sha256(b"secret").hexdigest()
    listed["digest"] = evidence._digest(listed["files"])
    (bundle / "hashes.json").write_text(json.dumps(listed))
    with pytest.raises(UsageError, match=r"outside\.py"):
        evidence.read(bundle)


def rewritten(bundle: Path, **changes: str) -> None:
    """Replaces or adds files (`/` written as `__`, `.` as `_dot_`) and makes the hashes fit again."""
    listed = json.loads((bundle / "hashes.json").read_text())
    for name, text in changes.items():
        name = name.replace("__", "/").replace("_dot_", ".")
        (bundle / name).resolve().write_text(text)
        listed["files"][name] = hashlib.sha256(text.encode()).hexdigest()
    listed["digest"] = evidence._digest(listed["files"])
    (bundle / "hashes.json").write_text(json.dumps(listed))


def test_no_file_is_written_outside_by_a_replay(bundle: Path, tmp_path: Path) -> None:
    """A file outside that is listed as empty would be unpacked there: the name is refused."""
    precious = tmp_path / "precious.py"
    precious.write_text("kept")
    listed = json.loads((bundle / "hashes.json").read_text())
    listed["files"]["extras/../../precious.py"] = hashlib.sha256(b"").hexdigest()
    listed["digest"] = evidence._digest(listed["files"])
    (bundle / "hashes.json").write_text(json.dumps(listed))
    with pytest.raises(UsageError, match="precious"):
        evidence.read(bundle).unpack(tmp_path / "bundle")
    assert precious.read_text() == "kept"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"state": "/tmp"}, "unknown option"),
        ({"arch": "sm_1"}, "architecture"),
        ({"baseline": "/etc/other.py:fast"}, "baseline is not in it"),
    ],
)
def test_options_that_no_run_could_have_are_refused(bundle: Path, options: dict[str, str], words: str) -> None:
    """Hashes can be made anew by anybody: what they cover is still read with care."""
    described = json.loads((bundle / "evidence.json").read_text()) | {"options": options}
    rewritten(bundle, evidence_dot_json=json.dumps(described))
    with pytest.raises(UsageError, match=words):
        evidence.read(bundle)


@pytest.mark.parametrize("seed", ["none", "-1"])
def test_a_report_without_a_seed_is_no_evidence(bundle: Path, seed: str) -> None:
    """The seed is what a replay follows from."""
    report = json.loads((bundle / "report.json").read_text())
    report["environment"]["seed"] = seed
    rewritten(bundle, report_dot_json=json.dumps(report))
    with pytest.raises(UsageError, match="not an evidence bundle"):
        evidence.read(bundle)


def test_a_report_of_another_candidate_is_no_evidence(bundle: Path) -> None:
    """A kernel that was exchanged, with hashes that fit, does not keep the report of the first one."""
    rewritten(bundle, candidate__op_kforge_dot_cu="// another")
    with pytest.raises(UsageError, match="another candidate"):
        evidence.read(bundle)


def test_nothing_is_overwritten(bundle: Path, tmp_path: Path) -> None:
    """A folder with something in it is refused before the work; a report of other files is no evidence for these."""
    with pytest.raises(UsageError, match="not empty"):
        evidence.check_folder(bundle)
    with pytest.raises(KforgeError, match="changed while it was judged"):
        evidence.write(tmp_path / "new", TASK, CANDIDATE.with_file("op_kforge.cu", "// other"), REPORT, {})
    assert not (tmp_path / "new").exists()


def test_files_of_options_travel(tmp_path: Path) -> None:
    """A baseline in a file of the user's is in the bundle and is found there by the replay."""
    mine = tmp_path / "mine.py"
    mine.write_text("def fast(x): return x\n")
    evidence.write(tmp_path / "b", TASK, CANDIDATE, REPORT, {"baseline": f"{mine}:fast", "context": None})
    mine.unlink()
    op, module, options = evidence.read(tmp_path / "b").unpack(tmp_path / "there")
    path, _, name = options["baseline"].rpartition(":")
    assert name == "fast" and Path(path).read_text() == "def fast(x): return x\n"
    assert (op.parent / "helper.py").read_text() == "x = 1\n" and (module.parent / "op_kforge.cu").is_file()


def test_differences() -> None:
    """The same report differs in nothing; status, speed-up outside both intervals, cases and versions are named."""
    assert evidence.differences(REPORT, REPORT) == []
    close = replace(REPORT, speedup=Speedup("eager", 1.52, (1.48, 1.56), 0.01))
    assert evidence.differences(REPORT, close) == []
    other = replace(
        REPORT,
        status=Status.WRONG,
        speedup=Speedup("eager", 1.1, (1.05, 1.15), 0.01),
        cases=(CaseResult("variant 0, seed 0", False),),
        gates=(Gate("static", False, "it is wrong"),),
        environment={"torch": "2.14.0"},
    )
    assert evidence.differences(REPORT, other) == [
        "status: verified -> wrong (it is wrong)",
        "speed-up: 1.500x (1.450 to 1.550) -> 1.100x (1.050 to 1.150): the intervals do not meet",
        "case variant 0, seed 0: True -> False",
        "cases run only then: 1, only now: 0",
        "gate static: True -> False",
        "torch: 2.13.0 -> 2.14.0",
    ]
