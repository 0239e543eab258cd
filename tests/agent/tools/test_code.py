"""Tools on a local checkout: search and read by line, never outside of it, never for longer than a few seconds."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from kforge.agent.tools import Limits, Toolbox, call, schemas
from kforge.agent.workbench import Workbench
from kforge.errors import Interrupted
from tests.patience import PATIENCE_S


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout with a secret beside it, and links that lead there."""
    (tmp_path / "secret.txt").write_text("mma.sync token")
    root = tmp_path / "checkout"
    (root / "include" / "cute").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("mma.sync in git")
    (root / "include" / "cute" / "mma.hpp").write_text("// one\nstruct MMA {\n  // mma.sync here\n};\n")
    (root / "notes.md").write_text("Mma.Sync is old\n")
    (root / "blob.bin").write_bytes(b"mma.sync\0\1\2")
    (root / "link.txt").symlink_to(tmp_path / "secret.txt")
    (root / "out").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    return root


@pytest.fixture
def box(bench: Workbench, tmp_path: Path, checkout: Path) -> Toolbox:
    return Toolbox(bench, tmp_path / "work", bench.tree.root, (checkout,))


def test_search_shows_matches_with_context(box: Toolbox) -> None:
    """A match comes with its path, its line and the lines around; binary files, links and .git are left out."""
    assert {"search_code", "read_code"} <= {s["function"]["name"] for s in schemas(box)}
    result = call("search_code", {"pattern": r"mma\.sync", "context": 1}, box)
    assert result.text == "include/cute/mma.hpp:3\n     2  struct MMA {\n>    3    // mma.sync here\n     4  };"
    both = call("search_code", {"pattern": "mma.sync", "ignore_case": True, "context": 0}, box).text
    assert "notes.md:1" in both and "secret" not in both and "git" not in both
    assert "notes.md" not in call("search_code", {"pattern": "(?i)mma.sync", "files": "*.hpp *.cu"}, box).text
    assert call("search_code", {"pattern": "wgmma"}, box).text == "no match in 2 files"
    assert "[more than 1 matches" in call("search_code", {"pattern": ".", "most": 1}, box).text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": "(["}, "no regular expression"),
        ({"pattern": ""}, "1 to 500 characters"),
        ({"pattern": "x" * 501}, "1 to 500 characters"),
        ({"pattern": "x", "context": 99}, "context is 0 to 10"),
        ({"pattern": "x", "most": 0}, "most is 1 to 200"),
    ],
)
def test_a_wrong_search_is_a_text(box: Toolbox, arguments: dict[str, object], said: str) -> None:
    """A pattern that is none, and numbers out of range, are told."""
    result = call("search_code", arguments, box)
    assert result.is_error and said in result.text


def test_a_runaway_pattern_is_ended(box: Toolbox, checkout: Path) -> None:
    """An expression that backtracks without end is stopped after the time limit, and the answer says so."""
    (checkout / "long.txt").write_text("a" * 60 + "!\n")
    box = replace(box, limits=Limits(search_s=0.5))
    result = call("search_code", {"pattern": "(a+)+$"}, box)
    assert "[stopped after 0.5 s" in result.text


def test_a_stop_ends_a_search_at_once(box: Toolbox, checkout: Path) -> None:
    """The developer's stop does not wait for a search."""
    (checkout / "long.txt").write_text("a" * 60 + "!\n")
    box = replace(box, limits=Limits(search_s=PATIENCE_S))
    threading.Timer(0.3, box.bench.control.stop).start()
    try:
        with pytest.raises(Interrupted):
            call("search_code", {"pattern": "(a+)+$"}, box)
    finally:
        box.bench.control.reset()


def test_read_shows_lines(box: Toolbox) -> None:
    """A file is read by the path that the search shows."""
    text = call("read_code", {"path": "include/cute/mma.hpp", "first_line": 2, "lines": 2}, box).text
    assert text.splitlines()[1:3] == ["    2  struct MMA {", "    3    // mma.sync here"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt", "link.txt", "out/secret.txt", "/etc/passwd", "include/../../secret.txt", "", ".", "include",
        "pipe", "loop", "x" * 5000, "\ud800", "blob.bin", "absent.h", "a\0b", "include/cute/../../notes.md",
    ],
)  # fmt: skip
def test_read_stays_inside(box: Toolbox, path: str) -> None:
    """No path, link, pipe or binary file gives a text from elsewhere or makes the tool wait."""
    result = call("read_code", {"path": path}, box)
    assert result.is_error and "token" not in result.text and "root:" not in result.text


def test_several_checkouts_are_told_apart(bench: Workbench, tmp_path: Path, checkout: Path) -> None:
    """With two checkouts a path begins with the folder's name, and is read by that name."""
    other = tmp_path / "cutlass"
    other.mkdir()
    (other / "gemm.h").write_text("mma.sync twice\n")
    box = Toolbox(bench, tmp_path / "work", bench.tree.root, (checkout, other))
    assert "cutlass/gemm.h:1" in call("search_code", {"pattern": "twice"}, box).text
    assert "mma.sync twice" in call("read_code", {"path": "cutlass/gemm.h"}, box).text
