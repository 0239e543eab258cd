"""What a reference changes beside returning: running statistics, counters, inputs updated in place.

A new value is a tensor like any other. Its kernel writes it into the buffer itself where nothing reads the old value
afterwards; elsewhere it goes to memory of its own and is copied over at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kforge.engine.emit.merging import find_pairs
from kforge.engine.emit.passes import Levels
from kforge.engine.graph.importer import Graph
from kforge.engine.graph.ir import Buffer, Expr, Program, Store, walk
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.graph.tensors import Tensor
from kforge.errors import NoCandidate

if TYPE_CHECKING:
    from kforge.engine.emit.rowcode import RowCode
    from kforge.task import Capture, Task
    from kforge.task.alias import Effects


@dataclass
class State:
    """The updates of a graph. targets: written by kernels in place. copies: (new value, buffer it belongs to).

    returned: position of an output -> the input that this output is, after its update.
    """

    updates: list[tuple[Buffer, Tensor]] = field(default_factory=list)
    targets: list[Buffer] = field(default_factory=list)
    copies: list[tuple[str, Buffer]] = field(default_factory=list)
    returned: dict[int, Buffer] = field(default_factory=dict)

    @property
    def inputs(self) -> list[Buffer]:
        """Inputs that change: the caller's tensor gets the new value even where the kernels work on a copy."""
        return [b for b in [*self.targets, *(b for _, b in self.copies)] if b.kind == "input"]


def take_updates(task: Task, capture: Capture, graph: Graph) -> State:
    """Splits the new values off the graph's outputs. NoCandidate for a parameter, or an output that is a part."""
    state = State()
    n = len(capture.mutations)
    if not n:
        return state
    values, graph.outputs = graph.outputs[:n], graph.outputs[n:]
    places = {(ref.kind, ref.path): ref.node for ref in capture.inputs}
    for mutation, value in zip(capture.mutations, values, strict=True):
        if mutation.kind.value not in ("buffer", "input"):
            what = f"the reference changes {mutation.kind.value} {mutation.path} in place"
            raise NoCandidate(what, operator="in-place update")
        target = graph.inputs[places[mutation.kind, mutation.path]]
        assert isinstance(value, Tensor)
        if value.buffer is not target:
            state.updates.append((target, value))
    if any(m.kind.value == "input" for m in capture.mutations):
        _find_returned(task, capture, graph, state)
    return state


def refuse_views(capture: Capture, effects: Effects) -> None:
    """NoCandidate where an output is an input as it came, or a view of it: a kernel would write a copy of it."""
    inputs = {ref.path for ref in capture.inputs if ref.kind.value == "input"} - set(effects.mutated)
    for alias in effects.aliases:
        if alias.source in inputs:
            what = f"the output {alias.output} is the input {alias.source}, or a view of it"
            raise NoCandidate(what, operator="output")


def _find_returned(task: Task, capture: Capture, graph: Graph, state: State) -> None:
    """Which outputs are an updated input itself: a run of the reference says so, the graph does not."""
    from kforge.task.alias import observe
    from kforge.task.call import call_leaves, tree_leaves

    call = task.make_call(0, 0, capture.device)
    module = task.make_reference(0, capture.device)
    seen = observe(task, module, call)
    inputs = dict(call_leaves(seen.call, module.forward))
    nodes = {ref.path: ref.node for ref in capture.inputs if ref.kind.value == "input"}
    changed = {target for target, _ in state.updates}
    places = {path: k for k, (path, _) in enumerate(tree_leaves(seen.outputs))}
    for alias in seen.effects.aliases:
        given = inputs.get(alias.source)
        target = graph.inputs.get(nodes.get(alias.source, ""))
        if given is None or target is None or target not in changed:
            continue
        if (alias.offset, alias.shape, alias.strides) != (0, tuple(given.shape), given.stride()):
            raise NoCandidate(f"an output is a part of {alias.source}, which changes", operator="view as output")
        state.returned[places[alias.output]] = target


def new_values(state: State) -> list[tuple[Tensor, Buffer]]:
    """What the kernels must compute for the state, each with memory of its own for the time being."""
    taken: list[tuple[Tensor, Buffer]] = []
    for target, value in state.updates:
        if value.buffer is not None:
            raise NoCandidate(f"{target.name} becomes another input", operator="in-place update")
        taken.append((value, Buffer(f"new_{target.name}", target.dtype, value.shape, "output")))
    return taken


def settle(state: State, programs: list[Program], own: Sequence[Buffer]) -> tuple[list[Program], list[Buffer]]:
    """Stores go into the targets where that is safe. own: buffers of new_values; gives those that stay beside."""
    stay = []
    for (target, _), buffer in zip(state.updates, own, strict=True):
        if replaces(programs, target, buffer):
            programs = [_redirect(p, buffer, target) for p in programs]
            state.targets.append(target)
        else:
            stay.append(buffer)
            state.copies.append((buffer.name, target))
    return _gather_scalars(programs), stay


def replaces(programs: Sequence[Program], target: Buffer, buffer: Buffer) -> bool:
    """True when each old element is read only by the thread that replaces it, and before it does."""
    writer = next(p for p in programs if any(s.buffer == buffer for s in p.stores))
    store = next(s for s in writer.stores if s.buffer == buffer)
    for p in programs:
        reads = [e for e in p.loads if e.buffer == target]
        if p is not writer and reads:
            return False
        if any(e.index != store.index for e in reads):
            return False
    if not store.per_row:
        return not any(_reads_later(writer, store, target, Levels(pairs)) for pairs in ((), find_pairs(writer)))
    others = [s.value for s in writer.stores if s is not store]  # the row's values are stored one after the other
    others += [e.args[0] for e in writer.reductions]
    return not any(_reads(e, target) for e in walk(others))


def _reads(e: Expr, target: Buffer) -> bool:
    return e.op == "load" and e.buffer == target


def _reads_later(program: Program, store: Store, target: Buffer, level: Levels) -> bool:
    """Whether a pass over the row after the one that stores reads old elements again."""
    mine = level(store.value)
    everything = walk(s.value for s in program.stores)
    if any(e.op in ("scan", "window") for e in everything):
        return mine != max(level(s.value) for s in program.stores)
    walks = [(level(s.value), s.value) for s in program.stores]
    walks += [(level(r) - 1, r.args[0]) for r in program.reductions]
    late = [root for number, root in walks if number > mine]
    return any(_reads(e, target) for e in walk(late, into_reductions=False))


def _redirect(program: Program, buffer: Buffer, target: Buffer) -> Program:
    stores = tuple(replace(s, buffer=target) if s.buffer == buffer else s for s in program.stores)
    return replace(program, stores=stores)


def _gather_scalars(programs: list[Program]) -> list[Program]:
    """A kernel that would write single values alone (a counter) is left to the last of the others that always runs."""
    scalars = [p for p in programs if not p.rows and not p.cols]
    others = [p for p in programs if p.rows or p.cols]
    if not scalars:
        return programs
    written = {s.buffer for p in others for s in p.stores}
    single = [s for p in scalars for s in p.stores]
    touched = {e.buffer for e in walk(s.value for s in single) if e.op == "load"} | {s.buffer for s in single}
    if written & touched or any(e.buffer in {s.buffer for s in single} for p in others for e in p.loads):
        return [p if p not in scalars else _of_one(p) for p in programs]
    last = next((p for p in reversed(others) if all(v.size.constant for v in p.rows or p.cols)), None)
    if last is None:  # none is launched where there are no elements
        return [p if p not in scalars else _of_one(p) for p in programs]
    origins = tuple(dict.fromkeys([*last.origins, *(o for p in scalars for o in p.origins)]))
    once = tuple(replace(s, per_row=True, once=True) for s in single)
    more = replace(last, stores=(*last.stores, *once), origins=origins)
    return [more if p is last else p for p in others]


def _of_one(program: Program) -> Program:
    """Single values by a kernel of one element."""
    only = Var("c0", Poly.of(1))
    stores = tuple(replace(s, index=s.index + Poly.of(only), per_row=False) for s in program.stores)
    return replace(program, cols=(only,), stores=stores)


def write_once(code: RowCode, first: str) -> None:
    """Statements for single values, by one thread of the whole grid; `first` is its condition."""
    single = [s for s in code.program.stores if s.once]
    if not single:
        return
    with code.lines.block(f"if ({first})"):
        scope = code.scope.child()
        for s in single:
            code.lines.add(f"{s.buffer.name}[{scope.index(s.index)}] = {code._stored(s, scope)};")


def host_lines(state: State, before: bool) -> list[str]:
    """Python before the inputs are made contiguous, or after the kernels."""
    if before:
        return [f"{b.name}_given = {b.name}" for b in state.inputs]
    lines = [f"{target.name}.copy_({name})" for name, target in state.copies if target.kind != "input"]
    lines += [f"{target.name}_given.copy_({name})" for name, target in state.copies if target.kind == "input"]
    for b in state.targets:
        if b.kind == "input" and b.shape:
            lines += [f"if {b.name} is not {b.name}_given:", f"    {b.name}_given.copy_({b.name})"]
    return lines


__all__ = ["Expr", "State", "Store", "host_lines", "new_values", "settle", "take_updates", "write_once"]


def leaf_name(state: State, position: int) -> str:
    """The variable that is the output at this position, '' where a kernel writes it."""
    target: Any = state.returned.get(position)
    return f"{target.name}_given" if target is not None else ""
