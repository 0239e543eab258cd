"""`kforge capture`: write an op.py from a run of the user's own program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kforge.cli import options, output


@output.command
def capture(
    out: output.Output,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT.PY", help="The program to run.")],
    module: Annotated[
        str, typer.Argument(metavar="MODULE.PATH", help="A module in it (model.layers.0.norm) or a class of modules.")
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS...]", help="Arguments of the program, after --.")
    ] = None,
    destination: Annotated[Path, typer.Option("--out", metavar="OP.PY", help="Where to write the task.")] = Path(
        "op.py"
    ),
    calls: Annotated[int, typer.Option(min=1, help="Record up to this many calls whose shapes differ.")] = 1,
    json: options.Json = False,
) -> int:
    """Run a program of yours and write one of its modules, with real inputs and state, as op.py."""
    from kforge.errors import UsageError

    for path in (destination, destination.with_suffix(".data")):
        if path.exists():
            raise UsageError(f"{path} exists: it is kept", "choose another name with --out")

    from kforge.task import capture_run

    recording = capture_run(script, module, destination, arguments or (), calls)
    output.narrate(f"recorded {recording.calls} call(s) of {module}")
    output.narrate(f"{destination.name} reproduces the recorded outputs within {recording.difference:.3g}")
    files = [str(recording.op), str(recording.data)]
    out.text("\n".join(files))
    result = {"script": str(script), "module": module, "files": files, "calls": recording.calls}
    out.result(result | {"difference": recording.difference})
    return output.OK
