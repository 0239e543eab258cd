"""Profiles that are kept: whole or not at all, and what became of one on disk is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.agent.profile import FOLDER, save, saved
from kforge.errors import KforgeError, StoreError
from kforge.profiling.evidence import Evidence

EVIDENCE = Evidence("op", "abcdef", "emulator", "sm_90a", 0)


def test_a_profile_is_read_back(tmp_path: Path) -> None:
    """As it was, and nothing else lies in the folder; of another candidate there is none."""
    path = save(EVIDENCE, tmp_path)
    assert saved("abcdef", tmp_path) == EVIDENCE
    assert saved("fedcba", tmp_path) is None
    assert list((tmp_path / FOLDER).iterdir()) == [path]


@pytest.mark.parametrize("text", ["", '{"schema": 1', "[1, 2]", '{"schema": 1, "kernels": 5}', "\x00" * 64])
def test_a_damaged_profile_is_named(tmp_path: Path, text: str) -> None:
    """A crash of the machine may leave zeros or half a file: every diff of the candidate would end in a traceback."""
    path = save(EVIDENCE, tmp_path)
    path.write_text(text)
    with pytest.raises(KforgeError, match=rf"{path.name} is damaged") as caught:
        saved("abcdef", tmp_path)
    assert "kforge profile" in caught.value.hint


def test_a_place_that_takes_none(tmp_path: Path) -> None:
    """What the system refuses is one line with the place."""
    (tmp_path / FOLDER).write_text("a file in the way")
    with pytest.raises(StoreError, match="cannot be written"):
        save(EVIDENCE, tmp_path)
