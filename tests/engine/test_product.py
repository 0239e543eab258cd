"""Products in 16 bits as kernels of ours for tensor cores, on the emulator: values, shapes, plans, planted faults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kforge.engine import propose
from kforge.errors import EmulatorError
from kforge.kernel import overrides
from kforge.kernel.candidate import Candidate
from kforge.task import Call, Task, capture
from tests.engine.support import compare, function_task, load_model, proposals

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
        *((name, "sm_90a") for name in LAYOUTS),
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


def test_unaligned_operands(tmp_path: Path) -> None:
    """What does not begin at a multiple of 16 bytes is copied before it is multiplied."""
    task = product_task("rows_rows", tmp_path)
    base = [torch.randn(n * 136 + 1).bfloat16()[1:] for n in (96, 136, 1)]
    call = Call((base[0].view(96, 136), base[1].view(136, 136), base[2]), {})
    compare(task, own(task), tmp_path, [call])


def test_chain(tmp_path: Path) -> None:
    """Two products and a softmax: between products values have their own dtype, a row kernel reads float."""
    body = "return torch.softmax(torch.tanh(torch.relu(x) @ w) @ v, -1)"
    inputs = f"torch.randn(40, 72, {BF16}), torch.randn(72, 136, {BF16}), torch.randn(136, 80, {BF16})"
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
