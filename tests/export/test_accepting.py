"""Accept writes beside op.py, as one entry that undo takes back whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kforge.errors import UsageError
from kforge.export.accepting import accept, entries, undo

FILES = {"op_kforge.py": "first\n", "op_kforge.cu": "// first\n"}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """An op.py in a folder of its own."""
    path = tmp_path / "project" / "op.py"
    path.parent.mkdir()
    path.write_text("# the task\n")
    return path


def test_accept_and_undo(task: Path, tmp_path: Path) -> None:
    """The files appear, op.py stays; undo leaves the folder as it was; there is nothing more to undo then."""
    entry = accept(task, "abc", FILES, task.parent, tmp_path / "state")
    assert {p.name: p.read_text() for p in task.parent.iterdir()} == FILES | {"op.py": "# the task\n"}
    assert entry.number == 1
    assert undo(tmp_path / "state", task).undone
    assert [p.name for p in task.parent.iterdir()] == ["op.py"]
    with pytest.raises(UsageError, match="no accept to undo"):
        undo(tmp_path / "state", task)


def test_undo_goes_back_one_accept(task: Path, tmp_path: Path) -> None:
    """A second accept replaces the first one's files; undo brings those back, and again nothing."""
    state = tmp_path / "state"
    accept(task, "abc", FILES, task.parent, state)
    accept(task, "def", {"op_kforge.py": "second\n"}, task.parent, state)
    assert (task.parent / "op_kforge.py").read_text() == "second\n"
    undo(state, task)
    assert (task.parent / "op_kforge.py").read_text() == "first\n"
    undo(state, task)
    assert not (task.parent / "op_kforge.py").exists()
    assert [e.undone for e in entries(state)] == [True, True]


def test_files_of_the_user_are_kept(task: Path, tmp_path: Path) -> None:
    """A file that no accept wrote, or that was edited since, is neither overwritten nor taken back."""
    state = tmp_path / "state"
    (task.parent / "op_kforge.cu").write_text("mine")
    with pytest.raises(UsageError, match=r"op_kforge\.cu was not written by an accept"):
        accept(task, "abc", FILES, task.parent, state)
    assert not (task.parent / "op_kforge.py").exists()
    assert entries(state) == []
    (task.parent / "op_kforge.cu").unlink()
    accept(task, "abc", FILES, task.parent, state)
    (task.parent / "op_kforge.py").write_text("edited")
    for action in (lambda: accept(task, "def", FILES, task.parent, state), lambda: undo(state, task)):
        with pytest.raises(UsageError, match="edited since"):
            action()
    assert (task.parent / "op_kforge.py").read_text() == "edited"
    assert (task.parent / "op_kforge.cu").read_text() == "// first\n"


@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.write_bytes("# résumé\n".encode("latin-1")),
        os.mkfifo,
        lambda path: path.symlink_to("nowhere"),
        lambda path: path.mkdir(),
    ],
    ids=["latin-1", "pipe", "link", "folder"],
)
def test_what_is_no_text_is_kept(task: Path, tmp_path: Path, make: Callable[[Path], None]) -> None:
    """Neither an accept nor an undo waits for it, writes over it or removes it."""
    path, state = task.parent / "op_kforge.py", tmp_path / "state"
    make(path)
    with pytest.raises(UsageError, match="is no text file: it is kept"):
        accept(task, "abc", FILES, task.parent, state)
    path.rename(tmp_path / "aside")
    accept(task, "abc", FILES, task.parent, state)
    path.unlink()
    (tmp_path / "aside").rename(path)
    with pytest.raises(UsageError, match="was edited since it was accepted: nothing is undone"):
        undo(state, task)
    assert path.is_symlink() or path.exists()
    assert (task.parent / "op_kforge.cu").read_text() == FILES["op_kforge.cu"]


def test_op_py_is_never_overwritten(task: Path, tmp_path: Path) -> None:
    """A candidate with a file of op.py's name is refused."""
    with pytest.raises(UsageError, match=r"a file named op\.py"):
        accept(task, "abc", {"op.py": ""}, task.parent, tmp_path / "state")
    assert task.read_text() == "# the task\n"


def test_undo_after_a_crash_in_between(task: Path, tmp_path: Path) -> None:
    """The entry is written first: with only some of its files in place undo still restores the folder."""
    state = tmp_path / "state"
    accept(task, "abc", FILES, task.parent, state)
    (task.parent / "op_kforge.py").unlink()
    undo(state, task)
    assert [p.name for p in task.parent.iterdir()] == ["op.py"]


def test_undo_is_of_one_task(task: Path, tmp_path: Path) -> None:
    """Undo of one op.py leaves another's accept alone."""
    state = tmp_path / "state"
    other = tmp_path / "other" / "op2.py"
    accept(task, "abc", FILES, task.parent, state)
    accept(other, "def", {"op2_kforge.py": ""}, other.parent, state)
    undo(state, task)
    assert (other.parent / "op2_kforge.py").exists()
    assert not (task.parent / "op_kforge.py").exists()


def test_accepts_at_once_keep_every_entry(task: Path, tmp_path: Path) -> None:
    """Twenty accepts by eight threads are twenty entries, and as many undos."""
    state = tmp_path / "state"
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda k: accept(task, f"c{k}", {f"k{k}.cu": "x"}, task.parent, state), range(20)))
    assert sorted(entry.number for entry in made) == list(range(1, 21)) == [e.number for e in entries(state)]
    for _ in made:
        undo(state, task)
    assert not list(task.parent.glob("k*.cu"))
