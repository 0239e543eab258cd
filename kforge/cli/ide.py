"""`kforge op.py`, and `kforge` alone: the IDE, where there is a terminal; where there is none, what to use instead."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from kforge.cli import output
from kforge.errors import KforgeError, MissingError, UsageError


def is_meant(argv: Sequence[str], commands: set[str]) -> bool:
    """Whether the command line asks for the IDE: a file as the only word, or no word at all and a terminal."""
    if not argv:
        return has_terminal()
    first = argv[0]
    return len(argv) == 1 and first not in commands and not first.startswith("-") and _is_file(first)


def _is_file(word: str) -> bool:
    return word.endswith(".py") or Path(word).is_file()


def has_terminal() -> bool:
    """Whether a full-screen program can work here."""
    try:
        streams = (sys.stdin, sys.stdout, sys.stderr)  # the screen is drawn on stderr
        return all(s.isatty() for s in streams) and os.environ.get("TERM", "") not in ("", "dumb")
    except ValueError:  # a stream is closed
        return False


def main(argv: Sequence[str]) -> int:
    """Open the IDE; returns the exit code. Every error is one line on stderr."""
    try:
        return _open(argv[0] if argv else None)
    except KforgeError as error:
        output.narrate(output.error_line(error))
        return error.exit_code


def _open(word: str | None) -> int:
    if not has_terminal():
        name = word or "OP.PY"
        raise UsageError(
            "the IDE needs a terminal, and there is none", f"did you mean: kforge suggest {shlex.quote(name)}"
        )
    if word is not None and not Path(word).is_file():
        raise UsageError(f"no such file: {word}", "give a task, e.g. kforge op.py; kforge alone offers an example")
    from kforge.cli import options

    options.settings()  # a setting that cannot be read is told here, not on a full screen
    try:
        from kforge.ui import settings
        from kforge.ui.app import run
        from kforge.ui.first_run import choose
        from kforge.ui.terminal import take_alt_digits, take_any_bytes
    except ModuleNotFoundError as error:
        raise MissingError(f"the IDE needs {error.name}", "install kforge again: pip install kforge") from error
    take_any_bytes()
    take_alt_digits()
    chosen = settings.load()
    path = Path(word) if word is not None else choose(chosen)
    return output.OK if path is None else run(path, chosen)
