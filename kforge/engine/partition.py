"""Cuts an imported graph into the fewest kernels: row programs and pointwise programs, in launch order.

Every output is pulled in the space of a reduction it depends on, or in its own shape if it depends on none. A value
that a kernel cannot compute in place (`Cut`) becomes a temporary of an earlier kernel. Kernels over one space that do
not depend on each other are one kernel. What remains is coalesced: adjacent loops that every index walks as one
become one loop. What a library computes (vendor.py) is a step of its own between kernels; the kernel after it
works in place over its result where it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kforge.engine.apart import row_results, row_value
from kforge.engine.calls.bands import find_bands
from kforge.engine.calls.library import LibraryCalls, reuse_results
from kforge.engine.calls.vendor import LIBRARY, CallStep, Operand
from kforge.engine.carried import carry
from kforge.engine.coalescing import coalesce, substitute
from kforge.engine.graph.algebra import drop_columns, order_loops, split_loops
from kforge.engine.graph.importer import Graph
from kforge.engine.graph.ir import (
    FLOATS,
    SCATTERS,
    Buffer,
    Builder,
    Expr,
    Origin,
    Program,
    Store,
    runs_backwards,
    walk,
)
from kforge.engine.graph.monotone import extremes_first
from kforge.engine.graph.rewrite import simplify
from kforge.engine.graph.symbols import Poly, Var, product
from kforge.engine.graph.tensors import (
    PRODUCT,
    Context,
    Cut,
    Index,
    Reduction,
    Tensor,
    linear,
    spread,
    squeeze,
    unflatten,
    upstream,
)
from kforge.errors import NoCandidate

Sizes = tuple[Poly, ...]
LAST = 1 << 30  # a level after all others
SPLITTABLE = {"sum", "prod", "max", "min"}


@dataclass(eq=False)
class Stage:
    """A kernel to be: its row and column sizes and the tensors it writes."""

    rows: Sizes
    cols: Sizes
    axes: tuple[int, ...] = ()  # where the columns stand in a tensor of the whole space; () for last
    roots: list[tuple[Tensor, Buffer]] = field(default_factory=list)
    level: int = 0
    alone: bool = False  # it writes over what another wrote: nothing joins it
    sorts: bool = False  # tensors of its first columns alone are written, too

    def writes_rows(self, tensor: Tensor) -> bool:
        return squeeze(tensor.shape) == self.rows

    def holds(self, tensor: Tensor) -> bool:
        whole = product(tensor.shape) == product(self.rows + self.cols)
        return self.writes_rows(tensor) or whole or self.first_columns(tensor) is not None

    def first_columns(self, tensor: Tensor) -> int | None:
        """The dimension of `tensor` that holds the first columns of sorted rows and no more; None if it is no such."""
        axis = self.axes[0] if self.axes else len(tensor.shape) - 1
        if not self.sorts or len(self.cols) != 1 or not 0 <= axis < len(tensor.shape):
            return None
        lead = squeeze(tensor.shape[:axis] + tensor.shape[axis + 1 :])
        count = tensor.shape[axis]
        return axis if lead == self.rows and count.constant not in (None, 1) and count != self.cols[0] else None


@dataclass
class Partition:
    """Programs in launch order and the temporaries between them.

    steps: names of programs and library calls in order, where there are calls. views: outputs that are views of a
    library's result, by name.
    """

    programs: list[Program]
    temporaries: list[Buffer]
    outputs: list[Buffer]
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    steps: list[str | CallStep] = field(default_factory=list)
    views: dict[str, Operand] = field(default_factory=dict)

    @property
    def calls(self) -> list[CallStep]:
        return [s for s in self.steps if isinstance(s, CallStep)]


@dataclass
class Partitioner(LibraryCalls):
    builder: Builder
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    calls: list[CallStep] = field(default_factory=list)
    home: dict[Tensor, Stage | CallStep] = field(default_factory=dict)
    materialised: dict[Tensor, Buffer] = field(default_factory=dict)
    named: int = 0  # temporaries so far
    apart: bool = False  # results of rows and elements in kernels of their own

    def place(self, tensor: Tensor, buffer: Buffer) -> Stage:
        """The stage that writes `tensor`; earlier stages are made for what it needs in memory."""
        if tensor.scatter is not None:
            before = self.place(tensor.scatter.base, buffer)
            return self._place_after(before, tensor.scatter.updates, buffer)
        return self._place(tensor, buffer)

    def _place_after(self, before: Stage, tensor: Tensor, buffer: Buffer) -> Stage:
        """A stage of its own that writes over what an earlier one wrote."""
        stages, self.stages = self.stages, []
        try:
            stage = self._place(tensor, buffer)
        finally:
            made, self.stages = self.stages, stages
        self.stages += made
        stage.level = max(stage.level, before.level + 1)
        stage.alone = True
        return stage

    def _place(self, tensor: Tensor, buffer: Buffer) -> Stage:
        for _ in range(100):
            blocked: Tensor | None = None
            for rows, cols, axes in self._spaces(tensor):
                trial = Stage(rows, cols, axes, sorts=self._sorts(tensor, rows, cols, axes))
                trial.level = LAST  # it may read whatever is in memory by now
                try:
                    used = self._pull(trial, tensor)
                except Cut as cut:
                    blocked = cut.tensor if blocked in (None, tensor) else blocked
                    continue
                trial.level = max((self.home[t].level + 1 for t in used if t in self.home), default=0)
                stage = self._join(trial, tensor)
                stage.roots.append((tensor, buffer))
                return stage
            if blocked is None or blocked is tensor:
                break
            self._materialise(tensor, blocked)
        raise NoCandidate(f"the graph around {tensor.name} does not fall into row programs", operator=tensor.name)

    def _spaces(self, tensor: Tensor) -> list[tuple[Sizes, Sizes, tuple[int, ...]]]:
        """Spaces to try: those of the reductions it depends on, the nearest first; else its own shape."""
        found: dict[tuple[Sizes, Sizes, tuple[int, ...]], None] = {}
        for t in upstream(tensor, self.materialised):
            if t.reduction is not None:
                lead, over = _signature(t)
                axes = t.reduction.axes
                if Stage(lead, over, axes, sorts=self._sorts(tensor, lead, over, axes)).holds(tensor):
                    found[lead, over, t.reduction.axes] = None
        return [*found, ((), squeeze(tensor.shape), ())]

    def _sorts(self, tensor: Tensor, rows: Sizes, cols: Sizes, axes: tuple[int, ...]) -> bool:
        """Whether `tensor` depends on rows of this space being sorted."""
        reductions = [t for t in upstream(tensor, self.materialised) if t.reduction is not None]
        sorts = [t for t in reductions if t.reduction is not None and t.reduction.kind.startswith("scan_sort")]
        return any((*_signature(t), t.reduction.axes) == (rows, cols, axes) for t in sorts if t.reduction is not None)

    def _context(self, stage: Stage) -> Context:
        rows = tuple(Var(f"r{k}", s) for k, s in enumerate(stage.rows))
        cols = tuple(Var(f"c{k}", s) for k, s in enumerate(stage.cols))
        ready = {t: b for t, b in self.materialised.items() if self.home[t].level < stage.level}
        return Context(self.builder, rows, cols, ready)

    def index(self, stage: Stage, ctx: Context, tensor: Tensor) -> Index:
        """Where in `tensor` the loops stand; through the flat offset where its shape is another view of the space."""
        if stage.writes_rows(tensor):
            return spread(tensor.shape, ctx.rows)
        if (only := stage.first_columns(tensor)) is not None:
            index = list(spread(tensor.shape[:only] + tensor.shape[only + 1 :], ctx.rows))
            return (*index[:only], Poly.of(ctx.cols[0]), *index[only:])
        loops = ctx.rows + ctx.cols
        if stage.axes:
            rows, cols = list(ctx.rows), list(ctx.cols)
            order = []
            for axis, size in enumerate(tensor.shape):
                if size.constant != 1:
                    order += (cols if axis in stage.axes else rows)[:1]
                    del (cols if axis in stage.axes else rows)[:1]
            if tuple(v.size for v in order) == squeeze(tensor.shape) and not rows and not cols:
                return spread(tensor.shape, tuple(order))
        if squeeze(tensor.shape) == stage.rows + stage.cols:
            return spread(tensor.shape, loops)
        return unflatten(linear(tuple(Poly.of(v) for v in loops), tuple(v.size for v in loops)), tensor.shape)

    def value(self, stage: Stage, tensor: Tensor) -> Expr:
        ctx = self._context(stage)
        return ctx.value(tensor, self.index(stage, ctx, tensor))

    def _pull(self, stage: Stage, tensor: Tensor) -> set[Tensor]:
        """Temporaries that the value reads; raises Cut."""
        value = self.value(stage, tensor)
        read = {e.buffer for e in walk([value]) if e.op == "load"}
        return {t for t, b in self.materialised.items() if b in read and self.home[t] is not stage}

    def _join(self, trial: Stage, tensor: Tensor) -> Stage:
        for stage in self.stages:
            same = (stage.rows, stage.cols, stage.axes) == (trial.rows, trial.cols, trial.axes)
            elements = self.apart and not trial.writes_rows(tensor)
            if elements and any(self.home[t] is stage for t in self._pull(trial, tensor)):
                continue
            whole = (
                not trial.rows
                and not stage.axes
                and trial.cols == stage.rows + stage.cols
                and not _reduces(self.value(trial, tensor))
            )
            fits = (same or whole) and not stage.alone and stage.holds(tensor) and not self._mixes(stage, trial, tensor)
            if fits and self._computes(stage, tensor):
                return stage
        self.stages.append(trial)
        return trial

    def _computes(self, stage: Stage, tensor: Tensor) -> bool:
        """Whether a stage can compute `tensor`, too, from what is in memory before it."""
        try:
            below = all(self.home[t].level < stage.level for t in self._pull(stage, tensor))
            return below and self._one_way(stage, tensor)
        except Cut:
            return False

    def _one_way(self, stage: Stage, tensor: Tensor) -> bool:
        """Whether all scans of a stage and of one more tensor run in the same direction."""
        values = [self.value(stage, t) for t in (tensor, *(t for t, _ in stage.roots))]
        return len({runs_backwards(e) for e in walk(values) if e.op == "scan"}) <= 1

    def _mixes(self, stage: Stage, trial: Stage, tensor: Tensor) -> bool:
        """Whether one kernel would have windows and walks over rows, or two products, which no family has together."""
        values = [self.value(trial, tensor), *(self.value(stage, t) for t, _ in stage.roots)]
        ops = {e.op for e in walk(values) if e.window is None or e.window.kind != PRODUCT}
        if len({e.uid for e in walk(values) if e.window is not None and not e.window.reaches}) > 1:
            return True  # each product of tiles is a kernel
        return "window" in ops and not ops.isdisjoint({"reduce", "scan"})

    def _temporary(self, wish: str) -> str:
        """A name that no other temporary has, those that are only planned included."""
        self.named += 1
        return f"{wish}_{self.named - 1}"

    def _materialise(self, tensor: Tensor, blocked: Tensor) -> None:
        if blocked.vendor is not None:
            self._call(blocked)
            return
        reduction = tensor.reduction
        lead, over = _signature(blocked) if blocked.reduction is not None else ((), ())
        if reduction is not None and reduction.kind in SPLITTABLE and over:
            mine = squeeze(reduction.source.shape[-reduction.width :])
            if len(mine) > len(over) and mine[-len(over) :] == over and squeeze(tensor.shape) + mine == lead + over:
                _split(tensor, len(over))
                return
        self.set_apart(row_value(tensor, blocked, self.materialised) or blocked)

    def set_apart(self, blocked: Tensor) -> None:
        """Another kernel writes this to memory."""
        name = self._temporary(blocked.name or "partial")
        kind, dtype = (LIBRARY, blocked.dtype) if blocked.exact else ("temporary", _storage(blocked))
        buffer = Buffer(name, dtype, blocked.shape, kind)
        stage = self.place(blocked, buffer)
        self.materialised[blocked] = buffer
        self.home[blocked] = stage


def _storage(tensor: Tensor) -> str:
    """Temporaries keep floats in single precision (double where the graph has it)."""
    return "float32" if tensor.dtype in FLOATS and tensor.dtype != "float64" else tensor.dtype


def _signature(tensor: Tensor) -> tuple[Sizes, Sizes]:
    reduction = tensor.reduction
    assert reduction is not None
    shape = reduction.source.shape
    return squeeze(shape[: -reduction.width]), squeeze(shape[-reduction.width :])


def _split(tensor: Tensor, inner: int) -> None:
    """Reduce over the last `inner` dimensions first, then over the rest: associative kinds only."""
    outer = tensor.reduction
    assert outer is not None
    source = outer.source
    width = 0
    while len(squeeze(source.shape[len(source.shape) - width :])) < inner:
        width += 1
    partial = Tensor(
        source.shape[: len(source.shape) - width],
        tensor.dtype,
        lambda ctx, i, guard: ctx.reduced(partial, i),
        f"row_{outer.kind}",
        tensor.origin,
        inputs=(source,),
    )
    partial.reduction = Reduction(outer.kind, source, width)
    tensor.reduction = Reduction(outer.kind, partial, outer.width - width)
    tensor.inputs = (partial,)


def _reduces(value: Expr) -> bool:
    return any(e.op in ("reduce", "scan") for e in walk([value]))


def partition(
    graph: Graph,
    names: list[str],
    name: str,
    orders: dict[str, tuple[int, ...]] | None = None,
    updates: Sequence[tuple[Tensor, Buffer]] = (),
    apart: bool = False,
    carried: bool = False,
) -> Partition:
    """Programs for a graph. names: one per output; name: prefix of the kernels; orders: memory order of outputs;
    updates: more values to write, and where (state.py); apart: results of rows by kernels of their own (apart.py);
    carried: sums over rows by the kernel that has the rows at hand (carried.py).

    NoCandidate when it does not fit.
    """
    builder = Builder(simplify)
    work = Partitioner(builder, orders or {}, apart=apart)
    outputs: list[Buffer] = []
    roots = list(updates)
    views: dict[str, Operand] = {}
    for tensor, label in zip(graph.outputs, names, strict=True):
        if not isinstance(tensor, Tensor):
            continue  # a number, a string or None: written into the result as it is
        if tensor.buffer is not None:
            raise NoCandidate(f"the output {label} is an input unchanged", operator="output")
        buffer = Buffer(label, tensor.dtype, tensor.shape, "output")
        outputs.append(buffer)
        if (moved := work.view_of_result(tensor)) is not None:
            views[label] = moved
        else:
            roots.append((tensor, buffer))
    # rows first: a pointwise output joins the kernel that reads its inputs anyway
    for tensor, buffer in sorted(roots, key=lambda r: all(t.reduction is None for t in upstream(r[0]))):
        for part in row_results(tensor, list(work.materialised)) if apart else ():
            work.set_apart(part)
        work.place(tensor, buffer)
    programs: list[Program] = []
    steps: list[str | CallStep] = []
    ordered: list[Stage | CallStep] = sorted([*work.calls, *work.stages], key=lambda s: s.level)
    for step in ordered:
        if isinstance(step, CallStep):
            steps.append(step)
            continue
        suffix = "" if len(work.stages) == 1 else f"_{len(programs) + 1}"
        program = _program(work, step, f"{name}{suffix}")
        program = substitute(builder, program, {}, made=extremes_first(builder, program))
        if not program.scans:
            program = split_loops(program, lambda p, mapping: substitute(builder, p, dict(mapping)))
        programs.append(coalesce(builder, order_loops(drop_columns(program))))
        steps.append(programs[-1].name)
    results = {b for call in work.calls for b in call.results}
    temporaries = [b for b in work.materialised.values() if b not in results]
    parts = Partition(programs, temporaries, outputs, orders or {}, steps if work.calls else [], views)
    find_bands(parts)
    reuse_results(builder, parts)
    if carried and not carry(builder, parts):
        raise NoCandidate("no kernel here has rows at hand that another one sums over", operator="sum")
    return parts


def _program(work: Partitioner, stage: Stage, name: str) -> Program:
    ctx = work._context(stage)
    stores = []
    origins: dict[Origin, None] = {}
    for tensor, buffer in stage.roots:
        value = work.value(stage, tensor)
        position, shape = work.index(stage, ctx, tensor), tensor.shape
        if order := work.orders.get(buffer.name):
            position, shape = tuple(position[k] for k in order), tuple(shape[k] for k in order)
        offset = Poly() if value.op in SCATTERS else linear(position, shape)
        only = None if stage.writes_rows(tensor) else stage.first_columns(tensor)
        below = None if only is None else tensor.shape[only]
        stores.append(Store(buffer, offset, value, stage.writes_rows(tensor), below=below))
        for e in walk([value]):
            if e.origin is not None:
                origins[e.origin] = None
    lines = sorted(origins, key=lambda o: (o.file, o.line))
    return Program(name, ctx.rows, ctx.cols, tuple(stores), origins=tuple(lines))


__all__ = ["Partition", "partition"]
