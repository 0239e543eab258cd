"""Two hundred evaluations of which a third misbehave, in random order: nothing lost, no false verdict, nothing left."""

from __future__ import annotations

import secrets
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kforge.task.call import Call
from kforge.worker import Limits, Zygote
from tests.worker.faults import FAULTS, Fault, Traces, _one, storm
from tests.worker.sources import DOUBLE, candidate

COUNT = 200


def test_a_storm_of_faults(tmp_path: Path) -> None:
    """Each fault gets its own outcome, each right candidate its right value, and no trace is left of any of them."""
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    with Zygote() as zygote:
        _one(zygote, Fault("right", ()), 3, tmp_path / "first")  # what is imported and opened once
        before = Traces.of(zygote)
        tally = storm(zygote, COUNT, seed, tmp_path)
        assert tally.wrong == [], f"seed {seed}"
        assert tally.count == COUNT and {name for name, _ in tally.outcomes} == {"none", *FAULTS}
        assert Traces.of(zygote).since(before) == [], f"seed {seed}"
        assert zygote.restarts == 0
        assert list(tmp_path.iterdir()) == []
    print(f"{COUNT} evaluations in {tally.seconds:.1f} s: {dict(tally.outcomes)}")


def test_a_wrong_value_would_be_noticed(zygote: Zygote, tmp_path: Path) -> None:
    """The storm's own check: a candidate that answers wrongly is counted as wrong, not as right."""
    assert _one(zygote, Fault("right", ("x = x + 1",)), 3, tmp_path / "box").startswith("wrong")


def test_a_leak_would_be_noticed(zygote: Zygote, tmp_path: Path) -> None:
    """The storm's own check: a child that is left open shows in the traces."""
    before = Traces.of(zygote)
    child = zygote.fork(tmp_path / "box", limits=Limits(life_s=30))
    child.load(candidate(DOUBLE), Call(), {})
    left = Traces.of(zygote, patience_s=0.1).since(before)
    child.close()
    assert {"descriptors", "processes"} <= {words.partition(":")[0] for words in left}


def test_what_others_do_meanwhile_is_no_leak(zygote: Zygote, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread and a file of another's that end, and one more thread of torch's pools, are no trace of an evaluation;
    a thread of Python's that goes on is, and so are more native ones than any pool has."""
    end = threading.Event()
    threads = [threading.Thread(target=end.wait) for _ in range(2)]
    threads[0].start()
    with tempfile.TemporaryFile():
        before = Traces.of(zygote)
    end.set()
    threads[0].join()
    after = Traces.of(zygote)
    assert after.since(before) == []
    pool = frozenset(range(-1, -1000, -1))
    assert replace(after, native=after.native | {-1}).since(before) == []
    assert [words[:14] for words in replace(after, native=after.native | pool).since(before)] == ["native threads"]
    end.clear()
    threads[1].start()
    left = Traces.of(zygote).since(after)
    end.set()
    assert left == [f"threads: [{threads[1].native_id}]"]
