"""`kforge suggest`: propose kernels for a task, judge them, and write the best verified one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kforge.cli import options, output

if TYPE_CHECKING:
    from kforge.agent.suggest import SuggestResult


@output.command
def suggest(
    out: output.Output,
    task: options.TaskFile,
    destination: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write the candidate. [default: kforge_out/<op>/]"),
    ] = None,
    arch: options.Arch = None,
    budget: Annotated[str | None, typer.Option(help="End the search after this long. [default: 60s]")] = None,
    plan: options.Plan = None,
    device: options.Device = None,
    require: Annotated[
        str | None, typer.Option("--require", metavar="faster", help="Exit code 1 unless the candidate is faster.")
    ] = None,
    tolerance: options.Tolerance = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Search and judge, write no candidate.")] = False,
    json: options.Json = False,
    events: options.Events = False,
) -> int:
    """Find a CUDA kernel for a task: propose, build, check, time, and write the best verified candidate.

    Exit code 0 when a verified candidate was found, 1 when none was, 2 for a bad command line or task, 3 when a part
    is missing without which nothing can be done, 130 when interrupted.
    """
    from kforge import config
    from kforge.errors import UsageError

    settings = options.settings()
    if require not in {None, "faster"}:
        raise UsageError(f"--require {require} is unknown", "the only requirement is: faster")

    from kforge.agent.suggest import SuggestOptions
    from kforge.agent.suggest import suggest as run

    chosen = SuggestOptions(
        out=(destination or Path(settings.out) / task.stem).absolute(),  # the task's code may change the folder
        budget=config.parse_seconds(budget) if budget else settings.budget,
        plan=config.parse_plan(plan) if plan else settings.plan,
        device=config.parse_device(device) if device else settings.device,
        arch=options.parse_arch(arch, settings),
        tolerance=options.parse_tolerance(tolerance),
        require_faster=require == "faster",
        dry_run=dry_run,
        state=settings.state.absolute(),
    )

    from kforge.cli.progress import Progress

    source = _read(task)  # op.py may move or remove itself
    with Progress() as progress:

        def emit(kind: str, data: Mapping[str, Any]) -> None:
            progress(kind, data)
            out.event(kind, data)

        result = run(task, chosen, emit)
    _show(out, task.name, source, result)
    out.result(result.summary)
    return result.exit_code


def _read(task: Path) -> str:
    try:
        return task.read_text(errors="replace")
    except OSError:
        return ""  # loading it says what is wrong


def _show(out: output.Output, name: str, source: str, result: SuggestResult) -> None:
    from kforge.cli.render import candidate_text, closing, report_text
    from kforge.cli.text import fill

    summary = result.summary
    if result.report is not None:
        out.text(report_text(result.report, colour=out.colour, columns=out.width))
    if result.candidate is not None:
        out.text("")
        module, files = result.candidate.module, result.candidate.files
        out.text(candidate_text(source, name, module, files, colour=out.colour))
    out.text("")
    if result.last_line:
        out.text(fill(result.last_line, out.width))
    if result.report is not None:
        out.text(fill(closing(result.report, result.exit_code, summary["files"], summary["run"]), out.width))
