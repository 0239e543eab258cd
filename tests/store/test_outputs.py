"""Files given to the user: whole or not at all, and never over something that kforge did not write."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kforge.errors import StoreError, UsageError
from kforge.store.outputs import MANIFEST, check_outputs, write_outputs


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_writes_and_returns_paths(tmp_path: Path) -> None:
    """The folder is made, the texts are there, the paths come back sorted, nothing temporary is left."""
    folder = tmp_path / "out" / "softmax"
    paths = write_outputs(folder, {"b.py": "two\n", "a.cu": "µ\n"})
    assert paths == [folder / "a.cu", folder / "b.py"]
    assert [path.read_text() for path in paths] == ["µ\n", "two\n"]
    assert _names(folder) == {"a.cu", "b.py", MANIFEST}


def test_overwrites_its_own_files(tmp_path: Path) -> None:
    """A second run replaces what the first wrote, and removes what it no longer has."""
    write_outputs(tmp_path, {"m.py": "1", "old.cu": "1"})
    write_outputs(tmp_path, {"m.py": "2", "new.cu": "2"})
    assert _names(tmp_path) == {"m.py", "new.cu", MANIFEST}
    assert (tmp_path / "m.py").read_text() == "2"


@pytest.mark.parametrize("edited", [False, True])
def test_keeps_what_is_the_users(tmp_path: Path, edited: bool) -> None:
    """A file that kforge did not write, or that was edited since, is refused before anything is written."""
    if edited:
        write_outputs(tmp_path, {"m.py": "ours"})
    (tmp_path / "m.py").write_text("theirs")
    reason = "was edited since" if edited else "was not written by kforge"
    for attempt in (
        lambda: check_outputs(tmp_path, ["m.py"]),
        lambda: write_outputs(tmp_path, {"a.cu": "", "m.py": ""}),
    ):
        with pytest.raises(UsageError, match=reason):
            attempt()
    assert (tmp_path / "m.py").read_text() == "theirs"
    assert not (tmp_path / "a.cu").exists()


def test_stale_file_that_was_edited_stays(tmp_path: Path) -> None:
    """An old output that the user has edited is not removed when it is no longer written."""
    write_outputs(tmp_path, {"m.py": "1", "old.cu": "1"})
    (tmp_path / "old.cu").write_text("mine now")
    write_outputs(tmp_path, {"m.py": "2"})
    assert (tmp_path / "old.cu").read_text() == "mine now"


def test_symlink_is_not_followed(tmp_path: Path) -> None:
    """A link in the place of an output is the user's, wherever it points."""
    target = tmp_path / "precious.py"
    target.write_text("precious")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "m.py").symlink_to(target)
    with pytest.raises(UsageError, match="was not written by kforge"):
        write_outputs(folder, {"m.py": "x"})
    assert target.read_text() == "precious"


def test_crash_between_two_files_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash in the middle, the next run knows both the old and the new files as its own."""
    write_outputs(tmp_path, {"a.cu": "1", "b.py": "1"})
    replace = os.replace

    def crash(source: str, target: Path) -> None:
        if Path(target).name == "b.py":
            raise OSError("disk full")
        replace(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(StoreError, match="disk full"):
        write_outputs(tmp_path, {"a.cu": "2", "b.py": "2"})
    monkeypatch.undo()
    assert _names(tmp_path) == {"a.cu", "b.py", MANIFEST}
    write_outputs(tmp_path, {"a.cu": "3", "b.py": "3"})
    assert (tmp_path / "a.cu").read_text() + (tmp_path / "b.py").read_text() == "33"


def test_out_that_is_a_file(tmp_path: Path) -> None:
    """A file in the place of the folder is a usage error."""
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="is not a folder"):
        check_outputs(tmp_path / "out", ["m.py"])


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    """Outputs are as readable as any file the user makes."""
    before = os.umask(0o022)
    try:
        (path,) = write_outputs(tmp_path, {"m.py": "x"})
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o644


def test_the_trial_finds_what_the_end_would(tmp_path: Path) -> None:
    """A folder in which nothing can be made is a usage error before any work, in one line with the reason."""
    (tmp_path / "file").write_text("")
    for folder in (Path("/proc/kforge"), tmp_path / "file" / "below", tmp_path / "file"):
        with pytest.raises(UsageError, match=r"cannot be written: |is not a folder") as caught:
            check_outputs(folder, ["m.py"])
        assert "--out" in caught.value.hint and caught.value.exit_code == 2


def test_the_trial_of_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes no bytes is found by the trial, which leaves nothing behind."""

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UsageError, match="No space left on device"):
        check_outputs(tmp_path / "a" / "b", ["m.py"])
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_the_trial_leaves_no_trace(tmp_path: Path) -> None:
    """Folders that the trial makes are gone afterwards; those that were there stay, with what is in them."""
    (tmp_path / "old").mkdir()
    check_outputs(tmp_path / "new" / "op", ["m.py"])
    check_outputs(tmp_path / "old", ["m.py"])
    assert _names(tmp_path) == {"old"} and _names(tmp_path / "old") == set()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission(tmp_path: Path) -> None:
    """A folder that may not be written is found by the trial."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(UsageError, match="Permission denied"):
            check_outputs(tmp_path, ["m.py"])
    finally:
        tmp_path.chmod(0o700)


def test_a_write_that_fails_says_where_the_candidate_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hint of the caller comes with the error, and no temporary file is left."""

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="cannot be written: No space left on device") as caught:
        write_outputs(tmp_path, {"m.py": "x"}, hint="kept in the run")
    assert (caught.value.hint, caught.value.exit_code) == ("kept in the run", 1)
    assert _names(tmp_path) == set()


def test_temporary_files_of_the_dead_are_removed(tmp_path: Path) -> None:
    """A temporary file of hours ago is removed by the next write; a fresh one may be another process's."""
    old, fresh = tmp_path / ".kforge-new-old", tmp_path / ".kforge-new-fresh"
    old.write_text("")
    fresh.write_text("")
    os.utime(old, (0, 0))
    write_outputs(tmp_path, {"m.py": "x"})
    assert not old.exists() and fresh.exists()


def test_trials_at_once_do_not_meet(tmp_path: Path) -> None:
    """Processes that begin at the same moment with one output folder all find it writable, and leave nothing."""
    folder = tmp_path / "out" / "softmax"
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(check_outputs, folder, ["m.py"]) for _ in range(200)]:
            done.result()
    assert _names(tmp_path) == set()
