"""prepared() and philox(): when derived weights are computed again, and how kernels draw numbers."""

from __future__ import annotations

import gc

import pytest
import torch

from kforge.errors import LaunchError
from kforge.kernel import Kernel, philox, prepared, weights


def test_prepared_until_the_parameter_changes() -> None:
    """A derived weight is computed once, and again after an in-place write, an optimiser step or load_state_dict."""
    linear = torch.nn.Linear(3, 4)
    calls = []

    def transposed() -> torch.Tensor:
        return prepared(linear.weight, lambda w: (calls.append(1), w.t().contiguous())[1])

    first = transposed()
    assert transposed() is first and len(calls) == 1
    assert torch.equal(first, linear.weight.t()) and not first.requires_grad
    with torch.no_grad():
        linear.weight.add_(1)
    assert torch.equal(transposed(), linear.weight.t()) and len(calls) == 2
    linear.load_state_dict({"weight": torch.ones(4, 3), "bias": torch.zeros(4)})
    assert torch.equal(transposed(), torch.ones(3, 4)) and len(calls) == 3
    linear.weight.data = torch.full((4, 3), 5.0)
    assert torch.equal(transposed(), torch.full((3, 4), 5.0)) and len(calls) == 4


def test_prepared_tells_functions_and_captured_values_apart() -> None:
    """Two functions of one parameter, or one with two captured values, have results of their own."""
    w = torch.nn.Parameter(torch.ones(2))
    results = [prepared(w, lambda t, scale=scale: t * scale).sum().item() for scale in (1, 2, 1)]
    assert results == [2, 4, 2]
    assert prepared(w, torch.neg).sum().item() == -2


def test_prepared_under_inference_mode_and_compile() -> None:
    """What is prepared under inference mode is an ordinary tensor; compiled code computes it anew."""
    w = torch.nn.Parameter(torch.ones(2))
    with torch.inference_mode():
        inside = prepared(w, torch.neg)
    assert not inside.is_inference() and prepared(w, torch.neg) is inside

    @torch.compile(backend="eager", fullgraph=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + prepared(w, torch.neg)

    with torch.no_grad():
        for value in (1.0, 4.0):
            w.fill_(value)
            assert torch.equal(function(torch.zeros(2)), torch.full((2,), -value))


def test_anew_derives_in_each_call() -> None:
    """While calls are timed with all that they cost nothing is kept, and what was kept before stays."""
    w, calls = torch.ones(2), []
    with weights.anew():
        for _ in range(2):
            prepared(w, lambda t: calls.append(1))
    assert len(calls) == 2 and id(w) not in weights._cache
    prepared(w, torch.neg)
    assert weights.held()


def test_prepared_lets_go() -> None:
    """What was derived from a parameter goes when the parameter does."""
    w = torch.nn.Parameter(torch.ones(2))
    prepared(w, torch.neg)
    key = id(w)
    assert key in weights._cache
    del w
    gc.collect()
    assert key not in weights._cache


def test_philox_follows_torchs_generator() -> None:
    """A seed pair is reproducible under manual_seed, differs between calls, and advances the generator."""
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second = philox(100), philox(100)
    assert first.dtype == torch.int64 and first.shape == (2,)
    assert not torch.equal(first, second) and not torch.equal(before, torch.get_rng_state())
    torch.manual_seed(5)
    assert torch.equal(philox(100), first)
    with pytest.raises(LaunchError, match=r"philox\(-1\)"):
        philox(-1)


def test_philox_numbers() -> None:
    """The device header gives Philox-4x32-10's known answers, and uniform numbers with the right mean and variance."""
    source = """\
#include <kforge/philox.h>
extern "C" __global__ void draw(const long long* seed, float* y, unsigned int* words, int n) {
    const int i = threadIdx.x + blockIdx.x * blockDim.x;
    if (i < n) y[i] = kforge_uniform(seed, i);
    if (i == 0) {
        kforge_uint4 b = kforge_philox(0, 0);
        words[0] = b.x; words[1] = b.y; words[2] = b.z; words[3] = b.w;
    }
}
"""
    draw = Kernel("draw", source, grid="ceil_div(n, 256)", block=256)
    n = 1 << 16
    y, words = torch.empty(n), torch.empty(4, dtype=torch.int32)
    torch.manual_seed(0)
    draw(philox(n), y, words, n)
    # known answer for counter 0, key 0: Random123's kat_vectors, philox4x32 10
    assert [w & 0xFFFFFFFF for w in words.tolist()] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert y.min() >= 0 and y.max() < 1
    assert abs(y.mean().item() - 0.5) < 5 * (1 / 12 / n) ** 0.5
    assert abs(y.var().item() - 1 / 12) < 0.002
