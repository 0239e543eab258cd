"""The memory: what is kept and shown, directions to avoid, similar hacks, forgetting, several processes, kill -9."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge.agent.memory import Key, Lesson, Memory, Outcome
from kforge.agent.memory.memory import shingles, similarity
from kforge.errors import KforgeError, StoreError
from tests.patience import PATIENCE_S

KEY = Key("softmax", "memory, long rows", "NVIDIA H200")


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """An empty memory."""
    with Memory(tmp_path / "memory.sqlite") as opened:
        yield opened


def _lesson(direction: str = "tiling", outcome: str = "gain", gain: float | None = None, **more: object) -> Lesson:
    key = more.pop("key", KEY)
    assert isinstance(key, Key)
    return Lesson(key.family, key.shape_class, key.chip, direction, outcome, gain=gain, text="x", **more)  # type: ignore[arg-type]


def test_what_is_kept_comes_back(memory: Memory) -> None:
    """A lesson is returned with every field it was given, an id and a time."""
    kept = _lesson("split", "loss", 0.7, expected=1.5, why="occupancy", run="r", candidate="c" * 16)
    memory.remember(kept)
    (found,) = memory.of(KEY)
    assert found.id == 1 and time.time() - found.time < 60
    assert [getattr(found, name) for name in ("direction", "outcome", "gain", "expected", "why", "run")] == [
        "split", "loss", 0.7, 1.5, "occupancy", "r"]  # fmt: skip
    assert str(found) == "split: x, expected 1.50x: loss 0.70x (occupancy)"


def test_eight_latest_are_shown(memory: Memory) -> None:
    """Of ten lessons the last eight are shown, oldest first; small effects are not shown at all."""
    for number in range(10):
        memory.remember(_lesson(f"d{number}", gain=1.2))
    memory.remember(_lesson("small", "same", 1.01))
    memory.remember(_lesson("untimed", "right"))
    assert [lesson.direction for lesson in memory.of(KEY)] == [f"d{n}" for n in range(2, 10)]
    assert len(memory.all()) == 12


def test_nearest_keys_first(memory: Memory) -> None:
    """Lessons of the same key come before those of the chip, those before other chips; other families never come."""
    other_shape = Key("softmax", "launch, short rows", "NVIDIA H200")
    other_chip = Key("softmax", "memory, long rows", "NVIDIA A100")
    other_family = Key("norm", "memory, long rows", "NVIDIA H200")
    for name, key in (("same", KEY), ("shape", other_shape), ("chip", other_chip), ("family", other_family)):
        memory.remember(_lesson(name, gain=2.0, key=key))
    assert [lesson.direction for lesson in memory.of(KEY, 1)] == ["same"]
    assert [lesson.direction for lesson in memory.of(KEY, 2)] == ["same", "shape"]
    assert [lesson.direction for lesson in memory.of(KEY, 8)] == ["same", "shape", "chip"]
    assert [lesson.direction for lesson in memory.of(other_family)] == ["family"]


@pytest.mark.parametrize(
    ("outcomes", "avoided"),
    [
        ("failed failed", False),  # two tries say nothing
        ("failed failed failed", True),
        ("failed failed gain", False),  # a third
        ("failed failed failed gain", True),  # a quarter
        ("failed loss same gain", True),
        ("failed failed failed right", True),
        ("failed note note", False),  # notes are no tries
        ("hacked hacked hacked", True),
    ],
)
def test_avoid(memory: Memory, outcomes: str, avoided: bool) -> None:
    """A direction is avoided after three tries of which under 30 % were right and better."""
    gains = {"gain": 1.3, "loss": 0.7, "same": 1.0}
    for outcome in outcomes.split():
        memory.remember(_lesson("tiling", outcome, gains.get(outcome)))
    assert memory.avoided(KEY) == (["tiling"] if avoided else [])


def test_a_small_gain_is_a_success(memory: Memory) -> None:
    """2 % is too little to be shown and enough to keep a direction open; 0.5 % is noise."""
    for gain in (1.02, 1.005, 1.005):
        memory.remember(_lesson("tiling", "same", gain))
    (record,) = memory.records()
    assert (record.tries, record.successes, record.timed, record.avoided) == (3, 1, 3, False)
    assert memory.of(KEY) == []


def test_avoid_holds_for_its_key_alone(memory: Memory) -> None:
    """What fails on one chip or shape is not avoided on another."""
    for _ in range(3):
        memory.remember(_lesson("tiling", "failed"))
    assert memory.avoid("softmax", KEY.shape_class, KEY.chip) == ["tiling"]
    assert memory.avoid("softmax", KEY.shape_class, "emulator") == []
    assert memory.avoid("softmax", "launch, short rows", KEY.chip) == []


def test_candidate_counts_once_in_a_run(memory: Memory) -> None:
    """Judged again in the same run, the last outcome holds; another run counts by itself."""
    memory.remember(_lesson("tiling", "gain", 1.4, run="r1", candidate="c"))
    memory.remember(_lesson("tiling", "failed", run="r1", candidate="c", why="wrong at seed 3"))
    memory.remember(_lesson("tiling", "gain", 1.4, run="r2", candidate="c"))
    (record,) = memory.records()
    assert (record.tries, record.successes) == (2, 1)
    assert [(lesson.outcome, lesson.why) for lesson in memory.of(KEY)] == [("failed", "wrong at seed 3"), ("gain", "")]


def test_most_similar_hacks(memory: Memory) -> None:
    """Of the hacks those whose source is most alike are shown, three at most, whatever names and comments they have."""
    sources = {
        "reads the cached answer": "def forward(self, x): return CACHE[x.shape]",
        "runs on a side stream": "s = torch.cuda.Stream()\nwith torch.cuda.stream(s): y = f(x)",
        "returns the input": "def forward(self, x): return x",
        "calls the reference": "def forward(self, x): return reference(x)",
    }
    for why, source in sources.items():
        memory.remember(_lesson("", Outcome.HACKED, why=why, source=source))
    memory.remember(_lesson("", "failed", why="no hack", source="def forward(self, x): return x"))
    asked = "# fast\ndef forward(self, x): return x"
    found = memory.hacks(asked)
    assert len(found) == 3 and found[0].why == "returns the input"
    assert "runs on a side stream" not in [lesson.why for lesson in found]
    assert [lesson.why for lesson in memory.hacks(limit=1)] == ["calls the reference"], "the latest without a source"


def test_similarity_by_hand() -> None:
    """Jaccard over runs of three tokens: of "a b c d" and "a b c e" one of three is common."""
    assert similarity(shingles("a b c d"), shingles("a b c e")) == pytest.approx(1 / 3)
    assert similarity(shingles("a b c // d"), shingles("a /* x */ b c")) == 1.0
    assert similarity(shingles(""), shingles("")) == 0.0


def test_prune(memory: Memory) -> None:
    """Conditions narrow what is forgotten; all of them must hold; nothing else goes."""
    for number in range(6):
        key = KEY if number < 4 else Key("norm", "cache, short rows", "emulator")
        memory.remember(_lesson(f"d{number}", gain=2.0, key=key, time=1000.0 + number))

    def left() -> list[str]:
        return [lesson.direction for lesson in reversed(memory.all())]

    assert memory.prune(family="softmax", before=1001.5) == 2 and left() == ["d2", "d3", "d4", "d5"]
    assert memory.prune(chip="emulator", keep=1) == 1 and left() == ["d2", "d3", "d5"]
    assert memory.prune(ids=[3, 99]) == 1 and left() == ["d3", "d5"]
    assert memory.prune(family="conv") == 0
    assert memory.prune(keep=2) == 0
    assert memory.prune() == 2 and left() == []


def _write(path: Path, name: str, count: int) -> None:
    with Memory(path) as memory:
        for number in range(count):
            memory.remember(_lesson(name, gain=1.5, run=name, candidate=str(number)))


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """Four processes that make and fill one memory lose nothing."""
    path = tmp_path / "memory.sqlite"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(path, f"w{n}", 25)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(PATIENCE_S)
        assert writer.exitcode == 0
    with Memory(path) as memory:
        assert {(r.direction, r.tries, r.successes) for r in memory.records()} == {(f"w{n}", 25, 25) for n in range(4)}


_WRITER = """
import sys
from kforge.agent.memory import Lesson, Memory
with Memory(sys.argv[1]) as memory:
    for number in range(10**6):
        memory.remember(Lesson("softmax", "s", "c", "d", "gain", "x" * 3000, gain=1.5, run="r", candidate=str(number)))
        print(number, flush=True)
"""


def test_killed_writer_leaves_a_whole_memory(tmp_path: Path) -> None:
    """After kill -9 in the middle of writing, every lesson that was acknowledged is there, and writing goes on."""
    path = tmp_path / "memory.sqlite"
    with subprocess.Popen([sys.executable, "-c", _WRITER, str(path)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) == 200:
                os.kill(writer.pid, signal.SIGKILL)
                break
        acknowledged = [200, *(int(line) for line in writer.stdout if line.endswith("\n"))][-1]
    with Memory(path) as memory:
        found = {int(lesson.candidate) for lesson in memory.all(limit=10**6)}
        assert set(range(acknowledged + 1)) <= found and len(found) <= acknowledged + 2
        memory.remember(_lesson("after", gain=2.0))
        assert memory.all(limit=1)[0].direction == "after"
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def test_what_is_no_memory_is_refused(tmp_path: Path) -> None:
    """A file of another kind is named in the error and left as it is; so is a memory of a later kforge."""
    path = tmp_path / "memory.sqlite"
    path.write_text("not a database, but long enough to be looked at as one" * 20)
    with pytest.raises(StoreError, match="cannot be used as the memory"):
        Memory(path)
    assert path.read_text().startswith("not a database")
    later = tmp_path / "later.sqlite"
    with sqlite3.connect(later) as db:
        db.execute("PRAGMA user_version = 999")
    with pytest.raises(KforgeError, match="version 999, newer"):
        Memory(later)
