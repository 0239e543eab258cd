"""The run index: migrations, what is entered is listed, several processes at once, and the ledger's arithmetic."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import tempfile
from pathlib import Path

import pytest

from kforge.errors import KforgeError, StoreError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.index import Index, migrations

CANDIDATE = Candidate(module="a_kforge.py", files={"a_kforge.py": "x"}, proposer="engine", idea="first")


def _report(candidate: str, ratio: float | None = None) -> dict[str, object]:
    speedup = None if ratio is None else {"vs": "eager", "ratio": ratio, "ci95": [ratio, ratio], "noise": 0.01}
    return {
        "candidate": candidate,
        "plan": "quick",
        "status": "verified",
        "verdict": "faster" if ratio else "untimed",
        "speedup": speedup,
        "times_ms": {"candidate": 2.0} if ratio else {},
        "seconds": 0.5,
    }


def test_a_run_from_start_to_end(tmp_path: Path) -> None:
    """A run is listed as unfinished at first, then with its outcome, its evaluations and its best speed-up."""
    with Index(tmp_path / ".kforge" / "index.sqlite") as index:
        index.start_run("r1", "softmax.py", tmp_path / "r1", target="emulator")
        (row,) = index.runs()
        assert (row.id, row.status, row.finished, row.evaluations) == ("r1", None, None, 0)
        index.add_candidate("r1", CANDIDATE)
        index.add_candidate("r1", CANDIDATE)
        index.add_evaluation("r1", _report(CANDIDATE.digest))
        index.add_evaluation("r1", _report(CANDIDATE.digest, 1.25))
        index.finish_run("r1", status="verified", verdict="faster", best=CANDIDATE.digest, target="NVIDIA H200")
        (row,) = index.runs()
        assert (row.status, row.verdict, row.best, row.exit_code) == ("verified", "faster", CANDIDATE.digest, 0)
        assert (row.evaluations, row.speedup, row.target) == (2, 1.25, "NVIDIA H200")
        assert row.finished is not None and row.finished >= row.started


def test_half_a_pair_of_surrogates_is_written_out(tmp_path: Path) -> None:
    """Text that UTF-8 cannot hold (a model's JSON, an exception's message) is entered readably and ends nothing."""
    odd = Candidate("a_kforge.py", CANDIDATE.files, proposer="model \ud800", idea="tile \udcff")
    with Index(tmp_path / "index.sqlite") as index:
        index.start_run("r1", "a.py", tmp_path)
        index.add_candidate("r1", odd)
        (row,) = index.read("SELECT proposer, idea FROM candidates")
        assert tuple(row) == ("model \\ud800", "tile \\udcff")


def test_runs_are_listed_newest_first_up_to_the_limit(tmp_path: Path) -> None:
    """The list begins with the latest run and honours its limit."""
    with Index(tmp_path / "i.sqlite") as index:
        for name in ("a", "b", "c"):
            index.start_run(name, "x.py", tmp_path)
        assert [row.id for row in index.runs(limit=2)] == ["c", "b"]


def test_unknown_run_is_refused(tmp_path: Path) -> None:
    """Nothing can be entered for a run that was never started."""
    with Index(tmp_path / "i.sqlite") as index:
        with pytest.raises(UsageError, match="no run 'zz'"):
            index.finish_run("zz", status="verified", verdict="untimed")
        with pytest.raises(StoreError, match="FOREIGN KEY"):
            index.add_evaluation("zz", _report("ab"))
        assert index.runs() == []


def test_migrations_are_numbered_without_gaps() -> None:
    """Migration n has number n, so that a file's version says which were applied."""
    assert [number for number, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_reopening_keeps_the_data_and_the_version(tmp_path: Path) -> None:
    """Migrations run once: a second opening finds the same rows."""
    path = tmp_path / "i.sqlite"
    with Index(path) as index:
        index.start_run("a", "x.py", tmp_path)
    with Index(path) as index:
        assert [row.id for row in index.runs()] == ["a"]
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA user_version").fetchone()[0] == len(migrations())
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_newer_file_is_refused(tmp_path: Path) -> None:
    """An index of a later kforge is refused by number and left as it is."""
    path = tmp_path / "i.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    with pytest.raises(KforgeError, match="version 999, newer"):
        Index(path)


def test_a_failing_migration_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A migration is applied whole or not at all, and its number only with it."""
    path = tmp_path / "i.sqlite"
    broken = [*migrations(), (len(migrations()) + 1, "CREATE TABLE half (x);\nCREATE TABLE runs (x);\n")]
    monkeypatch.setattr("kforge.store.index.migrations", lambda: broken)
    with pytest.raises(KforgeError, match="already exists"):
        Index(path)
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        assert db.execute("PRAGMA user_version").fetchone()[0] == 0


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """A file of another kind is named in the error and not overwritten."""
    path = tmp_path / "i.sqlite"
    path.write_text("not a database, but long enough to be looked at as one" * 20)
    with pytest.raises(KforgeError, match="cannot be used as the run index"):
        Index(path)
    assert path.read_text().startswith("not a database")


def _fill(arguments: tuple[Path, int]) -> None:
    path, number = arguments
    with Index(path) as index:
        index.start_run(f"run{number}", "x.py", path.parent)
        for _ in range(10):
            index.add_evaluation(f"run{number}", _report("ab"))


def test_several_processes_write_at_once(tmp_path: Path) -> None:
    """Processes that open a new file together and write together lose nothing and meet no lock error."""
    path = tmp_path / "i.sqlite"
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_fill, [(path, number) for number in range(8)])
    with Index(path) as index:
        assert sorted((row.id, row.evaluations) for row in index.runs()) == [(f"run{n}", 10) for n in range(8)]


def test_ledger_compares_expected_with_achieved(tmp_path: Path) -> None:
    """Means are over timed pairs only; advice that was followed and not timed is counted apart."""
    with Index(tmp_path / "i.sqlite") as index:
        index.start_run("r", "x.py", tmp_path)
        for expected, achieved in (((1.0, 2.0), 1.2), ((2.0, 3.0), 1.0), ((5.0, 9.0), None)):
            index.add_advice(
                "r", source="coalescing", advice="wider loads", parent="a", child="b", expected=expected,
                achieved=achieved,
            )  # fmt: skip
        (row,) = index.ledger()
        assert (row.source, row.times_followed, row.times_timed) == ("coalescing", 3, 2)
        assert (row.expected, row.achieved) == (2.0, 1.1)


def test_damage_found_while_reading_is_one_line(tmp_path: Path) -> None:
    """An index that breaks after it was opened is a StoreError that names the file."""
    path = tmp_path / "i.sqlite"
    with Index(path) as index:
        index.start_run("a", "x.py", tmp_path)
        with sqlite3.connect(path) as db:
            db.execute("DROP TABLE evaluations")
        with pytest.raises(StoreError, match=r"i\.sqlite cannot be read: no such table"):
            index.runs()


def test_a_place_that_takes_no_index(tmp_path: Path) -> None:
    """A file in the place of the folder is one line with what to do."""
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreError, match=r"i\.sqlite cannot be written") as caught:
        Index(tmp_path / "state" / "i.sqlite")
    assert "KFORGE_STATE" in caught.value.hint


def test_a_damaged_page_is_found_when_opened(tmp_path: Path) -> None:
    """Not in the middle of a run that has paid for what it found so far."""
    path = tmp_path / "i.sqlite"
    with Index(path) as index:
        for k in range(400):
            index.start_run(f"r{k}", "x.py", tmp_path)
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 4 * 4096] = b"\xff" * 4096
    path.write_bytes(bytes(data))
    with pytest.raises(StoreError, match=r"i\.sqlite cannot be used as the run index: damaged: .*"):
        Index(path)


@pytest.mark.parametrize(
    ("free", "words", "hint"), [(0, "the disk is full", "make room"), (10**6, "disk I/O error", "make room")]
)
def test_a_full_disk_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, words: str, hint: str
) -> None:
    """SQLite tells a full disk as an I/O error: the file is not to be moved away for that."""

    def fail(self: Index, fixed: bool) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
        raise error

    room = os.statvfs_result((4096, 4096, 10**6, free, free, 10, 10, 10, 0, 255))
    monkeypatch.setattr(Index, "_check", fail)
    monkeypatch.setattr(os, "statvfs", lambda folder: room)
    with pytest.raises(StoreError, match=rf"i\.sqlite cannot be used as the run index: {words}") as caught:
        Index(tmp_path / "i.sqlite")
    assert caught.value.hint.startswith(hint)


def test_a_large_index_is_read_whole_once_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file over the limit opens without a check until a day has passed; what is damaged then is one line."""
    monkeypatch.setattr("kforge.store.database.EAGER_BYTES", 8192)
    path = tmp_path / "i.sqlite"
    with Index(path) as index:
        for k in range(400):
            index.start_run(f"r{k}", "x.py", tmp_path)
    Index(path).close()
    mark = path.with_suffix(".checked")
    assert mark.exists()
    data = bytearray(path.read_bytes())
    data[3 * 4096 : 4 * 4096] = b"\xff" * 4096
    path.write_bytes(bytes(data))
    with Index(path) as index, pytest.raises(StoreError, match=r"i\.sqlite cannot be read: .*malformed"):
        index.runs()
    os.utime(mark, (0, 0))
    with pytest.raises(StoreError, match=r"i\.sqlite cannot be used as the run index: damaged: .*"):
        Index(path)
    assert not mark.exists()


def _read_without_rights(path: Path, results: multiprocessing.SimpleQueue) -> None:
    if os.getuid() == 0:
        os.setuid(65534)
    with Index(path) as index:
        seen = [row.id for row in index.runs()]
        with pytest.raises(StoreError):
            index.start_run("r2", "x.py", path)
        results.put(seen)


def test_a_folder_without_write_permission_is_read() -> None:
    """What is there is listed; a write says that it cannot be done."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Index(folder / "i.sqlite") as index:
            index.start_run("r1", "x.py", folder)
        folder.chmod(0o555)
        results = multiprocessing.SimpleQueue()
        process = multiprocessing.get_context("fork").Process(
            target=_read_without_rights, args=(folder / "i.sqlite", results)
        )
        process.start()
        process.join()
        folder.chmod(0o755)
        assert process.exitcode == 0 and results.get() == ["r1"]
