"""What every command has in common: stdout for data, stderr for narration, one object at the end, exit codes.

Under --json (and --events) the last line of stdout is one JSON object on every exit, errors and interrupts
included. While a command runs, file descriptor 1 points to stderr, so that what op.py, a compiler or a child prints
is narration and cannot spoil the data.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, TextIO

import typer

from kforge.cli.text import plain, use_colour
from kforge.errors import Interrupted, KforgeError

OK, FAILED, USAGE, MISSING, INTERRUPTED = 0, 1, 2, 3, 130


class Output:
    """The data stream of one command. json: print one object at the end and no text; events: stream events too."""

    def __init__(self, *, json: bool = False, events: bool = False) -> None:
        self.json = json or events
        self.events = events
        self._closed = False
        sys.stdout.flush()
        self._stream: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
        os.dup2(2, 1)

    @property
    def colour(self) -> bool:
        """Whether text on stdout may be coloured."""
        return use_colour(self._stream)

    def text(self, text: str) -> None:
        """A line (or several) for a person; nothing under --json."""
        if not self.json:
            self._line(text)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """One event as a line of JSON under --events; nothing otherwise."""
        if self.events:
            self._line(_encode({"event": kind, "data": data}))

    def result(self, value: Mapping[str, Any]) -> None:
        """The last line under --json; nothing otherwise."""
        if self.json:
            self._line(_encode(value))

    def close(self) -> None:
        """Gives file descriptor 1 back. Safe when the reader has gone."""
        try:
            sys.stdout.flush()
            self._stream.flush()
        except BrokenPipeError:
            self._discard()
        os.dup2(self._stream.fileno(), 1)

    def _line(self, text: str) -> None:
        if self._closed:
            return
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except BrokenPipeError:
            # `kforge ... | head -1`: the reader has what it wants; the command goes on and keeps its exit code.
            self._discard()

    def _discard(self) -> None:
        self._closed = True
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._stream.fileno())
        os.close(null)


def _encode(value: Mapping[str, Any]) -> str:
    from kforge.store.events import encode

    return encode(value)


def narrate(text: str) -> None:
    """A line on stderr for a person; silence when nobody can read it any more."""
    try:
        print(text, file=sys.stderr, flush=True)
    except BrokenPipeError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)


def error_line(error: KforgeError) -> str:
    """The one line that a person sees: what is wrong, and in brackets what to do."""
    text = f"error: {error.message}" + (f" ({error.hint})" if error.hint else "")
    return plain(" ".join(text.split()))


def fail(out: Output, error: KforgeError) -> int:
    """Says the error once on stderr and, under --json, as the last object of stdout; returns the exit code."""
    narrate(error_line(error))
    log = getattr(error, "log", "")
    if log:
        narrate(plain(log.rstrip()))
    out.result(error.as_dict())
    return error.exit_code


def _stop(number: int, _frame: FrameType | None) -> None:
    # Not a KforgeError: what handles the failure of one candidate must not swallow a stop.
    raise KeyboardInterrupt(signal.Signals(number).name)


def execute(function: Callable[..., int], kwargs: dict[str, Any]) -> int:
    """Run a command's function as `function(out, **kwargs)` and turn every way it can end into an exit code."""
    out = Output(json=bool(kwargs.pop("json", False)), events=bool(kwargs.pop("events", False)))
    # What the caller has set to be ignored (nohup, a background job) stays ignored.
    stops = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, _stop) for number in stops}
    try:
        try:
            return function(out, **kwargs)
        except (KforgeError, KeyboardInterrupt, SystemExit, Exception) as error:
            # The boundary of the program: whatever ends a command must still end with one object and a code.
            for number in previous:
                signal.signal(number, signal.SIG_IGN)
            return fail(out, _as_kforge_error(error))
    finally:
        out.close()
        for number, handler in previous.items():
            signal.signal(number, handler)


def _as_kforge_error(error: BaseException) -> KforgeError:
    if isinstance(error, KforgeError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted(f"stopped by {error}" if str(error) else "stopped", "`kforge runs list` shows what is kept")
    if isinstance(error, SystemExit):
        return KforgeError(f"code that was run asked the process to exit with {error.code!r}")
    narrate(plain("".join(traceback.format_exception(error)).rstrip()))
    hint = "this is a fault of kforge: the lines above say where"
    return KforgeError(f"{type(error).__name__}: {error}", hint)


def command(function: Callable[..., int]) -> Callable[..., None]:
    """Makes a typer command of `function(out, *, options..., json, events) -> exit code`.

    json and events, where it has them, are taken by the wrapper. typer reads the options from the signature, out
    excepted.
    """
    import inspect

    @functools.wraps(function)
    def run(**kwargs: Any) -> None:
        raise typer.Exit(execute(function, kwargs))

    signature = inspect.signature(function, eval_str=True)
    parameters = [p for name, p in signature.parameters.items() if name != "out"]
    run.__signature__ = signature.replace(parameters=parameters, return_annotation=None)  # type: ignore[attr-defined]
    return run


def usage_failure(message: str, argv: Sequence[str], hint: str) -> int:
    """A command line that could not be read: same line, same object, same exit code as any other usage error."""
    from kforge.errors import UsageError

    out = Output(json="--json" in argv, events="--events" in argv)
    try:
        return fail(out, UsageError(message, hint))
    finally:
        out.close()
