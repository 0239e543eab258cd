"""Lessons from attempts, and the keys under which they are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kforge.agent.memory import Key, Lesson, Outcome, key_of, lesson_of
from kforge.agent.memory.keys import family_of, shape_class
from kforge.agent.memory.lesson import SOURCE, outcome
from kforge.agent.search.tree import Tree
from kforge.environment.report import Detector, Report, Status
from tests.agent.search.simulator import candidate, report

KEY = Key("softmax", "launch, short rows", "emulator")


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (1.05, "gain"),
        (1.049, "same"),
        (1.0, "same"),
        (0.84, "same"),  # a loss of 1.19
        (1 / 1.2, "loss"),
        (None, "right"),
    ],
)
def test_thresholds(gain: float | None, expected: str) -> None:
    """A gain counts from 1.05, a loss from 1.20; without a time right is right."""
    assert outcome(Status.VERIFIED, gain) == expected


@pytest.mark.parametrize(
    "status", [Status.WRONG, Status.BUILD_FAILED, Status.CRASHED, Status.TIMED_OUT, Status.REJECTED]
)
def test_failures(status: Status) -> None:
    """Whatever is not right has failed, whatever it gained."""
    assert outcome(status, 2.0) is Outcome.FAILED


def _attempt(tree: Tree, text: str, parent: int, found: Report | None = None, ms: float | None = None) -> Lesson:
    made = candidate(text, idea=f"idea of {text}")
    node = tree.add(parent, made, "tiling")
    found = found or report(made, ms)
    tree.record(node.id, found, 1.0)
    return lesson_of(KEY, tree, node, found, made, "run 1")


def test_gain_is_over_the_parent() -> None:
    """A child's gain is its parent's time over its own; under the root it is the speed-up over the baseline."""
    tree = Tree()
    first = _attempt(tree, "a", 0, ms=0.8)
    assert (first.gain, first.outcome) == (pytest.approx(1.25), "gain")
    child = _attempt(tree, "b", 1, ms=1.0)
    assert (child.gain, child.outcome) == (pytest.approx(0.8), "loss")
    assert (child.text, child.run, child.direction) == ("idea of b", "run 1", "tiling")


def test_failure_and_hack() -> None:
    """A failure keeps its first line, a hack the detectors that fired and its source."""
    tree = Tree()
    made = candidate("bad", idea="idea of bad")
    wrong = _attempt(tree, "bad", 0, report(made, None, status=Status.WRONG, failure="NaN at 3\nlong story"))
    assert (wrong.outcome, wrong.why, wrong.gain, wrong.source) == ("failed", "NaN at 3", None, "")
    sneaky = candidate("y" * 3 * SOURCE, idea=f"idea of {'y' * 3 * SOURCE}")
    found = report(sneaky, None, status=Status.HACKED, failure="work on another stream")
    found = replace(found, detectors=(Detector("side_stream", True), Detector("no_copy", False)))
    hack = _attempt(tree, "y" * 3 * SOURCE, 0, found)
    assert (hack.outcome, hack.why) == ("hacked", "side_stream: work on another stream")
    assert hack.source == "y" * SOURCE


@pytest.mark.parametrize(
    ("operators", "family"),
    [
        ("amax sub exp sum div", "softmax"),
        ("_log_softmax nll_loss_forward", "softmax"),
        ("bmm _softmax bmm mul", "attention"),
        ("addmm relu", "matmul"),
        ("convolution relu", "convolution"),
        ("mul mean add rsqrt", "norm"),
        ("native_layer_norm", "norm"),
        ("cumsum", "scan"),
        ("topk", "sort"),
        ("max_pool2d_with_indices", "pooling"),
        ("index_add mul", "scatter"),
        ("embedding add", "gather"),
        ("mul sum", "reduction"),
        ("mul tanh add view", "pointwise"),
        ("permute clone view", "movement"),
    ],
)
def test_families(operators: str, family: str) -> None:
    """The most demanding part of a graph names its family."""
    assert family_of(operators.split()) == family


def test_shape_classes() -> None:
    """Where the inputs fit and how long the rows of the largest are; rows do not matter to pointwise work."""
    assert shape_class("softmax", [((128, 1024), 4)]) == "launch, short rows"
    assert shape_class("softmax", [((8192, 1025), 2)]) == "cache, medium rows"
    assert shape_class("norm", [((16385,), 4), ((4096, 16385), 4)]) == "memory, long rows"
    assert shape_class("pointwise", [((4096, 16384), 4)]) == "memory"
    assert shape_class("softmax", []) == "launch"


@pytest.mark.parametrize(("name", "family"), [("softmax", "softmax"), ("rms_norm", "norm"), ("triton_add", "other")])
def test_key_of_a_captured_task(root: Path, name: str, family: str) -> None:
    """The key is read from the graph that the task's reference gives; a kernel without a graph has the family other."""
    from kforge.task import capture, load_task

    key = key_of(capture(load_task(root / "examples" / f"{name}.py")), "emulator")
    assert (key.family, key.chip) == (family, "emulator")
    assert key.shape_class == "unknown" if family == "other" else key.shape_class.endswith("short rows")
