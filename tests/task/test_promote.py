"""The fp64 reference: floating values promoted, casts between floating types dropped, casts to integers kept."""

from __future__ import annotations

import pytest
import torch

from kforge.task import Call, Capture, Promoted, capture, promote


def run(load, text: str, seed: int | None = None):
    """Task, its fp64 outputs, and the plain ones."""
    task = load(text)
    captured = capture(task)
    assert captured.failure == ""
    module, call = task.make_reference(), task.make_call()
    return call, promote(captured)(module, call, seed), task.run(module, call, seed)


def test_softmax_is_computed_in_float64(load):
    """The result is torch's own float64 softmax, far below float32's error."""
    call, wide, plain = run(
        load,
        "def reference(x):\n    e = torch.exp(x - x.amax(-1, keepdim=True))\n"
        "    return e / e.sum(-1, keepdim=True)\ndef get_inputs():\n    return [torch.randn(16, 300)]\n",
    )
    exact = torch.softmax(call.args[0].double(), -1)
    assert wide.dtype == torch.float64 and (wide - exact).abs().max() < 1e-16
    assert (plain.double() - exact).abs().max() > 1e-10


def test_casts_between_floating_types_are_dropped(load):
    """A trip through bfloat16 loses nothing in the fp64 reference."""
    call, wide, _ = run(
        load,
        "def reference(x):\n    return (x.to(torch.bfloat16).float() * 3).half()\n"
        "def get_inputs():\n    return [torch.randn(64)]\n",
    )
    assert torch.equal(wide, call.args[0].double() * 3)


def test_casts_to_integer_and_bool_are_kept(load):
    """int(), bool() and the way back to floating are part of the function."""
    _, wide, _ = run(
        load,
        "def reference(x):\n    return x.to(torch.int32).float() + x.bool().to(x.dtype), (x * 2).long()\n"
        "def get_inputs():\n    return [torch.tensor([-1.7, 0.0, 2.5])]\n",
    )
    assert wide[0].tolist() == [0.0, 0.0, 3.0] and wide[0].dtype == torch.float64
    assert wide[1].tolist() == [-3, 0, 5] and wide[1].dtype == torch.int64


@pytest.mark.parametrize(
    ("expression", "exact"),
    [
        ("x.var(-1)", lambda x: x.var(-1)),
        ("x.mean(-1, dtype=torch.float32)", lambda x: x.mean(-1)),
        ("x.sum(-1, dtype=torch.float32)", lambda x: x.sum(-1)),
        ("torch.softmax(x, -1, dtype=torch.float32)", lambda x: x.softmax(-1)),
        ("x * torch.full((5,), 0.1, dtype=torch.float16)", lambda x: x * torch.full((5,), 0.1, dtype=torch.float64)),
        ("x + torch.arange(5, dtype=torch.float32) / 3", lambda x: x + torch.arange(5, dtype=torch.float64) / 3),
        ("x + torch.arange(5) / 3", lambda x: x + torch.arange(5, dtype=torch.float64) / 3),
        ("torch.nn.functional.layer_norm(x, (5,))", lambda x: torch.nn.functional.layer_norm(x, (5,))),
        ("x.view(torch.int32).view(torch.float32) + x", lambda x: x.half().float().double() + x),
    ],
)
def test_dtype_arguments(load, expression, exact):
    """dtype arguments of reductions and factories are promoted; integer division follows."""
    call, wide, _ = run(
        load,
        f"def reference(x):\n    return {expression}\ndef get_inputs():\n"
        "    return [torch.randn(3, 5).half().float()]\n",
    )
    assert wide.dtype == torch.float64
    assert torch.allclose(wide, exact(call.args[0].double()), rtol=1e-14, atol=1e-15)


def test_half_inputs_are_promoted(load):
    """Half inputs are widened first: products that overflow float16 do not."""
    _, wide, plain = run(
        load,
        "def reference(x):\n    return (x * x).sum()\ndef get_inputs():\n    return [torch.full((8,), 300.0).half()]\n",
    )
    assert wide.item() == 720000.0 and torch.isinf(plain)


def test_strided_inputs_replay(load):
    """A graph captured on contiguous inputs runs on transposed ones."""
    task = load("def reference(x):\n    return x.reshape(-1) * 2\ndef get_inputs():\n    return [torch.randn(4, 6)]\n")
    module, call = task.make_reference(), task.make_call()
    strided = type(call)((call.args[0].t().contiguous().t(),))
    assert torch.equal(promote(capture(task))(module, strided), call.args[0].double().reshape(-1) * 2)


def test_state_and_mutations(load):
    """Parameters come from the module given; new values of buffers and inputs are returned, originals stay."""
    task = load("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm = nn.BatchNorm1d(3)
            def forward(self, x):
                x.add_(1)
                return self.norm(x)
        def get_inputs():
            return [torch.randn(5, 3)]
        """)
    module, call = task.make_reference(), task.make_call()
    with torch.no_grad():
        module.norm.weight.fill_(2.0)
    replay = promote(capture(task)).run(module, call)
    x = call.args[0].double() + 1
    assert torch.allclose(replay.mutated["x"], x, rtol=1e-15)
    expected = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt() * 2
    assert torch.allclose(replay.outputs, expected, rtol=1e-12)
    assert torch.allclose(replay.mutated_state["norm.running_mean"], x.mean(0) * 0.1, rtol=1e-12)
    assert replay.mutated_state["norm.num_batches_tracked"].item() == 1
    assert module.norm.running_mean.tolist() == [0.0] * 3


def test_random_operators_draw_what_the_baseline_draws(load):
    """Noise and dropout masks are the float32 ones of the same seed, not float64's other stream."""
    call, wide, plain = run(
        load,
        "def reference(x):\n    return torch.randn_like(x), nn.functional.dropout(x, 0.5, True)\n"
        "def get_inputs():\n    return [torch.rand(1000) + 1]\n",
        seed=7,
    )
    assert torch.equal(wide[0], plain[0].double())
    assert torch.equal(wide[1] != 0, plain[1] != 0)
    kept = wide[1] != 0
    assert torch.equal(wide[1][kept], (call.args[0].double() * 2)[kept])


def test_seeded_run_restores_the_generator(load):
    """A seeded fp64 run leaves the caller's random state alone."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    run(
        load, "def reference(x):\n    return x + torch.rand(2)\ndef get_inputs():\n    return [torch.ones(2)]\n", seed=3
    )
    assert torch.equal(torch.get_rng_state(), before)


def test_double_copy_where_capture_fails(load):
    """Without a graph the module is copied to float64 and run eagerly, factories included; the original stays."""
    task = load("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.tensor([0.1]))
                self.register_buffer("seen", torch.zeros(1))
            def forward(self, x):
                self.seen += x.sum()
                x.mul_(2)
                return x * self.weight + torch.zeros(1) if x.sum().item() > 0 else x
        def get_inputs():
            return [torch.ones(2)]
        """)
    captured = capture(task)
    wide = promote(captured)
    module, call = task.make_reference(), task.make_call()
    replay = wide.run(module, call)
    assert captured.graph_module is None and wide.method == "double"
    assert replay.outputs.dtype == torch.float64 and replay.outputs[0].item() == 2 * module.weight.double().item()
    assert replay.mutated["x"].tolist() == [2.0, 2.0] and replay.mutated_state["seen"].item() == 2.0
    assert module.weight.dtype == torch.float32 and call.args[0].tolist() == [1.0, 1.0]
    assert torch.get_default_dtype() == torch.float32


def test_both_ways_agree(load):
    """The graph and the eager copy give the same float64 values where both exist."""
    task = load(
        "def reference(x, y):\n    return torch.nn.functional.gelu(x) @ y.t(), x.std(-1)\n"
        "def get_inputs():\n    return [torch.randn(7, 9), torch.randn(4, 9)]\n"
    )
    module, call = task.make_reference(), task.make_call()
    graph = promote(capture(task))(module, call)
    eager = Promoted(Capture(None), "double")(module, call)
    assert all(torch.allclose(a, b, rtol=1e-13) for a, b in zip(graph, eager, strict=True))


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("F.group_norm(x, 2)", (4, 8, 6, 6)),
        ("F.group_norm(x, 2, x.new_ones(8), x.new_zeros(8))", (4, 8, 6)),
        ("F.layer_norm(x, x.shape[1:])", (4, 8, 6)),
        ("F.batch_norm(x, None, None, training=True)", (4, 8, 6, 6)),
        ("F.conv2d(x, x.new_ones(3, 8, 2, 2))", (4, 8, 6, 6)),
        ("F.max_pool2d(x, 2)", (4, 8, 6, 6)),
        ("F.pixel_shuffle(x, 2).flatten(1)", (4, 8, 6, 6)),
        ("x.view(4, -1).softmax(-1)", (4, 8, 6)),
        ("x.unfold(-1, 2, 2).sum(-1)", (4, 8, 6)),
    ],
)
def test_inputs_with_other_strides_than_the_captured(load, text, shape):
    """Operators that the graph holds for contiguous inputs give the same values for transposed and strided ones."""
    task = load(
        f"import torch.nn.functional as F\ndef reference(x):\n    return {text}\n"
        f"def get_inputs():\n    return [torch.randn{shape}]\n"
    )
    wide, module = promote(capture(task)), task.make_reference()
    assert wide.method == "graph"
    x = task.make_call().args[0]
    exact = wide(module, Call((x,)))
    strided = torch.empty(*shape[:-1], 2 * shape[-1])[..., ::2].copy_(x)
    for other in (
        x.transpose(-1, -2).contiguous().transpose(-1, -2),
        x.transpose(0, 1).contiguous().transpose(0, 1),
        strided,
    ):
        before = other.clone()
        assert not other.is_contiguous()
        torch.testing.assert_close(wide(module, Call((other,))), exact, rtol=1e-12, atol=1e-12)
        assert torch.equal(other, before)
