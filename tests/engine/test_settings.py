"""Settings as an answer: which rung is told, and a module that computes what the reference computes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.engine.calls.settings import Setting, best_setting, settings_module
from tests.engine.support import function_task, task_from

OP = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3)

    def forward(self, x, scale=2.0):
        return torch.relu(self.conv(x)) * scale, x.shape[0]


def get_init_inputs():
    return [8]


def get_inputs():
    return [torch.randn(2, 3, 9, 7)]
"""


def loaded(files: dict[str, str], folder: Path) -> Any:
    """The module that was written beside op.py."""
    (name, text), *rest = files.items()
    assert name == "op_settings.py" and not rest
    (folder / name).write_text(text)
    spec = importlib.util.spec_from_file_location(f"settings_{folder.name}", folder / name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "wrapper"), (("eager_channels_last", "graph"), ("eager", "graph")))
def test_module_computes_the_reference(name: str, wrapper: str, tmp_path: Path) -> None:
    """Same state_dict, same results, same strides, whatever the order of calls; on a CPU no graph is captured."""
    task = task_from(OP, tmp_path)
    made = loaded(settings_module(task, Setting(name, wrapper, 0.5, 1.0), "a GPU"), tmp_path).Settings(8)
    reference = task.make_reference()
    made.load_state_dict(reference.state_dict())
    for shape in ((2, 3, 9, 7), (1, 3, 5, 5), (2, 3, 9, 7)):
        x = torch.randn(shape)
        (got, n), (wanted, m) = made(x, scale=3.0), reference(x, scale=3.0)
        assert n == m and got.stride() == wanted.stride()
        torch.testing.assert_close(got, wanted)


def test_function_under_compile(tmp_path: Path) -> None:
    """A function's module takes no arguments; compile's mode and the measured gain stand in its text."""
    task = function_task("return torch.relu(x) + 1", "torch.randn(4, 5)", tmp_path)
    files = settings_module(task, Setting("compile_max_autotune", "plain", 0.5, 1.0), "NVIDIA H200")
    text = files["op_settings.py"]
    assert 'mode="max-autotune-no-cudagraphs", dynamic=False' in text and "2.00x" in text and "kforge" not in text
    assert max(map(len, text.splitlines())) <= 120
    loaded(files, tmp_path).Settings()


def test_best_rung() -> None:
    """The fastest rung over eager's plain calls; none where it gains nothing, and no kernel is ever a rung."""
    times = [
        ("eager", "plain", 1.0),
        ("eager", "graph", 0.9),
        ("compile_default_channels_last", "graph", 0.4),
        ("candidate", "plain", 0.1),
        ("user:mine", "plain", 0.1),
        ("compile_default", "warm", 0.2),
    ]
    found = best_setting(times)
    assert found == Setting("compile_default_channels_last", "graph", 0.4, 1.0)
    assert found.words == "torch.compile + channels-last + CUDA graph" and found.gain == pytest.approx(2.5)
    assert best_setting([("eager", "plain", 1.0), ("compile_default", "plain", 0.99)]) is None
    assert best_setting([("compile_default", "plain", 0.5)]) is None
