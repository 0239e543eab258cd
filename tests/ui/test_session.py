"""The IDE in a real terminal: a whole session inside tmux on the emulator, and what happens without a terminal."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

KFORGE = [sys.executable, "-m", "kforge"]


class Tmux:
    """A server of its own with one window."""

    def __init__(self, folder: Path, size: str = "130x40") -> None:
        self.socket = str(folder / "tmux")
        self.folder = folder
        self.width, self.height = size.split("x")

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(["tmux", "-S", self.socket, *arguments], capture_output=True, text=True, check=False)
        return done.stdout

    def start(self, command: str) -> None:
        """Run a shell command in the window; the window stays when it has ended."""
        env = [f"{name}={os.environ[name]}" for name in ("PATH", "HOME", "KFORGE_CACHE") if name in os.environ]
        # pytest's COLUMNS and LINES are not the window's
        kforge = f"env -u COLUMNS -u LINES {' '.join(env)} KFORGE_PLAN=quick KFORGE_DEVICE=cpu {command}"
        whole = f"cd {self.folder} && {kforge}; echo ended with $?; sleep 600"
        self("-f", "/dev/null", "new-session", "-d", "-x", self.width, "-y", self.height, whole)

    def keys(self, *names: str) -> None:
        """Press keys."""
        for name in names:
            self("send-keys", name)
            time.sleep(0.1)

    @property
    def screen(self) -> str:
        """What the window shows."""
        return self("capture-pane", "-p")

    def until(self, words: str, seconds: float = PATIENCE_S) -> str:
        """Wait until the window shows these words."""
        end = time.monotonic() + seconds
        while words not in (shown := self.screen):
            assert time.monotonic() < end, f"{words!r} is not shown\n{shown}"
            time.sleep(0.2)
        return shown


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    """tmux with a folder that holds a small task."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    text = (Path(__file__).resolve().parents[2] / "examples" / "softmax.py").read_text()
    text = text.partition("def get_input_variants")[0]  # an export judges every variant, by plan full
    (tmp_path / "softmax.py").write_text(text.replace("torch.randn(128, 1024)", "torch.randn(8, 64)"))
    window = Tmux(tmp_path)
    try:
        yield window
    finally:
        window("kill-server")


def test_from_open_to_exported(tmux: Tmux, tmp_path: Path) -> None:
    """Open op.py, run the engine, look at the diff, accept, export, quit: with the keys that the screen names."""
    tmux.start(f"{sys.executable} -m kforge softmax.py")
    tmux.until("F2 looks for a faster kernel")
    tmux.keys("F2")
    tmux.until("F8 shows what changed, F4 accepts it")
    tmux.keys("F8")
    tmux.until("over softmax.py")
    tmux.keys("F4")
    shown = tmux.until("Written to")
    assert "VERIFIED UNTIMED on emulator" in shown and not (tmp_path / "softmax_kforge.cu").exists()
    tmux.keys("a")
    tmux.until("F10 exports it")
    assert (tmp_path / "softmax_kforge.cu").is_file() and (tmp_path / "softmax_kforge.py").is_file()
    tmux.keys("F10")
    tmux.until("Export candidate")
    tmux.keys("BTab", "Down", "Down", "Down", "Space", "C-s")  # the format of one file
    assert "(EMULATOR ONLY, UNTIMED)" in tmux.until("exported to")
    assert any("ModelNew" in path.read_text() for path in (tmp_path / "softmax_package").glob("*.py"))
    tmux.keys("C-q")
    tmux.until("ended with 0")


def test_small_terminal(tmp_path: Path, tmux: Tmux) -> None:
    """At 80x24 the session opens, panes come by their keys, and ctrl+q leaves with code 0."""
    tmux.width, tmux.height = "80", "24"
    tmux.start(f"{sys.executable} -m kforge softmax.py")
    shown = tmux.until("F1 Help")
    assert "Editor  Timeline" in shown and max(len(line) for line in shown.splitlines()) <= 80
    tmux.keys("F8")
    tmux.until("there is no candidate yet")
    tmux.keys("M-0", "C-q")
    tmux.until("ended with 0")


def test_first_run_offers_an_example(tmp_path: Path, tmux: Tmux) -> None:
    """`kforge` alone lists the folder's tasks; the example is written and opened."""
    (tmp_path / "softmax.py").unlink()
    (tmp_path / "mine.py").write_text("def get_inputs():\n    return []\n")
    tmux.start(f"{sys.executable} -m kforge")
    assert "open mine.py" in tmux.until("write softmax.py")
    tmux.keys("Down", "Enter")
    tmux.until("Softmax over the last dimension")
    assert (tmp_path / "softmax.py").is_file()
    tmux.keys("C-q")
    tmux.until("ended with 0")


@pytest.mark.parametrize("word", ["softmax.py", "missing.py"])
def test_without_a_terminal(tmp_path: Path, word: str) -> None:
    """`kforge op.py` into a pipe says in one line what to use instead, and ends with code 2."""
    (tmp_path / "softmax.py").write_text("")
    done = subprocess.run(
        [*KFORGE, word], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == (
        f"error: the IDE needs a terminal, and there is none (did you mean: kforge suggest {word})\n"
    )


def test_the_core_is_hidden() -> None:
    """`kforge core` is for the IDE: help does not list it."""
    done = subprocess.run([*KFORGE, "--help"], capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert "core" not in done.stdout
