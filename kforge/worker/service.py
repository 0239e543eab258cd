"""The worker's loop: requests in, events and answers out, one evaluation at a time while later ones are built.

It owns queueing, cancelling and the promise of one final line a request. What an evaluation is, its `Handlers` know.
"""

from __future__ import annotations

import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from kforge.errors import Cancelled, KforgeError, UsageError
from kforge.worker import wire

BUILDERS = 4  # requests that are built at once while another one holds the GPU
AHEAD = 8  # and that have been built and wait for it; more would only take processors from what is timed
_LOOK_S = 0.5  # between looks whether anybody still reads
Emit = Callable[[str, dict[str, Any]], None]


class Handlers(Protocol):
    """What a worker can do. `build` runs in threads beside the others, which run in the thread of `Service.run`."""

    def describe(self) -> dict[str, Any]: ...

    def build(self, body: dict[str, Any]) -> None: ...

    def evaluate(self, body: dict[str, Any], emit: Emit) -> dict[str, Any]: ...


class Unusable(Exception):
    """The worker itself can answer nothing more (its GPU context is gone): it must end, and be started anew."""


class _ReaderGone(Exception):
    """Nobody reads the answers any more."""


class Service:
    """Reads requests until the input ends and all that was asked is answered.

    send: writes one object as a line; False when nobody reads any more.
    """

    def __init__(self, send: Callable[[dict[str, Any]], bool], handlers: Handlers, builders: int = BUILDERS) -> None:
        self._write, self._handlers = send, handlers
        self._sending = threading.Lock()
        self._known = threading.Lock()
        self._open: dict[str, bool] = {}  # id -> cancelled?, of every request without its final line
        self._ready: queue.SimpleQueue[wire.Request | None] = queue.SimpleQueue()
        self._builders = ThreadPoolExecutor(builders, "kforge-build")
        self._room = threading.Semaphore(AHEAD)  # of built requests
        self._gone = threading.Event()

    def run(self, lines: Iterable[bytes]) -> None:
        """Serve. Returns when `lines` has ended and every request has its final line, or nobody reads them."""
        threading.Thread(target=self._read, args=(lines,), daemon=True, name="kforge-requests").start()
        ended = False
        try:
            while not (ended and not self._open) and not self._gone.is_set():
                request = self._ready.get()
                if request is None:
                    ended = True
                else:
                    self._handle(request)
        except _ReaderGone:
            pass
        finally:
            self._gone.set()  # who waits for room is told
            self._builders.shutdown(wait=False, cancel_futures=True)

    # the reading thread

    def _read(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if not line.strip():
                continue
            try:
                self._accept(wire.parse(line))
            except wire.BadLine as error:
                self._send(wire.failure(error.id, error))
        self._ready.put(None)

    def _accept(self, request: wire.Request) -> None:
        if request.kind == "cancel":
            self._cancel(request)
            return
        with self._known:
            if request.id in self._open:
                raise wire.BadLine(f"id {request.id!r} is in use", "give each request an id of its own", request.id)
            self._open[request.id] = False
        if request.kind == "evaluate":
            try:
                self._builders.submit(self._build, request)
            except RuntimeError:  # shut down while this line was read: nobody takes its answer any more
                if not self._gone.is_set():
                    raise
        else:
            self._ready.put(request)

    def _cancel(self, request: wire.Request) -> None:
        target = str(request.body.get("job", ""))
        with self._known:
            if target in self._open:
                self._open[target] = True
                return
        self._send(wire.failure(request.id, UsageError(f"no request {target!r} to cancel", "cancel names it as job")))

    # the builders' threads

    def _build(self, request: wire.Request) -> None:
        """Whatever goes wrong here is found again, and said, when the request is evaluated."""
        while not self._room.acquire(timeout=_LOOK_S):
            if self._gone.is_set():
                return
        try:
            if not self._cancelled(request.id):
                self._handlers.build(request.body)
        except Exception as error:  # a thread's boundary: the request must reach the queue
            print(f"built ahead without success: {type(error).__name__}: {error}", file=sys.stderr)
        finally:
            self._ready.put(request)

    # the thread of `run`

    def _handle(self, request: wire.Request) -> None:
        try:
            self._look(request.id)
            if request.kind == "describe":
                final = wire.answer(request.id, "description", **self._handlers.describe())
            else:
                report = self._handlers.evaluate(request.body, lambda kind, data: self._emit(request.id, kind, data))
                final = wire.answer(request.id, "report", **report)
        except KforgeError as error:
            final = wire.failure(request.id, error)
        except (_ReaderGone, Unusable):
            raise
        except Exception as error:  # the boundary of one request: the next one is served whatever this one did
            print("".join(traceback.format_exception(error)), file=sys.stderr)
            final = wire.failure(request.id, KforgeError(f"{type(error).__name__}: {error}", "a fault of kforge"))
        finally:
            if request.kind == "evaluate":
                self._room.release()
        with self._known:
            del self._open[request.id]
        self._send(final)

    def _emit(self, id: str, kind: str, data: dict[str, Any]) -> None:
        self._look(id)
        self._send(wire.answer(id, "event", event=kind, data=data))
        if self._gone.is_set():
            raise _ReaderGone

    def _look(self, id: str) -> None:
        if self._cancelled(id):
            raise Cancelled("cancelled")

    def _cancelled(self, id: str) -> bool:
        with self._known:
            return self._open.get(id, False)

    def _send(self, message: dict[str, Any]) -> None:
        with self._sending:
            if not self._write(message):
                self._gone.set()
                self._ready.put(None)
