"""Library calls between kernels: products and convolutions with what comes before and after fused into kernels."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.errors import NoCandidate
from kforge.task import Call
from tests.engine.support import compare, function_task, proposals

PRODUCTS = (
    ("torch.softmax(x @ w, -1)", "x, w", "torch.randn(9, 33), torch.randn(33, 130)", "torch.mm(x, w)"),
    ("torch.relu(x) @ w.T + 1", "x, w", "torch.randn(9, 33), torch.randn(30, 33)", "torch.mm(relu"),
    ("torch.tanh(torch.matmul(x, w)) * 2", "x, w", "torch.randn(3, 9, 33), torch.randn(33, 30)", "torch.mm(x.view("),
    (
        "F.gelu(F.linear(x, w, b))",
        "x, w, b",
        "*(torch.randn(*s).half() for s in ((9, 32), (48, 32), (48,)))",
        "addmm(b, x",
    ),
    (
        "F.layer_norm(torch.bmm(x, w.transpose(1, 2)), (20,))",
        "x, w",
        "torch.randn(3, 9, 33), torch.randn(3, 20, 33)",
        "torch.bmm(x, w.transpose(1, 2))",
    ),
    (
        "torch.relu(torch.baddbmm(b, x, w, beta=0.5, alpha=2))",
        "x, w, b",
        "torch.randn(3, 9, 33), torch.randn(3, 33, 20), torch.randn(3, 9, 20)",
        "torch.bmm(x, w)",
    ),
)


@pytest.mark.parametrize(("body", "parameters", "inputs", "call"), PRODUCTS)
def test_products(body: str, parameters: str, inputs: str, call: str, tmp_path: Path) -> None:
    """A product is the library's, on views of what is in memory; the rest is right and in kernels of ours."""
    task = function_task(f"return {body}", inputs, tmp_path, parameters)
    candidate = next(c for c in proposals(task) if "_product(" not in c.files["op_kforge.py"])
    assert call in candidate.files["op_kforge.py"]
    compare(task, candidate, tmp_path)


PARTS = (
    ("x[:, 8:] @ w[:, 4:34] + 1", "torch.randn(40, 41), torch.randn(33, 50)", 2),
    ("(x[2:, :33] @ w.T[:, 1:]).relu()", "torch.randn(40, 41), torch.randn(51, 33)", 2),
    ("torch.bmm(x[:, :, 3:], w[:, 1:].transpose(1, 2)).relu()", "torch.randn(4, 40, 41), torch.randn(4, 31, 38)", 2),
    ("F.gelu(F.linear(x[1], w[:, 1:34], w[:, 0]))", "torch.randn(2, 40, 33).half(), torch.randn(30, 40).half()", 2),
    ("(x[:, ::2] @ w).relu()", "torch.randn(40, 66), torch.randn(33, 20)", 0),
)


@pytest.mark.parametrize(("body", "inputs", "parts"), PARTS)
def test_parts_are_not_copied(body: str, inputs: str, parts: int, tmp_path: Path) -> None:
    """A product reads parts of what is in memory as they lie there, also of inputs that begin behind their storage's
    start; what has no dense lines a kernel copies."""
    task = function_task(f"return {body}", inputs, tmp_path, "x, w")
    candidate = next(c for c in proposals(task) if "_product(" not in c.files["op_kforge.py"])
    assert candidate.files["op_kforge.py"].count(".as_strided(") == parts
    call = task.make_call()
    behind = Call(tuple(torch.cat((t[:1], t))[1:] for t in call.args))
    assert all(t.storage_offset() for t in behind.args)
    compare(task, candidate, tmp_path, [call, behind])


def test_convolution_with_epilogue(tmp_path: Path) -> None:
    """Bias, activation and residual join the kernel after a convolution, which writes over its result."""
    body = "return F.conv2d(x, w, b, stride=2, padding=1).sigmoid() * 2 + y"
    inputs = "torch.randn(2, 24, 9, 7), torch.randn(6, 24, 3, 3), torch.randn(6), torch.randn(2, 6, 5, 4)"
    task = function_task(body, inputs, tmp_path, "x, w, b, y")
    candidate = proposals(task)[0]
    source = candidate.files["op_kforge.py"]
    assert "torch.conv2d(x, w, stride=2, padding=1)" in source and "torch.empty(" not in source
    compare(task, candidate, tmp_path)


def test_transposed_convolution_then_softmax(tmp_path: Path) -> None:
    """Softmax over the channels of a transposed convolution: rows across memory, one kernel, other sizes too."""
    body = "return torch.softmax(F.conv_transpose2d(x, w, b, stride=2, output_padding=1), 1)"
    task = function_task(
        body, "torch.randn(2, 24, 4, 5), torch.randn(24, 6, 3, 3), torch.randn(6)", tmp_path, "x, w, b"
    )
    candidate = next(c for c in proposals(task) if "conv_transpose2d" in c.files["op_kforge.py"])
    other = Call((torch.randn(3, 24, 7, 2), torch.randn(24, 6, 3, 3), torch.randn(6)))
    compare(task, candidate, tmp_path, [task.make_call(), other])


def test_attention(tmp_path: Path) -> None:
    """Two products with a masked softmax between them: one kernel of ours, two calls."""
    body = "return F.scaled_dot_product_attention(q, k, v, is_causal=True) + 1"
    inputs = "torch.randn(2, 3, 12, 8), torch.randn(2, 3, 12, 8), torch.randn(2, 3, 12, 6)"
    task = function_task(body, inputs, tmp_path, "q, k, v")
    candidate = next(c for c in proposals(task) if c.files["op_kforge.py"].count("torch.bmm(") == 2)
    compare(task, candidate, tmp_path)


@pytest.mark.parametrize("body", ("return torch.matmul(x, w)", "return (x @ w).view(27, 5)"))
def test_a_call_alone_is_no_candidate(body: str, tmp_path: Path) -> None:
    """Where the library's product is all there is, the engine has nothing to add and says so by name."""
    inputs = "torch.randn(27, 40), torch.randn(40, 5)"
    with pytest.raises(NoCandidate, match="mm") as caught:
        proposals(function_task(body, inputs, tmp_path, "x, w"))
    assert caught.value.operator == "mm.default"


def test_integer_product_is_named(tmp_path: Path) -> None:
    """Products of integers have no library call on a GPU."""
    body, inputs = "return x @ w + 1", "torch.ones(4, 6, dtype=torch.int64), torch.ones(6, 4, dtype=torch.int64)"
    with pytest.raises(NoCandidate, match="int64"):
        proposals(function_task(body, inputs, tmp_path, "x, w"))


def test_a_product_over_nothing(tmp_path: Path) -> None:
    """A depth without elements makes a product of zeros: the log of the number of columns, by each candidate."""
    task = function_task(
        "return torch.logsumexp(x @ w, -1)", "torch.randn(3, 0).half(), torch.randn(0, 5).half()", tmp_path, "x, w"
    )
    for k, candidate in enumerate(proposals(task)):
        compare(task, candidate, tmp_path / str(k))
