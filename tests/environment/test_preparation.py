"""The judge's side: fp64 beside the baseline, cases that a task does not have, seeds, state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kforge.environment.expected import Skip
from kforge.environment.inputs import Case
from kforge.environment.preparation import Prepared, prepare
from kforge.environment.provenance import Rule
from kforge.task import load_task


def make(tmp_path: Path, text: str, **options: object) -> Prepared:
    path = tmp_path / "op.py"
    path.write_text("import torch\n" + text)
    return prepare(load_task(path), "cpu", folder=tmp_path / "work", **options)  # type: ignore[arg-type]


def test_expected_values_are_fp64_of_the_same_inputs(prepared: Callable[[str], Prepared]) -> None:
    """The exact values differ from the baseline by rounding only, on strided inputs too."""
    for layout in ("contiguous", "strided"):
        expected = prepared("softmax").expected(Case(seed=3, layout=layout))
        (_, baseline), exact = expected.leaves[0], expected.exact[0]
        assert exact is not None and exact.dtype is torch.float64
        assert torch.equal(exact, torch.softmax(expected.call.args[0].double(), -1))
        assert 0 < float((baseline.double() - exact).abs().max()) < 1e-6


def test_a_distribution_that_overflows_is_skipped_and_said(tmp_path: Path) -> None:
    """exp(100 x) on shifted inputs is infinite everywhere: no information, so the case is not used."""
    ready = make(
        tmp_path,
        "def reference(x):\n    return torch.exp(x * 5)\ndef get_inputs():\n    return [torch.randn(40, 40)]\n",
    )
    with pytest.raises(Skip, match="100% of a reference output"):
        ready.expected(Case(distribution="offset"))
    assert ready.expected(Case(distribution="x3")).exact[0] is not None


def test_what_the_reference_rejects_is_skipped_and_said(tmp_path: Path) -> None:
    """A reference that refuses negative inputs has no case x-1."""
    text = (
        "def reference(x):\n    assert (x >= 0).all(), 'negative'\n    return x.sqrt()\n"
        "def get_inputs():\n    return [torch.rand(8, 8)]\n"
    )
    with pytest.raises(Skip, match="the reference rejects it: AssertionError: negative"):
        make(tmp_path, text).expected(Case(distribution="x-1"))


def test_seeds_follow_from_the_entropy(tmp_path: Path) -> None:
    """The same entropy gives the same inputs, another one others; without one it is drawn anew."""
    text = "def reference(x):\n    return x * 2\ndef get_inputs():\n    return [torch.randn(8)]\n"
    a, b, c, d = (make(tmp_path, text, entropy=e) for e in (1, 1, 2, None))
    values = [p.expected(Case()).call.args[0] for p in (a, b, c, d)]
    assert torch.equal(values[0], values[1]) and not torch.equal(values[0], values[2])
    assert d.entropy not in (1, 2)


def test_prepared_again_shares_what_no_seed_changes(prepared: Callable[[str], Prepared]) -> None:
    """Facts, captures, derived shapes and folders are the same; entropy, inputs and states are others."""
    case, first = Case(shape="prime"), prepared("affine")
    before = first.expected(case)
    second = first.again()
    assert second.facts is first.facts and second.rooms is first.rooms and second.folder == first.folder
    assert second.variant(case) == first.variant(case) and second.capture() is first.capture()
    after = second.expected(case)
    assert after.call.args[0].shape == before.call.args[0].shape and second.entropy != first.entropy
    assert not torch.equal(after.call.args[0], before.call.args[0])
    assert not torch.equal(second.state().tensors["scale"], first.state().tensors["scale"])
    assert first.expected(case) is before, "the first keeps its own"


def test_parameters_are_randomised_per_state_seed(prepared: Callable[[str], Prepared]) -> None:
    """Scale and shift are away from 1 and 0, differ between state seeds, and stay the same for one."""
    ready = prepared("affine")
    first, second = (ready.state(seed).tensors for seed in (0, 1))
    assert float((first["scale"] - 1).abs().mean()) > 0.1 and float(first["shift"].abs().mean()) > 0.1
    assert not torch.equal(first["scale"], second["scale"])
    assert torch.equal(first["scale"], ready.state(0).tensors["scale"])


def test_a_stateful_task_is_called_twice(prepared: Callable[[str], Prepared]) -> None:
    """The second call starts from the buffers that the first one left, in the baseline and in fp64."""
    expected = prepared("running").expected(Case())
    assert expected.then is not None and expected.effects.mutated_state == ("running_mean",)
    x, before = expected.then.call.args[0].double(), expected.state_after["running_mean"].double()
    mean = before * 0.9 + 0.1 * x.mean(0)
    assert torch.allclose(expected.then.exact_state["running_mean"], mean, atol=1e-12)


def test_discrete_outputs_know_where_they_come_from(tmp_path: Path) -> None:
    """argmax, topk, a comparison and a cast from a float are recognised in the graph; an integer sum is not special."""
    text = (
        "def reference(x, n):\n"
        "    return x.argmax(-1), x.topk(3).indices, x > x.mean(), (x * 3).to(torch.int32), n + 1\n"
        "def get_inputs():\n    return [torch.randn(6, 9), torch.arange(6)]\n"
    )
    rules = [source.rule for source in make(tmp_path, text).sources()]
    assert rules == [Rule.INDEX, Rule.INDEX, Rule.COMPARED, Rule.ROUNDED, Rule.EQUAL]


def test_an_output_that_is_state_keeps_its_first_value(tmp_path: Path) -> None:
    """A reference that returns its own buffer: what is right for the first call stands when a second has changed it."""
    ready = make(
        tmp_path,
        "from torch import nn\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('n', torch.zeros(6))\n    def forward(self, x):\n        self.n.add_(x.mean(0))\n"
        "        return self.n\ndef get_inputs():\n    return [torch.randn(70, 6)]\n",
    )
    first = ready.expected(Case(seed=1))
    (_, value), exact, after = first.leaves[0], first.exact[0], first.state_after["n"]
    assert first.then is not None and not torch.equal(first.then.leaves[0][1], value)
    assert torch.equal(value, after) and exact is not None
    assert float((value.double() - exact).abs().max()) < 1e-6
    assert [alias.source for alias in first.effects.aliases] == ["state:n"]
