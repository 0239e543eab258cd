"""The program `kforge`: its commands, and what happens when the command line cannot be read."""

from __future__ import annotations

import locale
import os
import shlex
import sys
from typing import Annotated, Any

import typer

from kforge.cli import (
    accept,
    bench,
    capture,
    core,
    diff,
    doctor,
    export,
    ide,
    mcp,
    output,
    profile,
    resume,
    runs,
    streams,
    suggest,
    verify,
    worker,
)

app = typer.Typer(
    name="kforge",
    help=(
        "Propose, verify and time custom CUDA kernels for PyTorch ops.\n\n"
        "`kforge OP.PY` opens the IDE, `kforge` alone its first screen."
    ),
    # Plain help: rich costs 60 ms, and texts here are not markup.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("suggest", short_help="Find, judge and write a CUDA kernel for a task.")(suggest.suggest)
app.command("resume", short_help="Go on with a run that was cut off.")(resume.resume)
app.command("verify", short_help="Judge a candidate.")(verify.verify)
app.command("bench", short_help="Judge many: candidates, a suite, or a file of jobs.")(bench.bench)
app.command("worker", short_help="Evaluate for another process, by JSON lines.")(worker.worker)
app.command("mcp", short_help="Serve the judge's tools to other agents (Model Context Protocol).")(mcp.mcp)
app.command("profile", short_help="Say why a candidate is as fast as it is.")(profile.profile)
app.command("diff", short_help="Show what a candidate changes.")(diff.diff)
app.command("accept", short_help="Put a candidate beside its op.py, or take it back.")(accept.accept)
app.command("export", short_help="Make a package of a verified candidate.")(export.export)
app.command("capture", short_help="Write a task from a program of yours.")(capture.capture)
app.command("core", hidden=True)(core.core)
app.command("doctor", short_help="Show what is here, and what works without.")(doctor.doctor)
app.add_typer(runs.app, name="runs", short_help="List the runs of this project, show one, or what they learned.")


def _version(value: bool) -> None:
    if value:
        from kforge import __version__

        typer.echo(f"kforge {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Entry point of the console script: runs `app` and ends the process with the exit code of CONTRACTS 6."""
    streams.make_sure_they_are_open()
    if not sys.flags.utf8_mode and locale.getencoding().upper() not in ("UTF-8", "UTF8"):
        # Sources and logs are UTF-8 whatever the locale says: every open() of this process and its children follows.
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    # The base class of what typer raises for an unreadable command line, by name: it moved between releases.
    unreadable: type[Any] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
    argv = sys.argv[1:]
    if ide.is_meant(argv, _names()):
        sys.exit(ide.main(argv))
    try:
        code = app(prog_name="kforge", standalone_mode=False)
    except unreadable as error:
        code = output.usage_failure(_said(error.format_message(), argv), argv, _hint(argv))
    except BrokenPipeError:
        code = output.OK  # `kforge --help | head -1`
    except OSError as error:
        output.narrate(f"error: stdout cannot be written: {error.strerror}")
        code = output.FAILED
    streams.flush_stdout()
    sys.exit(code if isinstance(code, int) else output.OK)


def _said(message: str, argv: list[str]) -> str:
    """A task where a command is meant is told what it would be alone."""
    if argv[0].endswith(".py") and len(argv) > 1:
        return f"kforge {argv[0]} opens the IDE and takes nothing more ({' '.join(argv[1:])})"
    return message


def _hint(argv: list[str]) -> str:
    name = next((word for word in argv if not word.startswith("-")), "")
    if name.endswith(".py"):
        return f"did you mean: kforge suggest {shlex.quote(name)}"
    if name not in _names() and os.path.isdir(name):
        return f"{name} is a folder: name a task's op.py, or run kforge alone in it"
    return f"see kforge {name} --help" if name in _names() else "see kforge --help"


def _names() -> set[str]:
    """Of every command."""
    found: list[Any] = [*app.registered_commands, *app.registered_groups]
    return {info.name for info in found if info.name}


if __name__ == "__main__":
    main()
