"""Stop and steers, as several threads say and take them; what a run may use and has used."""

from __future__ import annotations

import threading
import time

import pytest

from kforge.agent.budget import Budget, Meter
from kforge.agent.control import Control, Steer
from kforge.errors import Interrupted, UsageError
from tests.patience import PATIENCE_S


def test_stop_calls_back_once_and_check_raises_from_then_on() -> None:
    """Callbacks run at once in the stopping thread, a forgotten one does not, and a second stop changes nothing."""
    control, called = Control(), []
    control.check()
    forget = control.on_stop(lambda: called.append("forgotten"))
    control.on_stop(lambda: called.append("heard"))
    forget()
    control.stop()
    control.stop()
    assert called == ["heard"] and control.stopped
    with pytest.raises(Interrupted):
        control.check()
    control.on_stop(lambda: called.append("late"))
    assert called == ["heard", "late"]


def test_a_stop_from_another_thread_ends_a_wait() -> None:
    """wait does not sleep on after a stop, and reset lets work begin again."""
    control = Control()
    threading.Timer(0.05, control.stop).start()
    begin = time.monotonic()
    with pytest.raises(Interrupted):
        control.wait(2 * PATIENCE_S)
    assert time.monotonic() - begin < PATIENCE_S
    control.reset()
    control.wait(0.0)


def test_steers_are_taken_once_and_queued_ones_between_attempts() -> None:
    """take gives what is due in order; the queued wait for queued=True; each state is told."""
    told: list[tuple[int, str]] = []
    control = Control(lambda steer, state: told.append((steer.id, state)))
    first, second = control.steer("  use float4 "), control.steer("then try shared memory", "queued")
    assert (first, second) == (Steer(1, "use float4", "now"), Steer(2, "then try shared memory", "queued"))
    assert control.take() == [first] and control.pending == (second,)
    assert control.take() == [] and control.take(queued=True) == [second]
    assert told == [(1, "received"), (2, "received"), (1, "taken"), (2, "taken")]


def test_a_waiting_steer_can_be_changed_or_dropped_and_a_taken_one_not() -> None:
    """edit and drop name a steer by its id; after take both are usage errors, as are empty words."""
    control = Control()
    one, two = control.steer("a"), control.steer("b")
    assert control.edit(one.id, "c").text == "c"
    control.drop(two.id)
    assert [steer.text for steer in control.take()] == ["c"]
    for late in (lambda: control.edit(one.id, "d"), lambda: control.drop(two.id), lambda: control.steer(" ")):
        with pytest.raises(UsageError):
            late()
    with pytest.raises(UsageError, match="queued"):
        control.steer("e", "later")


def test_a_steer_of_a_megabyte_is_refused() -> None:
    """It would take a model's whole window; nothing of it is kept."""
    control = Control()
    one = control.steer("a")
    with pytest.raises(UsageError, match="at most 50000 characters"):
        control.steer("no fast-math " * 100_000)
    with pytest.raises(UsageError, match="at most 50000 characters"):
        control.edit(one.id, "x" * 50_001)
    assert control.pending == (one,)


def test_restored_steers_wait_before_new_ones_and_ids_go_on() -> None:
    """A resumed run hands out what was waiting, and never gives an id twice."""
    control = Control()
    control.restore([Steer(3, "old", "queued")], last=5)
    assert control.steer("new").id == 6
    assert [steer.id for steer in control.take(queued=True)] == [3, 6]


def test_steers_of_many_threads_all_arrive() -> None:
    """Nothing is lost or handed out twice while threads write and one reads."""
    control, taken = Control(), []
    threads = [threading.Thread(target=lambda: [control.steer("x") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += control.take()
    taken += control.take()
    assert sorted(steer.id for steer in taken) == list(range(1, 201))


def test_what_is_told_of_a_steer_is_in_order_whoever_takes_it() -> None:
    """A thread that takes a steer while another still tells of its arrival is told of second."""
    told: list[str] = []

    def on_steer(steer: Steer, state: str) -> None:
        if state == "received":
            taker.start()
            taker.join(0.3)  # it cannot end before this call has
        told.append(state)

    control = Control(on_steer)
    taker = threading.Thread(target=control.take)
    control.steer("use float4")
    taker.join()
    assert told == ["received", "taken"]


@pytest.mark.parametrize(
    ("budget", "seconds", "words"),
    [
        (Budget(10.0), 10.0, "10 s"),
        (Budget(10.0, evaluations=2), 1.0, "2 evaluations"),
        (Budget(10.0, tokens=150), 1.0, "150 tokens"),
        (Budget(10.0, usd=0.5), 1.0, "0.5 USD"),
        (Budget(10.0, evaluations=3, tokens=151, usd=0.6), 9.0, ""),
        (Budget(10.0, kept=4.0), 5.9, ""),
        (Budget(10.0, kept=4.0), 6.0, "10 s is spent but for 4 s to confirm the best"),
    ],
)
def test_each_limit_is_named_when_it_is_reached(budget: Budget, seconds: float, words: str) -> None:
    """Two evaluations, 100 + 50 tokens and half a dollar reach exactly the limits that allow no more."""
    meter = Meter()
    meter.add_evaluations(2)
    meter.add_call(tokens_in=100, tokens_out=50, tokens_cached=80, usd=0.5)
    found = meter.spent(budget, seconds)
    assert words in found and bool(found) == bool(words)


def test_what_is_left_is_never_negative_and_none_without_a_limit() -> None:
    """left subtracts what the meter has from each limit."""
    meter = Meter()
    meter.add_evaluations(5)
    meter.add_call(100, 50, 0, 0.25)
    left = Budget(60.0, evaluations=3, usd=1.0).left(meter, 20.5)
    assert left == {"seconds": 39.5, "evaluations": 0, "tokens": None, "usd": 0.75}
    assert Budget(60.0, kept=20.0).left(meter, 20.5)["seconds"] == 19.5


def test_a_meter_counts_recorded_events_again() -> None:
    """Evaluations, tuned configurations and paid calls of a log add up to what the run had used."""
    meter = Meter()
    for kind, data in (
        ("evaluated", {"candidate": "a", "status": "verified"}),
        ("tuned", {"candidate": "b", "table": [[], [], []]}),
        ("model_call", {"call": 1, "tokens_in": 10, "tokens_out": 5, "tokens_cached": None, "usd": 0.25}),
        ("message", {"text": "none of its business"}),
    ):
        meter.apply(kind, data)
    assert (meter.evaluations, meter.tokens, meter.tokens_cached, meter.usd, meter.calls) == (4, 15, 0, 0.25, 1)
