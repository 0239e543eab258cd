"""Judges the translated forward in place of ModelNew's own: what leaves is compared, not only what it came from."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kforge.errors import ExportError
from kforge.export.package import Export
from kforge.kernel.candidate import Candidate

if TYPE_CHECKING:
    from kforge.environment.report import Report

_FORWARD = "translated_forward"


def translated_candidate(export: Export) -> Candidate:
    """The candidate whose forward calls the translated functions, its kernels and everything else unchanged."""
    text = export.code.text
    lines = text.splitlines()
    model = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew")
    forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    first = min([model.lineno, *(d.lineno for d in model.decorator_list)]) - 1
    functions = export.translated.launching
    for variable, use in export.code.kernels.items():
        functions = re.sub(rf"\bkernels\.{re.escape(use.definition.name)}\(", f"{variable}(", functions)
    functions = re.sub(r"^def forward\(", f"def {_FORWARD}(", functions, flags=re.M)
    indent = " " * forward.col_offset
    names = [f"{n}={n}" for n in export.translated.inputs]
    names += [f"{name}=self.{path}" for path, name in export.translated.state.items()]
    body = [
        f"{indent}def forward({export.interface.signature}):",
        f"{indent}    return {_FORWARD}({', '.join(names)})",
    ]
    start, end = forward.lineno - 1, forward.end_lineno or forward.lineno
    changed = [*lines[:first], *functions.splitlines(), "", "", *lines[first:start], *body, *lines[end:]]
    candidate = export.evidence.candidate
    files = {**candidate.files, candidate.module: "\n".join(changed) + "\n"}
    idea = f"{candidate.module} with its forward translated for export"
    return replace(candidate, files=files, parent=candidate.digest, idea=idea)


def judge_translation(export: Export, plan: str, device: str, emit: Any, work: Any) -> Report:
    """The report on the translated forward; ExportError when it is not verified. No timing."""
    from kforge.environment import evaluate, prepare
    from kforge.environment.report import Status

    candidate = translated_candidate(export)
    report = evaluate(
        export.task,
        candidate,
        plan,
        device=device,
        on_event=lambda kind, data: emit(kind, {"candidate": candidate.digest} | dict(data)),
        reference=prepare(export.task, device, folder=work),
        timing=False,
    )
    if report.status is not Status.VERIFIED:
        raise ExportError(
            f"the translated forward is {report.status.value}: {report.failure}", "this is a fault of kforge"
        )
    return report
