"""The engine's fuzzer: its tasks are tasks, and what it compares with is able to find a wrong candidate."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import torch

from benchmarks.fuzz_engine import apart, different, program
from kforge.task import load_task


def test_a_seed_is_a_task(tmp_path: Path) -> None:
    """A seed is the same task each time, and its reference runs on its own inputs."""
    for seed in range(25):
        made = program(seed)
        assert made.text == program(seed).text
        path = tmp_path / f"op_{seed}.py"
        path.write_text(made.text)
        task = load_task(path)
        task.run(task.make_reference(), task.make_call())


def test_what_is_called_different() -> None:
    """Strides, shapes, NaN, infinities and values beyond rounding are; roundings and steps over one element are not."""
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    exact = x.double()
    assert different(x, x.clone(), exact) == ""
    assert different(x, x * (1 + 1e-7), exact) == ""
    assert different(x[:1], x[:1].as_strided((1, 4), (99, 1)), exact[:1]) == ""
    assert "strides" in different(x, x.t().contiguous().t(), exact)
    assert "reference (3, 4)" in different(x, x[:2], exact)
    assert "off by" in different(x, x + 1e-3, exact)
    assert "NaN" in different(x, x.clone().fill_(float("nan")), exact)
    assert "infinities" in different(x / 0, x / 0 * -1, exact / 0)
    assert different(x.int(), x.int() + 1, None) == "12 of 12 integers differ"


def test_a_seed_that_ends_its_process() -> None:
    """A crash and an endless loop are results like any other, and an exception is told with its place."""
    assert apart(lambda: {"kind": "right"}, 20) == {"kind": "right"}
    assert apart(lambda: os.kill(os.getpid(), signal.SIGKILL), 20)["kind"] == "crashed"  # type: ignore[arg-type]
    assert apart(lambda: json.loads("{"), 20)["why"].startswith("JSONDecodeError")
