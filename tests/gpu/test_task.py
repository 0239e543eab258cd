"""The task room on a GPU: placement, capture on cuda, fp64, and the Triton and Helion forms without an interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kforge.task import capture, count, inspect_task, load_task, promote, tree_leaves

pytestmark = pytest.mark.gpu

EXAMPLES = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.py"))
EAGER = [p for p in EXAMPLES if "triton" not in p.read_text() and "helion" not in p.read_text()]


@pytest.mark.parametrize("path", EAGER, ids=lambda p: p.stem)
def test_example_on_the_gpu(path):
    """Inputs and state are on the GPU, nothing is redirected or skipped, float32 is close to float64."""
    task = load_task(path)
    facts = inspect_task(task, "cuda")
    assert {fact.device for fact in facts.outputs} == {"cuda:0"}
    assert facts.redirects == () and facts.skipped == () and len(facts.variants) == task.n_variants
    captured = capture(task, device="cuda")
    assert captured.failure == "" and captured.device.startswith("cuda")
    assert all("origin" in n.meta for n in captured.graph.nodes if n.op == "call_function")
    module, call = task.make_reference(device="cuda"), task.make_call(device="cuda")
    plain, wide = task.run(module, call), promote(captured)(module, call)
    for (_, a), (_, b) in zip(tree_leaves(plain), tree_leaves(wide), strict=True):
        assert b.device.type == "cuda" and torch.allclose(a.double(), b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("path", EAGER, ids=lambda p: p.stem)
def test_counts_do_not_depend_on_the_device(path):
    """Bytes and operations are those of the CPU capture."""
    task = load_task(path)
    here, there = count(capture(task, device="cuda")), count(capture(task, device="cpu"))
    assert (here.read_bytes, here.write_bytes, here.flops) == (there.read_bytes, there.write_bytes, there.flops)


@pytest.mark.parametrize("name", ["triton_add", "helion_add"])
def test_kernel_forms_run_natively(name):
    """On a GPU the launching function itself is the reference."""
    pytest.importorskip(name.split("_")[0])
    task = load_task(EXAMPLES[0].with_name(f"{name}.py"))
    module, call = task.make_reference(device="cuda"), task.make_call(device="cuda")
    assert module.function is task.reference
    x, y = call.args
    assert torch.allclose(task.run(module, call), x + 0.5 * y)


def test_random_draws_agree_with_float64(tmp_path):
    """Noise on the GPU is the baseline's in the fp64 reference too."""
    path = tmp_path / "op.py"
    path.write_text(
        "import torch\ndef reference(x):\n    return x + torch.randn_like(x)\n"
        "def get_inputs():\n    return [torch.zeros(1000)]\n"
    )
    task = load_task(path)
    module, call = task.make_reference(device="cuda"), task.make_call(device="cuda")
    plain = task.run(module, call, seed=1)
    assert torch.equal(promote(capture(task, device="cuda"))(module, call, seed=1), plain.double())
