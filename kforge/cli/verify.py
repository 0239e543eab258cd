"""`kforge verify`: judge one candidate against its task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kforge.cli import options, output


@output.command
def verify(
    out: output.Output,
    task: options.TaskFile,
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE.PY", help="Its module, or the folder of it.")],
    plan: options.Plan = None,
    device: options.Device = None,
    arch: options.Arch = None,
    json: options.Json = False,
    events: options.Events = False,
) -> int:
    """Judge a candidate: build, check and time it. Exit code 0 only when it is verified."""
    from kforge import config

    settings = options.settings()
    chosen_plan = config.parse_plan(plan) if plan else settings.plan
    chosen_device = config.parse_device(device) if device else settings.device
    chosen_arch = config.parse_arch(arch) if arch else settings.arch
    module = options.read_candidate_path(candidate)

    from kforge.cli.progress import Progress
    from kforge.cli.render import report_text
    from kforge.environment import evaluate, summary
    from kforge.environment.report import Status
    from kforge.kernel.candidate import Candidate
    from kforge.task import load_task, resolve_device

    with Progress() as progress:

        def emit(kind: str, data: Mapping[str, Any]) -> None:
            progress(kind, data)
            out.event(kind, data)

        emit("run_started", {"task": str(task)})
        loaded = load_task(task)
        report = evaluate(
            loaded,
            Candidate.read(module),
            chosen_plan,
            device=resolve_device(chosen_device),
            arch=chosen_arch,
            on_event=emit,
        )
    out.text(report_text(report, colour=out.colour))
    out.result(summary(report, files=[str(module)], proposer="user"))
    return output.OK if report.status is Status.VERIFIED else output.FAILED
