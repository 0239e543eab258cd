"""`kforge capture`: a module of the user's own program becomes an op.py that reproduces its outputs."""

from __future__ import annotations

import math

import pytest
import torch

from kforge.errors import TaskError
from kforge.task import capture, capture_run, inspect_task, load_task

SCRIPT = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from layers import Scale

EPS = 1e-5
UNUSED = print("the script runs")

def norm(x):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS)

class Block(nn.Module):
    def __init__(self, n, act=F.gelu, gains=(1.0, float("inf"))):
        super().__init__()
        self.linear = nn.Linear(n, n)
        self.act, self.gains = act, gains
        self.register_buffer("scale", torch.ones(n), persistent=False)

    def forward(self, x, *, gain=1.0):
        return self.act(norm(self.linear(x))) * min(gain, self.gains[1]) * self.scale

def main():
    torch.manual_seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    model = nn.Sequential(Block(16), Scale(torch.tensor([3.0])), Block(16, act=torch.tanh)).eval()
    model[2].scale.mul_(2)
    for rows in (4, 4, 6):
        x = torch.randn(16, rows).t()
        y = model[2](model[1](model[0](x, gain=2.0)))
    (model[0].linear if len(sys.argv) < 3 else sys.exit)(y)
    print("the end")

if __name__ == "__main__":
    main()
"""
LAYERS = """
import torch
from torch import nn

class Scale(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.value = nn.Parameter(value)

    def forward(self, x):
        return x * self.value
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """A program in a folder with a local import."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "layers.py").write_text(LAYERS)
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def last(script):
    """The last block, recorded once."""
    return capture_run(script, "model.2")


@pytest.fixture(scope="module")
def first(script):
    """The first block with its calls of two shapes, recorded once."""
    return capture_run(script, "model.0", calls=2)


def test_attribute_path_round_trip(last, script):
    """The class's source, arguments, state, mode, inputs and strides come along: outputs are equal bit for bit."""
    assert last.op == script.with_name("model_2_op.py") and last.difference == 0.0 and last.calls == 1
    task = load_task(last.op)
    module, call = task.make_reference(), task.make_call()
    assert task.mode == "eval" and not module.training
    assert task.init_call().args == (16,) and task.init_call().kwargs == {"act": torch.tanh}
    assert module.scale.tolist() == [2.0] * 16
    assert call.args[0].shape == (4, 16)
    facts = inspect_task(task)
    assert facts.outputs[0].shape == (4, 16) and not facts.degenerate
    assert capture(task).failure == ""


def test_source_that_comes_along(last):
    """The class and what it uses are copied, in order; nothing else of the script runs again."""
    text = last.op.read_text()
    assert text.index("EPS = 1e-5") < text.index("def norm(x)") < text.index("class Block(nn.Module)")
    assert "UNUSED" not in text and "from layers" not in text and "def main" not in text


def test_data_file_holds_no_code(last):
    """The data is readable with weights_only=True."""
    data = torch.load(last.data, weights_only=True)
    assert set(data) == {"init", "state", "buffers", "calls"} and "linear.weight" in data["state"]


def test_keyword_inputs_and_strides(first):
    """Keyword arguments are recorded by name, positional ones beside them get their parameter's; strides are kept."""
    call = load_task(first.op).make_call()
    assert call.args == () and set(call.kwargs) == {"x", "gain"}
    assert call.kwargs["gain"] == 2.0 and call.kwargs["x"].stride() == (1, 4)


def test_several_shapes_become_variants(first):
    """With calls=2 the next call of another shape is a variant; one more redraws values of the same statistics."""
    task = load_task(first.op)
    assert first.calls == 2 and task.n_variants == 3
    recorded, redrawn = task.make_call(0).kwargs["x"], task.make_call(1, seed=3).kwargs["x"]
    assert redrawn.shape == recorded.shape and not torch.equal(redrawn, recorded)
    assert redrawn.min() >= recorded.min() and redrawn.max() <= recorded.max()
    assert task.make_call(2).kwargs["x"].shape == (6, 16)


def test_arguments_reach_the_program(first, script, tmp_path):
    """The program sees its own command line (here: another seed)."""
    other = load_task(capture_run(script, "model.0", out=tmp_path / "other.py", arguments=["1"]).op)
    assert not torch.equal(load_task(first.op).make_call().kwargs["x"], other.make_call().kwargs["x"])


def test_large_inputs_become_statistics(script, tmp_path, monkeypatch):
    """Inputs beyond the limit are drawn anew with the recorded shape, strides and spread; the difference is unknown."""
    from kforge.task import opfile

    monkeypatch.setattr(opfile, "KEPT_BYTES", 64)
    recording = capture_run(script, "model.0", out=tmp_path / "drawn.py")
    x, y = (load_task(recording.op).make_call(seed=seed).kwargs["x"] for seed in (1, 2))
    assert math.isnan(recording.difference) and recording.data.stat().st_size < 10_000
    assert x.shape == (4, 16) and x.stride() == (1, 4) and not torch.equal(x, y) and 0.5 < x.std() < 2.0


def test_imported_class_in_another_folder(script, tmp_path):
    """A class from a module beside the script is imported from there; tensor arguments come from the data file."""
    out = tmp_path / "elsewhere" / "scale.py"
    recording = capture_run(script, "layers.Scale", out=out)
    assert recording.op == out and recording.data == out.with_suffix(".data") and recording.difference == 0.0
    assert "from layers import Scale" in out.read_text()
    assert load_task(out).make_reference().value.tolist() == [3.0]


@pytest.mark.parametrize(
    ("target", "arguments", "expected"),
    [
        ("model.7", (), "train.py ran, but model.7 was never called"),
        ("nothing", ("no number",), "train.py:25: the program failed: ValueError: invalid literal for int()"),
    ],
)
def test_one_line_when_it_fails(script, target, arguments, expected):
    """A call that never comes, and a program that fails, are said in one line; no op.py is left."""
    with pytest.raises(TaskError) as caught:
        capture_run(script, target, arguments=arguments)
    assert caught.value.message.startswith(expected)
    assert not list(script.parent.glob("*nothing*")) and not list(script.parent.glob("*7*"))


def test_no_such_script(tmp_path):
    """The path is named."""
    with pytest.raises(TaskError, match=r"no such file: nothing.py"):
        capture_run("nothing.py", "model")


def test_arguments_that_cannot_be_stored(tmp_path):
    """A constructor argument that is neither data nor importable is named by its type."""
    path = tmp_path / "run.py"
    path.write_text(
        "import torch\nclass Config:\n    n = 2\nclass Net(torch.nn.Module):\n    def __init__(self, config):\n"
        "        super().__init__()\n    def forward(self, x):\n        return x\nNet(Config())(torch.ones(1))\n"
    )
    with pytest.raises(
        TaskError, match="constructed with a Config, which cannot be stored; capture one of its submodules"
    ):
        capture_run(path, "Net")


def test_this_process_is_not_patched(first):
    """The recording happens in a child: nn.Module here stays as it was."""
    assert torch.nn.Module.__call__ is torch.nn.Module._wrapped_call_impl
    assert "__new__" not in vars(torch.nn.Module)
