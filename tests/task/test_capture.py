"""Capture: a functional core ATen graph with the provenance of every input and the line of every node."""

from __future__ import annotations

import pytest
import torch

from kforge.errors import NoCandidate
from kforge.task import Call, InputKind, Mutation, capture, capture_module, promote
from kforge.task.tracing import trace_make_fx

MODEL = """
def scaled(x, w):
    z = x - x.amax(-1, keepdim=True)
    return torch.exp(z) * w

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4,), 2.0))
        self.norm = nn.BatchNorm1d(4)
        self.shift = torch.tensor([1.0, 2.0])
        self.register_buffer("mask", torch.ones(4), persistent=False)

    def forward(self, x, k, state=None):
        y = scaled(self.norm(x), self.weight) * self.mask
        state["t"].add_(1)
        return {"y": y + self.shift.sum() * k, "first": x[0]}, None

def get_inputs():
    return {"x": torch.randn(8, 4), "k": 3, "state": {"t": torch.zeros(2)}}
"""


def test_provenance_of_every_placeholder(load):
    """Parameters, buffers (non-persistent too), constants and inputs are told apart, with their paths."""
    found = {(ref.kind, ref.path) for ref in capture(load(MODEL)).inputs}
    assert found == {
        (InputKind.PARAM, "weight"),
        (InputKind.PARAM, "norm.weight"),
        (InputKind.PARAM, "norm.bias"),
        (InputKind.BUFFER, "mask"),
        (InputKind.BUFFER, "norm.running_mean"),
        (InputKind.BUFFER, "norm.running_var"),
        (InputKind.BUFFER, "norm.num_batches_tracked"),
        (InputKind.CONSTANT, "shift"),
        (InputKind.INPUT, "x"),
        (InputKind.INPUT, "k"),
        (InputKind.INPUT, "state['t']"),
    }


def test_placeholders_match_inputs_in_order(load):
    """One InputRef a placeholder, in the graph's order."""
    captured = capture(load(MODEL))
    nodes = [n.name for n in captured.graph.nodes if n.op == "placeholder"]
    assert [ref.node for ref in captured.inputs] == nodes == list(captured.placeholders())
    assert captured.constants.keys() == {"shift"} and captured.literals == {"k": 3}


def test_mutations_come_first(load):
    """New values of buffers and inputs are the graph's first outputs."""
    captured = capture(load(MODEL))
    assert set(captured.mutations) == {
        Mutation(InputKind.BUFFER, "norm.running_mean"),
        Mutation(InputKind.BUFFER, "norm.running_var"),
        Mutation(InputKind.BUFFER, "norm.num_batches_tracked"),
        Mutation(InputKind.INPUT, "state['t']"),
    }
    output = next(n for n in captured.graph.nodes if n.op == "output")
    assert len(output.args[0]) == len(captured.mutations) + captured.out_spec.num_leaves


def test_nodes_know_their_line(load):
    """A node made in a helper function points at the helper's line, not at forward's."""
    captured = capture(load(MODEL))
    lines = {str(n.target): str(n.meta["origin"]) for n in captured.graph.nodes if n.op == "call_function"}
    assert lines["aten.amax.default"] == "op.py:4: z = x - x.amax(-1, keepdim=True)"
    assert lines["aten.exp.default"] == "op.py:5: return torch.exp(z) * w"
    assert lines["aten.select.int"].startswith("op.py:18: ")


def test_fakes_have_shapes_and_dtypes(load):
    """meta["val"] of each node is a fake tensor of the right shape."""
    captured = capture(load(MODEL))
    exp = next(n for n in captured.graph.nodes if str(n.target) == "aten.exp.default")
    assert tuple(exp.meta["val"].shape) == (8, 4) and exp.meta["val"].dtype == torch.float32


def test_fake_cuda_without_a_gpu(load):
    """A capture for "cuda" works on any machine and has cuda fakes and device arguments."""
    captured = capture(
        load(
            "def reference(x):\n    return x + torch.arange(4, device=x.device)\n"
            "def get_inputs():\n    return [torch.zeros(4)]\n"
        ),
        device="cuda",
    )
    assert {n.meta["val"].device.type for n in captured.graph.nodes if "val" in n.meta} == {"cuda"}
    arange = next(n for n in captured.graph.nodes if "arange" in str(n.target))
    assert arange.kwargs["device"].type == "cuda" and captured.device.startswith("cuda")


def test_huge_inputs_are_not_allocated(load):
    """Sizes beyond any memory are captured on fake tensors."""
    captured = capture(
        load("def reference(x):\n    return x * 2\ndef get_inputs():\n    return [torch.randn(1 << 44)]\n")
    )
    assert captured.graph.find_nodes(op="placeholder")[0].meta["val"].numel() == 1 << 44


def test_makers_do_not_keep_fakes(load):
    """A get_inputs that caches its tensors still returns real ones after a capture."""
    task = load(
        "import functools\nKEPT = {}\n@functools.lru_cache\ndef make():\n    return torch.ones(3)\nX = None\n"
        "def reference(x):\n    return x * 2\n"
        "def get_inputs():\n    global X\n    X = make() if X is None else X\n    return [X]\n"
    )
    assert capture(task).failure == ""
    call = task.make_call()
    assert type(call.args[0]) is torch.Tensor and call.args[0].tolist() == [1.0, 1.0, 1.0]


def test_makers_that_need_real_tensors(load):
    """A get_inputs that goes through numpy is captured from real inputs."""
    task = load(
        "import numpy as np\ndef reference(x):\n    return x * 2\n"
        "def get_inputs():\n    return [torch.from_numpy(np.ones(3, dtype=np.float32))]\n"
    )
    assert capture(task).failure == ""


def test_failure_is_data(load):
    """Control flow on values cannot be traced: the capture says why, and its `module` raises NoCandidate with it."""
    task = load(
        "def reference(x):\n    return x * 2 if x.sum().item() > 0 else x\n"
        "def get_inputs():\n    return [torch.ones(3)]\n"
    )
    captured = capture(task)
    assert captured.graph_module is None and captured.failure.startswith("export: ") and "make_fx: " in captured.failure
    with pytest.raises(NoCandidate, match="the reference cannot be captured as a graph: export: "):
        _ = captured.module


def test_make_fx_alone(load):
    """The second tracer alone gives a functional graph too, mutations of buffers and inputs and literals included."""
    task = load("""
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = nn.Parameter(torch.ones(3))
                self.register_buffer("count", torch.zeros(1))
            def forward(self, x):
                self.count.add_(1)
                x.mul_(2)
                return x * self.weight + torch.tensor([1.0, 2.0, 3.0])
        def get_inputs():
            return [torch.ones(2, 3)]
        """)
    module, call = task.make_reference(), task.make_call()
    traced = trace_make_fx(module, call)
    assert {(m.kind, m.path) for m in traced.mutations} == {(InputKind.BUFFER, "count"), (InputKind.INPUT, "x")}
    assert {(r.kind, r.path) for r in traced.inputs if r.kind is not InputKind.CONSTANT} == {
        (InputKind.PARAM, "weight"),
        (InputKind.BUFFER, "count"),
        (InputKind.INPUT, "x"),
    }
    given = {"weight": torch.ones(3), "count": torch.zeros(1), "x": torch.ones(2, 3), **traced.constants}
    count, x, result = traced.graph_module(*(given[ref.path] for ref in traced.inputs))
    assert result.tolist() == [[3.0, 4.0, 5.0]] * 2
    assert count.tolist() == [1.0] and x.tolist() == [[2.0] * 3] * 2


def test_running_statistics_inside_one_operator_are_refused(load):
    """make_fx sees no mutation in batch norm's own operator: it says so instead of losing the update."""
    with pytest.raises(RuntimeError, match="running statistics"):
        trace_make_fx(torch.nn.BatchNorm1d(3), Call((torch.randn(4, 3),)))


def test_make_fx_where_export_fails(load):
    """An input of a class that export does not know is captured by make_fx, with lines."""
    task = load("""
        class Config:
            factor = 3
        CONFIG = Config()
        def reference(x, config):
            return x * config.factor
        def get_inputs():
            return [torch.ones(3), CONFIG]
        """)
    captured = capture(task)
    assert captured.method == "make_fx"
    mul = next(n for n in captured.graph.nodes if n.op == "call_function")
    assert str(mul.meta["origin"]) == "op.py:7: return x * config.factor"
    config = task.namespace["CONFIG"]
    assert promote(captured)(task.make_reference(), Call((torch.full((3,), 5.0), config))).tolist() == [15.0] * 3


def test_attention_is_plain_arithmetic(load):
    """Attention is decomposed into products and softmax, not hidden in a device's own operator."""
    task = load(
        "def reference(q, k, v):\n    return nn.functional.scaled_dot_product_attention(q, k, v)\n"
        "def get_inputs():\n    return [torch.randn(1, 2, 4, 8) for _ in range(3)]\n"
    )
    names = {str(n.target) for n in capture(task).graph.nodes}
    assert "aten._softmax.default" in names and not any("attention" in name for name in names)


def test_bind_checks_literals(load):
    """A graph holds for the numbers it was captured with; other ones are refused."""
    task = load("def reference(x, k):\n    return x * k\ndef get_inputs():\n    return [torch.ones(2), 3]\n")
    captured, module = capture(task), task.make_reference()
    assert promote(captured)(module, Call((torch.ones(2), 3))).tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="k was 3 when captured, now it is 4"):
        captured.bind(module, Call((torch.ones(2), 4)))


def test_other_modules_can_be_captured(load):
    """capture_module takes any module with the reference's signature."""
    task = load("def reference(x):\n    return x\ndef get_inputs():\n    return [torch.ones(2)]\n")
    captured = capture_module(task, torch.nn.Linear(2, 2), task.make_call())
    assert {ref.path for ref in captured.inputs} == {"weight", "bias", "input"}
