"""Attention as torch's fused call between kernels of ours: every way of writing it, and what must not change there."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from kforge.engine.proposing import propose
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import compare, function_task, load_model, task_from

QKV = "torch.randn(2, 4, 20, 16), torch.randn(2, 4, 20, 16), torch.randn(2, 4, 20, 16)"
NEGATIVE = "float('-inf')"
SOFTMAX = "return torch.softmax(s, -1) @ v"
CAUSAL = f"s = s.masked_fill(torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1), {NEGATIVE})"

WRITTEN = {
    "plain": ("s = q @ k.transpose(-2, -1) / 4", "attention(", QKV),
    "three_dimensions": (
        "s = torch.bmm(q, k.transpose(1, 2)) * 0.3",
        "",
        "torch.randn(5, 7, 8), torch.randn(5, 9, 8), torch.randn(5, 9, 8)",
    ),
    "einsum": (
        "s = torch.einsum('bqhd,bkhd->bhqk', q, k) / 4\nv = v.transpose(1, 2)",
        "",
        "*(torch.randn(2, 9, 5, 16) for _ in range(3))",
    ),
    "odd_sizes": (
        "s = q @ k.transpose(-2, -1) / 4",
        "",
        "torch.randn(2, 3, 7, 13), torch.randn(2, 3, 11, 13), torch.randn(2, 3, 11, 5)",
    ),
    "causal": (f"s = q @ k.transpose(-2, -1) / 4\n{CAUSAL}", "is_causal=True", QKV),
    "causal_added": (
        f"s = q @ k.transpose(-2, -1) + torch.full((20, 20), {NEGATIVE}).triu(1)",
        "is_causal=True",
        QKV,
    ),
    "window": (
        "s = q @ k.transpose(-2, -1)\ni = torch.arange(20)\n"
        f"s = s.masked_fill((i[:, None] - i[None, :]).abs() > 3, {NEGATIVE})",
        "attention_with_bias(",
        QKV,
    ),
    "finite_fill": (
        "s = (q @ k.transpose(-2, -1) / 4).masked_fill(m == 0, -1e9)",
        "attention_with_bias(",
        f"{QKV}, None",
    ),
    "added": ("s = q @ k.transpose(-2, -1) / 4 + m * 0.1", "attention_with_bias(", f"{QKV}, None"),
}


def fused(task: Task) -> list[Candidate]:
    """The first of the candidates that call torch's attention."""
    found = propose(task, capture(task), arch="sm_90a", device="cpu")
    return list(islice((c for c in found if "scaled_dot_product_attention(" in c.files["op_kforge.py"]), 1))


def special(call: Call, places: dict[int, tuple[tuple[int, ...], float]]) -> Call:
    """The same call with numbers put at places of its tensors."""
    args = [t.clone() if isinstance(t, torch.Tensor) else t for t in call.args]
    for which, (place, value) in places.items():
        args[which][place] = value
    return Call(tuple(args), {})


@pytest.mark.parametrize("name", WRITTEN)
def test_products_around_a_softmax(name: str, tmp_path: Path) -> None:
    """Two products around a softmax are one call, right also for infinities, NaN and rows that see no key."""
    scores, part, inputs = WRITTEN[name]
    masked = inputs.endswith("None")
    if masked:
        inputs = inputs.replace("None", "(torch.rand(2, 1, 20, 20) > 0.4).float()")
    task = function_task(f"{scores}\n{SOFTMAX}", inputs, tmp_path, "q, k, v, m" if masked else "q, k, v")
    candidate = fused(task)[0]
    assert part in candidate.files["op_kforge.py"] and "torch.bmm" not in candidate.files["op_kforge.py"]
    call = task.make_call()
    calls = [call]
    if call.args[0].dim() == 4:
        calls.append(special(call, {0: ((0, 0, 2, 1), float("nan")), 2: ((1, 0, 4, 0), float("inf"))}))
        calls.append(special(call, {1: ((0, 1, 3, 2), float("-inf")), 0: ((1, 0, 0, 3), float("inf"))}))
    if masked:
        calls.append(special(call, {3: ((slice(None), 0, 5), 0.0), 2: ((0, 1, 6, 1), float("nan"))}))
    compare(task, candidate, tmp_path, calls)


def test_added_infinities(tmp_path: Path) -> None:
    """A mask of zeros and infinities that is added hides keys as torch's call does, and makes empty rows NaN."""
    body = f"s = q @ k.transpose(-2, -1) + m\n{SOFTMAX}"
    inputs = f"{QKV}, torch.where(torch.rand(20, 20) > 0.3, 0.0, {NEGATIVE})"
    task = function_task(body, inputs, tmp_path, "q, k, v, m")
    candidate = fused(task)[0]
    call = task.make_call()
    empty = special(call, {3: ((7,), float("-inf")), 2: ((0, 0, 1, 1), float("inf"))})
    compare(task, candidate, tmp_path, [call, empty])


def test_shared_heads(tmp_path: Path) -> None:
    """Keys and values that several heads share are not copied; the merged heads are one kernel's result."""
    body = (
        "k = k[:, :, None].expand(2, 2, 3, 24, 16).reshape(2, 6, 24, 16)\n"
        "v = v[:, :, None].expand(2, 2, 3, 24, 16).reshape(2, 6, 24, 16)\n"
        "y = torch.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v\n"
        "return F.silu(y.transpose(1, 2).reshape(2, 24, 96))"
    )
    inputs = "*(torch.randn(2, h, 24, 16).half() for h in (6, 2, 2))"
    task = function_task(body, inputs, tmp_path, "q, k, v")
    candidate = fused(task)[0]
    assert "enable_gqa=True" in candidate.files["op_kforge.py"]
    call = task.make_call()
    compare(task, candidate, tmp_path, [call, special(call, {1: ((1, 1, 5, 2), float("nan"))})])


MODULE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96, bias=False)
        self.register_buffer("mask", torch.tril(torch.ones(24, 24)).view(1, 1, 24, 24))

    def forward(self, x):
        q, k, v = (t.view(2, 20, 4, 8).transpose(1, 2) for t in self.qkv(x).split(32, dim=2))
        s = (q @ k.transpose(-2, -1)) * 0.35
        s = s.masked_fill(self.mask[:, :, :20, :20] == 0, float("-inf"))
        return (torch.softmax(s, -1) @ v).transpose(1, 2).reshape(2, 20, 32)


def get_inputs():
    return [torch.randn(2, 20, 32)]


def get_init_inputs():
    return []
"""


def test_stored_mask(tmp_path: Path) -> None:
    """A buffer that is a causal mask makes the call causal; with another one loaded, its rows are computed again."""
    task = task_from(MODULE, tmp_path)
    candidate = fused(task)[0]
    source = candidate.files["op_kforge.py"]
    assert "is_causal=True" in source and "by_mask=False" in source and "product.as_strided(" in source
    compare(task, candidate, tmp_path)
    reference, model, call = task.make_reference(), load_model(candidate, tmp_path)(), task.make_call()
    reference.mask[0, 0, 3, :] = 1
    reference.mask[0, 0, 7, :] = 0
    model.load_state_dict(reference.state_dict())
    wanted = task.run(reference, call)
    assert wanted[:, 7].isnan().all()
    assert torch.allclose(task.run(model, call), wanted, atol=1e-5, equal_nan=True)


WHOLE = {
    "causal": ("F.scaled_dot_product_attention(q, k, v, is_causal=True)", "", "is_causal=True"),
    "mask": (
        "F.scaled_dot_product_attention(q, k, v, attn_mask=m)",
        "torch.rand(20, 20) > 0.3",
        "attention_with_bias(",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_torchs_own(name: str, tmp_path: Path) -> None:
    """torch's call in a reference is that call again, and defined where torch's own kernels differ from each other."""
    call, mask, part = WHOLE[name]
    inputs, parameters = QKV + (f", {mask}" if mask else ""), "q, k, v, m" if mask else "q, k, v"
    task = function_task(f"return torch.sigmoid({call}) + 1", inputs, tmp_path, parameters)
    candidate = fused(task)[0]
    assert part in candidate.files["op_kforge.py"]
    given = task.make_call()
    compare(task, candidate, tmp_path, [given])
    odd = special(given, {0: ((0, 0, 2, 1), float("nan")), 2: ((0, 1, 6, 1), float("inf"))})
    model = load_model(candidate, tmp_path)()
    with sdpa_kernel(SDPBackend.MATH):
        wanted = task.run(task.make_reference(), odd)
    assert torch.allclose(model(*odd.args), wanted, atol=1e-5, equal_nan=True)


def test_nothing_but_torchs_own(tmp_path: Path) -> None:
    """Where torch's call is all there is, no candidate of it is offered."""
    task = function_task("return F.scaled_dot_product_attention(q, k, v)", QKV, tmp_path, "q, k, v")
    assert not fused(task)


REFUSED = {
    "scores_used_twice_nonlinearly": "s = torch.tanh(q @ k.transpose(-2, -1))",
    "small_fill": "s = (q @ k.transpose(-2, -1)).masked_fill(torch.ones(20, 20, dtype=torch.bool).triu(1), -3.0)",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_attention_for_torch(name: str, tmp_path: Path) -> None:
    """Other scores keep two products and a kernel between them, and are right."""
    task = function_task(f"{REFUSED[name]}\n{SOFTMAX}", QKV, tmp_path, "q, k, v")
    assert not fused(task)
    compare(task, next(propose(task, capture(task), arch="sm_90a", device="cpu")), tmp_path)
