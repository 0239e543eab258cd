"""The process between zygote and candidate: subreaper, watchdog and keeper of the candidate's log.

It runs no candidate code. It ends when the judge asks, when its line to the judge breaks, when a limit is passed or
when the candidate ends, and in each case nothing below it survives.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

from kforge.worker.limits import Limits, descendants, kill_descendants, resident_bytes, stop_descendants

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_TICK_S = 0.02


class CappedLog:
    """The last `limit` bytes written to a pipe; the rest is counted and dropped."""

    def __init__(self, fd: int, limit: int) -> None:
        os.set_blocking(fd, False)
        self.fd, self.limit = fd, limit
        self.kept = b""
        self.dropped = 0

    def drain(self) -> bool:
        """Take what is there; False at end of file."""
        for _ in range(64):  # a writer that never stops must not hold the watchdog
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return True
            if not data:
                return False
            self.kept += data
            excess = max(0, len(self.kept) - self.limit)
            self.kept = self.kept[excess:]
            self.dropped += excess
        return True

    @property
    def text(self) -> str:
        head = f"[... {self.dropped} bytes dropped]\n" if self.dropped else ""
        return head + self.kept.decode("utf-8", "replace")


def supervise(
    control: socket.socket, line: socket.socket, limits: Limits, run_child: Callable[[socket.socket, int], NoReturn]
) -> NoReturn:
    """Fork `run_child(line, log_fd)`, watch it to its end, kill all that is left, tell the judge, exit.

    `line` is the child's and is closed here. `control` speaks JSON lines: {"op": "log"} answers {"log": text};
    {"op": "kill"} ends. {"stopped": true} says that nothing below runs any more. The last line is {"exit": code or
    null, "signal": number or null, "reason": "" | "killed" | "memory" | "processes" | "lifetime", "log": text,
    "peak_bytes": n, "killed": processes that had to be killed}.
    """
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    log_read, log_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # nobody watches it once we are gone
        control.close()
        os.close(log_read)
        run_child(line, log_write)
    line.close()
    os.close(log_write)
    log = CappedLog(log_read, limits.log_bytes)
    reason, peak = _watch(control, pid, log, limits)
    status: int | None = None
    if not reason:
        _, status = os.waitpid(pid, 0)
    if stop_descendants():
        with contextlib.suppress(OSError):  # the judge is gone: the last line will say so
            control.sendall(b'{"stopped": true}\n')
    killed = kill_descendants()
    log.drain()
    answer = {
        "exit": os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
        "reason": reason,
        "log": log.text,
        "peak_bytes": peak,
        "killed": killed,
    }
    try:
        control.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:  # the judge is gone: nobody to tell
        os._exit(1)
    os._exit(0)


def _watch(control: socket.socket, pid: int, log: CappedLog, limits: Limits) -> tuple[str, int]:
    """Returns (reason, peak bytes); reason is empty when the candidate's main process ended by itself."""
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    for fd in (control.fileno(), log.fd, pidfd):
        poll.register(fd, select.POLLIN)
    end = time.monotonic() + limits.life_s
    next_tick, peak = 0.0, 0
    while True:
        ready: dict[int, Any] = dict(poll.poll(_TICK_S * 1e3))
        if log.fd in ready and not log.drain():
            poll.unregister(log.fd)
        if control.fileno() in ready:
            try:
                request = control.recv(4096)
                if request != b'{"op": "log"}\n':  # kill, or the judge is gone
                    return "killed", peak
                control.sendall(json.dumps({"log": log.text}).encode() + b"\n")
            except OSError:  # the judge left with something unread: reset, not end of file
                return "killed", peak
        if pidfd in ready:
            return "", peak
        now = time.monotonic()
        if now >= next_tick:
            next_tick = now + _TICK_S
            below = descendants(os.getpid())
            used = sum(resident_bytes(p) for p in below)
            peak = max(peak, used)
            if used > limits.memory_bytes:
                return "memory", peak
            if len(below) > limits.processes:
                return "processes", peak
            if now > end:
                return "lifetime", peak
