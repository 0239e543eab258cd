"""What every command has in common: stdout for data, stderr for narration, one object at the end, exit codes.

Under --json (and --events) the last line of stdout is one JSON object on every exit, errors and interrupts
included; it holds the schema's number and the exit code. While a command runs, file descriptor 1 points to stderr, so
that what op.py, a compiler or a child prints is narration and cannot spoil the data.
"""

from __future__ import annotations

import errno
import functools
import os
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, TextIO

import typer

from kforge import scratch
from kforge.cli import streams
from kforge.cli.guard import STOPS, guarded, heard
from kforge.cli.streams import say
from kforge.cli.text import plain, use_colour, width
from kforge.errors import Interrupted, KforgeError, Stop, StoreError, TaskError

OK, FAILED, USAGE, MISSING, INTERRUPTED = 0, 1, 2, 3, 130
SCHEMA = 2  # of the object that ends stdout. 1: no schema, no exit_code, `error` was the error statistics as well


class Output:
    """The data stream of one command. json: print one object at the end and no text; events: stream events too."""

    def __init__(self, *, json: bool = False, events: bool = False) -> None:
        self.json = json or events
        self.events = events
        self._value: Mapping[str, Any] | None = None
        self._closed = False
        streams.probe()
        streams.flush_stdout()
        self._stream: TextIO = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")
        os.dup2(2, 1)

    @property
    def colour(self) -> bool:
        """Whether text on stdout may be coloured."""
        return use_colour(self._stream)

    @property
    def stream(self) -> TextIO:
        """stdout itself, for a protocol that is not ours."""
        return self._stream

    @property
    def width(self) -> int:
        """Columns that text on stdout may take."""
        return width(self._stream)

    def text(self, text: str) -> None:
        """A line (or several) for a person; nothing under --json."""
        if not self.json:
            self._line(text)

    def event(self, kind: str, data: Mapping[str, Any]) -> None:
        """One event as a line of JSON under --events; nothing otherwise."""
        if self.events:
            self._line(_encode({"event": kind, "data": data}))

    def message(self, value: Mapping[str, Any]) -> bool:
        """One object as a line now, whatever the options; False when nobody reads any more."""
        self._line(_encode(value))
        return not self._closed

    def result(self, value: Mapping[str, Any]) -> None:
        """What the last line under --json says; it is written when the exit code is known, see `finish`."""
        self._value = value

    def finish(self, code: int, value: Mapping[str, Any] | None = None) -> None:
        """The last line under --json: `value`, or what `result` was given, with schema and exit code."""
        value = self._value if value is None else value
        if self.json and value is not None:
            self._line(_encode({"schema": SCHEMA, **value, "exit_code": code}))

    def close(self) -> None:
        """Gives file descriptor 1 back. Safe when the reader has gone."""
        streams.flush_stdout()
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
        except OSError as error:
            self._discard()
            raise StoreError(f"stdout cannot be written: {error.strerror}", "send it elsewhere") from error

    def _discard(self) -> None:
        self._closed = True
        streams.to_null(self._stream.fileno())


def _encode(value: Mapping[str, Any]) -> str:
    from kforge.store.events import encode

    return encode(value)


def narrate(text: str) -> None:
    """A line on stderr for a person; silence when nobody can read it any more."""
    say(text + "\n")


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
    out.finish(error.exit_code, error.as_dict())
    return error.exit_code


_asked_to_stop: list[Stop] = []  # what ended the command, even where code that was running made another error of it


def _stop(number: int, _frame: FrameType | None) -> None:
    heard()
    # A terminal sends ctrl-c to the guard as well, which passes it on: once is enough.
    for other in STOPS:
        if signal.getsignal(other) is _stop:
            signal.signal(other, signal.SIG_IGN)
    _asked_to_stop.append(Stop(signal.Signals(number).name))
    raise _asked_to_stop[0]


def execute(function: Callable[..., int], kwargs: dict[str, Any]) -> int:
    """Run a command's function as `function(out, **kwargs)` and turn every way it can end into an exit code."""
    # A command without the option speaks JSON only, or a protocol that is not ours.
    json = bool(kwargs.pop("json", getattr(function, "speaks_json", True)))
    events = bool(kwargs.pop("events", False))

    streams.make_sure_they_are_open()

    def lost(error: KforgeError) -> int:
        out = Output(json=json, events=events)
        try:
            return _last_words(out, error)
        finally:
            scratch.sweep()  # the process that ended could not
            out.close()

    return guarded(lambda: _work(function, Output(json=json, events=events), kwargs), lost)


def _work(function: Callable[..., int], out: Output, kwargs: dict[str, Any]) -> int:
    # What the caller has set to be ignored (nohup, a background job) stays ignored.
    for number in STOPS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        try:
            code = function(out, **kwargs)
            out.finish(code)
            return code
        except BaseException as error:
            # The boundary of the program: whatever ends a command must still end with one object and a code.
            for number in STOPS:
                signal.signal(number, signal.SIG_IGN)
            # An import that is broken off, for example, comes back as an ImportError of another module.
            return _last_words(out, as_kforge_error(_asked_to_stop[0] if _asked_to_stop else error))
    finally:
        scratch.remove()
        streams.flush_stdout()


def _last_words(out: Output, error: KforgeError) -> int:
    try:
        return fail(out, error)
    except StoreError as closed:  # stdout takes no object
        narrate(error_line(closed))
        return error.exit_code


# What the machine refuses, not a fault of the program: no space, no permission, no descriptor left ...
_REFUSALS = {
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE,
    errno.EFBIG, errno.ENOMEM, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip


def as_kforge_error(error: BaseException) -> KforgeError:
    """The error a person sees for whatever ended a command; a fault of kforge itself is told with its traceback."""
    if isinstance(error, KforgeError):
        return error
    if isinstance(error, Stop):
        return Interrupted(
            f"stopped by {error}", "`kforge runs list` shows what is kept, `kforge resume` goes on with a search"
        )
    if isinstance(error, SystemExit):
        return KforgeError(f"code that was run asked the process to exit with {error.code!r}")
    if not isinstance(error, Exception):
        return TaskError(f"code that was run raised {type(error).__name__}: {error}".rstrip(": "))
    if isinstance(error, OSError) and error.errno in _REFUSALS:
        place = f"{error.filename}: " if error.filename else ""
        return StoreError(f"{place}{error.strerror}", "make room, or give permission; `kforge runs list` shows the run")
    narrate(plain("".join(traceback.format_exception(error)).rstrip()))
    hint = "this is a fault of kforge: the lines above say where"
    return KforgeError(f"{type(error).__name__}: {error}", hint)


def foreign(function: Callable[..., int]) -> Callable[..., int]:
    """Marks a command whose stdout carries a protocol of others: no object of ours, however it ends."""
    function.speaks_json = False  # type: ignore[attr-defined]
    return function


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
