"""What was found out about the files that are to leave: a report on exactly these texts, and its refusals."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import ExportError, KforgeError
from kforge.kernel.candidate import Candidate

if TYPE_CHECKING:
    from kforge.store.index import EvaluationRow

_STAMPS = {"untimed": "UNTIMED", "same": "SAME", "slower": "SLOWER", "unclear": "UNCLEAR", "mixed": "MIXED"}


@dataclass(frozen=True)
class Evidence:
    """A report about a candidate. report None: nothing is known about these files.

    problem: why it may not leave as it is; verified: whether the report holds for these files all the same (a candidate
    that is right but slower).
    """

    candidate: Candidate
    task_path: Path | None
    report: dict[str, Any] | None
    run: str = ""
    problem: str = ""
    warnings: tuple[str, ...] = ()
    verified: bool = False
    task_digest: str = ""  # of op.py when it was judged; empty where the log does not say

    @property
    def stamps(self) -> tuple[str, ...]:
        """What the README says on its first line: UNVERIFIED, EMULATOR ONLY, and a verdict that is not `faster`."""
        if self.report is None or not self.verified:
            return ("UNVERIFIED",)
        stamps = ("EMULATOR ONLY",) if self.report["target"] == "emulator" else ()
        verdict = _STAMPS.get(self.report["verdict"])
        return (*stamps, verdict) if verdict else stamps


def find_evidence(module: Path, state: Path, task: Path | None = None) -> Evidence:
    """The report on the candidate whose module file is `module`, found by the content of its files.

    task: the op.py that it is to serve; what was judged against another one says nothing of it. None: that of the
    newest report by which it may leave, else of the newest.
    A report about other texts under the same names is none: then `problem` says that the source changed since. The
    newest decides whether it passed; of those that passed alike the widest plan speaks, for a quick look after a whole
    verification takes nothing of it away.
    """
    from kforge.store.candidates import CandidateStore
    from kforge.store.index import Index

    index = state / "index.sqlite"
    rows: list[EvaluationRow] = []
    if index.is_file():
        with Index(index) as opened:
            rows = opened.evaluations(module.name)
    elsewhere = bool(rows)
    if task is None:
        tasks = dict.fromkeys(_task_path(row, state) for row in rows)
        if len(tasks) > 1:
            each = [
                replace(find_evidence(module, state, path), task_path=path if path.is_file() else None)
                for path in tasks
            ]
            return min(each, key=lambda one: (bool(one.problem), one.task_path is None))  # that of a replay is gone
    else:
        own = [row for row in rows if _is_of(row, task, state)]
        rows = own or [row for row in rows if _task_path(row, state).name == task.name]  # moved, and edited since
    changed = ""
    found: list[Evidence] = []
    seen: dict[str, Candidate | None] = {}
    for row in rows:
        if row.candidate not in seen:
            stored = _stored(CandidateStore(row.folder / "candidates"), row.candidate)
            seen[row.candidate] = stored
        known = seen[row.candidate]
        if known is None:
            continue
        different = _different(known, module.parent)
        if different:
            changed = changed or f"{different} changed since it was verified (run {row.run})"
            continue
        found.append(_of(row, known, state))
        if found[-1].problem:
            break  # what was known before it is refuted
    if found:
        return max((one for one in found if _alike(one, found[0])), key=_width)
    never = f"{module} was never verified"
    if task is not None and elsewhere and not rows:
        never += f" against {task.name}, only against another task"
    return Evidence(_needed(module), None, None, problem=changed or never)


def _is_of(row: EvaluationRow, task: Path, state: Path) -> bool:
    """Whether an evaluation was of this op.py, by its place or by its text (it may have moved)."""
    from kforge.task.load import digest_of

    if _task_path(row, state).resolve() == task.resolve():
        return True
    return task.is_file() and _task_digest(row.folder) == digest_of(task.read_bytes())


def _task_path(row: EvaluationRow, state: Path) -> Path:
    path = Path(row.task)
    return path if path.is_absolute() else state.absolute().parent / path


def _alike(one: Evidence, newest: Evidence) -> bool:
    """Whether both say the same of the same op, on the same device."""
    if one is newest:
        return True
    keys = ("target", "status", "verdict")
    same = one.report and newest.report and all(one.report[k] == newest.report[k] for k in keys)
    return bool(same) and not one.problem and one.task_digest == newest.task_digest


def _width(one: Evidence) -> int:
    """How much the plan of its report asks for."""
    from kforge.environment.inputs import PLANS

    return PLANS.index(one.report["plan"]) if one.report is not None and one.report["plan"] in PLANS else -1


def of_task(evidence: Evidence, path: Path) -> Evidence:
    """The evidence as it stands for the op.py at `path`: none where that changed since the candidate was judged."""
    from kforge.task.load import digest_of

    judged = evidence.task_digest
    if evidence.problem or not judged or judged == digest_of(path.read_bytes()):
        return evidence
    problem = f"{path.name} changed since the verification (run {evidence.run})"
    return replace(evidence, verified=False, problem=problem)


def check_exportable(evidence: Evidence, force: bool) -> None:
    """ExportError unless the candidate is verified, honest and unchanged; `force` lets it pass, stamped UNVERIFIED."""
    if not evidence.problem or force:
        return
    hint = "run `kforge verify OP.PY CANDIDATE.PY` first; --force exports it stamped UNVERIFIED"
    raise ExportError(f"not exported: {evidence.problem}", hint)


def _of(row: EvaluationRow, candidate: Candidate, state: Path) -> Evidence:
    report = row.report
    path = _task_path(row, state)
    problem = ""
    fired = [d["name"] for d in report.get("detectors", ()) if d["fired"]]
    if report["status"] != "verified":
        problem = f"it was judged {report['status'].replace('_', ' ')} (run {row.run})"
    elif fired:
        problem = f"detectors fired: {', '.join(fired)} (run {row.run})"
    elif report["verdict"] == "slower":
        problem = f"it is slower than {(report.get('speedup') or {}).get('vs', 'the baseline')} (run {row.run})"
    warnings = [] if report["plan"] == "full" else [f"verified by plan {report['plan']}, not by plan full"]
    task = path if path.is_file() else None
    verified = report["status"] == "verified" and not fired
    return Evidence(candidate, task, report, row.run, problem, tuple(warnings), verified, _task_digest(row.folder))


def _task_digest(folder: Path) -> str:
    """Of op.py, as the run's log has it."""
    from kforge.store.events import LOG_NAME, salvage

    events, _ = salvage(folder / LOG_NAME)
    return next((str(e.data.get("digest", "")) for e in events if e.kind == "task_loaded"), "")


def _stored(store: Any, digest: str) -> Candidate | None:
    try:
        return store.get(digest)
    except KforgeError:  # its run was removed or damaged: it proves nothing
        return None


def _different(known: Candidate, folder: Path) -> str:
    """The first file beside the module that is not what the store holds; empty when all are."""
    from kforge.kernel.sources import read_source

    for name, text in known.files.items():
        path = folder / name
        if not path.is_file() or read_source(path) != text:
            return name
    return ""


def _needed(module: Path) -> Candidate:
    from kforge.worker.parcel import read_candidate

    return read_candidate(module)


def text_digest(*texts: str) -> str:
    """16 hex digits over texts."""
    h = hashlib.sha256()
    for text in texts:
        data = text.encode()
        h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()[:16]
