"""Products that are not computed as written: of narrow integers, of groups of rows, of a band."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.engine.calls import bands, precision
from kforge.engine.handlers import narrow, products
from kforge.errors import NoCandidate
from kforge.task import Call
from tests.engine.support import compare, function_task, leaves, load_model, proposals

BYTES = "torch.randint(-128, 128, (33, 64), dtype=torch.int8), torch.randint(-128, 128, (40, 64), dtype=torch.int8)"


def test_integers(tmp_path: Path) -> None:
    """torch's own product of integers, its scales and activation in one kernel after it; other sizes too."""
    body = "return F.silu(torch._int_mm(a, w.t()).float() * s * t)"
    task = function_task(body, f"{BYTES}, torch.rand(33, 1), torch.rand(40)", tmp_path, "a, w, s, t")
    candidate = proposals(task)[0]
    assert "integer_product(a, w.t())" in candidate.files["op_kforge.py"]
    other = Call(
        (*(torch.randint(-128, 128, (n, 24), dtype=torch.int8) for n in (5, 7)), torch.rand(5, 1), torch.rand(7))
    )
    compare(task, candidate, tmp_path, [task.make_call(), other])


def test_integers_as_floats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of integers that the reference makes floats of is exact; one of floats stays one."""
    monkeypatch.setattr(narrow, "WORTHWHILE", 0)
    body = "return torch.relu((a.float() @ w.float().t()) * s)"
    task = function_task(body, f"{BYTES}, torch.rand(33, 1)", tmp_path, "a, w, s")
    candidate = proposals(task)[0]
    assert "integer_product(" in candidate.files["op_kforge.py"]
    call = task.make_call()
    got = load_model(candidate, tmp_path)()(*call.args)
    a, w, s = call.args
    assert torch.equal(got, torch.relu((a.long() @ w.long().t()).float() * s))
    scaled = "return torch.relu((a.float() * s) @ w.float().t())"
    other = function_task(scaled, f"{BYTES}, torch.rand(33, 1)", tmp_path, "a, w, s")
    assert "integer_product(" not in proposals(other)[0].files["op_kforge.py"]


def test_groups(tmp_path: Path) -> None:
    """Rows in groups, each with a matrix of its own, between kernels of ours; a product without groups is refused."""
    inputs = (
        "torch.randn(24, 16).bfloat16(), torch.randn(3, 16, 40).bfloat16(), torch.tensor([4, 4, 24], dtype=torch.int32)"
    )
    task = function_task("return F.silu(torch._grouped_mm(x * 2, w, offs=o))", inputs, tmp_path, "x, w, o")
    candidate = proposals(task)[0]
    assert "offs=o)" in candidate.files["op_kforge.py"]
    x, w, o = task.make_call().args
    got = load_model(candidate, tmp_path)()(x, w, o).float()
    wide = torch.cat([x[:4].double() * 2 @ w[0].double(), x[4:].double() * 2 @ w[2].double()])
    assert torch.allclose(got.double(), torch.nn.functional.silu(wide), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("body", "inputs", "parameters"),
    [
        ("F.softmax(x.bfloat16() * s, -1)", "(30, 200)).to(E4), torch.rand(30, 1, dtype=torch.bfloat16)", "x, s"),
        ("(w.float() * s) @ x.t()", "(40, 63)).to(E5), torch.rand(40, 1), torch.randn(30, 63)", "w, s, x"),
    ],
)
def test_floats_of_eight_bits_are_read(body: str, inputs: str, parameters: str, tmp_path: Path) -> None:
    """Elements in float8, NaN and infinities among them, are converted where they are read, and kept to their dtype."""
    made = "torch.randn(" + inputs.replace("E4", "torch.float8_e4m3fn").replace("E5", "torch.float8_e5m2")
    task = function_task(f"return {body}", made, tmp_path, parameters)
    candidate, call = proposals(task)[0], task.make_call()
    first = call.args[0].float()
    first[3, 5], first[4, 6] = torch.nan, torch.inf
    compare(task, candidate, tmp_path, [task.make_call(), Call((first.to(call.args[0].dtype), *call.args[1:]), {})])
    with pytest.raises(TypeError, match="float8"):
        load_model(candidate, tmp_path)()(first.half(), *call.args[1:])


EDGES = [448, 464, 464.1, 481, 1e9, torch.inf, -torch.inf, torch.nan, 1e-9, 9.765625e-4, 0.00146484375, -0.0, 57344]
EDGES += [61439, 61440, -1e6, 7.6e-6]
E4, E5 = "torch.float8_e4m3fn", "torch.float8_e5m2"


@pytest.mark.parametrize(
    ("body", "inputs", "parameters"),
    [
        (f"return x.to({E4}), x.to({E5}), x.to({E4}).float() * 2, x.to({E5}).bfloat16()", "torch.randn(7, 40)", "x"),
        (f"s = x.abs().amax(-1, True) / 448\nreturn (x / s).to({E4}), s", "torch.randn(7, 40)", "x"),
        (f"return torch.relu(x).to({E5}).t().contiguous()", "torch.randn(7, 40).half()", "x"),
        (f"return F.avg_pool2d(x, 3, 1).to({E4}), x.sum(0).to({E5})", "torch.randn(3, 9, 40)", "x"),
        (f"return (x @ w).to({E4})", "torch.randn(7, 40), torch.randn(40, 9)", "x, w"),
        ("return torch.cat([x, x[:2].abs()]), x.flip(0).roll(1, 1), x[i]", f"X.to({E5}), torch.tensor([4, 0])", "x, i"),
        (f"return x.to({E5})", f"X.to({E4})", "x"),
    ],
)
def test_floats_of_eight_bits_are_written(body: str, inputs: str, parameters: str, tmp_path: Path) -> None:
    """Casts round to eight bits as this torch does, beyond the largest number, too, also where they are read again."""
    task = function_task(body, inputs.replace("X", "torch.randn(7, 40)"), tmp_path, parameters)
    model, reference = load_model(proposals(task)[0], tmp_path)(), task.make_reference()
    call = task.make_call().args
    odd = call[0].float().reshape(-1)
    odd[: len(EDGES)] = torch.tensor(EDGES)
    for x in (call[0], odd.reshape(call[0].shape).to(call[0].dtype)):
        for want, have in zip(leaves(reference(x, *call[1:])), leaves(model(x, *call[1:])), strict=True):
            assert (have.dtype, have.shape, have.stride()) == (want.dtype, want.shape, want.stride())
            assert torch.allclose(have.float(), want.float(), rtol=1e-6, atol=0, equal_nan=True)


def test_operands_of_eight_bits_are_written(tmp_path: Path) -> None:
    """What a library multiplies in eight bits is quantised by a kernel before."""
    product = f"torch._scaled_mm(x.to({E4}), w.to({E4}).t(), s, s, out_dtype=torch.bfloat16)"
    task = function_task(
        f"return {product} + 1", "torch.randn(32, 64), torch.randn(48, 64), torch.ones(1)", tmp_path, "x, w, s"
    )
    call = task.make_call().args
    assert torch.equal(load_model(proposals(task)[0], tmp_path)()(*call), task.make_reference()(*call))


def test_what_is_computed_in_eight_bits_is_named(tmp_path: Path) -> None:
    """What is neither a cast nor a move of elements has no kernel."""
    task = function_task("return F.pad(x, (1, 1), value=0.3)", f"torch.randn(3, 5).to({E5})", tmp_path)
    with pytest.raises(NoCandidate, match="float8_e5m2"):
        proposals(task)


def test_bands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a product that is hidden beyond a diagonal only strips that reach into the rest are computed."""
    monkeypatch.setattr(bands, "LEAST", 8)
    body = """
i = torch.arange(600)
window = torch.where((i[:, None] - i[None]).abs() <= 40, (x - 1) @ w, 0.0)
return torch.triu(x @ w), torch.tril(torch.relu((x + 1) @ w + 1), -2), window
"""
    task = function_task(body, "torch.randn(600, 40), torch.randn(40, 600)", tmp_path, "x, w")
    candidate = proposals(task)[0]
    source = candidate.files["op_kforge.py"]
    assert all(f"w, {edges})" in source for edges in ('0, float("inf")', 'float("-inf"), -2', "-40, 40"))
    call = task.make_call()
    odd = Call((call.args[0].clone(), call.args[1].clone()))
    odd.args[0][500, 3], odd.args[1][2, 30] = float("inf"), float("nan")
    compare(task, candidate, tmp_path, [call, odd])


def test_band_of_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheme of halves computes the band alone, too, as exact as single precision."""
    monkeypatch.setattr(bands, "LEAST", 8)
    monkeypatch.setattr(products, "pays", lambda *_: True)
    monkeypatch.setattr(precision, "LEAST_DEPTH", 8)
    body, inputs = "return torch.triu(x @ w)", "torch.randn(520, 64), torch.randn(64, 520)"
    task = function_task(body, inputs, tmp_path, "x, w")
    candidate = next(c for c in proposals(task) if "two_halves" in c.files["op_kforge.py"])
    assert "add_product_in_band(" in candidate.files["op_kforge.py"]
    compare(task, candidate, tmp_path)


def test_whole_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that is read beyond the diagonal elsewhere is computed whole."""
    monkeypatch.setattr(bands, "LEAST", 8)
    task = function_task(
        "y = x @ w\nreturn torch.triu(y) + 1, y * 2", "torch.randn(60, 40), torch.randn(40, 60)", tmp_path, "x, w"
    )
    candidate = proposals(task)[0]
    assert "in_band" not in candidate.files["op_kforge.py"]
    compare(task, candidate, tmp_path)
