"""Candidates by content: what is put is what is got, once, from any process, and never silently changed."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from kforge.errors import KforgeError, UsageError
from kforge.kernel.candidate import Candidate
from kforge.store.candidates import CandidateStore

ONE = Candidate(
    module="softmax_kforge.py",
    files={"softmax_kforge.py": "class ModelNew: ...\n", "softmax_kforge.cu": "// µ\n"},
    proposer="engine",
    parent="ff",
    idea="rows",
    expected_gain=1.5,
)


def test_round_trip(tmp_path: Path) -> None:
    """Files and provenance come back as they were, under the content's digest."""
    store = CandidateStore(tmp_path / "candidates")
    digest = store.put(ONE)
    assert digest == ONE.digest
    assert store.get(digest) == ONE
    assert store.get(digest).files == ONE.files
    assert list(store) == [digest] and digest in store and "0" * 16 not in store


def test_same_content_is_stored_once(tmp_path: Path) -> None:
    """Putting equal files again changes nothing: the first provenance stays."""
    store = CandidateStore(tmp_path)
    store.put(ONE)
    store.put(Candidate(module=ONE.module, files=dict(ONE.files), proposer="user"))
    assert store.get(ONE.digest).proposer == "engine"
    assert len(list(store)) == 1


def test_short_digest_must_be_unique(tmp_path: Path) -> None:
    """A beginning of at least four digits is enough when it fits one candidate; else the error lists what exists."""
    store = CandidateStore(tmp_path)
    store.put(ONE)
    assert store.get(ONE.digest[:6]) == ONE
    with pytest.raises(UsageError, match="no candidate 'ffff'") as error:
        store.get("ffff" if not ONE.digest.startswith("ffff") else "0000")
    assert ONE.digest in error.value.hint
    with pytest.raises(UsageError):
        store.get(ONE.digest[:3])


def test_change_on_disk_is_noticed(tmp_path: Path) -> None:
    """A stored file that was edited no longer passes for the candidate that was judged."""
    store = CandidateStore(tmp_path)
    digest = store.put(ONE)
    (tmp_path / digest / "softmax_kforge.cu").write_text("// other\n")
    with pytest.raises(KforgeError, match="changed on disk"):
        store.get(digest)


@pytest.mark.parametrize("name", ["../x.py", "a/b.cu", "..", ""])
def test_names_with_folders_are_refused(tmp_path: Path, name: str) -> None:
    """A candidate cannot place a file outside its folder."""
    store = CandidateStore(tmp_path / "store")
    with pytest.raises(KforgeError, match="cannot be named"):
        store.put(Candidate(module=name, files={name: "x"}))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def _put(folder: Path) -> str:
    return CandidateStore(folder).put(ONE)


def test_several_processes_put_the_same(tmp_path: Path) -> None:
    """Processes that store one candidate at once all succeed and leave one whole folder."""
    with multiprocessing.get_context("fork").Pool(4) as pool:
        digests = pool.map(_put, [tmp_path] * 16)
    assert set(digests) == {ONE.digest}
    assert [path.name for path in tmp_path.iterdir()] == [ONE.digest]
    assert CandidateStore(tmp_path).get(ONE.digest) == ONE
