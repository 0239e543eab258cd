"""The static gate: each forbidden construct is rejected by its name, and the honest code closest to it passes."""

from __future__ import annotations

import textwrap

import pytest

from kforge.environment.static import StaticReport, check_static
from kforge.kernel.candidate import Candidate

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F
from kforge.kernel import Kernel, prepared

relu = Kernel("relu", source="relu.cu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")
"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x):
        y = torch.empty_like(x)
        relu(x, y, x.numel())
        return y
"""
CUDA = """
extern "C" __global__ void relu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.f);
}
"""
REFERENCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        shifted = x - x.amax(dim=-1, keepdim=True)
        powers = torch.exp(shifted)
        return powers / powers.sum(dim=-1, keepdim=True)
"""


def check(python: str, cuda: str = CUDA, **options: object) -> StaticReport:
    candidate = Candidate("relu_kforge.py", {"relu_kforge.py": python, "relu.cu": cuda})
    options = {"reference_source": REFERENCE, "reference_names": {"Model", "get_inputs"}} | options
    return check_static(candidate, **options)  # type: ignore[arg-type]


def forward(*lines: str, before: str = "") -> str:
    """A candidate whose forward holds these lines."""
    body = textwrap.indent("\n".join(lines), " " * 8)
    return HEAD + before + f"\nclass ModelNew(nn.Module):\n    def forward(self, x):\n{body}\n"


def test_an_honest_candidate_passes() -> None:
    """Kernel, allocation, views, parameters made in __init__: nothing to say."""
    report = check(HEAD + MODEL)
    assert report.findings == () and report.has_kernel and report.vendor_calls == ()


FORBIDDEN = {
    "subprocess": ("forbidden_import", "import subprocess\n" + HEAD + MODEL),
    "ctypes": ("forbidden_import", "from ctypes import CDLL\n" + HEAD + MODEL),
    "socket inside a function": ("forbidden_import", forward("import socket", "return x")),
    "threading": ("forbidden_import", "import threading\n" + HEAD + MODEL),
    "unlisted module": ("forbidden_import", "import antigravity\n" + HEAD + MODEL),
    "the reference's module": ("forbidden_import", "from softmax import Model\n" + HEAD + MODEL),
    "the judge": ("forbidden_import", "from kforge.worker import Zygote\n" + HEAD + MODEL),
    "inductor": ("forbidden_import", "import torch._inductor.config\n" + HEAD + MODEL),
    "relative import": ("import", "from . import relu\n" + HEAD + MODEL),
    "inherits": ("reference_fallback", HEAD + MODEL.replace("nn.Module", "Model")),
    "calls the reference": ("reference_fallback", forward("return Model()(x)")),
    "copies the reference": (
        "reference_fallback",
        HEAD + REFERENCE.replace("Model", "Copy") + MODEL,
    ),
    "try/except": (
        "try_except",
        forward(
            "y = torch.empty_like(x)", "try:", "    relu(x, y, 1)", "except Exception:", "    return x", "return y"
        ),
    ),
    "suppress": (
        "try_except",
        "import contextlib as c\n" + forward("with c.suppress(Exception):", "    relu(x, x, 1)", "return x"),
    ),
    "exit that swallows": (
        "try_except",
        HEAD + "class Quiet:\n    def __enter__(self): ...\n    def __exit__(self, *e):\n        return True\n" + MODEL,
    ),
    "torch function": ("torch_compute", forward("return torch.softmax(x, -1)")),
    "functional": ("torch_compute", forward("return F.gelu(x)")),
    "tensor method": ("torch_compute", forward("return x.sigmoid()")),
    "chained method": ("torch_compute", forward("return (x * 2).sum(-1)")),
    "module on the path": ("torch_compute", forward("return nn.Softmax(-1)(x)")),
    "compute in a helper": (
        "torch_compute",
        forward("return help_me(x)", before="def help_me(x):\n    return torch.exp(x)\n"),
    ),
    "compile": ("torch_compile", forward("return torch.compile(lambda t: t)(x)")),
    "tf32": ("backend_flag", "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True\n" + HEAD + MODEL),
    "matmul precision": ("backend_flag", forward("torch.set_float32_matmul_precision('high')", "return x")),
    "autocast": ("backend_flag", forward("with torch.autocast('cuda'):", "    return x @ x")),
    "eval": ("dynamic_code", forward("return eval('x')")),
    "exec": ("dynamic_code", HEAD + MODEL + "\nexec('1')\n"),
    "dunder import": ("dynamic_code", HEAD + MODEL + "\nos = __import__('os')\n"),
    "patched function": ("monkeypatch", HEAD + MODEL + "\ntorch.cuda.synchronize = lambda: None\n"),
    "patched by setattr": ("monkeypatch", HEAD + MODEL + "\nsetattr(torch.cuda, 'synchronize', None)\n"),
    "frames": ("introspection", forward("return (lambda: x).__globals__['x']")),
    "subclass": ("tensor_subclass", HEAD + "class Lazy(torch.Tensor):\n    pass\n" + MODEL),
    "torch_function": ("tensor_subclass", HEAD + "class L:\n    def __torch_function__(self): pass\n" + MODEL),
    "files": ("file_access", forward("return torch.load('x.pt')")),
    "open": ("file_access", forward("open('/etc/passwd')", "return x")),
    "no ModelNew": ("no_model", HEAD),
    "syntax": ("syntax", HEAD + "def f(:\n"),
}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_construct_is_rejected_by_name(name: str) -> None:
    """The rule that fires has the expected name, a line and words."""
    rule, text = FORBIDDEN[name]
    found = check(text).rejections
    assert rule in {f.rule for f in found}, found
    assert all(f.message and f.file.startswith("relu") for f in found)


HONEST = {
    "guarded import": "try:\n    import triton\nexcept ImportError:\n    triton = None\n" + HEAD + MODEL,
    "vendor call": forward("return x @ x.transpose(-1, -2).contiguous()"),
    "linear": forward("return F.linear(x, x)"),
    "views and copies": forward(
        "y = x.contiguous().view(-1, 4).unsqueeze(0).expand(2, -1, -1)",
        "z = torch.zeros(3).copy_(x.flatten()[:3])",
        "return y.to(torch.half)",
    ),
    "shape arithmetic": forward(
        "n = max(x.size(0), 3) + len([1, 2].copy())", "d = {}", "d.get('a'); d.update(b=1)", "return torch.empty(n)"
    ),
    "prepared weights": forward("w = prepared(x, lambda p: p.float().exp().sum())", "return w"),
    "streams": forward(
        "s = torch.cuda.Stream()",
        "s.wait_stream(torch.cuda.current_stream())",
        "with torch.cuda.stream(s):",
        "    y = torch.empty_like(x)",
        "return y",
    ),
    "triton kernel": "import triton\nimport triton.language as tl\n@triton.jit\ndef k(x):\n    tl.exp(x).sum()\n"
    + HEAD
    + MODEL,
    "own module": HEAD + MODEL.replace("super().__init__()", "super().__init__()\n        self.norm = nn.LayerNorm(8)"),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_counterparts_pass(name: str) -> None:
    """What lies closest to a forbidden construct and is allowed is not rejected."""
    assert check(HONEST[name]).rejections == ()


def test_vendor_calls_are_listed_and_can_be_forbidden() -> None:
    """matmul and linear are named in the report; under no_vendor_calls they are a rejection."""
    text = forward("return F.linear(x, x) @ x")
    assert check(text).vendor_calls == ("linear", "matmul")
    assert {f.rule for f in check(text, constraints={"no_vendor_calls": None}).rejections} == {"no_vendor_calls"}


def test_a_candidate_without_a_kernel_is_noticed() -> None:
    """Library calls alone make no kernel."""
    text = "from torch import nn\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        return x @ x\n"
    report = check(text)
    assert not report.has_kernel and report.rejections == ()


def test_benchmark_sizes_in_the_source_are_a_warning() -> None:
    """A literal equal to an input size warns, in CUDA and in a Python comparison; tile sizes do not."""
    cuda = CUDA.replace("i < n", "i < 12288")
    report = check(HEAD + MODEL, cuda, shapes={12288, 256})
    assert report.rejections == () and any("12288" in w and "hard_coded_shape" in w for w in report.warnings)
    python = forward("if x.shape == (96, 12288):", "    return x", "return x")
    assert any("hard_coded_shape" in w for w in check(python, shapes={96, 12288}).warnings)
    assert check(HEAD + MODEL, "#define N 12288\n" + CUDA, shapes={12288, 256}).warnings == ()


def test_sizes_that_the_module_insists_on_are_no_warning() -> None:
    """A module that raises for another size may write this one; one that goes on, or asks for less, may not."""
    cuda = CUDA.replace("i < n", "i < 12288")

    def warned(test: str, then: str = "raise ValueError(x.shape)") -> bool:
        module = forward(f"if {test}:", f"    {then}", "return x")
        return any("hard_coded_shape" in w for w in check(module, cuda, shapes={12288}).warnings)

    assert not warned("x.shape[-1] != 12288")
    assert not warned("x.dim() != 2 or tuple(x.shape) != (96, 12288)")
    assert warned("x.shape[-1] > 12288")
    assert warned("x.shape[-1] != 12288", "x = x + 1")
    assert warned("x.dim() != 2 and x.shape[-1] != 12288")


def test_standing_constraints_reach_the_cuda_source() -> None:
    """no_fast_math and deterministic reject by name; without them the same source passes; integer atomics may stay."""
    fast = CUDA.replace("fmaxf(x[i], 0.f)", "__expf(x[i])")
    assert check(HEAD + MODEL, fast).rejections == ()
    assert {f.rule for f in check(HEAD + MODEL, fast, constraints={"no_fast_math": None}).rejections} == {
        "no_fast_math"
    }
    ptx = CUDA.replace("fmaxf(x[i], 0.f);", '0.f; asm("ex2.approx.f32 %0, %1;" : "=f"(y[i]) : "f"(x[i]));')
    assert {f.rule for f in check(HEAD + MODEL, ptx, constraints={"no_fast_math": None}).rejections} == {"no_fast_math"}
    atomic = CUDA.replace("y[i] = fmaxf(x[i], 0.f)", "atomicAdd(&y[0], x[i])")
    assert {f.rule for f in check(HEAD + MODEL, atomic, constraints={"deterministic": None}).rejections} == {
        "deterministic"
    }
    integer = atomic.replace("float* y", "int* y")
    assert check(HEAD + MODEL, integer, constraints={"deterministic": None}).rejections == ()


def test_inline_sources_are_read_too() -> None:
    """CUDA text inside the module is held to the same rules."""
    text = (
        HEAD.replace('source="relu.cu"', 'source="""__global__ void relu(float* x) { x[0] = __expf(x[0]); }"""') + MODEL
    )
    assert {f.rule for f in check(text, constraints={"no_fast_math": None}).rejections} == {"no_fast_math"}


COUNTING = [
    "y = next(COUNT)",
    "y = next(seen())",
    "self.kept.append(x)",
    "self.calls += 1",
    "self.calls = self.calls + 1",
    "ModelNew.calls += 1",
    "relu.calls += 1",
    "CALLS[0] += 1",
    "CALLS.append(1)",
    "KEPT['n'] = KEPT.get('n', 0) + 1",
    "seen().append(1)",
    "self.kept[0].pop()",
    "self.sizes['calls'] = 1 + self.sizes['calls']",
    "calls = seen.cache_info().hits",
    "global N; N += 1",
    "f = lambda x, kept=[]: kept.append(x)",
]


@pytest.mark.parametrize("line", COUNTING)
def test_counting_calls_is_rejected(line: str) -> None:
    """Numbers, lists and iterators that outlive a call and that each call moves on."""
    report = check(forward(line, "y = torch.empty_like(x)", "relu(x, y, x.numel())", "return y"))
    assert "call_count" in {finding.rule for finding in report.rejections}


@pytest.mark.parametrize(
    "line",
    [
        "sizes = []; sizes.append(x.size(0)); sizes.pop()",
        "n = 0; n += 1",
        "n = x.numel(); n = n + 1",
        "rows = iter(x.shape); n = next(rows)",
        "n = next(iter(x.shape))",
        "n = next(size for size in x.shape)",
        "strides = list(x.stride()); strides.insert(0, 1)",
        "sizes = [1]; sizes[0] += 1",
        "SCRATCH[x.shape] = x",
        "self.scratch = x",
        "self.number = x.numel() + 1",
        "self.num_batches_tracked += 1",
        "x.shape[0:].count(1)",
        "'a'.join([]).split()",
    ],
)
def test_what_a_repeated_call_leaves_as_it_is_counts_nothing(line: str) -> None:
    """Local values, what is kept by key or replaced, and buffers."""
    text = forward(line, "y = torch.empty_like(x)", "relu(x, y, x.numel())", "return y")
    text += "\n\n    def __init__(self):\n        self.register_buffer('num_batches_tracked', torch.zeros(1))\n"
    assert "call_count" not in {finding.rule for finding in check(text).findings}


@pytest.mark.parametrize("line", ["self.kept.setdefault(x.shape, x)", "global kept; kept = x"])
def test_state_between_calls_is_said(line: str) -> None:
    """Collections of the model that a call may add to are a warning, as a global is."""
    report = check(forward(line, "y = torch.empty_like(x)", "relu(x, y, x.numel())", "return y"))
    assert any("keeps state between calls" in warning for warning in report.warnings)
    within = check(forward("sizes = []", "sizes.append(x.size(0))", "y = torch.empty_like(x)", "relu(x, y, x.numel())"))
    assert not any("keeps state" in warning for warning in within.warnings)
