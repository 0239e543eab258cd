"""Attention as torch's fused call between kernels of ours: every way of writing it, and what must not change there."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from kforge.engine.calls.backends import Form, backend
from kforge.engine.proposing import propose
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import compare, function_task, load_model, task_from

QKV = "torch.randn(2, 4, 20, 16), torch.randn(2, 4, 20, 16), torch.randn(2, 4, 20, 16)"
NEGATIVE = "float('-inf')"
SOFTMAX = "return torch.softmax(s, -1) @ v"
WITHOUT_MASK = f"""
plain = torch.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v
s = q @ k.transpose(-2, -1) * 0.25
hidden = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).triu(1)
causal = torch.softmax(s.masked_fill(hidden, {NEGATIVE}), -1) @ v
added = torch.softmax(q @ k.transpose(-2, -1) / 3 + torch.full((20, 20), {NEGATIVE}).triu(1), -1) @ v
other = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", k, q), -1) @ v
flat = torch.softmax(torch.bmm(q[0], k[0].transpose(1, 2)), -1) @ v[0]
return plain, causal, added, other, flat
"""
WITH_MASK = f"""
i = torch.arange(20)
window = (q @ k.transpose(-2, -1)).masked_fill((i[:, None] - i[None, :]).abs() > 3, {NEGATIVE})
filled = (q @ k.transpose(-2, -1) / 4).masked_fill(m == 0, -1e9)
scaled = (q @ k.transpose(-2, -1)).masked_fill(m == 0, {NEGATIVE}) / 4
added = q @ k.transpose(-2, -1) + torch.where(m == 0, {NEGATIVE}, 0.5)
return tuple(torch.softmax(s, -1) @ v for s in (window, filled, scaled, added))
"""


def fused(task: Task, arch: str = "sm_90a") -> list[Candidate]:
    """The first of the candidates that call torch's attention."""
    found = propose(task, capture(task), arch=arch, device="cpu")
    return list(islice((c for c in found if "scaled_dot_product_attention(" in c.files["op_kforge.py"]), 1))


class Operators(TorchDispatchMode):
    """The names of the operators that run inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def special(call: Call, places: dict[int, tuple[tuple[int, ...], float]]) -> Call:
    """The same call with numbers put at places of its tensors."""
    args = [t.clone() if isinstance(t, torch.Tensor) else t for t in call.args]
    for which, (place, value) in places.items():
        args[which][place] = value
    return Call(tuple(args), {})


def test_without_a_mask(tmp_path: Path) -> None:
    """Two products around a softmax are one call, causal or not, right also for infinities and NaN."""
    task = function_task(WITHOUT_MASK, QKV, tmp_path, "q, k, v")
    candidate = fused(task)[0]
    source = candidate.files["op_kforge.py"]
    assert source.count("= attention(") == 5 and source.count("is_causal=True") == 2 and "torch.bmm" not in source
    call = task.make_call()
    odd = special(call, {0: ((0, 0, 2, 1), float("nan")), 2: ((1, 0, 4, 0), float("inf"))})
    more = special(call, {1: ((0, 1, 3, 2), float("-inf")), 0: ((1, 0, 0, 3), float("inf"))})
    compare(task, candidate, tmp_path, [call, odd, more])


def test_with_a_mask(tmp_path: Path) -> None:
    """Masks and biases of every kind are written once; rows that see no key are what two products make of them."""
    inputs = f"{QKV}, (torch.rand(2, 1, 20, 20) > 0.4).float()"
    task = function_task(WITH_MASK, inputs, tmp_path, "q, k, v, m")
    candidate = fused(task)[0]
    assert candidate.files["op_kforge.py"].count("= attention_with_bias(") == 4
    call = task.make_call()
    odd = special(call, {3: ((slice(None), 0, 5), 0.0), 2: ((0, 1, 6, 1), float("nan")), 0: ((1, 1, 3), float("inf"))})
    compare(task, candidate, tmp_path, [call, odd])


def test_odd_sizes(tmp_path: Path) -> None:
    """Features that the library's kernels do not take are padded by a kernel of ours."""
    inputs = "torch.randn(2, 3, 7, 13), torch.randn(2, 3, 11, 13), torch.randn(2, 3, 11, 5)"
    task = function_task(f"s = q @ k.transpose(-2, -1) / 4\n{SOFTMAX}", inputs, tmp_path, "q, k, v")
    compare(task, fused(task)[0], tmp_path)


def test_parts_of_an_input_that_begins_later(tmp_path: Path) -> None:
    """Queries, keys and values that are parts of one input, which is a part of a larger tensor itself."""
    body = "q, k, v = (t.transpose(1, 2) for t in x.view(2, 12, 3, 2, 8).unbind(2))"
    task = function_task(f"{body}\ns = q @ k.transpose(-2, -1) / 3\n{SOFTMAX} * 2", "torch.randn(2, 12, 48)", tmp_path)
    compare(task, fused(task)[0], tmp_path, [Call((torch.randn(3, 12, 48)[1:],))])


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


LEARNED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(4, 20, 20))

    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-2, -1) / 4 + self.bias, -1) @ v


def get_inputs():
    return [torch.randn(2, 4, 20, 16) for _ in range(3)]


def get_init_inputs():
    return []
"""


def test_learned_bias(tmp_path: Path) -> None:
    """A bias that is a parameter, which asks for gradients, leaves the call to torch's fused kernel."""
    task = task_from(LEARNED, tmp_path)
    candidate = fused(task)[0]
    compare(task, candidate, tmp_path)
    model = load_model(candidate, tmp_path)()
    assert model.bias.requires_grad
    with Operators() as ran, torch.no_grad():
        model(*task.make_call().args)
    assert "_scaled_dot_product_flash_attention_for_cpu" in ran.names
    assert not ran.names & {"bmm", "_safe_softmax", "add", "mul"}


def test_torchs_own(tmp_path: Path) -> None:
    """torch's call in a reference is that call again, and defined where torch's own kernels differ from each other."""
    body = "return torch.sigmoid(F.scaled_dot_product_attention(q, k, v, m)) + 1"
    task = function_task(body, f"{QKV}, torch.rand(20, 20) > 0.3", tmp_path, "q, k, v, m")
    candidate = fused(task)[0]
    assert "attention_with_bias(" in candidate.files["op_kforge.py"]
    given = task.make_call()
    compare(task, candidate, tmp_path, [given])
    odd = special(given, {0: ((0, 0, 2, 1), float("nan")), 2: ((0, 1, 6, 1), float("inf"))})
    odd.args[3][4] = False
    model = load_model(candidate, tmp_path)()
    with sdpa_kernel(SDPBackend.MATH):
        wanted = task.run(task.make_reference(), odd)
    assert torch.allclose(model(*odd.args), wanted, atol=1e-5, equal_nan=True)


def test_torchs_own_in_16_bits(tmp_path: Path) -> None:
    """torch's call of 16-bit operands, captured in single precision, keeps their type and its shared heads."""
    body = (
        "y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2) * g\n"
        "return y, torch.softmax(k @ k.transpose(-2, -1), -1) @ v"
    )
    inputs = "*(torch.randn(2, h, 24, 16).bfloat16() for h in (6, 2, 2)), torch.randn(16).bfloat16()"
    task = function_task(body, inputs, tmp_path, "q, k, v, g")
    candidate = fused(task)[0]
    source = candidate.files["op_kforge.py"]
    assert "attention(\n            q, k_in, v_in" in source and "enable_gqa=True" in source
    assert "attended_2, result, " in source, "what only mends is not written over torch's result"
    compare(task, candidate, tmp_path)


SERVED = [
    (Form("bfloat16", 128, 128, causal=True, grouped=True), 90, "flash"),
    (Form("bfloat16", 128, 128, masked=True), 90, "efficient"),
    (Form("bfloat16", 128, 128, masked=True, grouped=True), 90, "math"),
    (Form("float16", 512, 512), 90, "efficient"),
    (Form("float16", 64, 64, causal=True, square=False), 90, "efficient"),
    (Form("float16", 64, 64, masked=True, causal=True), 90, "math"),
    (Form("bfloat16", 64, 64), 75, "math"),
    (Form("float32", 64, 64), 75, "efficient"),
    (Form("float64", 64, 64), 90, "math"),
    (Form("float16", 60, 60), 90, "math"),
]


def test_which_kernel_of_torchs_serves(tmp_path: Path) -> None:
    """torch's conditions on its kernels are known, and what only separate operators would compute is not offered."""
    assert [backend(form, processor) for form, processor, _ in SERVED] == [wanted for *_, wanted in SERVED]
    inputs = "*(torch.randn(2, 2, 20, 16).bfloat16() for _ in range(3))"
    task = function_task(f"s = q @ k.transpose(-2, -1)\n{SOFTMAX}", inputs, tmp_path, "q, k, v")
    assert not fused(task, "sm_75")


def test_nothing_but_torchs_own(tmp_path: Path) -> None:
    """Where torch's call is all there is, no candidate of it is offered."""
    task = function_task("return F.scaled_dot_product_attention(q, k, v)", QKV, tmp_path, "q, k, v")
    assert not fused(task)


REFUSED = {
    "not_linear": "s = torch.tanh(q @ k.transpose(-2, -1))",
    "other_dimension": "s = torch.softmax(q @ k.transpose(-2, -1), -2)",
    "small_fill": "s = (q @ k.transpose(-2, -1)).masked_fill(torch.ones(20, 20, dtype=torch.bool).triu(1), -3.0)",
    "row_scales": "s = q @ k.transpose(-2, -1) * q[..., :1].exp()",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_attention_for_torch(name: str, tmp_path: Path) -> None:
    """Other scores keep two products and a kernel between them."""
    end = "return s @ v" if name == "other_dimension" else SOFTMAX
    task = function_task(f"{REFUSED[name]}\n{end}", QKV, tmp_path, "q, k, v")
    found = propose(task, capture(task), arch="sm_90a", device="cpu")
    assert not [c for c in islice(found, 6) if "scaled_dot_product_attention(" in c.files["op_kforge.py"]]
