"""A stop in the middle of work that looks at no control, such as a task's own code while the judge gets ready."""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from kforge.agent.control import Control
from kforge.task.usercode import PassesThrough

_SIGNAL = signal.SIGUSR2
_AGAIN_S = 0.05
T = TypeVar("T")


class _Cut(PassesThrough):
    """Not an Exception: code that catches those, a task's too, is left as by ctrl-c."""


def interruptible(control: Control, work: Callable[[], T]) -> T:
    """What `work()` returns; a stop meanwhile is raised as kforge.errors.Interrupted at this thread's next step in
    Python.

    In the main thread it ends a wait as well (by a signal); one call of compiled code runs to its own end. A function
    and no context manager: between one's frames and the caller's a stop would be raised where nobody catches it.
    """
    main = threading.current_thread() is threading.main_thread()
    cut, close = (_by_signal if main else _by_interpreter)(threading.get_ident())
    forget, found = control.on_stop(lambda: None), list[T]()
    try:
        try:
            forget = control.on_stop(cut)
            found.append(work())
        finally:
            forget()
            close()
    except _Cut:
        forget()
        close()  # again, where it came while the first was under way
    control.check()
    return found[0]


def _by_signal(thread: int) -> tuple[Callable[[], None], Callable[[], None]]:
    lock, open_ = threading.RLock(), [True]

    def raise_cut(_number: int, _frame: FrameType | None) -> None:
        if open_:
            open_.clear()  # once
            raise _Cut

    before = signal.signal(_SIGNAL, raise_cut)

    def once() -> bool:
        with lock:  # after close the signal would end the process
            if open_:
                signal.pthread_kill(thread, _SIGNAL)
            return bool(open_)

    def insist() -> None:
        while once():
            time.sleep(_AGAIN_S)

    def cut() -> None:
        # One that comes when the thread is just about to wait is noted by the interpreter and ends no wait: again.
        if once():
            threading.Thread(target=insist, daemon=True, name="stopping").start()

    def close() -> None:
        with lock:
            open_.clear()
        signal.signal(_SIGNAL, before)

    return cut, close


def _by_interpreter(thread: int) -> tuple[Callable[[], None], Callable[[], None]]:
    lock, open_ = threading.RLock(), [True]

    def raise_in(what: object) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)

    def cut() -> None:
        with lock:
            if open_:
                raise_in(ctypes.py_object(_Cut))

    def close() -> None:
        with lock:
            if open_:
                open_.clear()
                raise_in(None)  # one that was not delivered yet

    return cut, close
