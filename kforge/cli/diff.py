"""`kforge diff`: the unified diff between a task and its candidate, or between two candidates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kforge.cli import options, output


@output.command
def diff(
    out: output.Output,
    old: Annotated[Path, typer.Argument(metavar="OLD", help="op.py, or a candidate's module or folder.")],
    new: Annotated[
        Path | None,
        typer.Argument(metavar="[NEW]", help="A candidate's module or folder. [default: what suggest wrote for OLD]"),
    ] = None,
    json: options.Json = False,
) -> int:
    """Show what a candidate changes: the module as a diff, and its kernel sources (as a diff between candidates)."""
    from kforge import config
    from kforge.cli.render import highlight, unified_diff
    from kforge.cli.text import style

    first = options.read_candidate_path(old)
    second = options.read_candidate_path(new or Path(config.load().out) / old.stem)
    old_sources, new_sources = _sources(first), _sources(second)
    pairs = [(first.name, first.read_text(), second.name, second.read_text())]
    for name in sorted(new_sources.keys() | old_sources.keys()):
        pairs.append((name, old_sources.get(name, ""), name, new_sources.get(name, "")))

    found = []
    for old_name, old_text, new_name, new_text in pairs:
        text = unified_diff(old_text, new_text, old_name if old_text else "/dev/null", new_name)
        if text:
            found.append({"file": new_name, "diff": text})
            out.text(
                style(f"--- {new_name} ---", "bold", out.colour) + "\n" + highlight(text, "diff", colour=out.colour)
            )
    if not found:
        output.narrate("no difference")
    out.result({"old": str(first), "new": str(second), "files": found})
    return output.OK


def _sources(module: Path) -> dict[str, str]:
    """The kernel sources that belong to a candidate's module; a task has none."""
    if not module.stem.endswith("_kforge"):
        return {}
    folder = module.parent.iterdir()
    return {path.name: path.read_text() for path in folder if path.suffix in {".cu", ".cuh", ".h"}}
