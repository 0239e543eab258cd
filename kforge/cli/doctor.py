"""`kforge doctor`: what is on this machine, why it matters, and which mode works without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kforge.cli import options, output

if TYPE_CHECKING:
    from kforge.cli.probes import Modes, Tool


@output.command
def doctor(out: output.Output, json: options.Json = False) -> int:
    """Show every tool found or missing, why it matters, and what works without it."""
    from kforge.cli.probes import Modes, probe_all
    from kforge.cli.text import fill, style, table

    tools = probe_all()
    modes = Modes.of(tools)
    rows = []
    for tool in tools:
        rows.append(["found" if tool.found else "missing", tool.name, tool.version, tool.detail])
    colour = out.colour
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for row, tool in zip(rows, tools, strict=True):
        line = table([[*(cell.ljust(w) for cell, w in zip(row[:3], widths, strict=True)), row[3]]], "", out.width)
        out.text(style(line, "green" if tool.found else "yellow", colour))
        if not tool.found:
            out.text(fill(f"why: {tool.why}. Without it: {tool.without}", out.width, " " * 9, "  "))
    out.text("")
    for name, text in modes.lines():
        out.text(fill(f"{name}: {text}", out.width))
    settings, problem = _settings()
    out.text(style(fill(f"settings: {problem or settings}", out.width), "yellow" if problem else "green", colour))
    out.result(_facts(tools, modes, settings, problem))
    return output.OK


def facts() -> dict[str, Any]:
    """The object of `kforge doctor --json`."""
    from kforge.cli.probes import Modes, probe_all

    tools = probe_all()
    return _facts(tools, Modes.of(tools), *_settings())


def _facts(tools: Sequence[Tool], modes: Modes, settings: str, problem: str) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "tools": [asdict(tool) for tool in tools],
        "modes": dict(modes.lines()),
        "nvrtc": modes.nvrtc,
        "settings": settings,
        "settings_problem": problem,
    }


def _settings() -> tuple[str, str]:
    """(where the settings come from, what is wrong with them: every other command would stop there)."""
    from pathlib import Path

    from kforge import config
    from kforge.errors import UsageError

    found = config.find_file(Path.cwd())
    place = str(found) if found else "defaults and KFORGE_* variables"
    try:
        config.load()
    except UsageError as error:
        return place, f"{error.message} ({error.hint})"
    return place, ""
