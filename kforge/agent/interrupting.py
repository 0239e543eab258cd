"""A stop in the middle of work that looks at no control, such as a task's own code while the judge gets ready."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from kforge.agent.control import Control
from kforge.task.usercode import PassesThrough

_SIGNAL = signal.SIGUSR2


class _Cut(PassesThrough):
    """Not an Exception: code that catches those, a task's too, is left as by ctrl-c."""


@contextmanager
def interruptible(control: Control) -> Iterator[None]:
    """Inside, a stop is raised as kforge.errors.Interrupted at this thread's next step in Python.

    In the main thread it ends a wait as well (by a signal); one call of compiled code runs to its own end.
    """
    main = threading.current_thread() is threading.main_thread()
    cut, close = (_by_signal if main else _by_interpreter)(threading.get_ident())
    forget = control.on_stop(lambda: None)
    try:
        try:
            forget = control.on_stop(cut)
            yield
        finally:
            forget()
            close()
    except _Cut:
        forget()
        close()  # again, where it came while the first was under way
    control.check()


def _by_signal(thread: int) -> tuple[Callable[[], None], Callable[[], None]]:
    lock, open_ = threading.Lock(), [True]

    def raise_cut(_number: int, _frame: FrameType | None) -> None:
        if open_:
            open_.clear()  # once
            raise _Cut

    before = signal.signal(_SIGNAL, raise_cut)

    def cut() -> None:
        with lock:  # after close the signal would end the process
            if open_:
                signal.pthread_kill(thread, _SIGNAL)

    def close() -> None:
        with lock:
            open_.clear()
        signal.signal(_SIGNAL, before)

    return cut, close


def _by_interpreter(thread: int) -> tuple[Callable[[], None], Callable[[], None]]:
    lock, open_ = threading.Lock(), [True]

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
