"""Inspection: what a reference returns, changes and depends on."""

from __future__ import annotations

import pytest
import torch

from kforge.errors import TooLargeError
from kforge.task import Alias, TensorFact, capture, check_operations, count, inspect_task
from kforge.task import inspect as room

INPUTS = "def get_inputs():\n    return [torch.randn(4, 8)]\n"


def test_facts_of_a_plain_task(load):
    """Outputs with dtype, shape and strides; other leaves apart; sizes in bytes."""
    facts = inspect_task(load("def reference(x):\n    return {'y': x.t() * 2, 'n': 3}, None\n" + INPUTS))
    assert facts.outputs == (TensorFact("out[0]['y']", "float32", (8, 4), (1, 8), "cpu"),)
    assert facts.constants == {"out[0]['n']": 3, "out[1]": None}
    assert (facts.input_bytes, facts.output_bytes, facts.state_bytes) == (128, 128, 0)
    assert (facts.degenerate, facts.random, facts.run_to_run, facts.variants) == (False, False, 0.0, (0,))


def test_effects_and_running_statistics(load):
    """Mutations, aliases and what a training call changes are in the facts."""
    facts = inspect_task(
        load(
            """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm1d(8)
            def forward(self, x):
                return self.norm(x), x[1]
        MODE = "eval"
        """
            + INPUTS.replace("\n", "\n        ")
        )
    )
    assert facts.effects.aliases == (Alias("out[1]", "x", 8, (8,), (1,)),)
    assert facts.effects.mutated_state == () and not facts.training
    assert facts.running == ("norm.running_mean", "norm.running_var")


@pytest.mark.parametrize(
    "expression",
    [
        "torch.zeros(4)",
        "(x - x).sum(-1)",
        "torch.softmax(x[:, :1], -1)",
        "x.softmax(-1).sum(-1)",
        "torch.full_like(x, float('nan'))",
        "x.shape[0] * torch.ones(2, dtype=torch.long)",
    ],
)
def test_constant_output_is_degenerate(load, expression):
    """An output that no input changes is named, and is no error."""
    facts = inspect_task(load(f"def reference(x):\n    return {expression}\n" + INPUTS))
    assert facts.degenerate and facts.degenerate_outputs == ("out",)
    assert facts.notes == ("degenerate: out does not depend on the inputs",)


@pytest.mark.parametrize("expression", ["x * 0.001 + 5", "x.mean()", "x.argmax(-1)", "(x > 0).float().mean(0)"])
def test_varying_output_is_not_degenerate(load, expression):
    """Small or discrete dependence counts."""
    assert not inspect_task(load(f"def reference(x):\n    return {expression}\n" + INPUTS)).degenerate


def test_one_constant_output_of_two(load):
    """The task is degenerate only when every output is; each constant one is named."""
    facts = inspect_task(load("def reference(x):\n    return x + 1, torch.ones(2)\n" + INPUTS))
    assert not facts.degenerate and facts.degenerate_outputs == ("out[1]",)


def test_fixed_integer_inputs_prove_nothing(load):
    """Inputs that cannot be varied do not make a task degenerate."""
    facts = inspect_task(load("def reference(i):\n    return i * 2\ndef get_inputs():\n    return [torch.arange(4)]\n"))
    assert not facts.degenerate


def test_torch_randomness_is_fine(load):
    """Dropout varies with the seed and not between reseeded runs: random, and deterministic."""
    facts = inspect_task(load("def reference(x):\n    return nn.functional.dropout(x, 0.5, True)\n" + INPUTS))
    assert facts.random and facts.run_to_run == 0.0 and not facts.degenerate


def test_rounding_noise_is_reported_and_accepted(load):
    """Summation in a varying order stays inside the bound: its size is in the facts."""
    facts = inspect_task(
        load(
            "import random\ndef reference(x):\n    order = list(range(400))\n    random.shuffle(order)\n"
            "    total = torch.zeros((), dtype=x.dtype)\n    for i in order:\n        total = total + x[i]\n"
            "    return total\ndef get_inputs():\n    return [torch.randn(400)]\n"
        )
    )
    assert 0.0 < facts.run_to_run < 1e-4


def test_one_run_next_to_the_exact_value_is_no_randomness(load):
    """A single number that one run hits exactly and the next misses by rounding: reported, and accepted."""
    facts = inspect_task(
        load(
            "calls = [0]\ndef reference(x):\n    calls[0] += x.dtype == torch.float32\n"
            "    values = [x[0], x[1], -x[0]] if calls[0] % 2 else [x[0], -x[0], x[1]]\n"
            "    return values[0] + values[1] + values[2]\n"
            "def get_inputs():\n    return [torch.tensor([1e4, 1.0001])]\n"
        )
    )
    assert 0.0 < facts.run_to_run < 1e-3


def test_inspection_leaves_the_random_state_alone(load):
    """The caller's generator does not move."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    inspect_task(load("def reference(x):\n    return x + torch.rand(8)\n" + INPUTS))
    assert torch.equal(torch.get_rng_state(), before)


def test_large_variants_are_skipped_and_listed(load):
    """On the emulator a variant beyond the limit is left out with its size, and is never made."""
    facts = inspect_task(
        load(
            "def reference(x):\n    return x + 1\n" + INPUTS + "def get_input_variants():\n"
            "    return [lambda: [torch.randn(1 << 40)], lambda: [torch.randn(2, 2)]]\n"
        )
    )
    assert facts.variants == (0, 2)
    assert facts.skipped == ("variant 1: 4194304 MiB of inputs is too large for the emulator",)


def test_too_many_operations_for_the_emulator(load):
    """A product that fits in memory may still be too much work."""
    task = load(
        "def reference(a, b):\n    return a @ b\n"
        "def get_inputs():\n    return [torch.randn(2000, 2000), torch.randn(2000, 2000)]\n"
    )
    with pytest.raises(TooLargeError, match=r"1.6e\+10 operations a call, the limit is 2e\+09"):
        check_operations(task, count(capture(task)))


def test_state_of_the_task_is_fresh_for_each_run(load):
    """A module that counts its own calls is deterministic from one start: each run has a copy of the state."""
    facts = inspect_task(
        load("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("calls", torch.zeros(1))
            def forward(self, x):
                self.calls += 1
                return x + self.calls
        def get_inputs():
            return [torch.randn(3)]
        """)
    )
    assert facts.run_to_run == 0.0 and facts.effects.mutated_state == ("calls",)


def test_three_runs():
    """CONTRACTS 1 asks for three."""
    assert room.RUNS == 3
