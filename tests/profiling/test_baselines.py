"""Baselines: what they return, in which layout, which of them a task gets, and the user's own by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.errors import UsageError
from kforge.profiling.baselines import BASELINES, Captured, find_object, ladder, make_baseline, with_strides_of


def convolution() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())


def test_channels_last_takes_and_returns_what_the_reference_does() -> None:
    """Inputs as the task makes them, values as eager's, and after `with_strides_of` eager's strides as well."""
    x = torch.rand(2, 3, 8, 8)
    module = convolution()
    expected = module(x)
    baseline = make_baseline("eager_channels_last", convolution())
    outputs = baseline(x)
    assert torch.allclose(outputs, expected, atol=1e-6) and x.is_contiguous()
    assert outputs.stride() != expected.stride()
    assert with_strides_of(baseline, expected, outputs)(x).stride() == expected.stride()
    assert with_strides_of(module, expected, expected) is module


def test_a_dense_permuted_output_keeps_its_order() -> None:
    """A reference that returns a transposed tensor gets a transposed one of every baseline."""
    expected = torch.rand(3, 5).T
    fixed = with_strides_of(lambda: torch.rand(5, 3), expected, torch.rand(5, 3))
    assert fixed().stride() == expected.stride() and fixed().shape == expected.shape


def test_the_ladder_names_channels_last_only_for_convolutions() -> None:
    """Eager and three modes of the compiler; each again in channels-last where it applies."""
    plain = ladder(convolution=False)
    assert plain == ("eager", "compile_default", "compile_reduce_overhead", "compile_max_autotune")
    assert set(ladder(convolution=True)) == set(plain) | {f"{name}_channels_last" for name in plain} == set(BASELINES)


def test_what_captures_itself_says_so() -> None:
    """The timer's graph wrapper leaves reduce-overhead alone, in channels-last too."""
    assert Captured(len)([1, 2]) == 2
    for name in ladder(convolution=True):
        captured = getattr(make_baseline(name, convolution()), "captures_itself", False)
        assert captured == ("reduce_overhead" in name)


def test_objects_are_found_in_packages_and_files(tmp_path: Path) -> None:
    """package:function and file.py:function; what is missing is named."""
    path = tmp_path / "mine.py"
    path.write_text("def double(x):\n    return 2 * x\n")
    assert find_object(f"{path}:double")(4) == 8
    assert find_object("torch.nn.functional:relu") is torch.nn.functional.relu
    for spec, word in (
        ("nothing", "no name"),
        (f"{tmp_path}/absent.py:f", "no file"),
        ("not_a_package_at_all:f", "cannot import"),
        ("torch.nn.functional:relv", "relv"),
    ):
        with pytest.raises(UsageError) as caught:
            find_object(spec)
        assert word in caught.value.message
