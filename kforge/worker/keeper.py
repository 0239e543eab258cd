"""The judge's line to a child's supervisor: read the candidate's log, end everything, learn how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from typing import Any

from kforge.errors import ChildFailed
from kforge.worker.limits import Limits, processor_seconds
from kforge.worker.protocol import readable

_PATIENCE_S = 15.0


class Keeper:
    """`end` is None while the child lives, then the supervisor's last words (supervisor.py lists the fields)."""

    def __init__(self, control: socket.socket, pid: int, limits: Limits) -> None:
        self._control, self._pid, self._limits = control, pid, limits
        self._control.settimeout(_PATIENCE_S)
        self.end: dict[str, Any] | None = None
        self._unread = b""

    def log(self) -> str:
        """The tail of what the candidate has printed so far."""
        if self.end is not None:
            return str(self.end.get("log", ""))
        try:
            self._control.sendall(b'{"op": "log"}\n')
        except OSError:
            return ""
        line = self._read("log", "reason")
        if "reason" in line:  # it ended meanwhile
            self.end = line
        return str(line.get("log", ""))

    def processor_s(self) -> float:
        """Processor time of the child and all below it so far, as the kernel counts it."""
        return processor_seconds(self._pid)

    def kill(self) -> None:
        """Ask for the end and read nothing: another thread may be reading."""
        with contextlib.suppress(OSError):  # it has ended, or was closed meanwhile
            self._control.sendall(b'{"op": "kill"}\n')

    def stop(self) -> bool:
        """Kill all and return once nothing of it runs any more; False where the supervisor cannot say so.

        Its memory may still be there: `close` waits for that.
        """
        if self.end is not None:
            return True
        self.kill()
        line = self._read("stopped", "reason")
        if "reason" in line:
            self.end = line
        return bool(line)

    def close(self, patience_s: float = 0.0) -> dict[str, Any]:
        """Kill all that is left, after at most `patience_s` for an end of its own; returns the last words."""
        if self.end is None:
            readable(self._control, patience_s)
            try:
                self._control.sendall(b'{"op": "kill"}\n')
            except OSError:
                patience_s = 0.0  # it has ended by itself; its last line is still there to read
            self.end = self._read("reason")
            if not self.end:
                self._kill()
        self._control.close()
        return self.end

    def _read(self, *wanted: str) -> dict[str, Any]:
        """The next line with one of these fields; empty when none comes."""
        while True:
            try:
                while b"\n" not in self._unread:
                    part = self._control.recv(1 << 16)
                    if not part:
                        return {}
                    self._unread += part
            except OSError:
                return {}
            text, _, self._unread = self._unread.partition(b"\n")
            line = dict(json.loads(text))
            if any(field in line for field in wanted):
                return line

    def _kill(self) -> None:
        try:
            os.kill(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def explain(self, failure: ChildFailed) -> ChildFailed:
        """The failure with how the processes ended and the log's tail; `end` must be there."""
        end = self.end or {}
        text, kind = failure.text, failure.kind
        reasons = {
            "memory": f"killed: over {self._limits.memory_bytes >> 20} MiB of memory",
            "processes": f"killed: over {self._limits.processes} processes",
            "lifetime": f"killed: lived over {self._limits.life_s:g} s",
        }
        if end.get("reason") in reasons:
            text, kind = reasons[end["reason"]], "timed_out" if end["reason"] == "lifetime" else "crashed"
        elif kind == "crashed" and end.get("signal"):
            text = f"died of {_signal_name(end['signal'])}"
        elif kind == "crashed" and end.get("exit") is not None:
            text = f"ended with exit code {end['exit']} without an answer"
        return ChildFailed(kind, text, str(end.get("log", "")), failure.error)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"
