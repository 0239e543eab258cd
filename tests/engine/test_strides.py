"""Results lie in memory as torch's would, whatever the inputs' strides are."""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from kforge.environment.layouts import LAYOUTS
from kforge.task import Call
from tests.engine.support import compare, function_task, proposals

TWO = "torch.randn(6, 5), torch.randn(5, 6)"
ROWS = "torch.tensor([3, 0]), torch.randn(2, 5)"
IMAGES = "torch.randn(2, 8, 4, 6)"
CASES = [
    ("return x.transpose(0, 1) + y", TWO, "x, y"),
    ("return x.t().reshape(5, 2, 3).transpose(0, 2) * 2", "torch.randn(6, 5)", "x"),
    ("return x.flatten(2).transpose(1, 2) + y", f"{IMAGES}, torch.randn(24, 8)", "x, y"),
    ("return x.clone().index_add_(0, i, y) * 2", f"torch.randn(6, 5), {ROWS}", "x, i, y"),
    ("return x.index_add(0, i, y) * 2", f"torch.randn(6, 5), {ROWS}", "x, i, y"),
    ("return x.contiguous() + y.t(), x.round() - 1, F.rms_norm(x, x.shape[1:]) * 2, x.flip(0)", TWO, "x, y"),
    ("return x.masked_fill(x > 0, 0.5) + 1, (x.amax(0) - x.t()[:, :5]) * 2", "torch.randn(5, 5)", "x"),
    ("return x + y.t()", TWO, "x, y"),
    ("return x.masked_fill(m, 0.5)", "torch.randn(4, 9, 6), torch.rand(4, 1, 6) > 0.5", "x, m"),
    ("y = x.clone()\ny.masked_fill_(m, 0.5)\nreturn y + 1", "torch.randn(4, 9, 6), torch.rand(4, 1, 6) > 0.5", "x, m"),
    ("return F.smooth_l1_loss(x.amax(0), x, reduction='none')", "torch.randn(4, 5, 6)", "x"),
    ("v = x.cummax(-1).values\nreturn torch.lerp(v, x, 0.3), torch.lerp(x, v, 0.3)", IMAGES, "x"),
    ("y = x.clone()\ny[:, 1] = 0.5\nreturn y + 1", "torch.randn(6, 5)", "x"),
    ("return F.channel_shuffle(x, 4) + 1", IMAGES, "x"),
    (
        "return torch.diagonal_scatter(x, y), torch.slice_scatter(x, x[:, :3], 1, 1, 4)",
        "torch.randn(5, 6), torch.randn(5)",
        "x, y",
    ),
    ("return (x * 2)[:, -1], torch.relu(x).transpose(0, 1)[..., 1:]", "torch.randn(4, 6, 3)", "x"),
    ("return F.pixel_shuffle(x, 2) + 1", IMAGES, "x"),
    ("return torch.cat([x, x], 1), torch.stack([x, x])[0] * 2", IMAGES, "x"),
    ("return torch.cat([x, x * 2], 1), torch.cat([x, F.avg_pool2d(x, 1)], 0)[1] + 1", IMAGES, "x"),
    ("return torch.maximum(x, x)[1:], (x * 2)[0], F.avg_pool2d(x, 2)[1:, None]", IMAGES, "x"),
    ("return (x * 2)[::2, 1:], torch.relu(x)[:, 1::3, ::2].transpose(1, 2)", "torch.randn(5, 8, 4, 6)", "x"),
    (
        "return x[i] * 2, x[:, i], x[..., i, i], x[i, :, i], (x + 1)[:, i[None], i[:, None]]",
        f"{IMAGES}, torch.tensor([1, 0, 1])",
        "x, i",
    ),
    (
        "return [F.interpolate(x, (5, 9), mode=m) for m in ('bicubic', 'nearest-exact')],"
        " F.pad(x, (1, 2, 1, 1), 'reflect')",
        IMAGES,
        "x",
    ),
    ("return x.transpose(1, 2)[i]", f"{IMAGES}, torch.tensor([[1, 0, 1], [0, 1, 1]])", "x, i"),
    ("return F.batch_norm(x.logcumsumexp(0), None, None, training=True)", IMAGES, "x"),
    ("v = x * 2\nreturn v, v[:, None].expand(-1, 3, -1), x.amax(-1, True).expand_as(x)", "torch.randn(6, 5)", "x"),
    ("return F.interpolate(x.to(memory_format=torch.channels_last), scale_factor=2.0, mode='bilinear')", IMAGES, "x"),
]


@pytest.mark.parametrize(("body", "inputs", "parameters"), CASES)
def test_every_layout(body: str, inputs: str, parameters: str, tmp_path: Path) -> None:
    """Inputs all in one layout, and only the first of them: strides and values are those of the reference."""
    task = function_task(body, inputs, tmp_path, parameters)
    args = task.make_call().args
    calls = [Call(tuple(layout(t) for t in args)) for layout in LAYOUTS.values()]
    calls += [Call((LAYOUTS[name](args[0]), *args[1:])) for name in ("transposed", "expanded", "dense_permuted")]
    compare(task, proposals(task)[0], tmp_path, calls)


def helpers(folder: Path) -> dict[str, Any]:
    """The functions of a candidate that has all of them."""
    candidate = proposals(function_task("return x.transpose(0, 1) + y", TWO, folder, "x, y"))[0]
    tree = ast.parse(candidate.files[candidate.module])
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found: dict[str, Any] = {"torch": torch}
    exec(compile(ast.Module(functions, []), "helpers", "exec"), found)
    return found


def strided(shape: tuple[int, ...], draw: random.Random) -> torch.Tensor:
    """A tensor of this shape in some order of dimensions, cut, with a step, or broadcast along one of them."""
    order = draw.sample(range(len(shape)), len(shape))
    wide = [shape[d] * draw.choice((1, 1, 2)) for d in order]
    x = torch.randn(wide).permute([order.index(d) for d in range(len(shape))])
    for d, size in enumerate(shape):
        x = x.narrow(d, 0, size)
    d = draw.randrange(len(shape))
    return x.narrow(d, 0, 1) if draw.random() < 0.3 else x


def test_operands_in_any_order(tmp_path: Path) -> None:
    """The order that candidates work out for a pointwise operator's result is torch's, for two operands and three."""
    joined, bare = helpers(tmp_path)["joined"], helpers(tmp_path)["bare"]
    draw = random.Random(0)
    for _ in range(400):
        shape = tuple(draw.choice((1, 2, 3, 5)) for _ in range(draw.randint(1, 4)))
        a, b, c = (strided(shape, draw) for _ in range(3))
        for function, operands in ((torch.add, (a, b)), (torch.where, (a > 0, b, c)), (torch.lerp, (a, b, c))):
            result, found = function(*operands), joined(*map(bare, operands))
            assert found.stride() == result.stride(), [(x.shape, x.stride()) for x in operands]
