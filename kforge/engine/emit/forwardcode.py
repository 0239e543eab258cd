"""The statements of a candidate's forward: checks, sizes, allocation, steps in order, results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kforge.engine.calls.vendor import CallStep, Lowering, checks
from kforge.engine.emit.cgen import Types
from kforge.engine.emit.guards import Guards, dtypes, refuse
from kforge.engine.emit.hostcode import Host, launch_lines
from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.emit.usercode import UserCode
from kforge.engine.graph.formats import DENSE
from kforge.engine.graph.importer import Graph
from kforge.engine.graph.ir import Buffer, Expr, index_values, walk
from kforge.engine.graph.state import State, host_lines
from kforge.engine.graph.strides import Image, Joined, Kept, Layout, Seen, inputs_of, written
from kforge.engine.graph.symbols import Poly, product
from kforge.engine.graph.tensors import Tensor
from kforge.engine.partition import Partition
from kforge.errors import NoCandidate

Choice = Sequence[KernelCode]
"""The kernels for one program: the chosen one, then what covers the shapes it does not."""


@dataclass(frozen=True)
class Piece:
    """Where a placeholder comes from in forward: its variable and the expression that gives it."""

    buffer: Buffer
    expression: str


@dataclass
class Plan:
    """All that a candidate is written from."""

    name: str
    file: str
    form: str
    graph: Graph
    parts: Partition
    types: Types
    user: UserCode
    pieces: list[Piece]
    result: Any  # the output tree with variable names at its leaves
    literals: Mapping[str, Any] = field(default_factory=dict)
    state: State = field(default_factory=State)


class Leaf:
    """A variable's name whose repr is itself, to print an output tree."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def forward_lines(
    plan: Plan, choices: Sequence[Choice], variables: Mapping[str, str], calls: Sequence[Lowering] = ()
) -> list[str]:
    """variables: the module's name for each kernel; calls: how each library step is computed."""
    host = Host(plan.graph, {p.buffer.name: p.buffer for p in plan.pieces})
    lines: list[str] = []
    lines += _literal_checks(plan)
    for p in plan.pieces:
        if p.expression != p.buffer.name:
            lines.append(f"{p.buffer.name} = {p.expression}")
    used = {b.name for choice in choices for b in choice[0].program.buffers}
    used |= {b.name for step in plan.parts.calls for b in step.read}
    given = [p.buffer for p in plan.pieces]
    lines += Guards(given, plan.graph.minimum).sizes()
    lines += dtypes([b for b in sorted(given, key=lambda b: b.kind != "input") if b.name in used], plan.types)
    outputs = {b.name: b for b in plan.parts.outputs}
    tensors = [t for t in plan.graph.outputs if isinstance(t, Tensor)]
    if isinstance(plan.result, Leaf) and tensors and (copied := tensors[0].copies) is not None:
        shaped = "" if copied.shape is None else f".view({host.shape(copied.shape)})"
        lines.append(f"if {copied.condition()}:  # then torch copies nothing")
        lines.append(f"    return {copied.python()}{shaped}")
    layouts = {b.name: t.layout for b, t in zip(plan.parts.outputs, tensors, strict=True) if t.layout is not None}
    layouts = {name: rule for name, rule in layouts.items() if isinstance(rule, Seen) or inputs_of(rule)}
    # others always lie as captured
    formats = {
        b.name: t.format
        for b, t in zip(plan.parts.outputs, tensors, strict=True)
        if t.format is not None and b.name not in layouts
    }
    rules = [*layouts.values(), *(rule for rule, _ in formats.values())]
    for name in dict.fromkeys(b.name for rule in rules for b in inputs_of(rule)):
        lines.append(f"{name}_given = {name}")
    lines += [line for line in host_lines(plan.state, before=True) if line not in lines]
    for p in plan.pieces:
        if p.buffer.kind == "input" and p.buffer.name in used and p.buffer.shape and not p.buffer.order:
            lines.append(f"{p.buffer.name} = {p.buffer.name}.contiguous()")
    tensors_given = [*host.tensors, *(b for b in given if not b.shape)]  # single numbers last: they may lie elsewhere
    device = next((b.name for b in tensors_given if b.name in used), None)
    if device is None:
        raise NoCandidate("no output depends on what an input holds: there is nothing to compute", operator="constants")
    ways = dict(zip(plan.parts.calls, calls, strict=True))
    for part in _segments(plan.parts, choices):
        if isinstance(part, CallStep):
            operands = [o.python(host) for o in part.operands]
            lines += ways[part].lines(part, host, operands, variables)
            lines += checks(part, plan.graph.known, host)
            host.names |= {b.name: b for b in part.results}
        else:
            lines += _launches(plan, part, variables, host, device)
    for name, view in plan.parts.views.items():
        if (text := view.python(host)) != name:
            lines.append(f"{name} = {text}")
    for name, order in plan.parts.orders.items():
        back = [order.index(k) for k in range(len(order))]
        lines.append(f"{name} = {name}.permute({', '.join(map(str, back))})")
    for name, layout in layouts.items():
        if name in outputs:
            lines += _laid(name, layout, host, plan.graph.odd)
    for name, (layout, row) in formats.items():
        source = f"{layout.name}_given" if isinstance(layout, Buffer) else written(layout, host.size, host.shape)
        if name in outputs and row:
            lines.append(f"{name} = ordered({name}.unsqueeze(-2), {source}.unsqueeze(-2)).squeeze(-2)")
        elif name in outputs:
            dense = ", dense=True" if isinstance(layout, Buffer) and layout.kind == DENSE else ""
            lines.append(f"{name} = ordered({name}, {source}{dense})")
    for number, shape in plan.graph.expanded.items():
        name = plan.parts.outputs[sum(isinstance(t, Tensor) for t in plan.graph.outputs[:number])].name
        lines.append(f"{name} = {name}.expand({host.shape(shape)})")
    lines += host_lines(plan.state, before=False)
    lines.append(f"return {_tree(plan.result)}")
    return lines


def _laid(name: str, layout: Layout, host: Host, odd: Collection[str]) -> list[str]:
    """Lines that give an output the strides of torch's; where inputs are contiguous as captured it has them."""
    if isinstance(layout, Buffer):
        return [f"{name} = like({name}, {layout.name}_given)"]
    rule = layout if isinstance(layout, (Joined, Image, Kept, Seen)) else Joined((layout,))  # a view may not be dense
    line = f"{name} = laid({name}, {written(rule, host.size, host.shape)})"
    names = [b.name for b in inputs_of(layout)]
    if (isinstance(layout, Seen) and layout.always) or any(n in odd for n in names):
        return [line]
    dense = " and ".join(f"{n}_given.is_contiguous()" for n in names)
    return [f"if not {dense if len(names) == 1 else f'({dense})'}:", f"    {line}"]


def _segments(parts: Partition, choices: Sequence[Choice]) -> Iterator[CallStep | list[Choice]]:
    """Library calls, and the kernels between two of them."""
    if not parts.steps:
        yield list(choices)
        return
    by_name = {choice[0].program.name: choice for choice in choices}
    run: list[Choice] = []
    for step in parts.steps:
        if isinstance(step, CallStep):
            if run:
                yield run
            run = []
            yield step
        elif step in by_name:
            run.append(by_name[step])
    if run:
        yield run


def _launches(
    plan: Plan, choices: Sequence[Choice], variables: Mapping[str, str], host: Host, device: str
) -> list[str]:
    """Sizes, allocations and launches of kernels that follow each other."""
    local: dict[tuple[str, str], str] = {}
    lines = _sizes(host, choices, local)
    written = {s.buffer.name for choice in choices for s in choice[0].program.stores}
    ready = host.names if plan.parts.calls else {}
    for b in [*plan.parts.temporaries, *plan.parts.outputs]:
        if (b.name in written or not plan.parts.calls) and b.name not in ready:
            lines.append(f"{b.name} = {_allocate(plan, host, b, device, plan.parts.orders.get(b.name))}")
    for b, drawn in plan.graph.seeds.items():
        lines.append(f"{b.name} = philox({host.size(product(drawn))}, {device}.device)")
    lines += _empty_checks(plan, choices, local, host)
    for b in host.tensors:
        if b.order and any(b in choice[0].program.buffers for choice in choices):
            order = ", ".join(map(str, b.order))
            lines.append(f"{b.name} = {b.name}.permute({order}).contiguous()  # as it lies in memory")
    for choice in choices:
        lines += launch_lines(choice, variables, host, local)
    return lines


def _tree(value: Any) -> str:
    """An output tree as Python: tuples, lists, dicts and torch's own return types."""
    if type(value) is tuple:
        inner = ", ".join(_tree(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})" if value else "()"
    if type(value) is list:
        return f"[{', '.join(_tree(v) for v in value)}]"
    if type(value) is dict:
        return "{" + ", ".join(f"{k!r}: {_tree(v)}" for k, v in value.items()) + "}"
    if type(value).__module__ == "torch.return_types":
        return f"torch.return_types.{type(value).__name__}(({', '.join(_tree(v) for v in value)}))"
    if isinstance(value, (Leaf, int, float, bool, str, type(None))):
        return repr(value)
    raise NoCandidate(f"an output tree with a {type(value).__name__}", operator="output")


def _literal_checks(plan: Plan) -> list[str]:
    lines = []
    for path, value in plan.literals.items():
        test = f"{path} is not {value!r}" if value is None or isinstance(value, bool) else f"{path} != {value!r}"
        shown = path.replace('"', "'")
        wish = f"these kernels were written for {path} = {value!r}".replace("{", "{{").replace("}", "}}")
        lines += refuse(test, wish.replace('"', "'"), f"it is {{{shown}!r}}")
    return lines


def _sizes(host: Host, choices: Sequence[Choice], local: dict[tuple[str, str], str]) -> list[str]:
    """Local variables for the sizes that kernels take; one variable for one size."""
    lines = []
    taken = {*host.names, *host.locals.values()}  # a variable of an earlier kernel may be needed again
    for choice in choices:
        for code in choice:
            for name in sorted(code.sizes, key=lambda n: (n != "cols", n)):
                poly = code.sizes[name]
                if poly in host.locals and poly.constant is None:
                    local[code.name, name] = host.locals[poly]
                    continue
                if poly.constant is not None:
                    local[code.name, name] = str(poly.constant)
                    continue
                wish, k = name, 2
                while wish in taken:
                    wish, k = f"{name}_{k}", k + 1
                taken.add(wish)
                lines.append(f"{wish} = {host.size(poly)}")
                host.locals[poly] = wish
                local[code.name, name] = wish
    return lines


def _allocate(plan: Plan, host: Host, b: Buffer, device: str, order: tuple[int, ...] | None) -> str:
    shape = tuple(b.shape[k] for k in order) if order else b.shape
    element = plan.types.element(b)
    owner = plan.types.bound.get(element)
    read = {x.name for p in plan.parts.programs for x in p.buffers} | {x.name for c in plan.parts.calls for x in c.read}
    for t in host.tensors if b.kind != "temporary" else ():
        dense = t.kind == "input" and not t.order and t.name in read  # what only lends its sizes keeps its strides
        if dense and t.shape == shape and plan.types.element(t) == element:
            return f"torch.empty_like({t.name})"
    dtype = f"{owner}.dtype" if owner and owner != b.name else f"torch.{b.dtype}"
    if b.kind == "temporary" and b.dtype in ("float32", "float64"):  # of the type in which kernels compute
        dtype = "torch.float64" if plan.types.real == "double" else "torch.float32"
    if not shape:
        return f"torch.empty((), dtype={dtype}, device={device}.device)"
    return f"torch.empty({host.shape(shape)}, dtype={dtype}, device={device}.device)"


EXTREMES = ("max", "min", "argmax", "argmin")


def _asked(values: Sequence[Expr], bodies: bool = False) -> list[Expr]:
    """What is under these values where rows are empty: nothing within a reduction (bodies: that as well), and no
    extremes that are only subtracted where they are finite (logsumexp)."""
    found, waiting = dict[int, Expr](), list(values)
    while waiting:
        e = waiting.pop()
        if e.uid not in found:
            found[e.uid] = e
            within = (e.op == "reduce" and not bodies) or _guarded(e)
            waiting += () if within else (*e.args, *(index_values(e.index) if e.index is not None else ()))
    return list(found.values())


def _guarded(e: Expr) -> bool:
    """A choice between a number and an extreme, or one from memory, that nothing but the extreme decides."""
    if e.op != "where" or e.args[1].op != "const" or e.args[2].op not in ("reduce", "load"):
        return False
    below = walk([e.args[0]], into_reductions=False)
    return all(x is e.args[2] or x.op == "const" or (x.args and x.op not in ("reduce", "load")) for x in below)


def _is_asked(plan: Plan, buffer: Buffer, over: Poly) -> bool:
    """Whether an extreme that is written here, if it is one, may not be that of nothing.

    over: how many elements it is of; a kernel that walks over as many for each of them has no elements then, either.
    """
    whole = [(p, product(v.size for v in (*p.rows, *p.cols))) for p in plan.parts.programs]
    values = [s.value for p, n in whole if n.divide(over) is None for s in p.stores]
    return buffer.kind != "temporary" or any(e.buffer == buffer for e in _asked(values, bodies=True) if e.op == "load")


def _of_flags(e: Expr) -> bool:
    """Whether a reduction is torch's any or all, which nothing is no error to."""
    body = e.args[0]
    return body.op == "cast" and body.args[0].dtype == "bool"


def _empty_checks(plan: Plan, choices: Sequence[Choice], local: Mapping[tuple[str, str], str], host: Host) -> list[str]:
    """torch refuses the maximum of nothing; so does this."""
    lines = []
    for choice in choices:
        code = choice[0]
        over = product(v.size for v in code.program.cols)
        per_row = _asked([s.value for s in code.program.stores if s.per_row and _is_asked(plan, s.buffer, over)])
        extremes = any(e.op == "reduce" and e.kind in EXTREMES and not _of_flags(e) for e in per_row)
        cols = local.get((code.name, "cols"), "")
        if extremes and cols and not cols.isdigit():
            lines.append(f"if {cols} == 0:")
            lines.append('    raise IndexError("the maximum or minimum of an empty row does not exist")')
    return lines
