"""The IDE's side of the core process: it spawns `kforge core op.py`, asks it, hands its events on and ends it.

The core runs in its own process session, so that a stop can end it whole; what it starts dies with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kforge.errors import Interrupted, KforgeError

LINE_BYTES = 64 << 20  # a report with its evidence is one line
WORDS = 2_000  # characters of a line of its stderr
GRACE_S = 0.7  # between the stop message and the end of the process
SLICE_S = 0.008  # of handling events before the terminal gets its turn
QUIT_S = 2.0
WORDS_S = 1.0  # for the last words of a process that has ended; what it started may hold its stderr open
LONG = frozenset(
    {"open", "run", "resume", "verify", "profile", "apply_hunks", "accept", "export", "baseline_source", "doctor"}
)

Listener = Callable[[str, Mapping[str, Any]], None]


class CoreLost(KforgeError):
    """The core process has ended by itself; the message holds its last words."""

    kind = "core_lost"


class Core:
    """One core process at a time for one op.py; started by the first request and again after it died.

    on_lost(error): it ended without being asked to. python, arguments: for tests with another program.
    """

    def __init__(self, op: Path, on_lost: Callable[[KforgeError], None] | None = None, command: Sequence[str] = ()):
        self.op = op
        self.on_lost = on_lost
        self._command = list(command) or [sys.executable, "-m", "kforge", "core", str(op)]
        self._process: asyncio.subprocess.Process | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._listeners: list[Listener] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()
        self._words: deque[str] = deque(maxlen=60)  # the end of its stderr
        self._farewell: KforgeError | None = None  # the object it ends with
        self.run = ""  # id of the run that the latest event belongs to

    @property
    def alive(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """Of the process, which leads its own session."""
        return self._process.pid if self._process else None

    @property
    def busy(self) -> str:
        """The long command that is being worked on, or ""."""
        return next((do for do, _ in self._waiting.values() if do in LONG), "")

    @property
    def waits(self) -> bool:
        """Whether any command is not answered yet."""
        return bool(self._waiting)

    @property
    def words(self) -> list[str]:
        """The last lines of its stderr."""
        return list(self._words)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(kind, data)` for each event, in the loop's thread; returns what ends it.

        Lines of the core's stderr come as kind "log" with {"text"}.
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def start(self) -> None:
        """Spawn the process if it is not there. KforgeError where it cannot be spawned."""
        async with self._starting:
            if self.alive:
                return
            if (ended := self._process) is not None:  # who waits for it is told before another takes its place
                await asyncio.wait(self._tasks[:1], timeout=QUIT_S)
                if self._process is ended:  # something that it started holds its output open
                    self._lost(ended.returncode or 0)
            self._words.clear()
            self._farewell = None
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    limit=LINE_BYTES,
                    start_new_session=True,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "TERM": "dumb"},
                )
            except OSError as error:
                raise KforgeError(f"the core cannot be started: {error.strerror}", "see kforge doctor") from error
            self._tasks = [
                asyncio.create_task(self._read(self._process)),
                asyncio.create_task(self._read_log(self._process)),
            ]

    async def request(self, do: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of one command. KforgeError as the core said it, CoreLost where it died meanwhile."""
        await self.start()
        process, number = self._process, next(self._numbers)
        assert process is not None and process.stdin is not None
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (do, future)
        try:
            process.stdin.write(json.dumps({**arguments, "id": number, "do": do}).encode() + b"\n")
            with contextlib.suppress(ConnectionError):  # it died: the reader says so
                await process.stdin.drain()
            return await future
        finally:
            self._waiting.pop(number, None)

    async def stop(self, grace: float = GRACE_S) -> bool:
        """End the work in progress. True: the core ended it; False: the process was killed and there is a new one."""
        work = [future for do, future in self._waiting.values() if do in LONG]
        work = work or [future for _, future in self._waiting.values()]  # a look-up that hangs
        if not work or not self.alive:
            return True
        asking = asyncio.create_task(self._ask_to_stop())
        _, rest = await asyncio.wait(work, timeout=grace)
        if not rest:
            await asyncio.wait([asking], timeout=grace)
            return True
        asking.cancel()
        await self._kill(Interrupted("stopped", "the run is kept: /resume continues it"))
        await self.start()
        return False

    async def close(self) -> None:
        """Quit politely, then by force."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if self._waiting:
            await self._kill(Interrupted("closed"))
            return
        with contextlib.suppress(KforgeError, asyncio.TimeoutError):
            await asyncio.wait_for(self.request("quit"), QUIT_S)
            await asyncio.wait_for(process.wait(), QUIT_S)
        await self._kill(Interrupted("closed"))

    async def _ask_to_stop(self) -> None:
        with contextlib.suppress(KforgeError):
            await self.request("stop")

    async def _kill(self, why: KforgeError) -> None:
        """End the whole process session; those who wait get `why`."""
        process, self._process = self._process, None
        self._fail(why)
        for task in self._tasks:
            task.cancel()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        begin = time.perf_counter()
        try:
            while line := await process.stdout.readline():
                self._take(line)
                if time.perf_counter() - begin > SLICE_S:  # a full buffer would never yield
                    await asyncio.sleep(0)
                    begin = time.perf_counter()
        except ValueError:  # whoever waits for what was in it would wait for ever
            self._words.append(f"it wrote a line of more than {LINE_BYTES >> 20} MiB")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        code = await process.wait()
        if self._process is process:
            await asyncio.wait(self._tasks[1:], timeout=WORDS_S)  # the rest of its stderr
        if self._process is process:
            self._lost(code)

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        rest = b""
        while data := await process.stderr.read(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._log(line)
            rest = rest[:WORDS]  # one endless line: the rest is of no use to anybody
        if rest:
            self._log(rest)

    def _log(self, line: bytes) -> None:
        text = line[:WORDS].decode(errors="replace").rstrip()
        self._words.append(text)
        self._tell("log", {"text": text})

    def _take(self, line: bytes) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            self._words.append(line[:200].decode(errors="replace").rstrip())
            return
        if "event" in said:
            data = said.get("data") or {}
            if isinstance(said["event"], str) and isinstance(data, dict):
                self.run = str(said.get("run") or self.run)
                self._tell(said["event"], data)
        elif "re" in said:
            _, future = self._waiting.get(said["re"], ("", None)) if isinstance(said["re"], int) else ("", None)
            if future is not None and not future.done():
                if "error" in said:
                    future.set_exception(_error(said))
                else:
                    future.set_result(said.get("result") or {})
        elif "error" in said:  # the object that every command ends with
            self._farewell = _error(said)

    def _tell(self, kind: str, data: Mapping[str, Any]) -> None:
        for listener in list(self._listeners):
            try:
                listener(kind, data)
            except Exception as error:  # another process said it: what cannot be shown must not end the reading
                words = f"event {kind} cannot be shown: {type(error).__name__}: {error}"
                self._words.append(words)
                if kind != "log":
                    listener("log", {"text": words})

    def _lost(self, code: int) -> None:
        self._process = None
        if self._farewell is not None:
            message, hint = self._farewell.message, self._farewell.hint
        else:
            last = next((word for word in reversed(self._words) if word.strip()), "")
            how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
            message, hint = f"the core ended {how}{f': {last}' if last else ''}", ""
        error = CoreLost(message, hint or "the session is kept: the next command starts a new core")
        self._fail(error)
        if self.on_lost is not None:
            self.on_lost(error)

    def _fail(self, error: KforgeError) -> None:
        for _, future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)


def _error(said: Mapping[str, Any]) -> KforgeError:
    """The error that an object holds, whatever else it holds."""
    try:
        return KforgeError.of(said)
    except (TypeError, KeyError, AttributeError):
        return KforgeError("the core said something that is no error", "the log has its words")
