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
    from kforge.worker import Zygote

_FORWARD, _BACKWARD, _PAIR = "translated_forward", "translated_backward", "TranslatedPair"


def translated_candidate(export: Export) -> Candidate:
    """The candidate whose forward calls the translated functions, its kernels and everything else unchanged."""
    text = export.code.text
    lines = text.splitlines()
    model = next(n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew")
    forward = next(n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "forward")
    first = min([model.lineno, *(d.lineno for d in model.decorator_list)]) - 1
    functions = _launched(export, export.translated.launching, _FORWARD)
    indent = " " * forward.col_offset
    names = [f"{n}={n}" for n in export.translated.inputs]
    names += [f"{name}=self.{path}" for path, name in export.translated.state.items()]
    called = _FORWARD
    if export.derivative is not None:
        functions += "\n\n\n" + _pair(export)
        called = f"{_PAIR}.apply"
        names = [*export.translated.inputs, *(f"self.{path}" for path in _read(export))]
    body = [
        f"{indent}def forward({export.interface.signature}):",
        f"{indent}    return {called}({', '.join(names)})",
    ]
    start, end = forward.lineno - 1, forward.end_lineno or forward.lineno
    changed = [*lines[:first], *functions.splitlines(), "", "", *lines[first:start], *body, *lines[end:]]
    candidate = export.evidence.candidate
    files = {**candidate.files, candidate.module: "\n".join(changed) + "\n"}
    idea = f"{candidate.module} with its forward translated for export"
    return replace(candidate, files=files, parent=candidate.digest, idea=idea)


def _launched(export: Export, text: str, name: str) -> str:
    """Translated functions that launch the candidate's Kernels, `forward` renamed."""
    for variable, use in export.code.kernels.items():
        text = re.sub(rf"\bkernels\.{re.escape(use.definition.name)}\(", f"{variable}(", text)
    for kernel in export.code.triton:
        text = re.sub(rf"\bkernels\.{re.escape(kernel)}\[", f"{kernel}[", text)
    return re.sub(r"^def forward\(", f"def {name}(", text, flags=re.M)


def _read(export: Export) -> dict[str, str]:
    """Path of each tensor of the module that forward or backward reads -> its argument's name."""
    assert export.derivative is not None
    paths = {*export.translated.state, *export.derivative.translated.state}
    return {a.path: a.name for a in export.interface.state if a.path in paths}


def _pair(export: Export) -> str:
    """The translated backward, and an autograd.Function over both functions."""
    derivative = export.derivative
    assert derivative is not None
    state = _read(export)
    arguments = [*export.translated.inputs, *state.values()]
    forwarded = [*export.translated.inputs, *export.translated.state.values()]
    own = {*derivative.upstream, *derivative.needs}
    saved = [n for n in derivative.translated.inputs if n not in own]
    owners = [*export.translated.inputs, *(f"self.{path}" for path in state)]
    # The flag of an argument of the candidate's Function, by that argument's place among this one's.
    flags = {
        name: f"ctx.needs_input_grad[{owners.index(derivative.gradients[k])}]" if derivative.gradients[k] else "False"
        for name, k in derivative.needs.items()
    }
    passed = [f"{n}={flags.get(n, n)}" for n in derivative.translated.inputs]
    passed += [f"{name}={state[path]}" for path, name in derivative.translated.state.items()]
    kept = [*saved, *(state[path] for path in derivative.translated.state)]
    where = {g: k for k, g in enumerate(derivative.gradients) if g}
    returned = ", ".join(f"found[{where[o]}]" if o in where else "None" for o in owners)
    lines = [
        _launched(export, derivative.translated.launching, _BACKWARD),
        "",
        "",
        f"class {_PAIR}(torch.autograd.Function):",
        "    @staticmethod",
        f"    def forward(ctx, {', '.join(arguments)}):",
        f"        ctx.save_for_backward({', '.join(kept)})",
        f"        return {_FORWARD}({', '.join(forwarded)})",
        "",
        "    @staticmethod",
        f"    def backward(ctx, {', '.join(derivative.upstream)}):",
        *([f"        {', '.join(kept)}, = ctx.saved_tensors"] if kept else []),
        f"        found = {_BACKWARD}({', '.join(passed)})",
        f"        return {returned},",
    ]
    return "\n".join(lines)


def judge_translation(
    export: Export, plan: str, device: str, emit: Any, work: Any, zygote: Zygote | None = None
) -> Report:
    """The report on the translated forward; ExportError when it is not verified. No timing."""
    from kforge.environment import evaluate, prepare
    from kforge.environment.report import Status
    from kforge.task.backward import gradient_task

    candidate = translated_candidate(export)
    task = export.task if export.derivative is None else gradient_task(export.task)
    report = evaluate(
        task,
        candidate,
        plan,
        device=device,
        on_event=lambda kind, data: emit(kind, {"candidate": candidate.digest} | dict(data)),
        reference=prepare(task, device, folder=work),
        zygote=zygote,
        timing=False,
    )
    if report.status is not Status.VERIFIED:
        raise ExportError(
            f"the translated forward is {report.status.value}: {report.failure}", "this is a fault of kforge"
        )
    return report
