"""`kforge core` over its pipe, as the IDE spawns it: requests, replies and events, without the IDE."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from tests.patience import PATIENCE_S


class CorePipe:
    """One core process. events: every (kind, data) so far; junk: lines of its stdout that are no protocol."""

    def __init__(self, op: Path, env: Mapping[str, str] | None = None) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.junk: list[str] = []
        self.last: dict[str, Any] = {}
        self._replies: dict[Any, dict[str, Any]] = {}
        self._news = threading.Condition()
        self._number = 0
        self.errors = open(op.with_suffix(".stderr"), "w+")  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kforge", "core", str(op)],
            cwd=op.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
            env={**os.environ, "KFORGE_PLAN": "quick", "KFORGE_DEVICE": "cpu", **(env or {})},
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._thread.join()
        self.errors.close()

    def send(self, do: str, **arguments: Any) -> int:
        """A request; returns its number."""
        self._number += 1
        self.write(json.dumps({**arguments, "id": self._number, "do": do}))
        return self._number

    def write(self, line: str) -> None:
        """A line as it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def reply(self, number: Any, seconds: float = PATIENCE_S) -> dict[str, Any]:
        """The reply to a request."""
        return self._wait(lambda: self._replies.get(number), seconds)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The result of a command; AssertionError where it fails."""
        reply = self.reply(self.send(do, **arguments))
        assert reply["ok"], reply
        return reply["result"]

    def event(self, kind: str, seconds: float = PATIENCE_S) -> dict[str, Any]:
        """The first event of a kind, waited for."""
        return self._wait(lambda: next((data for k, data in self.events if k == kind), None), seconds)

    def kinds(self) -> list[str]:
        """Of all events so far."""
        return [kind for kind, _ in self.events]

    def _wait(self, look: Any, seconds: float) -> Any:
        end = time.monotonic() + seconds
        with self._news:
            while (found := look()) is None:
                left = end - time.monotonic()
                assert left > 0 and (self._thread.is_alive() or look() is not None), self._why(seconds)
                self._news.wait(min(left, 0.5))
        return found

    def _why(self, seconds: float) -> str:
        self.errors.seek(0)
        return f"nothing within {seconds:g} s, or it ended: {self.last}\n{self.errors.read()[-2000:]}"

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                try:
                    said = json.loads(line)
                except ValueError:
                    said = None
                if not isinstance(said, dict):
                    self.junk.append(line.decode(errors="replace"))
                elif "event" in said:
                    self.events.append((said["event"], said["data"]))
                elif "re" in said:
                    self._replies[said["re"]] = said
                else:
                    self.last = said
                self._news.notify_all()
        with self._news:
            self._news.notify_all()


def session_members(leader: int) -> list[int]:
    """Processes of the session that `leader` began, and their descendants in sessions of their own."""
    parents: dict[int, int] = {}
    sessions: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)], sessions[int(entry.name)] = int(fields[1]), int(fields[3])
    found = {pid for pid, session in sessions.items() if session == leader}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)
