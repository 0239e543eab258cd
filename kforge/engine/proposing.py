"""From a task's graph to candidates: import, partition, families, writing; best guess first."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from kforge.engine.apart import worthwhile
from kforge.engine.calls.alternatives import is_library, library_plans, own_plans
from kforge.engine.calls.attention import ATTENTION
from kforge.engine.calls.chains import CHAIN
from kforge.engine.calls.precision import lowering
from kforge.engine.calls.vendor import Lowering
from kforge.engine.carried import pair_of
from kforge.engine.cost import Option, Policy, covers, heuristic, predict
from kforge.engine.emit.cgen import RESERVED, Types
from kforge.engine.emit.forwardcode import Choice, Leaf, Piece, Plan
from kforge.engine.emit.functions import FUNCTIONS
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.emit.usercode import read_user_code, rebuilt_state
from kforge.engine.emit.writer import write_candidate
from kforge.engine.families import Target, kernels_for
from kforge.engine.families.convolution import convolves
from kforge.engine.families.product import multiplies
from kforge.engine.graph.evidence import known_constants
from kforge.engine.graph.graph_import import import_graph
from kforge.engine.graph.importer import Graph
from kforge.engine.graph.ir import Origin, Program
from kforge.engine.graph.probing import Resized, Shapes
from kforge.engine.graph.state import leaf_name, new_values, refuse_views, settle, take_updates
from kforge.engine.graph.strides import Seen
from kforge.engine.graph.symbols import Poly
from kforge.engine.graph.tensors import Tensor
from kforge.engine.handlers.indexing import check_order
from kforge.engine.partition import partition
from kforge.errors import KforgeError, NoCandidate
from kforge.kernel.candidate import Candidate

if TYPE_CHECKING:
    from kforge.task import Capture, Task


def propose(
    task: Task,
    capture: Capture,
    *,
    arch: str,
    device: str,
    facts: Any = None,
    policy: Policy | None = None,
    variants: Callable[[], list[Any]] | None = None,
    resized: Resized | None = None,
) -> Iterator[Candidate]:
    """Candidates for a task, best guess first; all compute the same and differ in schedules.

    capture: the graph of variant 0. arch ("sm_90a") and device ("cpu", "cuda:0") are what it will run on. facts:
    TaskFacts if known. variants: gives the graphs of its other variants, resized: that of any shapes, default the
    task's. Raises NoCandidate naming the operator that no kernel covers; never a torch-only candidate.
    """
    if facts is not None:
        refuse_views(capture, facts.effects)
    try:
        variants = variants or partial(_variants, task, capture)
        resized = resized or partial(graph_at, task, capture)
        yield from _propose(task, capture, arch, device, policy or heuristic, variants, resized)
    except RecursionError as error:
        raise NoCandidate("its expressions are nested too deeply for one kernel", operator="a long chain") from error


def _propose(
    task: Task,
    capture: Capture,
    arch: str,
    device: str,
    policy: Policy,
    variants: Callable[[], list[Any]],
    resized: Resized,
) -> Iterator[Candidate]:
    variants, resized = cache(variants), cache(resized)  # captured once, by whoever asks first
    target = replace(_target(capture, device, variants), arch=arch, extents=cache(partial(_extents, capture, variants)))
    refused: list[NoCandidate] = []
    written: dict[int, tuple[Plan, list[list[KernelCode]]]] = {}  # by identity: a plan has no hash

    def offers(plan: Plan, programs: list[Program]) -> list[list[KernelCode]]:
        """The kernels for each program of a plan: they are written once, to rank plans and to choose from."""
        if id(plan) not in written:
            written[id(plan)] = plan, [kernels_for(p, plan.types, p.name, target) for p in programs]
        return written[id(plan)][1]

    def planned(**how: Any) -> list[Made]:
        try:
            return [make_plan(task, capture, variants, resized, **how)]
        except NoCandidate as error:
            refused.append(error)
            return []

    def total(made: Made) -> float:
        calls = [lowering(step, capture.precision.value) for step in made[0].parts.calls]
        return _seconds(offers(*made)) + sum(call.seconds for call in calls)

    plans = planned()
    if plans and worthwhile(plans[0][1], target):
        plans += planned(apart=True)
    if plans and pair_of(plans[0][1]):
        plans += [made for made in planned(carried=True) if all(offers(*made))]
    plans.sort(key=lambda made: _seconds(offers(*made)))
    others, own_first = library_plans(capture, arch, device, planned, lambda made: _seconds(offers(*made)))
    plans = [*plans, *others] if own_first else [*others, *plans]
    for made in own_plans(capture, arch, device, planned):  # before the first that is predicted to take longer
        slower = (k for k, other in enumerate(plans) if total(other) > total(made))
        plans.insert(next(slower, len(plans)), made)
    streams = [_of_plan(capture, *made, offers, policy, refused) for made in plans]
    found: set[str] = set()
    for candidate in _in_turn(streams):
        if candidate.digest not in found:
            found.add(candidate.digest)
            yield candidate
    if not found and refused:
        raise refused[0]
    if not found:
        named = ", ".join(dict.fromkeys(n.target.__name__ for n in capture.graph.nodes if is_library(n)))
        raise NoCandidate(f"a library's call is all there is: {named}", operator=named)


def _seconds(options: list[list[KernelCode]]) -> float:
    """The shortest predicted time of a plan's kernels."""
    return sum(min(map(predict, filter(covers, kernels)), default=0.0) for kernels in options)


def _in_turn(streams: list[Iterator[Candidate]]) -> Iterator[Candidate]:
    """The first of each, then the second of each, and so on."""
    for group in zip_longest(*streams):
        yield from (candidate for candidate in group if candidate is not None)


def _of_plan(
    capture: Capture,
    plan: Plan,
    programs: list[Program],
    offers: Offers,
    policy: Policy,
    refused: list[NoCandidate],
) -> Iterator[Candidate]:
    """The candidates of a plan; where no kernel does one of its programs there are none, and `refused` says so."""
    calls = [lowering(step, capture.precision.value) for step in plan.parts.calls]
    options = offers(plan, programs)
    for program, kernels in zip(programs, options, strict=True):
        if not kernels:
            refused.append(NoCandidate(f"no kernel family covers {program.name}", operator=program.name))
            return
    ranked = policy.rank([Option(choice, calls) for choice in _combinations(options)])
    for option in ranked:
        if option.choices or any(call.kernels for call in option.calls):
            idea = _idea(option.choices, option.calls)
            yield write_candidate(plan, option.choices, idea, option.gain, option.calls)


def _target(capture: Capture, device: str, variants: Callable[[], list[Any]]) -> Target:
    """The GPU at hand and the longest dimension it will meet; an H200 and the first variant where there is none."""
    import torch

    if not device.startswith("cuda") or not torch.cuda.is_available():
        return Target()
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    graphs = [capture.module, *variants()]
    values = [n.meta.get("val") for graph in graphs for n in graph.graph.nodes if n.op == "placeholder"]
    return Target(processors, max((n for v in values if isinstance(v, torch.Tensor) for n in v.shape), default=0))


def _extents(capture: Capture, variants: Callable[[], list[Any]]) -> dict[str, int]:
    """The largest that each size of an input is in another variant of the task."""
    names, found = _names(capture.placeholders())[0], dict[str, int]()
    for node in (node for graph in variants() for node in graph.graph.nodes if node.name in names):
        for axis, size in enumerate(getattr(node.meta.get("val"), "shape", ())):
            name = f"{names[node.name][0]}_{axis}"
            found[name] = max(int(size), found.get(name, 0))
    return found


def _combinations(options: list[list[KernelCode]]) -> Iterator[list[Choice]]:
    """The first kernel everywhere, then one program's alternative at a time."""
    yield [_covered(kernels, 0) for kernels in options]
    for k, kernels in enumerate(options):
        for alternative in range(1, len(kernels)):
            yield [_covered(ks, alternative if i == k else 0) for i, ks in enumerate(options)]


def _covered(kernels: list[KernelCode], first: int) -> Choice:
    """The chosen kernel and, where it is limited to some shapes, those that cover the rest, the nearest limit first.

    The order in which the captured sizes rank them says nothing of other sizes; a schedule for short rows is the better
    one wherever it fits.
    """
    covered = [kernels[first]]
    for k in sorted(kernels, key=lambda k: (k.most, not k.limit)):  # stable: of equal limits the one ranked first
        other = covered[-1].limit and covered[-1].most == k.most  # a limit that is not of columns alone
        if k.most > covered[-1].most or (other and not k.limit):
            covered.append(k)
    return covered


def _idea(choices: list[Choice], calls: Sequence[Lowering] = ()) -> str:
    ideas = list(dict.fromkeys([*(c.idea for c in calls), *(choice[0].idea for choice in choices)]))
    text = "; then ".join(ideas)
    return text if len(choices) == 1 or calls else f"{len(choices)} kernels: {text}"


Made = tuple[Plan, list[Program]]
Offers = Callable[[Plan, list[Program]], list[list[KernelCode]]]


def make_plan(
    task: Task,
    capture: Capture,
    variants: Callable[[], list[Any]] | None = None,
    resized: Resized | None = None,
    *,
    library: bool = False,
    scheme: str = "",
    halved: bool = False,
    last: bool = False,
    own: bool = False,
    shared: bool = False,
    rowwise: bool = False,
    implicit: bool = False,
    gathered: bool = False,
    joined: bool = False,
    attention: bool = False,
    apart: bool = False,
    carried: bool = False,
) -> Made:
    """Everything about the task that all candidates share.

    variants, resized: as import_graph has them; library, scheme, halved, last, own, shared, implicit, gathered,
    joined: as Importer has them; apart: results of rows are kernels of their own; carried: sums over rows are taken
    along by another one.
    """
    import torch

    module = capture.module
    refs = capture.placeholders()
    names, expressions = _names(refs)
    variants = variants or partial(_variants, task, capture)
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
        library=library,
        scheme=scheme,
        halved=halved,
        last=last,
        own=own,
        shared=shared,
        rowwise=rowwise,
        implicit=implicit,
        gathered=gathered,
        joined=joined,
        attention=_buffers(task, refs, names) if attention else None,
        resized=resized or partial(graph_at, task, capture),
    )
    state = take_updates(task, capture, graph)
    for k in state.returned:
        graph.outputs[k] = Leaf(leaf_name(state, k))  # type: ignore[call-overload]
    labels, orders = _outputs(module, graph)
    updates = new_values(state)
    parts = partition(graph, labels, _identifier(task.name), orders, updates, apart, carried)
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


def _names(refs: dict[str, Any]) -> tuple[dict[str, tuple[str, str]], dict[str, str]]:
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


def _variants(task: Task, capture: Capture) -> list[Any]:
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


__all__ = ["Poly", "make_plan", "propose"]
