"""The process around a command. It outlives whatever the code of a task does to the process that works.

A command works in a fork and reports its exit code through a pipe. Where it ends without a report (os._exit or a crash
inside op.py, the system's memory killer), the parent says so and gives the exit code. The fork ends without running
what op.py left behind: its threads, its functions at exit. A request to stop that it does not hear, because Python runs
no handler before a call of compiled code is over, ends it all the same.
"""

from __future__ import annotations

import mmap
import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from kforge.errors import Interrupted, KforgeError, TaskError
from kforge.task import usercode

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
IMPATIENT_S = 1.0  # a second request to stop, this long after the first, ends the command at once
DEAF_S = 0.8  # a command that has not heard a request to stop after so long is inside a call of compiled code
_MARK_BYTES = 4096
_PR_SET_PDEATHSIG = 1
_ear: mmap.mmap | None = None  # shared with the parent: 1 from the moment on at which a request to stop was heard


def heard() -> None:
    """Called in the fork by who handles a request to stop: from now on it ends in its own time."""
    if _ear is not None:
        _ear[0] = 1


def guarded(work: Callable[[], int], lost: Callable[[KforgeError], int]) -> int:
    """The exit code of `work()`, run in a fork, or of `lost(error)`, run here when the fork did not come to its end."""
    global _ear
    memory, ear = mmap.mmap(-1, _MARK_BYTES), mmap.mmap(-1, 1)
    read, write = os.pipe()
    worker: list[int] = []
    stopped: list[float] = []
    parent = os.getpid()

    def forward(number: int, _frame: FrameType | None) -> None:
        impatient = bool(stopped) and time.monotonic() - stopped[0] > IMPATIENT_S
        stopped.append(time.monotonic())
        for pid in worker:
            os.kill(pid, signal.SIGKILL if impatient else number)
        if len(stopped) == 1:
            signal.setitimer(signal.ITIMER_REAL, DEAF_S)

    def end_the_deaf(_number: int, _frame: FrameType | None) -> None:
        for pid in worker if not ear[0] else ():
            os.kill(pid, signal.SIGKILL)

    # What the caller has set to be ignored (nohup, a background job) stays ignored.
    heeded = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # then the system would keep no exit codes for anybody
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    open_to = signal.pthread_sigmask(signal.SIG_BLOCK, heeded)  # until there is somebody to pass them on to
    before = {number: signal.signal(number, forward) for number in heeded}
    before[signal.SIGALRM] = signal.signal(signal.SIGALRM, end_the_deaf)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, open_to)
            os.close(read)
            _die_with(parent)
            usercode.mark, _ear = usercode.Mark(memory), ear
            code = work()
            os.write(write, bytes([code]))
        finally:
            os._exit(code)
    worker.append(pid)
    os.close(write)
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, open_to)
        _, status = os.waitpid(pid, 0)
        worker.clear()
        os.set_blocking(read, False)  # a process that op.py started may hold the other end
        try:
            report = os.read(read, 1)
        except BlockingIOError:
            report = b""
        if report:
            return report[0]
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        return lost(_explain(os.waitstatus_to_exitcode(status), usercode.Mark(memory).read(), bool(stopped)))
    finally:
        os.close(read)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _die_with(parent: int) -> None:
    """Be asked to end when the parent dies (kill -9)."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def _explain(code: int, running: str, stopped: bool) -> KforgeError:
    """The error for a command that ended with this code, a negative signal, while this piece of op.py was running."""
    how = f"with exit code {code}" if code >= 0 else f"by {_signal_name(-code)}"
    if stopped:
        return Interrupted(f"stopped; the process ended {how}", "`kforge runs list` shows what is kept")
    memory = "the system ended it: most likely its memory was used up" if code == -signal.SIGKILL else ""
    if running:
        hint = memory or ("remove os._exit and the like" if code >= 0 else "run the file by itself to see where")
        return TaskError(f"{running.removesuffix(' raised').rstrip(':')}: the process ended {how}", hint)
    return KforgeError(f"the process of the command ended {how}", memory or "`kforge runs list` shows what is kept")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"
