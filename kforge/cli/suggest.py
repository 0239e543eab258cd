"""`kforge suggest`: propose kernels for a task, judge them, and write the best verified one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kforge.cli import options, output

if TYPE_CHECKING:
    from kforge.agent.suggest import SuggestResult
    from kforge.config import Config


@output.command
def suggest(
    out: output.Output,
    task: options.TaskFile,
    destination: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Where to write the candidate. [default: kforge_out/<op>/]"),
    ] = None,
    arch: options.Arch = None,
    model: options.Model = None,
    search: options.Search = None,
    reward: options.Reward = None,
    budget: options.Budget = None,
    usd: options.Usd = None,
    tokens: options.Tokens = None,
    evaluations: options.Evaluations = None,
    constraint: options.Constraints = None,
    code: options.Code = None,
    base_url: options.BaseUrl = None,
    replay: Annotated[
        str | None, typer.Option("--replay", metavar="RUN", help="Propose what this run proposed; no model is asked.")
    ] = None,
    plan: options.Plan = None,
    device: options.Device = None,
    require: Annotated[
        str | None, typer.Option("--require", metavar="faster", help="Exit code 1 unless the candidate is faster.")
    ] = None,
    tolerance: options.Tolerance = None,
    backward: Annotated[
        bool, typer.Option("--backward", help="Ask for the forward/backward pair; its gradients are judged too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Search and judge, write no candidate.")] = False,
    json: options.Json = False,
    events: options.Events = False,
) -> int:
    """Find a CUDA kernel for a task: propose, build, check, time, and write the best verified candidate.

    Without a model the engine answers alone. With one, it goes on from the engine's best until a budget ends or it has
    no further idea. Its key is read from KFORGE_API_KEY, OPENAI_API_KEY or the keyring. `kforge resume` continues a run
    that was cut off.

    Exit code 0 when a verified candidate was found, 1 when none was, 2 for a bad command line or task, 3 when a part
    is missing without which nothing can be done, 130 when interrupted.
    """
    from kforge import config
    from kforge.errors import UsageError

    settings = options.settings()
    if require not in {None, "faster"}:
        raise UsageError(f"--require {require} is unknown", "the only requirement is: faster")

    rules, folders = options.parse_rules(constraint), options.parse_folders(code)
    if replay is not None and (model or search):
        raise UsageError("--replay asks no model and searches nothing", "leave out --model and --search")
    strategy = config.parse_search(search.replace("-", "_")) if search else settings.search
    chat = None if replay is not None else options.chosen_model(model, base_url, settings, options.parse_usd(usd))
    recorded = _recorded(replay, settings)

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
        model=chat.name if chat else None,
        base_url=chat.base_url if chat else None,
        search=strategy,
        reward=config.parse_reward(reward) if reward else settings.reward,
        evaluations=evaluations,
        tokens=tokens,
        usd=options.parse_usd(usd),
        constraints=rules,
        code=folders,
        replay=recorded,
        backward=backward,
    )

    from kforge.cli.progress import Progress

    source = read_source(task)  # op.py may move or remove itself
    with options.emulator_ahead(chosen.device, chosen.plan), Progress() as progress:

        def emit(kind: str, data: Mapping[str, Any]) -> None:
            progress(kind, data)
            out.event(kind, data)

        result = run(task, chosen, emit, model=chat)
    show(out, task.name, source, result)
    out.result(result.summary)
    return result.exit_code


def _recorded(run: str | None, settings: Config) -> Path | None:
    """The folder of the run to replay."""
    if run is None:
        return None
    from kforge.agent.resume import find_run

    return find_run(settings.runs.absolute(), run)


def read_source(task: Path) -> str:
    """The text of op.py, to be shown beside what was found; empty where it cannot be read. TaskError: no file."""
    options.check_task_path(task)
    try:
        return task.read_text(errors="replace")
    except OSError:
        return ""  # loading it says what is wrong


def show(out: output.Output, name: str, source: str, result: SuggestResult) -> None:
    """The result of a run for a person."""
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
