"""Bytes and operations, against counts made by hand."""

from __future__ import annotations

import math

import pytest

from kforge.task import Cost, capture, count


def cost(load, text: str) -> Cost:
    return count(capture(load(text)))


def inputs(*makers: str) -> str:
    return f"def get_inputs():\n    return [{', '.join(makers)}]\n"


def test_softmax_by_hand(load):
    """128 x 1024 floats in and out; max, subtract, sum and divide once an element, one exponential."""
    n = 128 * 1024
    found = cost(
        load,
        "def reference(x):\n    e = torch.exp(x - x.amax(-1, keepdim=True))\n"
        "    return e / e.sum(-1, keepdim=True)\n" + inputs("torch.randn(128, 1024)"),
    )
    assert (found.read_bytes, found.write_bytes) == (4 * n, 4 * n)
    assert found.flops == {"fp32": 4 * n, "special": n}
    assert found.operations == 5 * n and found.intensity == 5 / 8
    assert [node.op for node in found.nodes] == ["amax", "sub", "exp", "sum", "div"]
    assert str(found.nodes[2].origin).startswith("op.py:4: ")


def test_library_softmax_counts_the_same(load):
    """The operator and its eager form are one task."""
    found = cost(load, "def reference(x):\n    return x.softmax(-1)\n" + inputs("torch.randn(8, 16)"))
    assert found.flops == {"fp32": 4 * 128, "special": 128}


@pytest.mark.parametrize(
    ("dtype", "precision", "flops", "rate"),
    [
        ("float32", "highest", {"fp32": 2 * 8 * 32 * 16}, ""),
        ("float32", "high", {"tensor": 2 * 8 * 32 * 16}, "tf32"),
        ("bfloat16", "highest", {"tensor": 2 * 8 * 32 * 16}, "bfloat16"),
        ("float64", "highest", {"fp64": 2 * 8 * 32 * 16}, ""),
    ],
)
def test_matmul_by_hand(load, dtype, precision, flops, rate):
    """2 M N K operations, on the units that the dtype and PRECISION choose; three matrices of traffic."""
    made = [f"torch.randn({shape}, dtype=torch.{dtype})" for shape in ("8, 16", "16, 32")]
    found = cost(load, f"PRECISION = {precision!r}\ndef reference(a, b):\n    return a @ b\n" + inputs(*made))
    size = {"float32": 4, "bfloat16": 2, "float64": 8}[dtype]
    assert (found.read_bytes, found.write_bytes) == (size * (8 * 16 + 16 * 32), size * 8 * 32)
    assert found.flops == flops and found.tensor_dtype == rate


def test_linear_and_convolution(load):
    """A bias costs one addition an output; a convolution two operations a filter tap."""
    linear = cost(
        load,
        "def reference(x, w, b):\n    return nn.functional.linear(x, w, b)\n"
        + inputs("torch.randn(4, 8)", "torch.randn(5, 8)", "torch.randn(5)"),
    )
    assert linear.flops == {"fp32": 2 * 4 * 5 * 8 + 4 * 5}
    conv = cost(
        load,
        "def reference(x, w):\n    return nn.functional.conv2d(x, w, padding=1)\n"
        + inputs("torch.randn(2, 3, 8, 8)", "torch.randn(4, 3, 3, 3)"),
    )
    assert conv.flops == {"fp32": 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3)}


def test_embedding_reads_rows_only(load):
    """Of a table of 1000 rows the five looked up are read, once even when looked up twice, and the indices."""
    found = cost(
        load,
        "def reference(table, i):\n    return nn.functional.embedding(i, table) + table[i]\n"
        + inputs("torch.randn(1000, 64)", "torch.randint(0, 1000, (5,))"),
    )
    assert found.read_bytes == 5 * 64 * 4 + 5 * 8
    assert found.write_bytes == 5 * 64 * 4


def test_indexed_reads_are_capped(load):
    """Looking up more rows than there are reads the table once."""
    found = cost(
        load, "def reference(t, i):\n    return t[i]\n" + inputs("torch.randn(4, 8)", "torch.randint(0, 4, (100,))")
    )
    assert found.read_bytes == 4 * 8 * 4 + 100 * 8


def test_slices_and_gather(load):
    """Slices count their part, overlapping parts at most the whole, gather one element a result."""
    half = cost(load, "def reference(x):\n    return x[:2] * 2\n" + inputs("torch.randn(8, 16)"))
    assert half.read_bytes == 2 * 16 * 4
    both = cost(load, "def reference(x):\n    return x[1:] - x[:-1]\n" + inputs("torch.randn(8, 16)"))
    assert both.read_bytes == 8 * 16 * 4
    chunks = cost(
        load, "def reference(x):\n    a, b = x.chunk(2, -1)\n    return a * b\n" + inputs("torch.randn(8, 16)")
    )
    assert (chunks.read_bytes, chunks.write_bytes) == (8 * 16 * 4, 8 * 8 * 4)
    gather = cost(
        load,
        "def reference(x, i):\n    return x.gather(1, i)\n"
        + inputs("torch.randn(8, 1000)", "torch.randint(0, 9, (8, 1))"),
    )
    assert gather.read_bytes == 8 * 4 + 8 * 8


def test_each_input_is_read_once(load):
    """An input that many operators use is one read."""
    found = cost(load, "def reference(x):\n    return x * x + x.exp()\n" + inputs("torch.randn(10)"))
    assert (found.read_bytes, found.write_bytes) == (40, 40)


def test_unread_and_expanded_inputs(load):
    """Unused inputs, inputs of which only the shape matters and expanded dimensions move nothing."""
    found = cost(
        load,
        "def reference(x, unused, like):\n    return x * 2 + torch.ones_like(like)\n"
        + inputs("torch.randn(1, 8).expand(4, 8)", "torch.randn(100)", "torch.randn(4, 8)"),
    )
    assert (found.read_bytes, found.write_bytes) == (8 * 4, 4 * 8 * 4)


def test_returned_views_are_free(load):
    """An output that is a view of an input is neither read nor written."""
    found = cost(load, "def reference(x):\n    return x.t(), x[0]\n" + inputs("torch.randn(8, 16)"))
    assert (found.read_bytes, found.write_bytes, found.flops) == (0, 0, {})
    assert found.intensity == math.inf


def test_in_place_updates(load):
    """A whole update reads and writes its input; writing a slice of a cache touches the slice."""
    whole = cost(load, "def reference(x):\n    x.mul_(2)\n    return x\n" + inputs("torch.randn(8)"))
    assert (whole.read_bytes, whole.write_bytes) == (32, 32)
    part = cost(
        load,
        "def reference(cache, new):\n    cache[:, 3:5] = new\n    return cache\n"
        + inputs("torch.zeros(4, 1000)", "torch.ones(4, 2)"),
    )
    assert (part.read_bytes, part.write_bytes) == (32, 32)


def test_parameters_are_read(load):
    """Weights count as inputs do."""
    found = cost(
        load,
        """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
    def forward(self, x):
        return x * self.weight
"""
        + inputs("torch.randn(4, 16)"),
    )
    assert found.read_bytes == 4 * 16 * 4 + 16 * 4


def test_integers_are_their_own_class(load):
    """Integer arithmetic does not count as floating."""
    assert cost(load, "def reference(x):\n    return x * 3 + 1\n" + inputs("torch.arange(10)")).flops == {"int": 20}


def test_sizes_that_depend_on_values(load):
    """What a boolean mask selects is unknown: the count stays a lower bound instead of failing."""
    found = cost(load, "def reference(x):\n    return x[x > 0] * 2\n" + inputs("torch.randn(10)"))
    assert (found.read_bytes, found.write_bytes) == (40, 0)
