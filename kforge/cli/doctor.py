"""`kforge doctor`: what is on this machine, why it matters, and which mode works without it."""

from __future__ import annotations

from kforge.cli import options, output


@output.command
def doctor(out: output.Output, json: options.Json = False) -> int:
    """Show every tool found or missing, why it matters, and what works without it."""
    from dataclasses import asdict

    from kforge.cli.probes import Modes, probe_all
    from kforge.cli.text import plain, style, table

    tools = probe_all()
    modes = Modes.of(tools)
    rows = []
    for tool in tools:
        rows.append(["found" if tool.found else "missing", tool.name, tool.version, tool.detail])
    colour = out.colour
    for line, tool in zip(table(rows, indent="").splitlines(), tools, strict=True):
        out.text(style(line, "green" if tool.found else "yellow", colour))
        if not tool.found:
            out.text(plain(f"         why: {tool.why}. Without it: {tool.without}"))
    out.text("")
    for name, text in modes.lines():
        out.text(plain(f"{name}: {text}"))
    out.result(
        {
            "tools": [asdict(tool) for tool in tools],
            "modes": dict(modes.lines()),
            "nvrtc": modes.nvrtc,
        }
    )
    return output.OK
