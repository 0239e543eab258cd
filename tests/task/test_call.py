"""Calls: copies keep strides and shared storage, leaves have readable paths, moving leaves 0-dim tensors alone."""

from __future__ import annotations

import torch

from kforge.task import Call, call_leaves, clone_call, describe_call, move_call, tree_leaves


def test_copy_keeps_strides_and_expanded_dimensions():
    """Transposed, strided and expanded inputs look the same after a copy, in new memory."""
    base = torch.randn(6, 4)
    call = Call((base.t(), base[:, ::2], torch.randn(1, 5).expand(3, 5), base.flatten()[1:]))
    for ours, theirs in zip(clone_call(call).args, call.args, strict=True):
        assert ours.stride() == theirs.stride() and torch.equal(ours, theirs)
        assert ours.storage_offset() == theirs.storage_offset()
        assert ours.untyped_storage().data_ptr() != theirs.untyped_storage().data_ptr()


def test_copy_keeps_shared_storage():
    """Two inputs that are views of one tensor stay views of one tensor."""
    base = torch.zeros(4)
    copied = clone_call(Call((base, {"view": base[2:]})))
    copied.args[0][3] = 7.0
    assert copied.args[1]["view"][1].item() == 7.0 and base[3].item() == 0.0


def test_copy_keeps_requires_grad_and_conjugates():
    """Gradient flags and lazily conjugated tensors survive."""
    x = torch.ones(2, requires_grad=True)
    z = torch.tensor([1 + 2j]).conj()
    ours = clone_call(Call((x, z)))
    assert ours.args[0].requires_grad and torch.equal(ours.args[1], torch.tensor([1 - 2j]))


def test_leaves_are_named_after_parameters():
    """Positional inputs take the parameter's name, nested ones the pytree path."""

    def forward(x, state, *rest, scale):
        return x

    call = Call((1, {"a": [2, 3]}, 4), {"scale": {"b": 5}})
    expected = [("x", 1), ("state['a'][0]", 2), ("state['a'][1]", 3), ("args[2]", 4), ("scale['b']", 5)]
    assert call_leaves(call, forward) == expected
    assert [path for path, _ in call_leaves(call)][:2] == ["args[0]", "args[1]['a'][0]"]


def test_output_paths():
    """Outputs are named `out` and the pytree path."""
    assert [path for path, _ in tree_leaves(3)] == ["out"]
    assert [path for path, _ in tree_leaves({"loss": 1, "rest": (2, 3)})] == [
        "out['loss']",
        "out['rest'][0]",
        "out['rest'][1]",
    ]


def test_description():
    """One line with dtypes and shapes."""
    assert describe_call(Call((torch.zeros(2, 3), 4, None))) == "float32[2, 3]; 4; None"


def test_moving_leaves_zero_dimensional_tensors():
    """0-dim tensors stay on the CPU, as torch mixes them with tensors of any device."""
    call = Call((torch.zeros(2), torch.tensor(3.0)))
    moved = move_call(call, "meta")
    assert moved.args[0].device.type == "meta" and moved.args[1].device.type == "cpu"
    assert move_call(call, "cpu").args[0] is call.args[0]
