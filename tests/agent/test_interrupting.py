"""A stop in the middle of what looks at no control."""

from __future__ import annotations

import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from kforge.agent.control import Control
from kforge.agent.interrupting import interruptible
from kforge.errors import Interrupted

ENDLESS_S = 600.0  # as good as without end: what is not cut fails, however slow the machine


def wait(begun: threading.Event) -> None:
    """In one call that is not Python's."""
    begun.set()
    threading.Event().wait(ENDLESS_S)
    raise AssertionError("it was not cut")


def spin(begun: threading.Event) -> None:
    """In Python, catching every Exception, as a task's code may."""
    while True:
        try:
            begun.set()
            sum(range(1000))
        except Exception:
            continue


def stop_once(begun: threading.Event, control: Control) -> threading.Thread:
    """A thread that says stop as soon as the work has begun."""

    def work() -> None:
        assert begun.wait(ENDLESS_S)
        control.stop()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


@pytest.mark.parametrize("work", [wait, spin])
def test_a_stop_ends_what_the_main_thread_does(work: Callable[[threading.Event], None]) -> None:
    """A wait and a loop that catches every Exception; afterwards the signal is as it was."""
    control, begun, before = Control(), threading.Event(), signal.getsignal(signal.SIGUSR2)
    stopping = stop_once(begun, control)
    with pytest.raises(Interrupted):
        interruptible(control, lambda: work(begun))
    stopping.join()
    assert signal.getsignal(signal.SIGUSR2) is before


def in_thread(work: Callable[[], None]) -> None:
    """Do it in another thread; what it raises is raised here."""
    failed: list[BaseException] = []

    def caught() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def test_a_stop_ends_what_another_thread_does() -> None:
    """At its next step in Python."""
    control, begun = Control(), threading.Event()
    stopping = stop_once(begun, control)
    with pytest.raises(Interrupted):
        in_thread(lambda: interruptible(control, lambda: spin(begun)))
    stopping.join()


def test_a_stop_before_and_after() -> None:
    """One that came before is heard at once; one after the work disturbs nobody."""
    control = Control()
    assert interruptible(control, lambda: 5) == 5
    control.stop()
    with pytest.raises(Interrupted):
        interruptible(control, lambda: wait(threading.Event()))


@pytest.mark.parametrize("where", [lambda work: work(), in_thread], ids=["main", "thread"])
def test_a_stop_at_any_step(where: Callable[[Callable[[], None]], None]) -> None:
    """Wherever between the work's beginning and long after its end a stop comes, nothing but Interrupted is raised."""
    before, told = sys.getswitchinterval(), Counter[bool]()
    sys.setswitchinterval(1e-6)

    def stop_after(steps: int) -> None:
        control, ready = Control(), threading.Event()

        def stop() -> None:
            ready.wait()
            for _ in range(steps):
                pass
            control.stop()

        stopping = threading.Thread(target=stop)
        stopping.start()
        try:
            ready.set()
            interruptible(control, lambda: [len(str(n)) for n in range(500)])
        except Interrupted:
            told[True] += 1
        else:
            told[False] += 1
        finally:
            stopping.join()

    try:
        where(lambda: [stop_after(steps) for steps in range(0, 3000, 3)] and None)
    finally:
        sys.setswitchinterval(before)
    assert told.total() == 1000
