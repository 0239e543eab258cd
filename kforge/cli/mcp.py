"""`kforge mcp`: the environment's tools for other agents (docs/mcp.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, TextIO

import typer

from kforge.cli import options, output


@output.command
@output.foreign
def mcp(
    out: output.Output,
    tasks: Annotated[
        list[Path] | None, typer.Argument(metavar="OP.PY", help="Judge only these. [default: any below --root]")
    ] = None,
    root: Annotated[
        Path, typer.Option("--root", help="The workspace: no path outside of it is read.", file_okay=False)
    ] = Path("."),
    device: options.Device = None,
    arch: options.Arch = None,
) -> int:
    """Serve evaluate, profile, compare, sweep, device facts and skills to an MCP client on stdin and stdout."""
    from kforge import config
    from kforge.agent.mcp import check_sdk
    from kforge.errors import UsageError

    check_sdk()
    settings = options.settings()
    workspace = root.resolve()
    if not workspace.is_dir():
        raise UsageError(f"--root {root} is no folder")
    only = tuple((workspace / task).resolve() if not task.is_absolute() else task.resolve() for task in tasks or ())
    for task in only:
        if not task.is_file() or not task.is_relative_to(workspace):
            raise UsageError(
                f"{task} is no file below the workspace {workspace}", "give op.py files, or another --root"
            )

    from kforge.agent.desk import Desk
    from kforge.agent.mcp import serve

    desk = Desk(
        workspace,
        workspace / settings.state,
        config.parse_device(device) if device else settings.device,
        options.parse_arch(arch, settings),
        only,
    )
    output.narrate(f"kforge mcp: workspace {workspace}")
    serve(desk, _stdin(), out.stream)
    return output.OK


def _stdin() -> TextIO:
    """stdin by a descriptor of its own; what op.py and programs started from here read ends at once."""
    own = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return os.fdopen(own, "r", encoding="utf-8", errors="replace")
