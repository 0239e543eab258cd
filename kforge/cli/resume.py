"""`kforge resume`: a run that was cut off goes on in its own log; what it had judged and paid for is not done again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from kforge.cli import options, output


@output.command
def resume(
    out: output.Output,
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]", help="A run's id, or a unique beginning. [default: the newest that was cut off]"
        ),
    ] = None,
    budget: options.Budget = None,
    usd: options.Usd = None,
    tokens: options.Tokens = None,
    evaluations: options.Evaluations = None,
    base_url: options.BaseUrl = None,
    json: options.Json = False,
    events: options.Events = False,
) -> int:
    """Go on with a run of `kforge suggest` that was killed, stopped, or ended by its budget.

    Budgets count what was spent before: with --budget 10m a run that took 8 minutes has 2 left. Exit codes are those
    of `kforge suggest`.
    """
    from kforge import config
    from kforge.agent.resume import find_run, read_past
    from kforge.agent.suggest import resume as go_on
    from kforge.cli.progress import Progress
    from kforge.cli.suggest import read_source, show

    settings = options.settings()
    past = read_past(find_run(settings.runs.absolute(), run))
    limits: dict[str, Any] = {
        "budget": config.parse_seconds(budget) if budget else None,
        "usd": options.parse_usd(usd),
        "tokens": tokens,
        "evaluations": evaluations,
    }
    chosen = replace(past.options, **{name: limit for name, limit in limits.items() if limit is not None})
    chat = None
    if chosen.model:
        chat = options.chosen_model(chosen.model, base_url, settings, chosen.usd, chosen.base_url)
    task = chosen.here / past.task
    source = read_source(task)
    with Progress() as progress:

        def emit(kind: str, data: Mapping[str, Any]) -> None:
            progress(kind, data)
            out.event(kind, data)

        result = go_on(replace(past, task=task), replace(chosen, state=settings.state.absolute()), emit, model=chat)
    show(out, task.name, source, result)
    out.result(result.summary)
    return result.exit_code
