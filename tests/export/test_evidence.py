"""What may leave: verified, honest, unchanged candidates; anything else is refused, or stamped where it is forced."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from support import judge

from kforge.environment.json import from_json, to_json
from kforge.environment.report import Detector, Report, Status, Verdict
from kforge.errors import ExportError
from kforge.export.evidence import check_exportable, find_evidence, of_task
from kforge.export.exporting import Request, export
from kforge.store.index import Index

Judged = tuple[Path, Path, Path]


@pytest.fixture
def copy(judged: Judged, tmp_path: Path) -> Judged:
    """A copy of the judged project that a test may change."""
    task, module, state = judged
    shutil.copytree(task.parent, tmp_path / "project", symlinks=True)
    base = tmp_path / "project"
    return base / task.name, base / "out" / module.name, base / state.name


def test_verified_files_are_found_by_content(judged: Judged) -> None:
    """The newest report on exactly these texts, with the stamps of a candidate that no GPU has seen."""
    _, module, state = judged
    evidence = find_evidence(module, state)
    assert evidence.problem == ""
    assert evidence.verified
    assert evidence.stamps == ("EMULATOR ONLY", "UNTIMED")
    assert evidence.warnings == ("verified by plan quick, not by plan full",)
    check_exportable(evidence, force=False)


def test_another_file_beside_it_changes_nothing(copy: Judged) -> None:
    """An accepted candidate may lie among other sources: only its own files count."""
    _, module, state = copy
    module.with_name("other_kforge.cu").write_text("// of another op\n")
    assert find_evidence(module, state).problem == ""


@pytest.mark.parametrize("suffix", [".py", ".cu"])
def test_a_change_since_the_verification_is_refused(copy: Judged, suffix: str) -> None:
    """One edited file, and the refusal names it; --force exports it as unverified."""
    _, module, state = copy
    path = module.with_suffix(suffix)
    path.write_text(path.read_text() + "\n")
    evidence = find_evidence(module, state)
    with pytest.raises(ExportError, match=f"{path.name} changed since it was verified"):
        check_exportable(evidence, force=False)
    check_exportable(evidence, force=True)
    assert evidence.stamps == ("UNVERIFIED",)


def test_never_verified_is_refused(copy: Judged, tmp_path: Path) -> None:
    """Without a report the refusal says how to get one."""
    _, module, _ = copy
    with pytest.raises(ExportError, match="was never verified") as caught:
        check_exportable(find_evidence(module, tmp_path / "nowhere"), force=False)
    assert "kforge verify" in caught.value.hint


def test_a_changed_task_is_refused(copy: Judged) -> None:
    """A verdict holds for the op.py that was judged: another one is named."""
    task, module, state = copy
    task.write_text(task.read_text() + "\n# changed\n")
    request = Request(module, task.parent / "to", state, task=task, plan="none", build=False)
    with pytest.raises(ExportError, match=r"shift\.py changed since the verification"):
        export(request, lambda kind, data: None)
    assert not (task.parent / "to").exists()
    stale = of_task(find_evidence(module, state), task)
    assert not stale.verified and "shift.py changed since the verification" in stale.problem


def _with_report(state: Path, change: dict[str, object]) -> None:
    """A newer report on the same candidate, differing from the judged one in these fields."""
    with Index(state / "index.sqlite") as index:
        row = index.evaluations("shift_kforge.py")[0]
        report = replace(from_json(Report, row.report), **change)  # type: ignore[arg-type]
        index.add_evaluation(row.run, to_json(report))


REPORTS: dict[str, tuple[dict[str, object], str, tuple[str, ...]]] = {
    "wrong": ({"status": Status.WRONG}, "it was judged wrong", ("UNVERIFIED",)),
    "hacked": ({"status": Status.HACKED}, "it was judged hacked", ("UNVERIFIED",)),
    "fired": ({"detectors": (Detector("side_stream", True),)}, "detectors fired: side_stream", ("UNVERIFIED",)),
    "slower": ({"verdict": Verdict.SLOWER, "target": "a GPU"}, "it is slower than", ("SLOWER",)),
    "same": ({"verdict": Verdict.SAME, "target": "a GPU"}, "", ("SAME",)),
    "faster": ({"verdict": Verdict.FASTER, "target": "a GPU"}, "", ()),
}


@pytest.mark.parametrize("name", REPORTS)
def test_the_newest_report_decides(copy: Judged, name: str) -> None:
    """Wrong, hacked and slower candidates stay; what is not faster leaves with a stamp."""
    change, problem, stamps = REPORTS[name]
    _, module, state = copy
    _with_report(state, change)
    evidence = find_evidence(module, state)
    assert problem in evidence.problem
    assert bool(problem) == bool(evidence.problem)
    assert evidence.stamps == stamps


def test_the_widest_plan_that_passed_alike_counts(copy: Judged) -> None:
    """A quick look after a whole verification narrows nothing; after a wrong answer what was known before is gone."""
    _, module, state = copy
    _with_report(state, {"plan": "full"})
    _with_report(state, {"plan": "quick", "sizes": {"x": ((1, 2),)}})
    found = find_evidence(module, state)
    assert found.report is not None and found.report["plan"] == "full" and found.report["sizes"]["x"] != [[1, 2]]
    _with_report(state, {"status": Status.WRONG})
    assert find_evidence(module, state).report["status"] == "wrong"  # type: ignore[index]
    _with_report(state, {"plan": "quick"})
    assert find_evidence(module, state).report["plan"] == "quick"  # type: ignore[index]


def _judged_against(other: Path, state: Path, change: dict[str, object]) -> None:
    """A newer run in which the same candidate was judged against another op.py."""
    from kforge.agent.session import Session
    from kforge.kernel.candidate import Candidate
    from kforge.task.load import digest_of

    with Index(state / "index.sqlite") as index:
        row = index.evaluations("shift_kforge.py")[0]
    report = replace(from_json(Report, row.report), **change)  # type: ignore[arg-type]
    session = Session(state, other, {}, lambda kind, data: None, "verify")
    with session.recorded():
        session.event("task_loaded", task=other.stem, form="module", digest=digest_of(other.read_bytes()))
        session.proposed(Candidate.read(state.parent / "out" / "shift_kforge.py"))
        session.evaluated(report)
        session.finish(status="wrong", verdict="untimed", exit_code=1, best=None)


def test_what_was_judged_against_another_task_says_nothing_of_this_one(copy: Judged) -> None:
    """Neither a wrong answer there takes a verdict here away, nor does a right one there stand for one here."""
    task, module, state = copy
    other = task.with_name("other.py")
    other.write_text(task.read_text().replace("1.5", "2.5"))
    assert "never verified against other.py, only against another task" in find_evidence(module, state, other).problem
    _judged_against(other, state, {"status": Status.WRONG})
    assert "it was judged wrong" in find_evidence(module, state, other).problem
    assert find_evidence(module, state, task).problem == ""
    gone = task.with_name("gone.py")
    gone.write_text(task.read_text())
    _judged_against(gone, state, {"status": Status.VERIFIED})
    gone.unlink()
    found = find_evidence(module, state)
    assert found.problem == "" and found.task_path is not None
    assert found.task_path.name == task.name, "where none is named, one that is there and that it may leave for"
    moved = task.with_name("moved.py")
    moved.write_text(task.read_text())
    assert find_evidence(module, state, moved).problem == "", "the same text, wherever it lies"


def test_judging_again_makes_a_changed_candidate_exportable(copy: Judged) -> None:
    """After a change and a new verification the evidence is that of the new texts."""
    task, module, state = copy
    source = module.with_suffix(".cu")
    source.write_text(source.read_text().replace("// ", "//  ") + "\n")
    assert find_evidence(module, state).problem
    assert judge(task, module, state).status is Status.VERIFIED
    assert find_evidence(module, state).problem == ""
