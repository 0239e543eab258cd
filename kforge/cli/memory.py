"""`kforge runs memory`: what earlier runs learned, the directions that keep failing, and forgetting it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kforge.cli import options, output

if TYPE_CHECKING:
    from kforge.agent.memory import Memory, Record

DAY = 86400.0


@output.command
def memory(
    out: output.Output,
    family: Annotated[str | None, typer.Option("--family", help="Only this operator family, e.g. softmax.")] = None,
    chip: Annotated[str | None, typer.Option("--chip", help="Only this GPU, or emulator.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many lessons, newest first.")] = 20,
    prune: Annotated[bool, typer.Option("--prune", help="Forget what the other options select.")] = False,
    older_than: Annotated[float | None, typer.Option("--older-than", min=0, help="With --prune: days.")] = None,
    keep: Annotated[int | None, typer.Option("--keep", min=0, help="With --prune: all but the newest N.")] = None,
    lesson: Annotated[list[int] | None, typer.Option("--id", help="With --prune: this lesson; repeatable.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="With --prune: the whole memory.")] = False,
    json: options.Json = False,
) -> int:
    """Show what earlier runs learned, or forget it."""
    from kforge import config
    from kforge.agent.memory import FILE_NAME, Memory
    from kforge.errors import UsageError

    narrowed = family is not None or chip is not None
    selecting = older_than is not None or keep is not None or bool(lesson)
    if not prune and (selecting or everything):
        raise UsageError("--older-than, --keep, --id and --all select what to forget", "add --prune")
    if prune and everything == (narrowed or selecting):
        raise UsageError(
            "say what to forget", "--all, or any of --family, --chip, --older-than, --keep and --id: not both"
        )
    path = config.load().state / FILE_NAME
    if not path.is_file():
        output.narrate("nothing learned here yet: runs of kforge suggest fill the memory")
        out.result({"forgotten": 0} if prune else {"lessons": [], "directions": []})
        return output.OK
    with Memory(path) as store:
        if prune:
            before = None if older_than is None else time.time() - older_than * DAY
            count = store.prune(family=family, chip=chip, before=before, keep=keep, ids=lesson or ())
            out.text("1 lesson forgotten" if count == 1 else f"{count} lessons forgotten")
            out.result({"forgotten": count})
        else:
            _show(out, store, family, chip, limit)
    return output.OK


def _show(out: output.Output, store: Memory, family: str | None, chip: str | None, limit: int) -> None:
    from dataclasses import asdict

    from kforge.cli.text import fill, table

    lessons, records = store.all(family, chip, limit), store.records(family, chip)
    for item in lessons:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(item.time))
        out.text(fill(f"{item.id}  {when}  {item.family}, {item.shape_class}, {item.chip}", out.width))
        out.text(fill(str(item), out.width, "    ", ""))
    if not lessons:
        out.text("no lessons")
    if records:
        out.text("")
        head = [["family", "shapes", "chip", "direction", "tries", "of these", ""]]
        out.text(
            table(
                head
                + [
                    [r.family, r.shape_class, r.chip, r.direction, str(r.tries), _successes(r), _avoid(r.avoided)]
                    for r in records
                ],
                indent="",
                columns=out.width,
            )
        )
    out.result(
        {
            "lessons": [{key: value for key, value in asdict(item).items() if key != "source"} for item in lessons],
            "directions": [asdict(record) | {"avoid": record.avoided} for record in records],
        }
    )


def _successes(record: Record) -> str:
    """How many were right, and better where that was measured."""
    if not record.timed:
        return f"{record.successes} right, none timed"
    return f"{record.successes} right and better" + (f", {record.timed} timed" if record.timed < record.tries else "")


def _avoid(avoided: bool) -> str:
    return "AVOID" if avoided else ""
