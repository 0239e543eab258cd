"""State: copied by name with differences as data, randomised where a kernel could ignore it."""

from __future__ import annotations

import torch
from torch import nn

from kforge.task import Call, copy_state, named_state, randomise_state, read_state, running_statistics


class Source(nn.Module):
    def __init__(self, extra: bool = False, width: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(float(width)))
        self.register_buffer("count", torch.tensor([4]))
        self.register_buffer("table", torch.tensor([5.0]), persistent=False)
        if extra:
            self.bias = nn.Parameter(torch.zeros(1))
            self.register_buffer("scratch", torch.zeros(2), persistent=False)


def test_copy_covers_non_persistent_buffers():
    """state_dict and non-persistent buffers of one name are equal after a copy; nothing is missing."""
    src, dst = Source(), Source()
    with torch.no_grad():
        src.weight.mul_(2), src.count.add_(1), src.table.add_(1)
    mismatch = copy_state(src, dst)
    assert not mismatch
    assert all(torch.equal(t, named_state(dst)[name]) for name, t in named_state(src).items())


def test_state_is_a_snapshot():
    """What read_state returns does not change with the module."""
    src = Source()
    state = read_state(src)
    with torch.no_grad():
        src.weight.zero_()
    assert state.tensors["weight"].tolist() == [0.0, 1.0, 2.0] and state.persistent == {"weight", "count"}


def test_missing_and_unexpected_keys_are_data():
    """Keys that only one side's state_dict has are listed; additional non-persistent buffers are free."""
    grown = copy_state(Source(), Source(extra=True))
    assert (grown.missing, grown.unexpected) == ((), ("bias",)) and bool(grown)
    shrunk = copy_state(Source(extra=True), Source())
    assert (shrunk.missing, shrunk.unexpected) == (("bias",), ())
    assert str(shrunk) == "missing in ModelNew: bias"


def test_other_shape_is_data():
    """A parameter of another shape comes back in torch's words."""
    mismatch = copy_state(Source(), Source(width=5))
    assert "size mismatch for weight" in mismatch.rejected and bool(mismatch)


def test_load_hooks_of_a_candidate_run():
    """A candidate may repack weights while its state_dict is loaded."""

    class Packed(Source):
        def _load_from_state_dict(self, state_dict, prefix, *rest):
            super()._load_from_state_dict(state_dict, prefix, *rest)
            self.packed = self.weight.detach() * 10

    candidate = Packed()
    assert not copy_state(Source(), candidate)
    assert candidate.packed.tolist() == [0.0, 10.0, 20.0]


def test_running_statistics_are_found_by_a_training_call():
    """BatchNorm's mean and variance change in training; counters, tables and the module itself do not."""
    module = nn.BatchNorm1d(4)
    module.register_buffer("table", torch.ones(4))
    found = running_statistics(module.eval(), Call((torch.randn(8, 4) + 3,)))
    assert found == ("running_mean", "running_var")
    assert module.running_mean.tolist() == [0.0] * 4 and not module.training


def test_randomised_state():
    """Constant parameters get spread, variances stay positive, other buffers and integers keep their values."""
    module = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64))
    module.register_buffer("mask", torch.tensor([1.0, 0.0]))
    spread = module[0].weight.std().item()
    randomise_state(module, seed=1)
    norm = module[1]
    assert norm.weight.std() > 0.1 and norm.bias.std() > 0.1
    assert abs(norm.weight.mean().item() - 1.0) < 0.3 and abs(norm.bias.mean().item()) < 0.3
    assert norm.running_var.min() > 0 and norm.running_var.std() > 0.1 and norm.running_mean.std() > 0.1
    assert abs(module[0].weight.std().item() / spread - 1.0) < 0.1
    assert module.mask.tolist() == [1.0, 0.0] and norm.num_batches_tracked.item() == 0


def test_randomising_is_reproducible():
    """One seed gives one state, another seed another."""
    modules = [nn.BatchNorm1d(8) for _ in range(3)]
    for module, seed in zip(modules, (1, 1, 2), strict=True):
        randomise_state(module, seed)
    first, same, other = (m.running_var for m in modules)
    assert torch.equal(first, same) and not torch.equal(first, other)


def test_chosen_statistics_only():
    """With names given, only those buffers are redrawn."""
    module = nn.BatchNorm1d(4)
    randomise_state(module, 1, running=["running_mean"])
    assert module.running_var.tolist() == [1.0] * 4 and module.running_mean.std() > 0
