"""The baselines of a profile: none is waited for beyond the limit, and what is left out is named."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kforge.profiling import baselines
from kforge.profiling.reference_times import ReferenceTimes
from kforge.task import Task, load_task
from tests.patience import PATIENCE_S

OP = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1.0


def get_inputs():
    return [torch.randn(64)]
"""


@pytest.fixture
def task(tmp_path: Path) -> Task:
    (tmp_path / "op.py").write_text(OP)
    return load_task(tmp_path / "op.py")


def _compiler(monkeypatch: pytest.MonkeyPatch, wait: Callable[[], Any]) -> None:
    """compile_default is eager behind a wait in its first call."""

    def make(module: Any) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            wait()
            return module(*args)

        return call

    monkeypatch.setitem(baselines.BASELINES, "compile_default", make)


def test_both_are_timed_where_the_compiler_is_quick(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Microseconds of each, nothing to note."""
    _compiler(monkeypatch, lambda: None)
    times = ReferenceTimes(task, 0, "cpu", limit_s=60.0)
    found = times.measure()
    assert found.keys() == {"eager", "compile_default"} and min(found.values()) > 0
    assert times.notes == []


def test_a_slow_compiler_is_left_out_and_named(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager alone, timed before the compiler began; the energy of a call is not measured beside a busy compiler."""
    done = threading.Event()
    _compiler(monkeypatch, lambda: done.wait(PATIENCE_S))
    times = ReferenceTimes(task, 0, "cpu", limit_s=0.5)
    try:
        found = times.measure()
        assert found.keys() == {"eager"} and found["eager"] > 0
        assert times.notes == ["baseline compile_default is left out: not compiled within 0.5 s"]
        assert times.energy() is None
    finally:
        done.set()


def test_eager_that_takes_longer_than_the_limit_is_waited_for(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """It alone: nobody waits for the compiler behind it."""
    done, timed = threading.Event(), threading.Event()
    _compiler(monkeypatch, lambda: done.wait(PATIENCE_S))
    make = baselines.BASELINES["eager"]
    monkeypatch.setitem(baselines.BASELINES, "eager", lambda module: timed.wait(PATIENCE_S) and make(module))
    times = ReferenceTimes(task, 0, "cpu", limit_s=0.0)
    try:
        assert not times.wait()
        threading.Timer(0.1, timed.set).start()
        assert times.measure().keys() == {"eager"}
        assert times.notes == ["baseline compile_default is left out: not compiled within 0 s"]
    finally:
        timed.set()
        done.set()


def test_a_baseline_that_fails_is_named(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kind of its error; eager stays."""
    _compiler(monkeypatch, lambda: [][0])
    times = ReferenceTimes(task, 0, "cpu", limit_s=60.0)
    assert times.measure().keys() == {"eager"}
    assert times.notes == ["baseline compile_default does not run: IndexError"]


def test_a_reference_that_fails_is_an_error(tmp_path: Path) -> None:
    """What eager raises is raised where its time is asked for."""
    (tmp_path / "op.py").write_text(OP.replace("x + 1.0", "x + torch.ones(3)"))
    times = ReferenceTimes(load_task(tmp_path / "op.py"), 0, "cpu", ("eager",))
    with pytest.raises(RuntimeError, match="size of tensor"):
        times.measure()


def test_a_program_ends_while_a_compiler_still_works(tmp_path: Path) -> None:
    """The thread is a daemon: the exit code is the program's own and comes long before the compiler is done."""
    (tmp_path / "op.py").write_text(OP)
    words = f"""
import time
from pathlib import Path
from kforge.profiling import baselines
from kforge.profiling.reference_times import ReferenceTimes
from kforge.task import load_task
baselines.BASELINES["compile_default"] = lambda module: lambda x: time.sleep(3600)
print(sorted(ReferenceTimes(load_task(Path({str(tmp_path / "op.py")!r})), 0, "cpu", limit_s=0.2).measure()))
"""
    done = subprocess.run(
        [sys.executable, "-c", words],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "['eager']"), done.stderr
