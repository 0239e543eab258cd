"""One export from beginning to end: evidence, translation, its judgement, the files, a trial build, the folder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge import scratch
from kforge.errors import ExportError, UsageError
from kforge.export.domain import exported_domain
from kforge.export.evidence import Evidence, check_exportable, find_evidence, of_task
from kforge.export.formats import find_format, find_trial
from kforge.export.package import Export, Options, next_version, prepare_export
from kforge.export.placing import check_files, check_place, place, sealed

if TYPE_CHECKING:
    from kforge.export.building import Tried
    from kforge.task import Task
    from kforge.worker import Zygote

Emit = Callable[[str, dict[str, Any]], None]
SKIP = "none"


@dataclass(frozen=True)
class Request:
    """What was asked for. plan: of the translation's judgement, "none" for none; task: op.py, None for the run's."""

    module: Path
    to: Path
    state: Path
    layout: str = "extension"
    task: Path | None = None
    options: Options = field(default_factory=Options)
    force: bool = False
    replace: bool = False  # another package that an earlier export wrote there
    plan: str = "full"
    build: bool = True
    device: str = "cpu"


@dataclass(frozen=True)
class Exported:
    """What was written, and what was found out on the way."""

    export: Export
    version: str
    files: tuple[Path, ...]
    translation: str
    tried: Tried | None
    not_run: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """For --json."""
        return {
            "package": self.export.package,
            "version": self.version,
            "namespace": self.export.namespace,
            "stamps": list(self.export.evidence.stamps),
            "status": (self.export.evidence.report or {}).get("status"),
            "verdict": (self.export.evidence.report or {}).get("verdict"),
            "files": [str(path) for path in self.files],
            "domain": exported_domain(self.export),
            "translation": self.translation,
            "tried": self.tried.as_dict() if self.tried else None,
            "not_run": list(self.not_run),
        }


def export(request: Request, emit: Emit, zygote: Zygote | None = None) -> Exported:
    """Export a candidate. ExportError: refused, not translatable, or its own tests fail; then nothing is written.

    zygote: a started warm parent for the translation's judgement.
    """
    find_format(request.layout)
    check_place(request.to)
    evidence = find_evidence(request.module, request.state, request.task)
    check_exportable(evidence, request.force)
    task, evidence = _task(request, evidence)
    check_exportable(evidence, request.force)
    emit("message", {"text": f"evidence: {_said(evidence)}"})
    prepared = prepare_export(task, evidence, request.options)
    layout = _layout(prepared, request.layout)
    check_place(request.to, prepared.package, layout, request.replace)
    writer = find_format(layout)
    translation = _judge(request, prepared, emit, zygote)
    version = next_version(request.to, prepared.digest)
    emit("message", {"text": f"writing {prepared.package} {version}, operators in {prepared.namespace}"})
    files = dict(writer(prepared, version))
    check_files(request.to, files)
    tried, not_run = None, ["build and tests of the package, as asked" if not request.build else ""]
    if request.build:
        tried = _try(prepared, dict(find_trial(layout)(prepared, version, files)), emit)
        not_run = [*tried.not_run]
    if tried is not None and "VERIFICATION.md" in files:
        files["VERIFICATION.md"] = f"{str(files['VERIFICATION.md']).rstrip()}\n\n{_trial_text(tried, translation)}"
    else:
        files = _with_translation(files, translation, not_run)
    paths = place(request.to, sealed(files))
    return Exported(prepared, version, tuple(paths), translation, tried, tuple(n for n in not_run if n))


def _layout(prepared: Export, asked: str) -> str:
    """The format that a candidate of this kind has. ExportError for one that it has not."""
    if not prepared.code.triton:
        if asked == "triton":
            raise ExportError("format triton takes Triton candidates", "choose extension, or another format")
        return asked
    if asked not in ("extension", "triton"):
        raise ExportError(
            f"a Triton candidate does not leave in format {asked}",
            "choose extension: it becomes a package of format triton",
        )
    return "triton"


def _task(request: Request, evidence: Evidence) -> tuple[Task, Evidence]:
    from kforge.task import load_task

    path = request.task or evidence.task_path
    if path is None:
        raise UsageError(f"the task of {request.module} is not known", "name it: --task OP.PY")
    return load_task(path), of_task(evidence, path)


def _said(evidence: Evidence) -> str:
    if evidence.problem:
        return evidence.problem
    report = evidence.report or {}
    return f"{report['status']}, {report['verdict']} on {report['target']}, plan {report['plan']}, run {evidence.run}"


def _judge(request: Request, prepared: Export, emit: Emit, zygote: Zygote | None) -> str:
    """What became of the translated forward, in words."""
    from kforge.export.verifying import judge_translation

    if request.plan == SKIP:
        return "the translated forward was not judged, as asked"
    emit("message", {"text": f"judging the translated forward, plan {request.plan}"})
    try:
        report = judge_translation(prepared, request.plan, request.device, emit, scratch.make("export"), zygote)
    except ExportError as error:
        if not request.force:
            raise
        return f"{error.message} (exported all the same, as asked)"
    return f"the translated forward is verified by plan {report.plan} on {report.target}, {len(report.cases)} cases"


def _try(prepared: Export, files: dict[str, str | bytes], emit: Emit) -> Tried:
    from kforge.export.building import try_package

    work = scratch.make("package")
    project = work / "project"
    place(project, sealed(files))
    emit("message", {"text": "building and testing the package in a clean environment"})
    tried = try_package(project, prepared.package, work)
    emit("message", {"text": f"built in {tried.build_s:.0f} s; {tried.passed} tests passed, {tried.skipped} not run"})
    return tried


def _trial_text(tried: Tried, translation: str) -> str:
    lines = ["## The package itself", "", f"- {translation}"]
    lines.append(
        f"- built as {tried.wheel.name}, installed into a clean environment, {tried.passed} of its tests passed"
    )
    if tried.skipped:
        lines.append(f"- NOT RUN: {tried.skipped} tests ({'; '.join(tried.not_run)})")
    return "\n".join(lines) + "\n"


def _with_translation(files: dict[str, str | bytes], translation: str, not_run: list[str]) -> dict[str, str | bytes]:
    if "VERIFICATION.md" not in files:
        return files
    lines = ["## The package itself", "", f"- {translation}", *(f"- NOT RUN: {n}" for n in not_run if n)]
    return {**files, "VERIFICATION.md": str(files["VERIFICATION.md"]).rstrip() + "\n\n" + "\n".join(lines) + "\n"}
