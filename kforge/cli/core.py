"""`kforge core op.py`: what works for the IDE, JSON lines on stdin and stdout. Hidden: people use the IDE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kforge.cli import options, output, streams


@output.command
def core(out: output.Output, task: options.TaskFile) -> int:
    """Serve the IDE: one JSON request a line on stdin, replies and events on stdout."""
    out.json = True  # every exit ends with an object, errors included
    settings = options.settings()

    from kforge.cli.doctor import facts
    from kforge.ui.serving.commands import CoreCommands
    from kforge.ui.serving.server import Server

    def tell(kind: str, data: Mapping[str, Any], run: str) -> None:
        server.say({"event": kind, "data": data, "run": run})

    commands = CoreCommands(task, settings, tell, facts)
    server = Server(commands, out.message)
    server.serve(streams.take_stdin())
    return output.OK
