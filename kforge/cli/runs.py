"""`kforge runs`: what was run in this project, from the index, and one run's events, from its log."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from kforge.cli import memory, options, output

if TYPE_CHECKING:
    from kforge.store.events import Event


class Listing(TyperGroup):
    """Lists the runs where no other command is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        others = ctx.help_option_names
        if not args or (args[0].startswith("-") and args[0] not in others):
            args = ["list", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=Listing, help="List the runs of this project, show one, or what they learned.", rich_markup_mode=None
)
app.command("memory")(memory.memory)


@app.command("list")
@output.command
def list_runs(
    out: output.Output,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many, newest first.")] = 20,
    json: options.Json = False,
) -> int:
    """List the latest runs with their outcome."""
    from dataclasses import asdict

    from kforge import config
    from kforge.cli.text import table
    from kforge.store.index import Index

    path = config.load().index
    rows = []
    if path.is_file():
        with Index(path) as index:
            rows = index.runs(limit)
    if not rows:
        output.narrate("no runs here yet: kforge suggest op.py makes the first")
    else:
        lines = [["run", "task", "started", "status", "verdict", "speed-up", "evaluations"]]
        for row in rows:
            started = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.started))
            speedup = "" if row.speedup is None else f"{row.speedup:.2f}x"
            status = row.status or "unfinished"
            lines.append([row.id, row.task, started, status, row.verdict or "", speedup, str(row.evaluations)])
        out.text(table(lines, indent="", columns=out.width))
    out.result({"runs": [asdict(row) for row in rows]})
    return output.OK


@app.command("show")
@output.command
def show_run(
    out: output.Output,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or a unique beginning of it.")],
    json: options.Json = False,
    events: options.Events = False,
) -> int:
    """Show the events of one run in order."""
    from kforge import config
    from kforge.agent.budget import Meter
    from kforge.cli.progress import used
    from kforge.cli.text import fill
    from kforge.errors import UsageError
    from kforge.store.events import LOG_NAME, salvage

    root = config.load().runs
    known = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
    matches = [name for name in known if name == run] or [name for name in known if name.startswith(run)]
    if len(matches) != 1:
        found = f"{len(matches)} runs begin with" if matches else "no run"
        raise UsageError(f"{found} {run!r} in {root}", "known: " + (", ".join((matches or known)[-5:]) or "none"))
    log, damage = salvage(root / matches[0] / LOG_NAME)
    meter = Meter()
    for event in log:
        with suppress(KeyError, TypeError, ValueError):  # written by another version
            meter.apply(event.kind, event.data)
        out.event(event.kind, event.data)
        text = _describe(event)
        if text is not None:
            since = f"{event.time - log[0].time:7.1f}s  "
            out.text(since + fill(text, out.width, " " * len(since), "").lstrip())
    figures = meter.as_dict()
    if figures["calls"]:
        calls, judged = (
            f"{count} {what}{'' if count == 1 else 's'}"
            for count, what in ((figures["calls"], "model call"), (figures["evaluations"], "evaluation"))
        )
        out.text(f"{calls}, {used(figures)}; {judged}")
    for line in damage:
        output.narrate(fill(f"not readable: {line}", out.width))
    folder = str(root / matches[0])
    shown = [] if out.events else [_as_dict(event) for event in log]
    out.result({"run": matches[0], "folder": folder, "events": shown, "damage": damage, "meter": figures})
    return output.OK


def _describe(event: Event) -> str | None:
    from kforge.cli.progress import describe

    try:
        return describe(event.kind, event.data)
    except (KeyError, TypeError, ValueError):  # written by another version, or damaged and still JSON
        return f"{event.kind} (its data cannot be read)"


def _as_dict(event: Event) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(event)
