"""The fp64 reference without a graph: run eagerly in float64 while casts between floating types are dropped.

Used for derived shapes, of which there are many, where tracing each would cost more than judging it. What needs the
graph (random operators, operators on bits, inner values of discrete outputs) is traced as ever.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kforge.task import Call, Capture
    from kforge.task.promotion import Replay


def can_widen(capture: Capture) -> bool:
    """Whether running eagerly in float64 means the same as the captured graph with its floating values promoted."""
    import torch

    if capture.graph_module is None:
        return True  # then the eager copy is the reference anyway
    exact = {torch.ops.aten.view.dtype, torch.ops.aten.nextafter.default, torch.ops.aten.native_dropout.default}
    targets = [n.target for n in capture.graph.nodes if n.op == "call_function"]
    seeded = torch.Tag.nondeterministic_seeded
    return not any(t in exact or seeded in getattr(t, "tags", ()) for t in targets)


def run_widened(module: torch.nn.Module, call: Call, seed: int) -> Replay:
    """As Promoted.run: outputs, mutated inputs and state in float64; neither `module` nor `call` is changed."""
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    from kforge.task import Call, call_leaves, clone_call
    from kforge.task.alias import same_bits
    from kforge.task.promotion import Replay, promote_dtype, promote_value
    from kforge.task.state import named_state
    from kforge.task.task import seeded

    def widen(value: Any) -> Any:
        return promote_dtype(value) if isinstance(value, torch.dtype) else value

    class Widening(TorchDispatchMode):
        """Every dtype that an operator is given is float64 where it was a floating one."""

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*pytree.tree_map(widen, args), **{k: widen(v) for k, v in (kwargs or {}).items()})

    copied = clone_call(call)
    with torch.no_grad(), seeded(seed):
        wide = copy.deepcopy(module).double()
        args, kwargs = pytree.tree_map(promote_value, (copied.args, copied.kwargs))
        inputs = dict(call_leaves(Call(args, kwargs), module.forward))
        kept = {path: t.clone() for path, t in inputs.items() if isinstance(t, torch.Tensor)}
        before = {name: t.detach().clone() for name, t in named_state(wide).items()}
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with Widening():
                outputs = wide(*args, **kwargs)
        finally:
            torch.set_default_dtype(default)
    mutated = {path: inputs[path] for path, t in kept.items() if not same_bits(inputs[path], t)}
    state = {name: t for name, t in named_state(wide).items() if not same_bits(t, before[name])}
    return Replay(pytree.tree_map(promote_value, outputs), mutated, state)
