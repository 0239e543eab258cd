"""`kforge diff`: the unified diff between a task and its candidate, or between two candidates, with profile figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kforge.cli import options, output

if TYPE_CHECKING:
    from kforge.profiling.annotate.lines import Annotated as Figures


@output.command
def diff(
    out: output.Output,
    old: Annotated[Path, typer.Argument(metavar="OLD", help="op.py, or a candidate's module or folder.")],
    new: Annotated[
        Path | None,
        typer.Argument(metavar="[NEW]", help="A candidate's module or folder. [default: what suggest wrote for OLD]"),
    ] = None,
    metric: Annotated[
        str | None, typer.Option("--metric", help="The figure shown before and after. [default: the most telling]")
    ] = None,
    annotate: Annotated[bool, typer.Option("--annotate/--plain", help="Figures beside the kernel's lines.")] = True,
    arch: options.Arch = None,
    json: options.Json = False,
) -> int:
    """Show what a candidate changes: the module as a diff, and its kernel sources (as a diff between candidates).

    Between two candidates each line of the kernels has a figure before and after: of the profiles that `kforge
    profile` kept, or else of the SASS that they build to.
    """
    from kforge.cli.render import highlight, unified_diff
    from kforge.cli.text import style
    from kforge.errors import UsageError
    from kforge.profiling.annotate.lines import METRICS

    settings = options.settings()
    if metric is not None and metric not in METRICS:
        raise UsageError(f"--metric {metric} is unknown", f"choose {', '.join(METRICS)}")
    first = options.read_candidate_path(old)
    second = options.read_candidate_path(new or Path(settings.out) / old.stem)
    old_sources, new_sources = _sources(first), _sources(second)

    found: list[dict[str, Any]] = []

    def add(name: str, text: str, lines: list[dict[str, Any]], shown: str | None = None) -> None:
        found.append({"file": name, "diff": text} | ({"lines": lines, "metric": shown} if lines else {}))
        out.text(style(f"--- {name} ---", "bold", out.colour) + "\n" + highlight(text, "diff", colour=out.colour))

    modules = unified_diff(_read(first), _read(second), first.name, second.name)
    if modules:
        add(second.name, modules, [])
    before, after = ({}, {}) if not (annotate and old_sources) else _figures(first, second, settings.state, arch)
    for name in sorted(new_sources.keys() | old_sources.keys()):
        a, b = old_sources.get(name, ""), new_sources.get(name, "")
        text, rows, shown = _annotated(a, b, before.get(name), after.get(name), metric)
        if text is None:
            text = unified_diff(a, b, name if a else "/dev/null", name)
        if text:
            add(name, text, rows, shown)
    if not found:
        output.narrate("no difference")
    out.result({"old": str(first), "new": str(second), "files": found})
    return output.OK


def _annotated(
    old: str, new: str, before: Figures | None, after: Figures | None, metric: str | None
) -> tuple[str | None, list[dict[str, Any]], str | None]:
    """(text, rows as data, metric); text None where there are no figures, "" where nothing differs."""
    from kforge.profiling.annotate.difference import common_metric, difference, rendered
    from kforge.profiling.evidence import as_json

    chosen = metric or common_metric(before, after)
    if chosen is None or (before is None and after is None):
        return None, [], None
    rows = difference(old, new, before, after, chosen)
    return "\n".join(rendered(rows, chosen)) if rows else "", as_json(rows), chosen


def _figures(first: Path, second: Path, state: Path, arch: str | None) -> tuple[dict[str, Figures], dict[str, Figures]]:
    """Figures of both sides by file: kept profiles where both have one, else what their builds say."""
    from kforge.agent.profile import saved, static_evidence
    from kforge.errors import KforgeError
    from kforge.kernel.candidate import Candidate
    from kforge.profiling.annotate.lines import annotate

    modules = (first, second)
    found = [saved(Candidate.read(module).digest, state) for module in modules]
    known = [e for e in found if e is not None]
    if len(known) < 2 or known[0].target != known[1].target:
        try:
            known = static_evidence(modules, arch)
        except KforgeError as error:  # what does not build can still be compared
            output.narrate(f"no figures: {output.error_line(error).removeprefix('error: ')}")
            return {}, {}
    before, after = (annotate(evidence) for evidence in known)
    return before, after


def _sources(module: Path) -> dict[str, str]:
    """The kernel sources that belong to a candidate's module; a task has none."""
    if not module.stem.endswith("_kforge"):
        return {}
    folder = module.parent.iterdir()
    return {path.name: _read(path) for path in folder if path.suffix in {".cu", ".cuh", ".h"}}


def _read(path: Path) -> str:
    from kforge.store.faults import storing

    with storing(path, doing="read"):
        return path.read_text(errors="replace")
