"""`kforge doctor`: what is on this machine, why it matters, and which mode works without it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.cli import options, output

if TYPE_CHECKING:
    from kforge.cli.probes import Modes, Tool


@output.command
def doctor(out: output.Output, json: options.Json = False) -> int:
    """Show every tool found or missing, why it matters, and what works without it."""
    from kforge.cli.probes import Modes, probe_all
    from kforge.cli.text import fill, style

    tools = probe_all()
    modes = Modes.of(tools)
    for line in tool_lines(tools, out.width, colour=out.colour):
        out.text(line)
    out.text("")
    for name, text in modes.lines():
        out.text(fill(f"{name}: {text}", out.width))
    settings, problem = _settings()
    out.text(style(fill(f"settings: {problem or settings}", out.width), "yellow" if problem else "green", out.colour))
    out.result(_facts(tools, modes, settings, problem))
    return output.OK


def tool_lines(tools: Sequence[Tool], columns: int, *, colour: bool = False) -> Iterator[str]:
    """A line a tool in aligned columns; where its detail has no room it follows below, paths whole to be copied."""
    from kforge.cli.text import fill, style, table

    heads = table([["found" if tool.found else "missing", tool.name, tool.version] for tool in tools], "").splitlines()
    start = max(map(len, heads), default=0) + 2
    for head, tool in zip(heads, tools, strict=True):
        detail = _short(tool.detail)
        lines = [f"{head:<{start}}{detail}".rstrip(), f"{head}  {detail}"]
        beside = next((line for line in lines if len(line) <= columns), "")
        yield style(beside or head, "green" if tool.found else "yellow", colour)
        if not beside:
            yield fill(detail, columns, " " * 9, "")
        if not tool.found:
            yield fill(f"why: {tool.why}. Without it: {tool.without}", columns, " " * 9, "  ")


def _short(text: str) -> str:
    """Text with the home folder as `~` where a path in it begins there."""
    home = str(Path.home())
    return re.sub(rf"(^|(?<=[ (:])){re.escape(home)}(?=/)", "~", text) if home != "/" else text


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
    from kforge import config
    from kforge.errors import UsageError

    found = config.find_file(Path.cwd())
    place = str(found) if found else "defaults and KFORGE_* variables"
    try:
        config.load()
    except UsageError as error:
        return place, f"{error.message} ({error.hint})"
    return place, ""
