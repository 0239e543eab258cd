"""The task of a forward/backward pair: what is differentiated, its inputs, its graph, its fp64 reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from kforge.errors import TaskError
from kforge.task import Call, Task, capture, promote
from kforge.task.backward import NEEDS, Gradients, differentiating, gradient_task

Loader = Callable[..., Task]

AFFINE = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 6))
        self.frozen = nn.Parameter(torch.ones(6), requires_grad=False)

    def forward(self, x, index):
        return torch.tanh(x) * self.weight + self.frozen, index + 1

def get_inputs():
    return [torch.randn(4, 6), torch.arange(4)]
"""
LOSS = """
def reference(logits, target):
    return torch.nn.functional.cross_entropy(logits, target)

def get_inputs():
    return {"logits": torch.randn(5, 9), "target": torch.tensor([0, 3, -100, 8, 8])}
"""
GRAPHS = {  # body of reference(x)
    "layer norm": "torch.nn.functional.layer_norm(x, (12,))",
    "log softmax": "torch.log_softmax(x, -1)",
    "gelu": "torch.nn.functional.gelu(x)",
    "slices": "x[:, :5] * x[:, 5:10] + x[:, 3].unsqueeze(1)",
    "gathered": "x.gather(1, torch.tensor([[1], [11], [0], [4]]))",
    "largest": "x.amax(-1) - x.exp().mean(0).sum()",
}


def _function(body: str, inputs: str, parameters: str = "x") -> str:
    return f"def reference({parameters}):\n    return {body}\n\ndef get_inputs():\n    return [{inputs}]\n"


def _leaves(tree: object) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def test_gradients_of_floating_inputs_and_of_parameters_that_require_them(load: Loader) -> None:
    """Integer inputs and frozen parameters have none; an integer output has no upstream gradient."""
    gradients = gradient_task(load(AFFINE)).gradients
    assert gradients is not None
    assert gradients.names == ("x", "weight")
    assert (gradients.outputs, gradients.upstream, gradients.own) == ((0,), ("grad_output",), 1)
    assert Gradients.read(gradients.as_dict()) == gradients


def test_only_marked_inputs_where_the_task_marks_some(load: Loader) -> None:
    """requires_grad in get_inputs chooses."""
    inputs = "torch.ones(3), torch.ones(3).requires_grad_()"
    gradients = gradient_task(load(_function("a * b", inputs, "a, b"))).gradients
    assert gradients is not None and gradients.names == ("b",)


def test_outputs_and_gradients_are_autograds(load: Loader) -> None:
    """The derived reference returns what forward and autograd.grad return; unneeded gradients are None."""
    task = gradient_task(load(AFFINE))
    module, call = task.make_reference(), task.make_call()
    (y, index), found = task.run(module, call)
    x, _, up = call.args
    x = x.detach().requires_grad_()
    plain = load(AFFINE).make_reference()
    wanted = torch.autograd.grad(plain(x, call.args[1])[0], [x, plain.weight], up)  # type: ignore[arg-type]
    assert torch.equal(found["x"], wanted[0]) and torch.equal(found["weight"], wanted[1])
    assert not y.requires_grad and index.dtype is torch.int64
    kinds = task.gradients.kinds  # type: ignore[union-attr]
    for kind, needed in (("only the first gradient", {"x"}), ("all gradients but the first", {"weight"})):
        some = task.run(module, task.make_call(1 + kinds.index(kind)))[1]
        assert {name for name, g in some.items() if g is not None} == needed
    assert module.weight.requires_grad and not module.frozen.requires_grad


def test_upstream_gradients_of_stride_zero_and_strided_ones(load: Loader) -> None:
    """Two variants of the derived task have them, as tensors of such strides."""
    task = gradient_task(load(AFFINE))
    assert task.n_variants == 5
    assert task.make_call(1).args[2].stride() == (0, 1)
    assert task.make_call(2).args[2].stride() == (12, 2)


def test_a_loss_with_keyword_inputs(load: Loader) -> None:
    """Keyword inputs stay keywords, and a scalar's upstream gradient has one dimension."""
    task = gradient_task(load(LOSS))
    call = task.make_call()
    assert call.kwargs["grad_output"].shape == (1,)
    assert NEEDS not in call.kwargs
    loss, found = task.run(task.make_reference(), call)
    assert loss.shape == ()
    assert torch.equal(found["logits"][2], torch.zeros(9))  # the ignored target


@pytest.mark.parametrize("body", GRAPHS.values(), ids=GRAPHS.keys())
def test_the_graph_computes_the_gradients(load: Loader, body: str) -> None:
    """Captured without autograd, and run in float64, it gives what eager autograd gives to float32's precision."""
    task = gradient_task(load(_function(body, "torch.randn(4, 12)")))
    graph = capture(task)
    assert graph.graph_module is not None, graph.failure
    names = {str(n.target) for n in graph.graph.nodes if n.op == "call_function"}
    assert not any("backward" in name or "alias" in name or "scatter" in name for name in names)
    module, call = task.make_reference(), task.make_call()
    for wide, single in zip(_leaves(promote(graph)(module, call)), _leaves(task.run(module, call)), strict=True):
        assert wide.dtype is torch.float64
        torch.testing.assert_close(single.double(), wide, rtol=1e-5, atol=1e-5)


def test_gradients_that_are_the_upstream_gradient_are_copies(load: Loader) -> None:
    """An addition hands its upstream gradient on: the derived outputs share memory with nothing."""
    task = gradient_task(load(_function("x + y", "torch.ones(3), torch.ones(3)", "x, y")))
    call = task.make_call()
    _, found = task.run(task.make_reference(), call)
    places = {t.untyped_storage().data_ptr() for t in (*call.args, found["x"], found["y"])}
    assert len(places) == 5


def test_what_cannot_be_differentiated_is_refused(load: Loader) -> None:
    """A comparison has no derivative, an input that is changed in place takes none: TaskError says so."""
    task = load(_function("x > 0", "torch.ones(3)"))
    with pytest.raises(TaskError, match="nothing to differentiate"):
        gradient_task(task)
    with pytest.raises(TaskError, match=r"cannot be differentiated: .*in-place"):
        gradient_task(load(_function("x.add_(1)", "torch.ones(3)")))


def test_a_module_without_autograd_answers_none(load: Loader) -> None:
    """A candidate whose outputs have no history gives None where the reference has gradients: the judge sees that."""

    class Detached(torch.nn.Module):
        def forward(self, x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.detach() * 2, index + 1

    task = gradient_task(load(AFFINE))
    assert task.gradients is not None
    module = differentiating(Detached(), task.gradients)
    assert task.run(module, Call(task.make_call().args))[1] == {"x": None, "weight": None}
