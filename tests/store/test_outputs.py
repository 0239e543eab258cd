"""Files given to the user: whole or not at all, and never over something that kforge did not write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kforge.errors import UsageError
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
    with pytest.raises(OSError, match="disk full"):
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
