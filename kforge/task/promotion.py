"""The fp64 reference (CONTRACTS 4): the captured graph run with floating values promoted to float64.

Explicit casts between floating types are dropped, casts to integer and bool are kept, random operators draw in their
own dtype so that they draw what the baseline draws. Where there is no graph, a `.double()` copy runs eagerly.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kforge.task.alias import same_bits
from kforge.task.call import Call, call_leaves, clone_call
from kforge.task.graph import Capture, InputKind
from kforge.task.state import named_state
from kforge.task.task import device_of, seeded

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Replay:
    """One run of the fp64 reference: outputs (floating leaves are float64), and new values of what the call mutates."""

    outputs: Any
    mutated: dict[str, torch.Tensor] = field(default_factory=dict, hash=False)  # input path -> value
    mutated_state: dict[str, torch.Tensor] = field(default_factory=dict, hash=False)  # state name -> value


@dataclass(frozen=True)
class Promoted:
    """The fp64 reference. method: "graph" (the captured graph) or "double" (an eager `.double()` copy)."""

    capture: Capture
    method: str

    def __call__(self, module: torch.nn.Module, call: Call, seed: int | None = None) -> Any:
        """Outputs in float64 for this state and these inputs; neither is changed."""
        return self.run(module, call, seed).outputs

    def run(self, module: torch.nn.Module, call: Call, seed: int | None = None) -> Replay:
        """As a call, with mutated inputs and buffers. seed: torch's generators are reseeded, and restored after."""
        import torch

        with torch.no_grad(), torch.random.fork_rng(devices=[]) if seed is None else seeded(seed):
            return self._graph(module, call) if self.method == "graph" else _double(module, call)

    def _graph(self, module: torch.nn.Module, call: Call) -> Replay:
        import torch
        from torch.utils import _pytree as pytree

        device = device_of(module, call)
        values = [
            v.to(device) if isinstance(v, torch.Tensor) and v.dim() else v for v in self.capture.bind(module, call)
        ]
        with _default_dtype(torch.float64):  # int / int and sqrt(int) follow the default dtype
            flat = _interpreter(self.capture.module).run(*(promote_value(v) for v in values))
        count = len(self.capture.mutations)
        assert self.capture.out_spec is not None
        outputs = pytree.tree_unflatten(list(flat[count:]), self.capture.out_spec)
        new = list(zip(self.capture.mutations, flat[:count], strict=True))
        return Replay(
            outputs,
            {m.path: value for m, value in new if m.kind is InputKind.INPUT},
            {m.path: value for m, value in new if m.kind is not InputKind.INPUT},
        )


def promote(capture: Capture) -> Promoted:
    """The fp64 reference of a capture; a failed capture, or a graph with control flow, gives the eager copy."""
    return Promoted(capture, "graph" if capture.graph_module is not None and _promotable(capture) else "double")


def _promotable(capture: Capture) -> bool:
    """Only plain operators: a higher-order operator (cond, while_loop) hides casts in its branches."""
    import torch

    calls = [n.target for n in capture.graph.nodes if n.op == "call_function"]
    plain = all(isinstance(t, torch._ops.OpOverload) or getattr(t, "__module__", "") == "_operator" for t in calls)
    return plain and all(n.op in ("placeholder", "call_function", "get_attr", "output") for n in capture.graph.nodes)


def promote_value(value: Any) -> Any:
    """A real floating tensor as float64, a complex one as complex128, anything else unchanged."""
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(torch.complex128)
    return value.to(torch.float64) if value.is_floating_point() else value


def promote_dtype(dtype: torch.dtype | None) -> torch.dtype | None:
    """float64 for floating dtypes, complex128 for complex ones; integer, bool and None stay."""
    import torch

    if dtype is None:
        return None
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def _interpreter(graph_module: torch.fx.GraphModule) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    aten = torch.ops.aten
    casts = {aten._to_copy.default, torch.ops.prims.convert_element_type.default}
    exact = {aten.view.dtype, aten.nextafter.default}  # their meaning is the bits of the original dtype

    narrow: dict[Any, Any] = {aten._scaled_mm.default: _scaled_product, aten._grouped_mm.default: _grouped_product}

    class Interpreter(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            if n.op == "get_attr":
                return promote_value(super().run_node(n))
            if n.op != "call_function" or not isinstance(n.target, torch._ops.OpOverload):
                return super().run_node(n)
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            target = n.target
            if target is aten.native_dropout.default:
                return _dropout(n, args, kwargs)
            if target in exact or torch.Tag.nondeterministic_seeded in target.tags:
                args, kwargs = _original(n, args, kwargs)
                return pytree.tree_map(promote_value, target(*args, **kwargs))
            if target in casts:
                return _cast(n, args, kwargs)
            args, kwargs = _promote_dtype_arguments(target, args, kwargs)
            if target in narrow:
                return narrow[target](*args, **kwargs)
            if target is aten.view.default:  # captured on contiguous inputs; strided ones need a copy here
                return aten.reshape.default(*args, **kwargs)
            return pytree.tree_map(promote_value, target(*args, **kwargs))

    def _dropout(n: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        """The mask that the original dtype draws, applied to the float64 values."""
        (x, p, train), node = args, n.args[0]
        assert isinstance(node, torch.fx.Node)
        if train is False or p == 0:
            return aten.native_dropout.default(x, p, train)
        _, mask = aten.native_dropout.default(torch.ones_like(x, dtype=node.meta["val"].dtype), p, train)
        return x * mask / (1.0 - p) if p < 1 else torch.zeros_like(x), mask

    def _cast(n: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        dtype = kwargs.get("dtype", args[1] if len(args) > 1 else None)
        return args[0].to(promote_dtype(dtype) or args[0].dtype, copy=True)

    def _original(n: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        """Arguments with the dtypes that they have in the captured graph."""

        def restore(node: Any, value: Any) -> Any:
            if isinstance(node, torch.fx.Node) and isinstance(value, torch.Tensor):
                return value.to(node.meta["val"].dtype)
            return value

        restored = tuple(restore(node, value) for node, value in zip(n.args, args, strict=True))
        return restored, {key: restore(n.kwargs[key], value) for key, value in kwargs.items()}

    return Interpreter(graph_module)


def _scaled_product(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, *_: Any, **__: Any) -> Any:
    """torch._scaled_mm, which takes no operands in float64."""
    result = (a * scale_a) @ (b * scale_b)
    return result if bias is None else result + bias


def _grouped_product(a: Any, b: Any, offs: Any = None, bias: Any = None, *_: Any, **__: Any) -> Any:
    """torch._grouped_mm of groups of rows, or of matrices; nor does it."""
    import torch

    if offs is None or (a.dim(), b.dim()) != (2, 3) or bias is not None:
        return torch.ops.aten._grouped_mm.default(a, b, offs, bias)
    ends = offs.tolist()
    parts = [a[start:end] @ b[g] for g, (start, end) in enumerate(zip([0, *ends], ends, strict=False))]
    return torch.cat([*parts, a.new_zeros(a.shape[0] - ends[-1], b.shape[2])])


def _promote_dtype_arguments(target: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Replace every dtype argument of an operator (factories, reductions, softmax with dtype) by its promotion."""
    import torch

    def convert(value: Any) -> Any:
        return promote_dtype(value) if isinstance(value, torch.dtype) else value

    return tuple(convert(a) for a in args), {key: convert(value) for key, value in kwargs.items()}


def _double(module: torch.nn.Module, call: Call) -> Replay:
    """An eager float64 copy of the module on a float64 copy of the inputs."""
    import torch
    from torch.utils import _pytree as pytree

    wide = copy.deepcopy(module).double()
    copied = clone_call(call)
    args, kwargs = pytree.tree_map(promote_value, (copied.args, copied.kwargs))
    before = {name: t.detach().clone() for name, t in named_state(wide).items()}
    inputs = dict(call_leaves(Call(args, kwargs), module.forward))
    kept = {path: t.clone() for path, t in inputs.items() if isinstance(t, torch.Tensor)}
    with _default_dtype(torch.float64):
        outputs = wide(*args, **kwargs)
    mutated = {path: inputs[path] for path, t in kept.items() if not same_bits(inputs[path], t)}
    state = {name: t for name, t in named_state(wide).items() if not same_bits(t, before[name])}
    return Replay(pytree.tree_map(promote_value, outputs), mutated, state)


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
