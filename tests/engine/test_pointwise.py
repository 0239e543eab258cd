"""Pointwise kernels: broadcasting, views as index maps, dtypes, strides, empty tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.task import Call, load_task
from tests.engine.support import compare, function_task, load_model, proposals, task_from

ACTIVATIONS = """
return (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.softplus(x), F.hardtanh(x), F.relu6(x),
        F.leaky_relu(x, 0.2), F.elu(x), F.selu(x), F.hardswish(x), F.hardsigmoid(x), F.softsign(x), F.logsigmoid(x),
        torch.tanh(x), torch.erf(x), torch.sign(x), torch.round(x), x.abs().sqrt(), torch.exp(-x * x), 1 / (1 + x * x))
"""


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
def test_activations(dtype: str, tmp_path: Path) -> None:
    """Activations as accurate as torch's, in one kernel for all."""
    task = function_task(ACTIVATIONS, f"torch.randn(3, 1365, dtype=torch.{dtype}) * 3", tmp_path)
    candidate = proposals(task)[0]
    assert candidate.files["op_kforge.cu"].count("__global__") == 1
    compare(task, candidate, tmp_path)


def test_broadcasting(tmp_path: Path) -> None:
    """A bias per channel, one per row, one per column and a scalar, with comparisons and a mask."""
    body = """
    y = torch.where(mask, x + channel, x * row) / (col.abs() + 1)
    return y, (y > scalar) & mask, y.clamp(min=-0.5, max=0.5), torch.maximum(y, x)
    """.strip().replace("\n    ", "\n")
    inputs = (
        "torch.randn(2, 3, 4, 20), torch.randn(3, 1, 1), torch.randn(4, 1), torch.randn(20), torch.randn(()), "
        "torch.rand(2, 3, 4, 20) > 0.5"
    )
    task = function_task(body, inputs, tmp_path, "x, channel, row, col, scalar, mask")
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize(
    "body",
    (
        "a, b = x.chunk(2, -1)\nreturn torch.cat((-b, a), -1)",
        "y = x.view(3, 5, 4, 2)\nreturn torch.stack((y[..., 1], y[..., 0]), -1).flatten(-2)",
        "return x.transpose(0, 1) * 2",
        "return x.transpose(0, 1).contiguous() * 2 + 1",
        "return x[:, 1:, ::2] + x[:, :-1, 1::2]",
        "return x.flip(1).unsqueeze(0) + x[0, 0]",
        "return F.pad(x, (1, 2), value=3.0) * 2",
        "return torch.tril(x) + torch.arange(8)",
        "return x.reshape(15, 8).t().reshape(8, 3, 5) + 1",
        "return x.permute(2, 0, 1).reshape(8, -1) * x.sum()",
    ),
)
def test_views_are_index_maps(body: str, tmp_path: Path) -> None:
    """Slices, concatenation, permutes, padding and triangles cost an index, and outputs have torch's strides."""
    task = function_task(body, "torch.randn(3, 5, 8)", tmp_path)
    compare(task, proposals(task)[0], tmp_path)


def test_integers_and_gathers(tmp_path: Path) -> None:
    """Integer arithmetic wraps as torch's does; embedding, gather and index read at computed positions."""
    body = """
    picked = F.embedding(i, table)
    return picked * 2, table[i], table.gather(1, i[:4, None]), i * 3 - 1, (i > 2).sum(), i.amax()
    """.strip().replace("\n    ", "\n")
    task = function_task(body, "torch.randn(5, 7), torch.tensor([0, 4, 2, 1, 3, 3])", tmp_path, "table, i")
    compare(task, proposals(task)[0], tmp_path)


def test_other_layouts(tmp_path: Path) -> None:
    """Transposed, sliced, expanded and misaligned inputs; strides of the result follow the input's as in torch."""
    task = function_task("return torch.sigmoid(x) * x, torch.softmax(x, -1)", "torch.randn(12, 16)", tmp_path)
    x = torch.randn(16, 12)
    odd = torch.randn(12 * 16 + 1)[1:].view(12, 16)
    layouts = [x.t(), torch.randn(12, 32)[:, ::2], torch.randn(1, 16).expand(12, 16), odd, torch.randn(3, 16)]
    compare(task, proposals(task)[0], tmp_path, [Call((t,)) for t in layouts])


@pytest.mark.parametrize("body", ("a, b = x.chunk(2, dim=-1)\nreturn torch.sigmoid(a) * b", "return x[:, 4:20] * 2.0"))
def test_parts_of_a_transposed_input_keep_its_order(body: str, tmp_path: Path) -> None:
    """A slice of a transposed tensor gives a result whose dimensions lie in the same order, as torch's does."""
    task = function_task(body, "torch.randn(6, 32)", tmp_path)
    compare(task, proposals(task)[0], tmp_path, [Call((torch.randn(32, 6).t(),)), Call((torch.randn(6, 32),))])


@pytest.mark.parametrize("name", ("const", "float4", "tanh", "2d"))
def test_file_names_that_mean_something_in_cuda(name: str, tmp_path: Path) -> None:
    """A task called like a keyword, a type or a function of CUDA's still gives kernels that compile."""
    path = tmp_path / f"{name}.py"
    path.write_text(
        "import torch\n\n\ndef reference(x):\n    return torch.tanh(x)\n\n\n"
        "def get_inputs():\n    return [torch.randn(4, 8)]\n"
    )
    task = load_task(path)
    compare(task, proposals(task)[0], tmp_path, [task.make_call()])


@pytest.mark.parametrize("shape", ((0, 8), (4, 0), (0, 0)))
def test_empty(shape: tuple[int, int], tmp_path: Path) -> None:
    """Empty tensors give torch's shapes; the sum of nothing is 0, its mean NaN, its maximum an error."""
    task = function_task("return x * 2, torch.softmax(x, -1), x.sum(-1), x.mean(-1)", "torch.randn(4, 8)", tmp_path)
    compare(task, proposals(task)[0], tmp_path, [Call((torch.empty(shape),))])
    task = function_task("return x.amax(-1)", "torch.randn(4, 8)", tmp_path)
    if shape == (4, 0):
        with pytest.raises(IndexError, match="empty"):
            load_model(proposals(task)[0], tmp_path)()(torch.empty(shape))


def test_other_shapes_are_refused_where_the_graph_is_bound_to_one(tmp_path: Path) -> None:
    """A literal slice holds for its size only: the candidate says so instead of computing something else."""
    task = function_task("return x[..., :4] * x[..., 4:]", "torch.randn(3, 8)", tmp_path)
    model = load_model(proposals(task)[0], tmp_path)()
    assert model(torch.randn(5, 8)).shape == (5, 4)
    with pytest.raises(ValueError, match="shape"):
        model(torch.randn(3, 10))


def test_a_number_that_follows_a_size_fixes_it(tmp_path: Path) -> None:
    """A mean written as a sum divided by x.shape[-1] is refused for another width, not computed with the old one."""
    task = function_task("return x.sum(-1) / x.shape[-1]", "torch.randn(3, 24)", tmp_path)
    model = load_model(proposals(task)[0], tmp_path)()
    x = torch.randn(7, 24)
    assert torch.allclose(model(x), x.mean(-1), atol=1e-6)
    with pytest.raises(ValueError, match="24"):
        model(torch.randn(3, 40))


def test_variants_free_a_bound_size(root: Path, tmp_path: Path) -> None:
    """The halves of a split follow the width where another input variant proves it."""
    task = load_task(root / "examples" / "swiglu.py")
    model = load_model(proposals(task)[0], tmp_path)()
    x = torch.randn(3, 24)
    assert torch.allclose(model(x), task.reference(x), atol=1e-6)


def test_module_with_submodules_keeps_its_state(tmp_path: Path) -> None:
    """ModelNew has the reference's constructor and parameter names, helpers included, and reads the loaded values."""
    text = '''
import torch
import torch.nn as nn

EPS = 1e-5


class Scale(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(n))


class Model(nn.Module):
    """Layer norm, scaled."""

    def __init__(self, n, *, bias=True):
        super(Model, self).__init__()
        self.blocks = nn.ModuleList([Scale(n)])
        self.norm = nn.LayerNorm(n, eps=EPS, bias=bias)
        self.register_buffer("shift", torch.full((n,), 0.5))

    def forward(self, x, flag: bool = True):
        y = self.norm(x) * self.blocks[0].gain
        return {"y": y + self.shift if flag else y, "flag": flag}


def get_init_inputs():
    return [[24], {"bias": False}]


def get_inputs():
    return [torch.randn(4, 24)]
'''
    task = task_from(text, tmp_path)
    candidate = proposals(task)[0]
    init = task.init_call()
    model = load_model(candidate, tmp_path)(*init.args, **init.kwargs)
    reference = task.make_reference()
    torch.nn.init.normal_(reference.blocks[0].gain)
    assert set(model.state_dict()) == set(reference.state_dict())
    model.load_state_dict(reference.state_dict())
    call = task.make_call()
    assert torch.allclose(task.run(model, call)["y"], task.run(reference, call)["y"], atol=1e-5)


MODULE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, hidden, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.eps = eps
        self.drop = nn.Dropout(0.0)

    def forward(self, x):
        return self.drop(x * self.weight + self.eps)


def get_inputs():
    return [torch.randn(6, 32)]


def get_init_inputs():
    return [32]
"""


def test_other_constructor_arguments_are_refused(tmp_path: Path) -> None:
    """A number that the kernels hold cannot be changed in silence: ModelNew refuses another eps."""
    task = task_from(MODULE, tmp_path)
    model = load_model(proposals(task)[0], tmp_path)
    model(32)
    with pytest.raises(ValueError, match="written for hidden=32, eps=1e-05"):
        model(32, eps=1.0)


def test_other_ranks_are_refused(tmp_path: Path) -> None:
    """Sizes are read by position: a tensor of another rank is refused, not computed in part."""
    task = task_from(MODULE, tmp_path)
    model = load_model(proposals(task)[0], tmp_path)(32)
    for shape in ((32,), (2, 6, 32)):
        with torch.no_grad(), pytest.raises(ValueError, match="need x with 2 dimensions"):
            model(torch.randn(shape))


def test_a_dropout_that_keeps_all_keeps_the_strides(tmp_path: Path) -> None:
    """A copy in the graph follows its operand's layout, as torch's does."""
    task = task_from(MODULE, tmp_path)
    compare(task, proposals(task)[0], tmp_path, [Call((torch.randn(32, 6).t(),))])


INHERITED = """import sys
import torch
import torch.nn as nn


class Scale(nn.Module):
    def __init__(self, hidden, eps=1e-5):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(hidden, 1))
        self.register_buffer("shift", torch.ones(hidden), persistent=False)
        self.eps = eps

    def forward(self, x, twice=False):
        return x * self.inner[0].weight + self.shift + self.eps


class Model(Scale):
    pass


def get_inputs():
    return [torch.randn(6, 32)]


def get_init_inputs():
    return [[32], {"eps": 0.5}]
"""


def test_an_inherited_module_is_rebuilt_by_name(tmp_path: Path) -> None:
    """Where the reference inherits its forward, nothing of op.py is copied: the state is, by name, and is loaded."""
    task = task_from(INHERITED, tmp_path)
    candidate = proposals(task)[0]
    assert "import sys" not in candidate.files[candidate.module]
    model = load_model(candidate, tmp_path)
    reference = task.make_reference(3)
    ours = model(32, eps=0.5)
    ours.load_state_dict(reference.state_dict())
    ours.shift.copy_(reference.shift)
    call = task.make_call()
    with torch.no_grad():
        assert torch.allclose(ours(*call.args), task.run(reference, call))
    with pytest.raises(ValueError, match="written for"):
        model(32, eps=0.25)


def test_constants_beyond_single_precision(tmp_path: Path) -> None:
    """A constant that no float holds is infinity or zero in the source, as it is for torch; zero times it is NaN."""
    body = "return x * 1e300 * 1e300, x * -1e39, x * 1e-300, x + 3.4e38"
    task = function_task(body, "torch.tensor([1.0, 0.0, -2.0, 1e-3])", tmp_path)
    candidate = proposals(task)[0]
    assert "INFINITY" in candidate.files["op_kforge.cu"] and "e+300" not in candidate.files["op_kforge.cu"]
    model = load_model(candidate, tmp_path)()
    call = task.make_call()
    for want, have in zip(task.run(task.make_reference(), call), task.run(model, call), strict=True):
        assert torch.equal(want.nan_to_num(7), have.nan_to_num(7)) and torch.equal(want.isnan(), have.isnan())
