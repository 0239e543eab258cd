"""What the engine cannot do ends as NoCandidate that names the operator, never as a torch-only candidate."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.errors import NoCandidate
from tests.engine.support import function_task, proposals


@pytest.mark.parametrize(
    ("body", "operator"),
    (
        ("return x @ x.t()", "mm"),
        ("return torch.mode(x, -1)[0]", "mode"),  # of floats
        ("return torch.bincount(x.int().flatten())", "bincount"),
        ("return torch.fft.fft(x).abs()", "fft"),
        ("return F.dropout2d(x[None], 0.5, training=True)", "bernoulli"),
        ("x.mul_(2)\nreturn x[1:]", "view as output"),
    ),
)
def test_operator_is_named(body: str, operator: str, tmp_path: Path) -> None:
    """The error carries the operator that no kernel covers, and a hint."""
    with pytest.raises(NoCandidate) as caught:
        proposals(function_task(body, "torch.randn(8, 8)", tmp_path))
    assert operator in caught.value.operator
    assert caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("body", "dtype"),
    (
        ("return x + 1", "uint16"),
        ("return x.float() + 1", "uint32"),
        ("return x.float() * 2", "float8_e5m2fnuz"),
        ("return x.abs()", "complex64"),
    ),
)
def test_dtype_is_named(body: str, dtype: str, tmp_path: Path) -> None:
    """Elements that no kernel holds are refused by the name of their dtype."""
    with pytest.raises(NoCandidate) as caught:
        proposals(function_task(body, f"torch.ones(8).to(torch.{dtype})", tmp_path))
    assert dtype in caught.value.message and dtype in caught.value.operator


def test_dtype_of_a_result_is_named(tmp_path: Path) -> None:
    """The same for what the reference makes itself."""
    with pytest.raises(NoCandidate) as caught:
        proposals(function_task("return (x * 2).to(torch.uint16)", "torch.ones(8)", tmp_path))
    assert "uint16" in caught.value.message


def test_a_chain_too_long_for_one_expression(tmp_path: Path) -> None:
    """Thousands of operators in a row end in one clear line, not in Python's recursion limit."""
    body = "for _ in range(2000):\n    x = x * 1.0001 + 0.1\nreturn x"
    with pytest.raises(NoCandidate, match="nested too deeply"):
        proposals(function_task(body, "torch.ones(8)", tmp_path))
