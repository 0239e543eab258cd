"""`kforge core op.py`: what works for the IDE, JSON lines on stdin and stdout. Hidden: people use the IDE."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from kforge.cli import options, output


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
    server.serve(_lines())
    return output.OK


def _lines() -> Iterator[bytes]:
    """Lines of stdin. Programs started from here get none of it."""
    fd = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    with os.fdopen(fd, "rb") as stream:
        yield from stream
