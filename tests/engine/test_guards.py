"""What a candidate was not written for is refused before any launch: sizes, ranks and dtypes of every tensor."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.kernel import Kernel, launches
from kforge.task import Task, load_task
from tests.engine.support import function_task, leaves, load_model, proposals, task_from
from tests.engine.test_examples import EXAMPLES

NORM = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim, dtype=torch.bfloat16))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def get_inputs():
    return [torch.randn(2, 3, 64, dtype=torch.bfloat16)]


def get_init_inputs():
    return [64]
"""
FREE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(options["dim"]))
        self.bias = nn.Parameter(torch.randn(options["dim"]))
        self.register_buffer("scale", torch.randn(1))

    def forward(self, x, y):
        return BODY


def get_inputs():
    return [torch.randn(5, 24), torch.randn(5, 24)]


def get_init_inputs():
    return [{"dim": 24}]
"""
FREE_BODIES = (
    "torch.nn.functional.layer_norm(x + y, self.weight.shape, self.weight, self.bias)",
    "torch.softmax(x * self.weight, -1) * self.scale + y",
    "torch.relu(x * self.weight + self.bias) * y * self.scale",
)
FUNCTIONS = (
    ("return x * y", "torch.randn(6, 16), torch.randn(6, 1)"),
    ("return x * y + x.sum(-1, keepdim=True)", "torch.randn(6, 16), torch.randn(1, 16)"),
    ("return x + y", "torch.randn(4, 6, 16), torch.randn(16)"),
    ("return x + y", "torch.randn(4, 6), torch.randn(())"),
    ("return torch.relu(x).mean(-1) + y", "torch.randn(6, 16), torch.randn(6)"),
    ("return x.float() * y", "torch.randn(6, 16, dtype=torch.bfloat16), torch.randn(16)"),
    ("return x.select(1, 3) + y", "torch.randn(6, 16), torch.randn(6)"),
    ("return x[:, -2] + y", "torch.randn(6, 16), torch.randn(6)"),
    ("return x[:, 3:] * y", "torch.randn(6, 16), torch.randn(6, 13)"),
    ("return x.gather(1, y)", "torch.randn(6, 16), torch.zeros(4, 5, dtype=torch.int64)"),
    ("return x[y] * 2.0", "torch.randn(6, 16), torch.zeros(4, dtype=torch.int64)"),
    ("return F.embedding(y, x)", "torch.randn(16, 8), torch.zeros(4, dtype=torch.int64)"),
    ("return torch.cat([x, y], 1)", "torch.randn(6, 16), torch.randn(6, 5)"),
    ("return F.pad(x, (-3, 2)) + y.sum(-1, keepdim=True)", "torch.randn(6, 16), torch.randn(6, 16)"),
    ("return torch.where(y, x, -x)", "torch.randn(6, 16), torch.ones(6, 1, dtype=torch.bool)"),
    ("return F.cross_entropy(x, y)", "torch.randn(6, 16), torch.zeros(6, dtype=torch.int64)"),
    ("return x.view(-1, 4, 8).sum(-1) * y", "torch.randn(6, 32), torch.randn(4)"),
)


class Counter:
    """Stands in for launching: counts the calls that would have launched."""

    calls = 0


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Kernel calls are counted and do nothing, so that only the checks before them are at work."""
    found = Counter()

    def call(kernel: Kernel, *args: Any) -> None:
        found.calls += 1

    monkeypatch.setattr(Kernel, "__call__", call)
    return found


def _resized(t: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.zeros(shape, dtype=t.dtype)


def _others(t: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor with each dimension wrong in several ways, with other ranks, and with other dtypes."""
    for axis, size in enumerate(t.shape):
        for other in {1, 2, size // 2, size - 1, size + 1, size * 2} - {size, 0}:
            yield _resized(t, (*t.shape[:axis], other, *t.shape[axis + 1 :]))
    yield _resized(t, (1, *t.shape))
    yield _resized(t, (3, *t.shape))
    yield _resized(t, (*t.shape, 1))
    if t.dim():
        yield _resized(t, tuple(t.shape[1:]))
        yield _resized(t, tuple(t.shape[:-1]))
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.bool):
        if dtype != t.dtype:
            yield torch.zeros(t.shape, dtype=dtype)


REFUSALS = (ValueError, TypeError, IndexError)


def _result(model: Any, args: list[Any], refusals: tuple[type[Exception], ...] = REFUSALS) -> Any:
    """The results' shapes and dtypes, or None where the call is refused."""
    try:
        with torch.no_grad():
            return [(t.shape, t.dtype) for t in leaves(model(*args))]
    except refusals:
        return None


def _check(task: Task, counter: Counter, folder: Path) -> None:
    """For every wrong tensor: what the reference refuses or answers otherwise raises and launches nothing."""
    init = task.init_call()
    candidate = load_model(proposals(task)[0], folder)
    call = task.make_call()
    args = [torch.zeros_like(a) for a in [*call.args, *call.kwargs.values()]]
    model, reference = candidate(*init.args, **init.kwargs), task.make_reference()
    assert _result(model, args) == _result(reference, args) is not None
    assert counter.calls > 0
    for k, own in enumerate(args):
        for other in _others(own):
            _compare(model, reference, [*args[:k], other, *args[k + 1 :]], counter)
    for name, own in [*reference.named_parameters(), *reference.named_buffers()]:
        for other in _others(own.detach()):
            model, reference = candidate(*init.args, **init.kwargs), task.make_reference()
            for module in (model, reference):
                owner, _, leaf = name.rpartition(".")
                part = module.get_submodule(owner)
                part._parameters.pop(leaf, None)
                part._buffers.pop(leaf, None)
                part.register_buffer(leaf, other)
            _compare(model, reference, args, counter)


def _compare(model: Any, reference: Any, args: list[torch.Tensor], counter: Counter) -> None:
    counter.calls = 0
    wanted, got = _result(reference, args, (*REFUSALS, RuntimeError)), _result(model, args)
    given = [(tuple(t.shape), t.dtype) for t in [*args, *model.parameters(), *model.buffers()]]
    if got is None:
        assert counter.calls == 0, given
    else:
        assert got == wanted, given


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_refuse(name: str, root: Path, counter: Counter, tmp_path: Path) -> None:
    """No example's kernels are launched with a size, rank or dtype that the reference refuses or answers otherwise."""
    _check(load_task(root / "examples" / f"{name}.py"), counter, tmp_path)


@pytest.mark.parametrize(("body", "inputs"), FUNCTIONS)
def test_functions_refuse(body: str, inputs: str, counter: Counter, tmp_path: Path) -> None:
    """The same for broadcast, gathered, sliced, selected, padded and mixed inputs."""
    _check(function_task(body, inputs, tmp_path, "x, y"), counter, tmp_path)


@pytest.mark.parametrize("body", FREE_BODIES)
def test_parameters_of_any_size_refuse(body: str, counter: Counter, tmp_path: Path) -> None:
    """A constructor that can give other sizes leaves them free: parameters and inputs must agree with each other."""
    task = task_from(FREE.replace("BODY", body), tmp_path)
    _check(task, counter, tmp_path)
    model = load_model(proposals(task)[0], tmp_path)({"dim": 40})
    counter.calls = 0
    with torch.no_grad():
        assert model(torch.randn(3, 40), torch.randn(3, 40)).shape == (3, 40)
        assert counter.calls == 1
        with pytest.raises(ValueError, match=r"shape \(40,\)"):
            model(torch.randn(5, 24), torch.randn(5, 24))
    assert counter.calls == 1


@pytest.mark.parametrize("width", (32, 63, 128))
def test_a_weight_of_another_width(width: int, tmp_path: Path) -> None:
    """An input wider or narrower than the weight is refused with both sizes; nothing is launched or read."""
    task = task_from(NORM, tmp_path)
    model = load_model(proposals(task)[0], tmp_path)(64)
    with torch.no_grad(), launches() as counts:
        with pytest.raises(ValueError, match=rf"need x.shape\[-1\] == 64; x has shape \(2, 3, {width}\)"):
            model(torch.randn(2, 3, width, dtype=torch.bfloat16))
        assert sum(counts.values()) == 0
        assert model(torch.randn(5, 1, 64, dtype=torch.bfloat16)).isfinite().all()
        assert sum(counts.values()) == 1


def test_a_fixed_width_has_one_schedule(tmp_path: Path) -> None:
    """Where the constructor fixes the row's width, no kernel for other widths is written."""
    for candidate in proposals(task_from(NORM, tmp_path)):
        assert candidate.files["op_kforge.cu"].count("__global__") == 1
        assert " <= " not in candidate.files["op_kforge.py"].split("def forward")[1]


def test_lines_are_of_bounded_length(tmp_path: Path) -> None:
    """Long names give wrapped lines, not lines beyond 120 columns."""
    names = [f"a_rather_long_name_for_an_input_{k}" for k in range(5)]
    body = f"return torch.softmax({' * '.join(names)}, -1)".replace(" * ", " * \\\n        ")
    task = function_task(body, ", ".join(["torch.randn(3, 8)"] * 5), tmp_path, ", ".join(names))
    text = proposals(task)[0].files["op_kforge.py"]
    assert max(map(len, text.splitlines())) <= 120
    assert "dimensions" in text
    one = proposals(function_task("return x * 2", "torch.randn(8)", tmp_path))[0].files["op_kforge.py"]
    assert "with 1 dimension;" in one
