"""Two hundred evaluations of which a third misbehave, in random order: nothing lost, no false verdict, nothing left."""

from __future__ import annotations

import secrets
from pathlib import Path

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
        assert Traces.of(zygote) == before, f"seed {seed}"
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
    after = Traces.of(zygote)
    child.close()
    assert after.processes > before.processes and after.descriptors > before.descriptors
