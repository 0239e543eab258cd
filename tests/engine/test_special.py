"""Special functions, divisors of integers, order statistics that pass over NaN, small constant tensors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.errors import NoCandidate
from kforge.task import Call
from tests.engine.support import compare, function_task, proposals, task_from

SPECIAL = (
    "return torch.i0(x), torch.special.i1e(x)",
    "return torch.digamma(x), torch.polygamma(1, x.abs() + 0.01), torch.special.erfcx(x)",
    "y = torch.tanh(x / 9)\nreturn torch.erfinv(y), torch.special.ndtri(y.abs()), torch.special.log_ndtr(x), x.angle()",
)


@pytest.mark.parametrize("body", SPECIAL)
def test_special_functions(body: str, tmp_path: Path) -> None:
    """As accurate as torch's over small and large arguments of both signs; poles, infinities and NaN as there."""
    task = function_task(body, "torch.randn(40, 33) * torch.linspace(0.1, 20, 33)", tmp_path)
    odd = task.make_call().args[0].clone()
    odd[0, :8] = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, -1.0, 1.0, -2.0])
    compare(task, proposals(task)[0], tmp_path, [task.make_call(), Call((odd.t().contiguous().t(),))])


def test_special_functions_in_double(tmp_path: Path) -> None:
    """The whole series where values are doubles, and all of a mantissa's bits."""
    task = function_task(
        "return torch.special.i0e(x), torch.special.i1(x), torch.digamma(x), *torch.frexp(x)",
        "torch.randn(300).double() * 9",
        tmp_path,
    )
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize("dtype", ("int64", "int32", "int8", "uint8"))
def test_powers_of_integers(dtype: str, tmp_path: Path) -> None:
    """By multiplication, with what overflows cut off; negative exponents give zero but of one and minus one."""
    made = f"torch.randint(0, 130, (40, 9)).to(torch.{dtype}), torch.randint(0, 9, (40, 9)).to(torch.{dtype})"
    task = function_task("return x ** 2, x ** 3, x.pow(7), x ** y, 3 ** y", made, tmp_path, "x, y")
    x, y = task.make_call().args
    calls = [task.make_call()]
    if dtype != "uint8":
        signed = function_task("return x ** y, x.pow(2)", made, tmp_path, "x, y")
        compare(signed, proposals(signed)[0], tmp_path, [Call((x % 5 - 2, y - 4))])
    compare(task, proposals(task)[0], tmp_path, calls)


@pytest.mark.parametrize("dtype", ("int64", "int32", "int8"))
def test_divisors(dtype: str, tmp_path: Path) -> None:
    """Greatest common divisor and least common multiple, of negative numbers and zeros, too."""
    inputs = f"torch.randint(-9, 10, (7, 33)).to(torch.{dtype}), torch.randint(-9, 10, (7, 1)).to(torch.{dtype})"
    task = function_task("return torch.gcd(x, y), torch.lcm(x, y)", inputs, tmp_path, "x, y")
    compare(task, proposals(task)[0], tmp_path)


@pytest.mark.parametrize(
    ("body", "shape"),
    (
        ("return torch.nanmedian(x, 1)[0], torch.nanquantile(x, 0.3, 1, keepdim=True)", "(9, 40)"),
        ("return torch.quantile(x, torch.tensor([0.1, 0.5], dtype=x.dtype), 0)", "(33, 20)"),
        ("return torch.nanmedian(x), torch.quantile(x, 0.7, interpolation='nearest')", "(9, 40)"),
    ),
)
def test_order_statistics(body: str, shape: str, tmp_path: Path) -> None:
    """With NaN in some rows, in whole rows and in none; infinities are numbers."""
    task = function_task(body, f"torch.randn{shape}", tmp_path)
    x = task.make_call().args[0].clone()
    x[torch.rand(x.shape) < 0.3] = torch.nan
    x[4], x[5, :5] = torch.nan, torch.inf
    compare(task, proposals(task)[0], tmp_path, [task.make_call(), Call((x,))])


def test_small_constant_tensors(tmp_path: Path) -> None:
    """What the reference writes down as a list of numbers is chosen from in the kernel, as values and as places."""
    body = (
        "mean = torch.tensor([0.485, 0.456, 0.406], dtype=x.dtype)[:, None, None]\n"
        "return ((x - mean) / 0.2)[:, torch.tensor([2, 0, 1])]"
    )
    task = function_task(body, "torch.randn(2, 3, 8, 16)", tmp_path)
    compare(task, proposals(task)[0], tmp_path)


def test_other_constant_tensors_are_refused(tmp_path: Path) -> None:
    """Long ones, and attributes that are no buffers: another object of the module may hold other numbers."""
    with pytest.raises(NoCandidate, match="not a buffer"):
        proposals(function_task("return x + torch.tensor([1.0] * 40)", "torch.randn(3, 40)", tmp_path))
    module = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.noise = torch.randn(4)

    def forward(self, x):
        return x * self.noise

def get_inputs():
    return [torch.randn(3, 4)]
"""
    with pytest.raises(NoCandidate, match="not a buffer"):
        proposals(task_from(module, tmp_path))


def test_higher_derivatives_of_digamma_are_refused(tmp_path: Path) -> None:
    """They are named; no series stands in for them."""
    with pytest.raises(NoCandidate) as caught:
        proposals(function_task("return torch.polygamma(3, x)", "torch.rand(8)", tmp_path))
    assert "polygamma" in caught.value.operator


@pytest.mark.parametrize(
    ("call", "inputs"),
    (
        ("F.embedding_bag(i, w, o, mode='sum')", "torch.randn(10, 16), torch.tensor([0, 4, 4, 12])"),
        ("F.embedding_bag(i, w, o, mode='mean') * 2", "torch.randn(10, 7).half(), torch.tensor([0, 4, 4, 12, 20])"),
        (
            "F.embedding_bag(i, w, o, mode='max', include_last_offset=True)",
            "torch.randn(10, 9), torch.tensor([0, 4, 4, 20])",
        ),
        (
            "F.embedding_bag(i, w, o, mode='sum', per_sample_weights=w[:, 0].repeat(2), padding_idx=3)",
            "torch.randn(10, 16), torch.tensor([0, 9])",
        ),
    ),
)
def test_bags_of_many_sizes(call: str, inputs: str, tmp_path: Path) -> None:
    """Bags that begin where an input says, empty ones among them: sums, means, maxima, weighted sums."""
    task = function_task(f"return {call}", f"torch.randint(0, 9, (20,)), {inputs}", tmp_path, "i, w, o")
    candidate = proposals(task)[0]
    assert "op_bags" in candidate.files["op_kforge.py"] and "atomicAdd" not in candidate.files["op_kforge.cu"]
    odd = task.make_call()
    odd.args[1][3], odd.args[1][5] = torch.nan, -torch.inf
    compare(task, candidate, tmp_path, [task.make_call(), odd])
