"""The kernels that kforge generates for its examples are free of races, and lose that with one barrier taken out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kforge.errors import EmulatorError
from kforge.task import Task, load_task
from tests.engine.support import SCHEDULES, forced, load_model, proposals
from tests.engine.test_examples import EXAMPLES


def run(task: Task, candidate, folder: Path) -> None:
    """One call on the CPU, in the mode that the environment names."""
    init = task.init_call()
    model = load_model(candidate, folder)(*init.args, **init.kwargs)
    model.load_state_dict(task.make_reference().state_dict())
    task.run(model, task.make_call())


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n != "masked_mean"])  # its shape takes 6 s
def test_examples_are_clean(name: str, root: Path, tmp_path: Path, monkeypatch) -> None:
    """The best guess for each example runs under the race detector without a finding."""
    monkeypatch.setenv("KFORGE_EMULATOR", "traced")
    task = load_task(root / "examples" / f"{name}.py")
    run(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize("order", [0, 2])
@pytest.mark.parametrize("schedule", ["warp", "block", "stream", "split"])
def test_every_schedule_is_clean(schedule: str, order: int, root: Path, tmp_path: Path, monkeypatch) -> None:
    """All ways to reduce a row, the one where blocks wait for each other included."""
    assert schedule in SCHEDULES
    monkeypatch.setenv("KFORGE_EMULATOR", f"traced:{order}")
    task = load_task(root / "examples" / "softmax.py")
    run(task, forced(task, schedule), tmp_path)


def test_a_barrier_less_is_found(root: Path, tmp_path: Path, monkeypatch) -> None:
    """Each __syncthreads of the block schedule is needed: without it the call raises and names the race."""
    monkeypatch.setenv("KFORGE_EMULATOR", "traced")
    task = load_task(root / "examples" / "softmax.py")
    candidate = forced(task, "block")
    (file,) = [f for f in candidate.files if f.endswith(".cu")]
    places = [m.span() for m in re.finditer(r"__syncthreads\(\);", candidate.files[file])]
    assert places
    caught = 0
    for start, end in places:
        text = candidate.files[file]
        try:
            run(task, candidate.with_file(file, text[:start] + text[end:]), tmp_path)
        except EmulatorError as error:
            caught += " races with " in error.message
    assert caught == len(places)
