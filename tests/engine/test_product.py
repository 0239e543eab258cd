"""Products in 16 bits as kernels of ours for tensor cores, on the emulator: values, shapes, plans, planted faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kforge.engine import propose
from kforge.engine.emit.kernelcode import KernelCode, render
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for
from kforge.engine.families.product_cost import divided, shares_for
from kforge.engine.handlers import tensorcores
from kforge.engine.proposing import make_plan
from kforge.engine.switches import Switches
from kforge.errors import EmulatorError
from kforge.kernel import Kernel, overrides
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import compare, function_task, load_model, proposals, task_from

HALF, BF16 = "dtype=torch.float16", "dtype=torch.bfloat16"
LAYOUTS = {
    "rows_rows": ("F.gelu(F.linear(x, w, b)) + x", "x, w, b", BF16, "(96, 136), (136, 136), (136,)"),
    "rows_columns": ("torch.relu(x @ w) * s", "x, w, s", HALF, "(3, 50, 72), (72, 136), (50, 1)"),
    "columns_columns": ("torch.clamp(x.t() @ w - c, -9, 20)", "x, w, c", HALF, "(72, 136), (72, 264), (136, 264)"),
    "columns_rows": ("(x.t() @ w.t()).t()", "x, w", BF16, "(72, 136), (200, 72)"),
    "batches": (
        "torch.tanh(torch.bmm(x, w) * 0.5 + c) * s",
        "x, w, c, s",
        HALF,
        "(3, 40, 72), (3, 72, 136), (3, 40, 136), (3, 1, 1)",
    ),
    "batches_down": (
        "torch.relu(x.transpose(1, 2) @ w.t()).view(2, 2, 72, 40) + r",
        "x, w, r",
        BF16,
        "(4, 136, 72), (40, 136), (2, 1, 72, 1)",
    ),
    "deep": ("torch.relu(x @ w.t())", "x, w", BF16, "(64, 712), (40, 712)"),
}


def own(task: Task, arch: str = "sm_90a") -> Candidate:
    """The candidate whose product is a kernel of ours."""
    found = propose(task, capture(task), arch=arch, device="cpu")
    return next(c for c in found if "_product(" in c.files[c.module])


def product_task(name: str, folder: Path) -> Task:
    body, parameters, dtype, shapes = LAYOUTS[name]
    return function_task(f"return {body}", f"*(torch.randn(s, {dtype}) for s in ({shapes}))", folder, parameters)


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        *((name, "sm_90a") for name in LAYOUTS if name != "deep"),  # that one is below, with faults
        *((n, "sm_80") for n in ("rows_rows", "columns_columns", "batches_down")),
    ],
)
def test_layouts(name: str, arch: str, tmp_path: Path) -> None:
    """Operands along the depth and along rows or columns, with what follows in the same kernel: as exact as torch."""
    task = product_task(name, tmp_path)
    candidate = own(task, arch)
    assert ("TensorMap(" in candidate.files[candidate.module]) == (arch == "sm_90a")
    compare(task, candidate, tmp_path)


def test_other_sizes_and_clusters(tmp_path: Path) -> None:
    """Sizes that no vector and no 16-byte line divides, none, one row; blocks in clusters, warpgroups in turns."""
    task = product_task("rows_columns", tmp_path)
    candidate = own(task)
    calls = []
    for b, m, k, n in ((2, 65, 33, 131), (1, 1, 8, 8), (2, 0, 72, 136), (2, 9, 0, 5), (1, 150, 200, 520)):
        shapes = ((b, m, k), (k, n), (m, 1))
        calls.append(Call(tuple(torch.randn(s).half() for s in shapes), {}))
    compare(task, candidate, tmp_path, calls)
    with overrides({"op_product": {"BN": 256, "CLUSTER": 2}}):
        compare(task, candidate, tmp_path, [calls[0], calls[-1]])
    with overrides({"op_product": {"BN": 128, "TURNS": 2, "STAGES": 3}}):
        compare(task, candidate, tmp_path, [calls[0], calls[-1]])
    compare(task, own(task, "sm_86"), tmp_path, calls)


def planned(task: Task, arch: str, **how: bool) -> tuple[Candidate, KernelCode]:
    """The first candidate of a plan with our products, and its product."""
    plan, programs = make_plan(task, capture(task), Switches(own=True, **how))
    choices = [kernels_for(p, plan.types, p.name, Target(arch=arch))[:1] for p in programs]
    return write_candidate(plan, choices, "a test", None), choices[0][0]


@pytest.mark.parametrize(
    ("name", "arch", "constants"),
    [
        ("deep", "sm_90a", {"BN": 128, "TURNS": 2, "CLUSTER": 2}),
        ("batches_down", "sm_80", {}),
    ],
)
def test_shares(
    name: str, arch: str, constants: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over five shares of the depth, empty ones among them, are added up in order: the same bits each time."""
    monkeypatch.setattr(tensorcores, "shares_for", lambda *_: 5)
    task = product_task(name, tmp_path)
    candidate, kernel = planned(task, arch, shared=True)
    assert "in 5 shares of its depth" in kernel.idea
    with overrides({kernel.name: constants}):
        compare(task, candidate, tmp_path)
        model, call = load_model(candidate, tmp_path)(), task.make_call()
        assert torch.equal(model(*call.args), model(*call.args))


TURNS = {"BN": 128, "TURNS": 2, "CLUSTER": 2, "STAGES": 3}


@pytest.mark.parametrize(
    ("body", "shapes", "arch", "constants"),
    [
        ("torch.logsumexp(x @ w + b, -1)", "(150, 72), (72, 328), (328,)", "sm_90a", TURNS),
        ("F.gelu(x @ w + b).mean(-1, keepdim=True)", "(3, 50, 72), (72, 200), (200,)", "sm_80", {}),
        ("torch.softmax(x @ w + b, -1)", "(300, 72), (72, 136), (136,)", "sm_90a", {"CLUSTER": 2}),
        ("torch.softmax(x @ w + b[:, None, None], -1)", "(2, 3, 40, 72), (2, 3, 72, 136), (3,)", "sm_90a", {}),
    ],
)
def test_rows(body: str, shapes: str, arch: str, constants: dict[str, int], tmp_path: Path) -> None:
    """What a row comes to is found by the product's kernel, over several tiles, infinities included: nothing else runs.

    The same bits each time, whichever warp arrives last."""
    inputs = f"*(torch.randn(s, {BF16}) for s in ({shapes}))"
    task = function_task(f"return {body}", inputs, tmp_path, "x, w, b")
    candidate, kernel = planned(task, arch, rowwise=True)
    assert candidate.files[candidate.module].count("= Kernel(") == 1
    call = task.make_call()
    x, w, b = call.args
    some, none = b.clone(), torch.full_like(b, -torch.inf)
    some[:130] = -torch.inf
    with overrides({kernel.name: constants}):
        compare(task, candidate, tmp_path, [call, Call((x, w, some), {}), Call((x, w, none), {})])
        model = load_model(candidate, tmp_path)()
        assert torch.equal(model(*call.args), model(*call.args))


def test_where_rows_are_proposed(tmp_path: Path) -> None:
    """First where a row's sum is all that is wanted; not where elements of long rows are needed again."""
    inputs = f"torch.randn(200, 64, {BF16}), torch.randn(64, 328, {BF16})"
    for body, mine in (("torch.relu(x @ w).sum(-1)", True), ("torch.softmax(x @ w, -1)", False)):
        found = proposals(function_task(f"return {body}", inputs, tmp_path, "x, w"))
        assert any("reduced over its rows" in c.files["op_kforge.py"].replace("\n", " ") for c in found[:1]) == mine


def test_rows_of_other_widths(tmp_path: Path) -> None:
    """Rows that a tile holds as captured: wider ones take a wider tile, up to 256 columns; then an error says so.

    Where a variant of the task has wider ones, rows are not reduced by the product's kernel."""
    inputs = f"torch.randn(9, 16, {HALF}), torch.randn(16, 40, {HALF})"
    task = function_task("return F.layer_norm(x @ w, (w.shape[1],))", inputs, tmp_path, "x, w")
    candidate, kernel = planned(task, "sm_90a", rowwise=True)
    assert kernel.constants["BN"] == 64
    calls = [Call((torch.randn(5, 16).half(), torch.randn(16, n).half()), {}) for n in (40, 67, 200, 256)]
    compare(task, candidate, tmp_path, calls)
    with pytest.raises(ValueError, match="at most 256"):
        load_model(candidate, tmp_path)()(torch.randn(5, 16).half(), torch.randn(16, 257).half())
    wide = inputs.replace("40", "264")
    more = f"\n\ndef get_input_variants():\n    return [lambda: [{wide}]]\n"
    other = task_from(task.path.read_text() + more, tmp_path)
    assert not any("op_product(" in c.files[c.module] for c in proposals(other))


def test_how_many_shares() -> None:
    """Few tiles of a large depth are divided among multiprocessors; other products are whole."""
    for deep in ((1, 256, 256, 524288), (1, 512, 512, 65536)):
        assert divided(*deep, shares_for(*deep)) < 0.3 * divided(*deep, 1)
    for whole in ((1, 4096, 4096, 4096), (32, 1024, 1024, 1024), (1, 64, 64, 512)):
        assert shares_for(*whole) == 1


def test_unaligned_operands(tmp_path: Path) -> None:
    """What does not begin at a multiple of 16 bytes is copied before it is multiplied."""
    task = product_task("rows_rows", tmp_path)
    base = [torch.randn(n * 136 + 1).bfloat16()[1:] for n in (96, 136, 1)]
    call = Call((base[0].view(96, 136), base[1].view(136, 136), base[2]), {})
    compare(task, own(task), tmp_path, [call])


def test_chain(tmp_path: Path) -> None:
    """Two products and a softmax: between products values have their own dtype, a row kernel reads float."""
    body = "return torch.softmax(torch.tanh(torch.relu(x) @ w) @ v, -1)"
    inputs = f"torch.randn(40, 72, {BF16}), torch.randn(72, 136, {BF16}), torch.randn(136, 300, {BF16})"
    task = function_task(body, inputs, tmp_path, "x, w, v")
    candidate = own(task)
    text = candidate.files[candidate.module]
    assert text.count("_product(") == 2 and text.count("dtype=torch.float32") == 1 and "torch.mm" not in text
    compare(task, candidate, tmp_path)


@pytest.mark.parametrize(
    ("body", "shapes", "parameters"),
    [
        ("torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v", ", ".join(["(2, 3, 40, 64)"] * 3), "q, k, v"),
        ("(x @ w).view(2, 20, 4, 16).transpose(1, 2) * 2", "(2, 20, 72), (72, 64)", "x, w"),
        ("torch.addmm(c, x, w, beta=0.5, alpha=2.0)", "(80, 64), (80, 72), (72, 64)", "c, x, w"),
    ],
)
def test_among_other_operators(body: str, shapes: str, parameters: str, tmp_path: Path) -> None:
    """Products whose results are rows, heads moved to the front, or halves scaled in one rounding."""
    task = function_task(f"return {body}", f"*(torch.randn(s, {HALF}) for s in ({shapes}))", tmp_path, parameters)
    compare(task, own(task), tmp_path)


def test_other_dtypes_are_refused(tmp_path: Path) -> None:
    """A kernel written for float16 refuses float32, which it would multiply with 11 bits, and bfloat16."""
    task = product_task("rows_columns", tmp_path)
    model = load_model(own(task), tmp_path)()
    call = task.make_call()
    for dtype in (torch.float32, torch.bfloat16):
        with pytest.raises(TypeError, match="float16"):
            task.run(model, Call(tuple(t.to(dtype) for t in call.args), {}))


def test_where_it_is_proposed(tmp_path: Path) -> None:
    """Beside the library's call, first where one launch less counts; from Ampere on, on the emulator for small ones."""
    task = product_task("rows_columns", tmp_path)
    graph = capture(task)
    mine = ["_product(" in c.files[c.module] for c in proposals(task)]
    assert mine[:2] == [True, False]
    assert not any("_product(" in c.files[c.module] for c in propose(task, graph, arch="sm_75", device="cpu"))
    inputs = f"torch.randn(4096, 64, {HALF}), torch.randn(64, 4096, {HALF})"
    large = function_task("return torch.relu(x @ w)", inputs, tmp_path, "x, w")
    assert not any("_product(" in c.files[c.module] for c in proposals(large))


@pytest.mark.parametrize(
    ("arch", "old", "new"),
    [
        ("sm_90a", "if (step > 0) release<CLUSTER>(&empty[before], lane);", ""),
        ("sm_90a", "mma_wait<1>();", ""),
        ("sm_90a", "LEFT_BYTES + RIGHT_BYTES);", "LEFT_BYTES);"),
        ("sm_90a", "                __syncwarp();\n", ""),
        ("sm_90a", "barrier_wait(&full[stage], parity);", "barrier_wait(&full[stage], parity ^ 1);"),
        ("sm_90a", "                mma_fence();\n", ""),
        ("sm_80", "        copy_wait<STAGES - 2>();\n", ""),
        ("sm_80", "        __syncthreads();", ""),
    ],
)
def test_nothing_of_the_pipeline_is_spare(
    arch: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a release, a wait, the right byte count or the warp's barriers the detector or the values show it."""
    monkeypatch.setenv("KFORGE_EMULATOR", "traced")
    task = product_task("deep", tmp_path)
    candidate = own(task, arch)
    compare(task, candidate, tmp_path)
    (source,) = [f for f in candidate.files if f.endswith(".cu")]
    assert old in candidate.files[source]
    broken = replace(candidate, files={**candidate.files, source: candidate.files[source].replace(old, new)})
    with pytest.raises((EmulatorError, AssertionError)):
        compare(task, broken, tmp_path)


def test_gelu_of_sums() -> None:
    """The cheaper GELU errs by less than an eighth of what a float16's rounding does, for every number of 16 bits."""
    text = (
        render("cuda/gelu_helpers.cu.j2")
        + """
extern "C" __global__ void apply(const float* x, float* y, int n) {
    const int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = gelu_16(x[i]);
}
"""
    )
    x = torch.arange(-32768, 32768, dtype=torch.int32).to(torch.int16).view(torch.bfloat16).float()
    y = torch.empty_like(x)
    Kernel("apply", text, grid="ceil_div(n, 256)", block=256)(x, y, len(x))
    wide = x.double()
    exact = wide * torch.special.erfc(-wide * 0.5**0.5) / 2
    normal = (exact.abs() > 2**-120) & exact.isfinite()
    assert ((y - exact).abs()[normal] <= 2**-14 * exact.abs()[normal]).all()
    small = (exact.abs() <= 2**-120) & x.isfinite()
    assert (y - exact).abs()[small].max() <= 2**-110
    wanted = 0.5 * x * (1 + torch.erf(x * 0.5**0.5))
    assert torch.equal(y.isnan(), wanted.isnan()) and torch.equal(y.isinf(), wanted.isinf())
