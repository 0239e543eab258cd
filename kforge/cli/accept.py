"""`kforge accept`: put a verified candidate beside its op.py, as one entry that `--undo` takes back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from kforge.cli import options, output


@output.command
def accept(
    out: output.Output,
    task: Annotated[Path, typer.Argument(metavar="OP.PY", help="The task.")],
    candidate: Annotated[
        Path | None,
        typer.Argument(metavar="[CANDIDATE]", help="Its module or folder. [default: what suggest wrote for OP.PY]"),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write there. [default: beside OP.PY]")
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take back the last accept of OP.PY.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Accept what is not verified as well.")] = False,
    json: options.Json = False,
) -> int:
    """Accept a candidate: its files appear beside op.py, which itself stays as it is. Refuses what is not verified."""
    from kforge.errors import ExportError, UsageError
    from kforge.export import accepting
    from kforge.export.domain import command, judged_domain, said
    from kforge.export.evidence import find_evidence, of_task

    settings = options.settings()
    state = settings.state.absolute()
    options.check_task_path(task)
    given, task = task, task.resolve()
    domain: dict[str, Any] = {}
    if undo:
        if candidate is not None or folder is not None:
            raise UsageError("--undo takes OP.PY alone")
        entry = accepting.undo(state, task)
        done, status = [str(Path(entry.folder) / name) for name in sorted(entry.after)], ""
        words = f"undone: the accept of candidate {entry.candidate[:8]} (entry {entry.number}); " + ", ".join(
            f"{name} {'removed' if entry.before[name] is None else 'as it was before'}" for name in sorted(entry.after)
        )
    else:
        if candidate is None and not (written := Path(settings.out) / task.stem).exists():
            raise UsageError(
                f"no candidate of {given} in {written}", f"find one: {shlex.join(['kforge', 'suggest', str(given)])}"
            )
        module = options.read_candidate_path(candidate or written)
        evidence = of_task(find_evidence(module, state, task), task)
        if evidence.problem and not force:
            judge = f"`{shlex.join(['kforge', 'verify', str(given), str(module)])}`"
            right = (evidence.report or {"status": "verified"})["status"] == "verified"  # or not known yet
            hint = f"run {judge} first, or --force" if right else f"mend it and run {judge}, or --force"
            raise ExportError(f"not accepted: {evidence.problem}", hint)
        found = evidence.candidate
        place = (folder or task.parent).absolute()
        entry = accepting.accept(task, found.digest, found.files, place, state)
        done = [str(place / name) for name in sorted(found.files)]
        words = f"accepted: candidate {entry.candidate[:8]} (entry {entry.number}; --undo takes it back)"
        status = (evidence.report or {}).get("status", "")
        domain = judged_domain(evidence.report, str(given), command(str(given), str(module)))
    for path in done:
        out.text(path)
    output.narrate(words)
    for line in said(domain) if domain else ():
        output.narrate(line)
    facts = {"task": str(task), "entry": entry.number, "candidate": entry.candidate, "status": status, "files": done}
    out.result({**facts, "domain": domain} if domain else facts)
    return output.OK
