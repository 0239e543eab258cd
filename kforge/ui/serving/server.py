"""The protocol of the core: one JSON request a line in, replies and events out. It knows no command's meaning.

A thread reads. What must act while work is in progress (stop, steers, rules) is answered in it at once, what only
looks things up in a thread of its own; the rest is done one after the other in the main thread.

request {"id", "do", ...} · reply {"re", "ok", "result"} or {"re", "error", "exit_code"} · event {"event", "data",
"run"}
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from kforge.errors import Interrupted, KforgeError, ProtocolError

LINE_BYTES = 64 << 20
ORPHAN_S = 3.0  # after the other side has gone, until this process group is ended by force
QUIT = "quit"

Request = dict[str, Any]
Say = Callable[[Mapping[str, Any]], bool]


class Commands(Protocol):
    """What is served: `immediate` commands in the reading thread, `lookups` in theirs, others in the main one."""

    immediate: frozenset[str]
    lookups: frozenset[str]

    def names(self) -> frozenset[str]:
        """Every command."""
        ...

    def call(self, do: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The result of one command. KforgeError where it fails."""
        ...

    def begin(self) -> None:
        """A command of the main thread begins: an earlier stop no longer holds."""
        ...

    def stop(self) -> None:
        """End what the main thread does; from any thread."""
        ...

    def crashed(self, text: str) -> None:
        """A fault of kforge ended a command; text is its traceback."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class Server:
    """Serves `commands` on lines of JSON. say: writes one object as a line, False when nobody reads."""

    def __init__(self, commands: Commands, say: Say) -> None:
        self._commands = commands
        self._write = say
        self._writing = threading.Lock()
        self._waiting: deque[Request] = deque()  # for the main thread
        self._looking: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._taking = threading.Condition()  # what is taken from there is in progress: a stop finds it in one or other
        self._busy = False
        self._cut = False  # what the main thread does was asked to stop

    def say(self, value: Mapping[str, Any]) -> None:
        """One line; from any thread."""
        with self._writing:
            self._write(value)

    def serve(self, lines: Iterable[bytes]) -> None:
        """Until `quit`, or the end of the lines."""
        threading.Thread(target=self._read, args=(lines,), daemon=True, name="requests").start()
        threading.Thread(target=self._look, daemon=True, name="lookups").start()
        try:
            while True:
                request = self._take()
                if request["do"] == QUIT:
                    self._answer(request, {})
                    return
                try:
                    self._serve(request, main=True)
                finally:
                    with self._taking:
                        self._busy = False
        finally:
            self._commands.close()

    def _take(self) -> Request:
        """The next command of the main thread, waited for; from now on a stop is for it."""
        with self._taking:
            self._taking.wait_for(lambda: self._waiting)
            request = self._waiting.popleft()
            if request["do"] != QUIT:
                self._busy, self._cut = True, False
                self._commands.begin()
            return request

    def _put(self, request: Request) -> None:
        with self._taking:
            self._waiting.append(request)
            self._taking.notify()

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            try:
                request = _parse(line, self._commands.names())
            except ProtocolError as error:
                self.say({"re": _number(line), "ok": False, **error.as_dict()})
                continue
            if request["do"] == "stop":
                self._answer(request, {"stopped": self._stop()})
            elif request["do"] in self._commands.immediate:
                self._serve(request)
            elif request["do"] in self._commands.lookups:
                self._looking.put(request)
            else:
                self._put(request)
        # The other side has gone: nobody waits for what is in progress.
        self._stop()
        self._put({"id": None, "do": QUIT})
        time.sleep(ORPHAN_S)
        if os.getpgrp() == os.getsid(0):  # a session of its own: everything in it ends
            os.killpg(0, signal.SIGKILL)
        os._exit(Interrupted.exit_code)

    def _look(self) -> None:
        while True:
            self._serve(self._looking.get())

    def _stop(self) -> bool:
        """Whether there was anything to stop; what waits in the queue is answered as stopped."""
        with self._taking:
            waiting = [request for request in self._waiting if request["do"] != QUIT]
            self._waiting = deque(request for request in self._waiting if request["do"] == QUIT)
            for request in waiting:
                self._fail(request, Interrupted("stopped"))
            if self._busy:
                self._cut = True
                self._commands.stop()
            return self._busy or bool(waiting)

    def _serve(self, request: Request, main: bool = False) -> None:
        arguments = {name: value for name, value in request.items() if name not in ("id", "do")}
        try:
            result = self._commands.call(request["do"], arguments)
        except KforgeError as error:  # code that was cut by a stop may give that any name
            self._fail(request, Interrupted("stopped") if main and self._cut else error)
        except Exception as error:  # the boundary of the process: a fault ends the command, not the session
            self._commands.crashed("".join(traceback.format_exception(error)))
            where = traceback.extract_tb(error.__traceback__)[-1]
            words = f"{type(error).__name__}: {error} ({os.path.basename(where.filename)}:{where.lineno})"
            self._fail(request, KforgeError(words, "this is a fault of kforge; the log has its traceback"))
        else:
            self._answer(request, result)

    def _answer(self, request: Request, result: Mapping[str, Any]) -> None:
        if request["id"] is not None:
            self.say({"re": request["id"], "ok": True, "result": result})

    def _fail(self, request: Request, error: KforgeError) -> None:
        self.say({"re": request["id"], "ok": False, **error.as_dict()})


def _parse(line: bytes, known: frozenset[str]) -> Request:
    if len(line) > LINE_BYTES:
        raise ProtocolError(f"a line of more than {LINE_BYTES >> 20} MiB")
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ProtocolError("a line is not JSON", "one object a line") from error
    if not isinstance(request, dict) or not isinstance(request.get("do"), str) or "id" not in request:
        raise ProtocolError("a request is an object with id and do")
    if request["do"] not in known | {"stop", QUIT}:
        raise ProtocolError(f"unknown command {request['do']!r}", "known: " + ", ".join(sorted(known)))
    return request


def _number(line: bytes) -> Any:
    """The id of a request that cannot be served, None where it has none."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found.get("id") if isinstance(found, dict) else None
