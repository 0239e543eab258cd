"""The two tracers behind capture: torch.export and make_fx. Each turns a module and a call into a functional graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kforge.task.call import Call, call_leaves
from kforge.task.decompositions import decompositions
from kforge.task.graph import InputKind, InputRef, Mutation

if TYPE_CHECKING:
    import torch


class Traced(NamedTuple):
    """The parts of a Capture that a tracer finds."""

    graph_module: torch.fx.GraphModule
    inputs: tuple[InputRef, ...]
    mutations: tuple[Mutation, ...]
    constants: dict[str, torch.Tensor]
    out_spec: Any


def trace_export(module: torch.nn.Module, call: Call) -> Traced:
    import torch
    from torch.export.graph_signature import InputKind as Kind
    from torch.export.graph_signature import OutputKind

    program = torch.export.export(module, call.args, call.kwargs, strict=False)
    called = {node.name: node for node in program.graph.nodes}
    program = program.run_decompositions(decompositions())
    _note_operands(program.graph, called)
    paths = iter(path for path, _ in call_leaves(call, module.forward))
    kinds = {Kind.PARAMETER: InputKind.PARAM, Kind.BUFFER: InputKind.BUFFER, Kind.CONSTANT_TENSOR: InputKind.CONSTANT}
    inputs, by_node = [], {}
    for spec in program.graph_signature.input_specs:
        if spec.kind is Kind.USER_INPUT:
            ref = InputRef(InputKind.INPUT, next(paths), spec.arg.name)
        elif spec.kind in kinds:
            ref = InputRef(kinds[spec.kind], spec.target or "", spec.arg.name)
        else:
            raise RuntimeError(f"an input of kind {spec.kind.name} is not supported")
        inputs.append(ref)
        by_node[ref.node] = ref
    mutations = []
    for out in program.graph_signature.output_specs:
        if out.kind is OutputKind.BUFFER_MUTATION:
            mutations.append(Mutation(InputKind.BUFFER, out.target or ""))
        elif out.kind is OutputKind.PARAMETER_MUTATION:
            mutations.append(Mutation(InputKind.PARAM, out.target or ""))
        elif out.kind is OutputKind.USER_INPUT_MUTATION:
            mutations.append(Mutation(InputKind.INPUT, by_node[out.target or ""].path))
        elif out.kind is not OutputKind.USER_OUTPUT:
            raise RuntimeError(f"an output of kind {out.kind.name} is not supported")
    constants = {ref.path: program.constants[ref.path] for ref in inputs if ref.kind is InputKind.CONSTANT}
    return Traced(program.graph_module, tuple(inputs), tuple(mutations), constants, program.call_spec.out_spec)


OPERANDS = "kforge_operands"  # key of a node's metadata: names of the nodes that the operator it ends was called with


LOSSES = {"mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits"}
"""Pointwise as well where they are not reduced, although torch does not say so."""


def _packet(target: Any) -> str:
    return str(target).removeprefix("aten.").partition(".")[0]


def _note_operands(graph: torch.fx.Graph, called: dict[str, torch.fx.Node]) -> None:
    """On the last node of each pointwise operator that was decomposed: its own operands, in their order.

    They decide the strides of its result, and the nodes it became may take them in another order.
    """
    import torch

    parts: dict[str, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and (source := node.meta.get("from_node")):
            parts.setdefault(source[-1].name, []).append(node)
    last = {name: nodes[-1].name for name, nodes in parts.items()}
    last |= {node.name: node.name for node in graph.nodes if node.op == "placeholder"}
    for name, nodes in parts.items():
        own = called.get(name)
        if own is None or len(nodes) == 1 or _packet(own.target) == "mvlgamma":  # called pointwise, it sums
            continue
        if torch.Tag.pointwise not in getattr(own.target, "tags", ()) and _packet(own.target) not in LOSSES:
            continue
        nodes[-1].meta[OPERANDS] = tuple(_result(n, last, parts) for n in own.all_input_nodes)


def _result(node: torch.fx.Node, last: dict[str, str], parts: dict[str, list[torch.fx.Node]]) -> str:
    """The name of the node that gives what `node` gave before operators were decomposed; "" where there is none."""
    if node.target is not operator.getitem:
        return last.get(node.name, "")
    whole: Any = node.args[0]
    same = (n.name for n in parts.get(whole.name, []) if n.target is operator.getitem and n.args[1] == node.args[1])
    return next(same, "")


def trace_make_fx(module: torch.nn.Module, call: Call, differentiates: bool = False) -> Traced:
    """The same by functional tracing; in-place updates become copy_ nodes at the end, which are turned into outputs.

    differentiates: the module runs autograd, whose operators are recorded first, by themselves.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.func import functional_call, functionalize
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils import _pytree as pytree

    parameters = dict(module.named_parameters())
    state = {**parameters, **dict(module.named_buffers())}
    leaves = call_leaves(call, module.forward)
    _, in_spec = pytree.tree_flatten((call.args, call.kwargs))
    refs = [InputRef(InputKind.PARAM if name in parameters else InputKind.BUFFER, name, "") for name in state]
    refs += [InputRef(InputKind.INPUT, path, "") for path, leaf in leaves if isinstance(leaf, torch.Tensor)]
    out_spec: Any = None

    def flat(*values: torch.Tensor) -> list[Any]:
        nonlocal out_spec
        given = dict(zip(state, values, strict=False))
        rest = iter(values[len(state) :])
        filled = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for _, leaf in leaves]
        args, kwargs = pytree.tree_unflatten(filled, in_spec)
        out_leaves, out_spec = pytree.tree_flatten(functional_call(module, given, args, kwargs))
        return out_leaves

    fake = torch._guards.detect_fake_mode([leaf for _, leaf in leaves]) or FakeTensorMode(allow_non_fake_inputs=True)
    values = [t if isinstance(t, fake_type()) else fake.from_tensor(t) for t in state.values()]
    values += [
        t if isinstance(t, fake_type()) else fake.from_tensor(t) for _, t in leaves if isinstance(t, torch.Tensor)
    ]
    table = dict(decompositions().items())
    traced: Callable[..., Any] = flat
    if differentiates:
        from kforge.task.derivatives import derivatives, without_gradients

        recorded = make_fx(flat, tracing_mode="fake", _allow_non_fake_inputs=True)(*values)
        traced, table = without_gradients(recorded), table | derivatives()
    tracer = make_fx(
        functionalize(traced, remove="mutations"),
        decomposition_table=table,
        tracing_mode="fake",
        _allow_non_fake_inputs=True,
    )
    graph_module = tracer(*values)
    graph = graph_module.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    inputs = [InputRef(r.kind, r.path, n.name) for r, n in zip(refs, placeholders, strict=True)]
    by_node = {ref.node: ref for ref in inputs}
    output = next(n for n in graph.nodes if n.op == "output")
    mutations, values_after = [], []
    for node in list(graph.nodes):
        if node.target is torch.ops.aten.copy_.default and node.args[0].op == "placeholder":
            ref = by_node[node.args[0].name]
            mutations.append(Mutation(ref.kind, ref.path))
            values_after.append(node.args[1])
            node.replace_all_uses_with(node.args[1])
            graph.erase_node(node)
    output.args = ((*values_after, *output.args[0]),)
    constants = {}
    for node in list(graph.nodes):
        if node.op == "get_attr":
            value = operator.attrgetter(node.target)(graph_module)
            if not isinstance(value, torch.Tensor):
                continue
            with graph.inserting_before(placeholders[0]):
                new = graph.placeholder(f"c_{node.name}")
            new.meta.update(node.meta)
            new.meta["val"] = node.meta.get("val", fake.from_tensor(value))
            node.replace_all_uses_with(new)
            graph.erase_node(node)
            inputs.insert(0, InputRef(InputKind.CONSTANT, str(node.target), new.name))
            constants[str(node.target)] = value
    order = [n.name for n in graph.nodes if n.op == "placeholder"]
    inputs.sort(key=lambda ref: order.index(ref.node))
    graph_module.recompile()
    norms = [n for n in graph.nodes if n.op == "call_function" and "native_batch_norm.default" in str(n.target)]
    if any(n.args[5] and n.args[3] is not None for n in norms):
        raise RuntimeError("running statistics are updated inside one operator")  # a hidden mutation: not functional
    return Traced(graph_module, tuple(inputs), tuple(mutations), constants, out_spec)


def fake_type() -> type:
    """torch's FakeTensor class."""
    from torch._subclasses.fake_tensor import FakeTensor

    return FakeTensor


Tracers = Sequence[tuple[str, Callable[[Any, Call], Traced]]]
TRACERS: Tracers = (("export", trace_export), ("make_fx", trace_make_fx))
DIFFERENTIATING: Tracers = (("make_fx", partial(trace_make_fx, differentiates=True)),)
