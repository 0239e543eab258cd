"""Mutation sets and alias maps of references."""

from __future__ import annotations

import torch

from kforge.task import Alias, Effects, observe

INPUTS = "def get_inputs():\n    return [torch.ones(2, 3), torch.ones(3)]\n"


def effects(load, text: str) -> Effects:
    task = load(text + INPUTS)
    return observe(task, task.make_reference(), task.make_call()).effects


def test_pure_function_has_none(load):
    """A function that only computes changes and shares nothing."""
    assert effects(load, "def reference(a, b):\n    return a + b\n") == Effects()


def test_in_place_update_of_an_input(load):
    """add_ on an input is a mutation, and returning it an alias of the whole."""
    found = effects(load, "def reference(a, b):\n    a.add_(b)\n    return a\n")
    assert found.mutated == ("a",)
    assert found.aliases == (Alias("out", "a", 0, (2, 3), (3, 1)),)


def test_caller_inputs_are_untouched(load):
    """The run is on clones."""
    task = load("def reference(a, b):\n    return a.mul_(5)\n" + INPUTS)
    call = task.make_call()
    seen = observe(task, task.make_reference(), call)
    assert call.args[0].sum().item() == 6.0 and seen.call.args[0].sum().item() == 30.0


def test_mutation_that_keeps_the_values(load):
    """relu_ on positive values is a mutation although no bit differs."""
    assert effects(load, "def reference(a, b):\n    a.relu_()\n    return b + 1\n").mutated == ("a",)


def test_returned_view(load):
    """Offset, shape and strides of a view are in the map."""
    found = effects(load, "def reference(a, b):\n    return b * 2, a[1:, 1:].t()\n")
    assert found.aliases == (Alias("out[1]", "a", 4, (2, 1), (1, 3)),)


def test_outputs_that_share_storage(load):
    """An output that is a view of an earlier output is named after it."""
    found = effects(load, "def reference(a, b):\n    y = a + 1\n    return {'y': y, 'row': y[1]}\n")
    assert found.aliases == (Alias("out['row']", "out['y']", 3, (3,), (1,)),)


def test_batch_norm_in_training(load):
    """Running statistics and the counter are the state that a training call changes."""
    task = load("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm1d(3)
            def forward(self, x):
                return self.norm(x), self.norm.running_mean
        def get_inputs():
            return [torch.randn(4, 3)]
        """)
    module = task.make_reference()
    found = observe(task, module, task.make_call()).effects
    assert found.mutated_state == ("norm.num_batches_tracked", "norm.running_mean", "norm.running_var")
    assert found.mutated == () and found.aliases == (Alias("out[1]", "state:norm.running_mean", 0, (3,), (1,)),)
    assert observe(task, module.eval(), task.make_call()).effects.mutated_state == ()


def test_nan_inputs_are_not_mutations(load):
    """NaN is compared with NaN."""
    task = load("def reference(a):\n    return a + 1\ndef get_inputs():\n    return [torch.full((3,), float('nan'))]\n")
    assert observe(task, task.make_reference(), task.make_call()).effects.mutated == ()
    assert torch.isnan(observe(task, task.make_reference(), task.make_call()).outputs).all()
