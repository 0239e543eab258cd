"""From a task's graph to a plan: import, partition, names of inputs and outputs, the user's code around it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from kforge.engine.calls.attention import ATTENTION
from kforge.engine.calls.chains import CHAIN
from kforge.engine.emit.cgen import Types
from kforge.engine.emit.forwardcode import Leaf, Piece, Plan
from kforge.engine.emit.functions import FUNCTIONS
from kforge.engine.emit.naming import RESERVED
from kforge.engine.emit.usercode import read_user_code, rebuilt_state
from kforge.engine.families.convolution import convolves
from kforge.engine.families.product import multiplies
from kforge.engine.graph.evidence import known_constants
from kforge.engine.graph.graph_import import import_graph
from kforge.engine.graph.importer import Graph
from kforge.engine.graph.ir import Origin, Program
from kforge.engine.graph.probing import Resized, Shapes
from kforge.engine.graph.state import leaf_name, new_values, settle, take_updates
from kforge.engine.graph.strides import Seen
from kforge.engine.graph.tensors import Tensor
from kforge.engine.handlers.indexing import check_order
from kforge.engine.partition import partition
from kforge.engine.switches import OURS, Switches
from kforge.errors import KforgeError, NoCandidate

if TYPE_CHECKING:
    from kforge.task import Capture, Task

Made = tuple[Plan, list[Program]]


def make_plan(
    task: Task,
    capture: Capture,
    switches: Switches = OURS,
    variants: Callable[[], list[Any]] | None = None,
    resized: Resized | None = None,
) -> Made:
    """Everything about the task that all candidates planned this way share.

    variants, resized: as import_graph has them.
    """
    import torch

    module = capture.module
    refs = capture.placeholders()
    names, expressions = names_of(refs)
    variants = variants or partial(variants_of, task, capture)
    class_name = task.reference.__name__ if task.form.value == "module" else None
    function_name = getattr(task.reference, "__name__", "reference")
    arguments = _constructor_arguments(task)
    user = read_user_code(task.source, class_name, function_name, arguments)
    graph = import_graph(
        module,
        names,
        _origin_of,
        constants=known_constants(capture),
        variants=variants,
        pinned=user.fixed,
        resized=resized or partial(graph_at, task, capture),
        switches=switches,
        contents=_buffers(task, refs, names),
    )
    state = take_updates(task, capture, graph)
    for k in state.returned:
        graph.outputs[k] = Leaf(leaf_name(state, k))  # type: ignore[call-overload]
    labels, orders = _outputs(module, graph)
    updates = new_values(state)
    parts = partition(graph, labels, _identifier(task.name), orders, updates, switches.apart, switches.carried)
    check_order(parts.programs, any(c.name == "deterministic" for c in task.constraints))
    parts.programs, beside = settle(state, parts.programs, [b for _, b in updates])
    parts.temporaries += beside
    types = Types.of(parts.programs, graph.real)
    types.fixed = any(multiplies(p) or convolves(p) for p in parts.programs)
    types.fixed |= any(c.call.scheme in (ATTENTION, CHAIN) for c in parts.calls)
    used = {b for p in parts.programs for b in p.buffers} | {b for _, b in state.copies}
    used |= {b for call in parts.calls for b in call.read}
    pieces = []
    for node, buffer in graph.inputs.items():
        if buffer in used or buffer.kind == "input":
            pieces.append(Piece(buffer, expressions[node]))
    if not user.copied:
        init = task.init_call()
        user.members = [rebuilt_state(task.make_reference(0, "cpu"), tuple(init.args), dict(init.kwargs))]
        user.signature = _forward_signature(task)
    flat = [Leaf(label) if label else t for label, t in zip(labels, graph.outputs, strict=True)]
    assert capture.out_spec is not None
    result = torch.utils._pytree.tree_unflatten(flat, capture.out_spec)
    literals = {k: v for k, v in capture.literals.items() if isinstance(v, (int, float, bool, str, type(None)))}
    plan = Plan(task.name, task.path.name, task.form.value, graph, parts, types, user, pieces, result, literals, state)
    return plan, parts.programs


def _forward_signature(task: Task) -> str:
    """The parameters of an inherited forward, `self` first; defaults that are no literals cannot be written down."""
    names = []
    for p in inspect.signature(task.reference.forward).parameters.values():  # type: ignore[attr-defined]
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or not _writable(p.default):
            raise NoCandidate(f"the inherited forward's parameter {p.name} cannot be copied", operator="forward")
        names.append(p.name if p.default is p.empty else f"{p.name}={p.default!r}")
    return ", ".join(names)


def _writable(default: Any) -> bool:
    return default is inspect.Parameter.empty or default is None or isinstance(default, (bool, int, float, str))


def _constructor_arguments(task: Task) -> dict[str, Any]:
    """What Model(...) is called with, defaults included, by name; empty for the other forms."""
    if task.form.value != "module":
        return {}
    call = task.init_call()
    bound = inspect.signature(task.reference).bind(*call.args, **call.kwargs)
    bound.apply_defaults()
    return dict(bound.arguments)


def _identifier(name: str) -> str:
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)  # compilers take no other letters
    return clean if clean[0].isalpha() and clean not in RESERVED else f"op{clean}" if clean[0] == "_" else f"op_{clean}"


def names_of(refs: dict[str, Any]) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
    """placeholder -> (variable, kind), and placeholder -> the expression in forward that gives it."""
    names: dict[str, tuple[str, str]] = {}
    expressions: dict[str, str] = {}
    taken: set[str] = set()
    for node, ref in refs.items():
        kind = "input" if ref.kind.value == "input" else "parameter"
        wish = re.sub(r"\W+", "_", ref.path).strip("_") or "x"
        if wish in RESERVED | FUNCTIONS or wish[0].isdigit():
            wish = f"{wish}_in" if kind == "input" else f"p_{wish}"
        name, k = wish, 2
        while name in taken:
            name, k = f"{wish}_{k}", k + 1
        taken.add(name)
        names[node] = (name, kind)
        if kind == "input":
            expressions[node] = ref.path
        else:
            parts = ref.path.split(".")
            expressions[node] = "self" + "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in parts)
    return names, expressions


def _buffers(task: Task, refs: dict[str, Any], names: dict[str, tuple[str, str]]) -> Callable[[str], Any]:
    """Values of the reference's buffers by the variable that holds them, None for others."""
    paths = {names[node][0]: ref.path for node, ref in refs.items() if ref.kind.value == "buffer"}

    @cache
    def values() -> dict[str, Any]:
        return dict(task.make_reference(0, "cpu").named_buffers())

    return lambda name: values().get(paths.get(name, ""))


def variants_of(task: Task, capture: Capture) -> list[Any]:
    """The graphs of the task's other variants: evidence on which literals follow a size."""
    from kforge.task import capture as capture_variant

    found = []
    for variant in range(1, task.n_variants):
        other = capture_variant(task, variant, device=capture.device)
        if other.graph_module is not None:
            found.append(other.graph_module)
    return found


def graph_at(task: Task, capture: Capture, shapes: Shapes) -> Any:
    """The task's graph where placeholders have these shapes; None where there is none."""
    from kforge.task import capture_resized

    paths = {node: ref.path for node, ref in capture.placeholders().items()}
    try:
        return capture_resized(task, capture, {paths[node]: shape for node, shape in shapes}).graph_module
    except KforgeError:  # what the reference says to such inputs
        return None


_ASSIGNED = re.compile(r"^\s*(\w+)\s*(?::[^=]+)?=[^=]")


def _origin_of(node: Any) -> Origin | None:
    origin = node.meta.get("origin")
    if origin is None:
        return None
    match = _ASSIGNED.match(origin.code)
    return Origin(origin.file.rsplit("/", 1)[-1], origin.line, match.group(1) if match else "", origin.code)


def _outputs(module: Any, graph: Graph) -> tuple[list[str], dict[str, tuple[int, ...]]]:
    """A name for each output, the user's own where the line assigns one; the memory order of permuted ones."""
    import torch

    node = next(n for n in module.graph.nodes if n.op == "output")
    leaves = torch.utils._pytree.tree_leaves(node.args[0])[-len(graph.outputs) :]
    # the new values of what the reference changes come before
    leaves = [n.args[0] if k in graph.expanded else n for k, n in enumerate(leaves)]
    metas = [n.meta if isinstance(n, torch.fx.Node) else {} for n in leaves]
    taken = {b.name for b in graph.inputs.values()}
    labels: list[str] = []
    orders: dict[str, tuple[int, ...]] = {}
    for tensor, meta in zip(graph.outputs, metas, strict=True):
        if not isinstance(tensor, Tensor):
            labels.append("")
            continue
        fake = meta.get("val")
        wish = meta.get("label") or (tensor.origin.name if tensor.origin is not None else "")
        wish = wish or ("result" if "y" in taken else "y")
        if wish in RESERVED | FUNCTIONS:
            wish = f"{wish}_value"
        name, k = wish, 2
        while name in taken:
            name, k = f"{wish}_{k}", k + 1
        taken.add(name)
        labels.append(name)
        if isinstance(fake, torch.Tensor) and not fake.is_contiguous():
            order = tuple(sorted(range(fake.dim()), key=fake.stride, reverse=True))
            if isinstance(tensor.layout, Seen):
                continue
            if not fake.permute(order).is_contiguous():
                raise NoCandidate("an output is an overlapping or sliced view", operator="view as output")
            orders[name] = order
    return labels, orders
