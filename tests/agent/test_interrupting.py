"""A stop in the middle of what looks at no control."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from kforge.agent.control import Control
from kforge.agent.interrupting import interruptible
from kforge.errors import Interrupted


def _wait() -> None:
    time.sleep(60.0)


def _spin() -> None:
    end = time.monotonic() + 60.0
    while time.monotonic() < end:
        try:
            sum(range(1000))
        except Exception:  # as a task's code may
            continue


@pytest.mark.parametrize("work", [_wait, _spin])
def test_a_stop_ends_what_the_main_thread_does(work: object) -> None:
    """A wait and a loop that catches every Exception; afterwards the signal is as it was."""
    control, before = Control(), signal.getsignal(signal.SIGUSR2)
    threading.Timer(0.05, control.stop).start()
    begin = time.monotonic()
    with pytest.raises(Interrupted), interruptible(control):
        work()  # type: ignore[operator]
    assert time.monotonic() - begin < 30.0
    assert signal.getsignal(signal.SIGUSR2) is before


def test_a_stop_ends_what_another_thread_does() -> None:
    """At its next step in Python."""
    control, ended = Control(), []

    def work() -> None:
        try:
            with interruptible(control):
                _spin()
        except Interrupted:
            ended.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    control.stop()
    thread.join(30.0)
    assert ended == [True]


def test_a_stop_before_and_after() -> None:
    """One that came before is heard at once; one after the block disturbs nobody."""
    control = Control()
    with interruptible(control):
        pass
    control.stop()
    time.sleep(0.01)
    with pytest.raises(Interrupted), interruptible(control):
        _wait()
