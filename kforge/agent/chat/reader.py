"""Reads one streamed answer in a thread of its own: a stop or a steer never waits for the network."""

from __future__ import annotations

import queue
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.agent.chat.bounded import content_type, is_stream
from kforge.agent.chat.stream import Usage

if TYPE_CHECKING:
    import openai

TICK = 0.1  # seconds between two looks at the stop
WAITING = 1000  # chunks that were read and not looked at


@dataclass(frozen=True)
class Patience:
    """attempts of one call; the n-th waits first * 2^n seconds, at most `most`, of which up to a half is random.

    silence: seconds without a chunk after which a stream is broken. whole: seconds after which one is that goes on for
    ever. longest: the longest Retry-After that is heeded.
    """

    attempts: int = 6
    first: float = 1.0
    most: float = 60.0
    silence: float = 180.0
    longest: float = 300.0
    whole: float = 3600.0

    def wait(self, attempt: int) -> float:
        """Seconds before attempt number `attempt` + 1."""
        return min(self.most, self.first * 2**attempt) * (1 - random.random() / 2)


class Broken(Exception):
    """An attempt failed in a way that may pass: wait this long (None: the usual), then ask again."""

    def __init__(self, reason: str, wait: float | None = None, usage: Usage | None = None) -> None:
        super().__init__(reason)
        self.wait, self.usage = wait, usage


class Reader:
    """Reads a stream in a thread of its own, so that a stop never waits for the network."""

    def __init__(self, client: openai.OpenAI, request: dict[str, Any]) -> None:
        self._client, self._request = client, request
        self._found: queue.Queue[tuple[str, Any]] = queue.Queue(WAITING)
        self.said = ""  # what an answer that is no stream of events is instead
        self._closed = threading.Event()
        self._response: Any = None
        self._thread = threading.Thread(target=self._read, name="kforge-chat", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            with self._client.chat.completions.create(**self._request) as stream:
                self._response = stream.response
                if self._closed.is_set():  # while the connection was made: nobody hangs up on it later
                    return
                self.said = "" if is_stream(stream.response) else content_type(stream.response) or "something unnamed"
                for chunk in stream:
                    if not self._put("chunk", chunk):
                        return
        except BaseException as error:  # carried over to the thread that waits, which raises it
            self._put("error", error)
        else:
            self._response = None  # its connection is back in the pool, and may be in use again
            self._put("end", None)

    def _put(self, kind: str, value: Any) -> bool:
        """Hand over, and wait while too much waits; False when nobody reads any more."""
        while not self._closed.is_set():
            try:
                self._found.put((kind, value), timeout=TICK)
                return True
            except queue.Full:
                continue
        return False

    def chunks(self, check: Callable[[], None], cut: Callable[[], bool], patience: Patience) -> Iterator[Any]:
        """The chunks as they arrive. check and cut are called every TICK: an exception or True ends the reading."""
        begin = last = time.monotonic()
        silence = patience.silence
        while True:
            check()
            if cut():
                return
            if time.monotonic() - begin > patience.whole:
                raise Broken(f"no end of the answer in {patience.whole:g} s")
            try:
                kind, value = self._found.get(timeout=TICK)
            except queue.Empty:
                if time.monotonic() - last > silence:
                    raise Broken(f"nothing came for {silence:g} s") from None
                continue
            last = time.monotonic()
            if kind == "error":
                if isinstance(value, RecursionError | TypeError | AttributeError | LookupError):  # of the parser
                    raise ValueError(f"a chunk cannot be read ({type(value).__name__})") from value
                raise value
            if kind == "end":
                return
            yield value

    def close(self) -> None:
        """Hang up where the answer is not complete, so that the endpoint writes no more of it; nobody waits."""
        self._closed.set()
        if self._response is not None and self._thread.is_alive():
            network = self._response.extensions.get("network_stream")
            connection = network.get_extra_info("socket") if network is not None else None
            if connection is not None:
                with suppress(OSError):  # it is closed already
                    connection.shutdown(socket.SHUT_RDWR)
