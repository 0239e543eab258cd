"""Past hacks beside a sudden gain: when they are looked for, and which are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.agent.memory import Lesson, Memory, Outcome, reminder
from kforge.agent.memory.jump import jumped
from kforge.environment.report import Status
from tests.agent.search.simulator import candidate, report


@pytest.mark.parametrize(
    ("ms", "before", "jump"),
    [(0.34, None, False), (0.33, None, True), (0.5, 1.0, False), (0.49, 1.0, True), (0.9, 0.95, False)],
)
def test_when(ms: float, before: float | None, jump: bool) -> None:
    """Over three times the baseline (1 ms here), or over twice the best before, and never exactly that."""
    assert jumped(report(candidate("a"), ms), before) is jump


def test_only_right_and_timed_attempts_jump() -> None:
    """What failed or was not timed gives no reason to look."""
    assert not jumped(report(candidate("a"), None), 1.0)
    assert not jumped(report(candidate("a"), 0.1, status=Status.WRONG), 1.0)


def test_which(tmp_path: Path) -> None:
    """The hacks that have much in common are named with their share; without a jump or a likeness nothing is said."""
    cached = "class ModelNew: def forward(self, x): return CACHE.setdefault(x.shape, f(x))"
    with Memory(tmp_path / "memory.sqlite") as memory:
        made = candidate(cached + "  # quick")
        assert reminder(memory, made, report(made, 0.1)) == ""
        for why, source in (("answers from a cache", cached), ("side stream", "with torch.cuda.stream(s): y.copy_(x)")):
            memory.remember(Lesson("softmax", "memory", "H200", "", Outcome.HACKED, "x", why=why, source=source))
        words = reminder(memory, made, report(made, 0.1))
        assert words == "a jump in speed; past hacks most like this candidate: answers from a cache (100% alike)"
        assert reminder(memory, made, report(made, 0.9), 1.0) == ""
        assert reminder(memory, candidate("something else entirely"), report(made, 0.1)) == ""
