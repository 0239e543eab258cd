"""All examples give right candidates, and what users read is stable text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kforge.task import load_task
from tests.engine.support import compare, proposals

EXAMPLES = (
    "softmax",
    "rms_norm",
    "swiglu",
    "gelu_tanh",
    "layer_norm_residual",
    "cross_entropy",
    "rotary_embedding",
    "masked_mean",
)
GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", EXAMPLES)
def test_best_guess_is_right(name: str, root: Path, tmp_path: Path) -> None:
    """The first candidate for each example agrees with eager torch on its first two variants."""
    task = load_task(root / "examples" / f"{name}.py")
    variants = [0] if name in ("masked_mean", "layer_norm_residual") else [0, 1]  # the others' second is for a GPU
    compare(task, proposals(task)[0], tmp_path, [task.make_call(v) for v in variants])


@pytest.mark.parametrize("name", ("softmax", "layer_norm_residual", "swiglu"))
def test_text_is_the_golden_one(name: str, root: Path) -> None:
    """The generated files are those that were reviewed; the same task gives the same text every time."""
    task = load_task(root / "examples" / f"{name}.py")
    first, again = proposals(task)[0], proposals(task)[0]
    assert first.files == again.files
    for file, text in first.files.items():
        assert text == (GOLDEN / f"{file}.txt").read_text(), f"{file} changed: review it, then replace the golden file"


def test_alternatives_differ_in_schedule_only(root: Path) -> None:
    """Candidates of one task are several, distinct, and say in words what each tries."""
    found = proposals(load_task(root / "examples" / "softmax.py"))
    assert len({c.digest for c in found}) == len(found) >= 3
    assert "block per row" in found[0].idea  # few rows: a warp each would leave the GPU idle
    assert all(c.proposer == "engine" and c.expected_gain and c.expected_gain > 1 for c in found)


def test_the_documentation_shows_what_is_written(root: Path) -> None:
    """Each sample of docs/engine_samples.md is a whole kernel of the first candidate for the task that it names."""
    page = (root / "docs" / "engine_samples.md").read_text()
    samples = re.findall(r"^```cuda (\w+)\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    assert len(samples) == 3
    for name, text in samples:
        first = proposals(load_task(root / "benchmarks" / "workloads" / f"{name}.py"))[0]
        written = first.files[f"{name}_kforge.cu"]
        assert f"\n\n{text}" in written, f"{name} is written otherwise by now: review it, then replace the sample"
        assert "__global__" in text and text.startswith("//") and text.endswith("\n}\n")
