"""op.py's "cuda" without a GPU: sent to the CPU, and every place listed once."""

from __future__ import annotations

import pytest
import torch

from kforge.errors import MissingError
from kforge.task import inspect_task, move_module, redirect_cuda, resolve_device


def test_redirects_are_listed(load):
    """`device="cuda"`, `.cuda()` and `.to("cuda")` in op.py run on the CPU and are listed with their lines."""
    task = load("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3, device="cuda"))

            def forward(self, x):
                x = x.cuda()
                x = x.to("cuda:0", torch.float64).to(torch.device("cuda"))
                return x + self.weight + torch.zeros(3, device=torch.device("cuda", 0))

        def get_inputs():
            return [torch.randn(3).cuda()]
        """)
    facts = inspect_task(task, "cpu")
    assert facts.outputs[0].device == "cpu" and facts.outputs[0].dtype == "float64"
    assert facts.redirects == (
        "op.py:6: ones cuda -> cpu",
        "op.py:14: Tensor.cuda cuda -> cpu",
        "op.py:9: Tensor.cuda cuda -> cpu",
        "op.py:10: Tensor.to cuda -> cpu",
        "op.py:11: zeros cuda -> cpu",
    )


def test_module_cuda_and_default_device():
    """Moving a whole module and a device context are redirected too."""
    log: list[str] = []
    with redirect_cuda("cpu", log):
        module = torch.nn.Linear(2, 2).cuda()
        other = torch.nn.Linear(2, 2).to("cuda")
        with torch.device("cuda"):
            made = torch.zeros(2)
    assert {module.weight.device.type, other.weight.device.type, made.device.type} == {"cpu"}
    assert len(log) == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU the default device is the user's choice")
def test_default_device_does_not_outlive_loading(load):
    """`torch.set_default_device("cuda")` in op.py is redirected as well, and this process is as before."""
    task = load(
        "torch.set_default_device('cuda')\ndef reference(x):\n    return x + torch.ones(2)\n"
        "def get_inputs():\n    return [torch.ones(2)]\n"
    )
    assert task.run(task.make_reference(), task.make_call()).tolist() == [2.0, 2.0]
    assert task.redirects == ["op.py: set_default_device cuda -> cpu"]
    assert torch.zeros(1).device.type == "cpu"


def test_cpu_code_is_not_listed():
    """Nothing is noted where nothing asks for a GPU."""
    log: list[str] = []
    with redirect_cuda("cpu", log):
        torch.zeros(2, device="cpu").to("cpu").to(torch.float64)
    assert log == []


def test_a_gpu_target_is_left_alone():
    """On a GPU target the mode is not even entered: the request reaches torch."""
    log: list[str] = []
    with redirect_cuda("cuda:0", log):
        assert torch.zeros(2, device="meta").device.type == "meta"
    assert log == []


def test_plain_tensor_attributes_move_with_the_module():
    """A tensor that is a plain attribute moves as parameters do, a 0-dim one stays."""
    module = torch.nn.Linear(2, 2)
    module.table, module.scale = torch.zeros(4), torch.tensor(2.0)
    moved = move_module(module, "meta")
    assert moved.table.device.type == "meta" and moved.weight.device.type == "meta"
    assert moved.scale.device.type == "cpu"


def test_device_by_name():
    """`cpu` is the emulator; `auto` is the first GPU where there is one."""
    assert resolve_device("cpu") == "cpu"
    assert resolve_device("auto") == ("cuda:0" if torch.cuda.is_available() else "cpu")


def test_device_that_is_not_there():
    """A GPU that is asked for and missing is exit 3."""
    with pytest.raises(MissingError, match="cuda:99 is absent: ") as caught:
        resolve_device("cuda:99")
    assert caught.value.exit_code == 3
