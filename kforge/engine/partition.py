"""Cuts an imported graph into the fewest kernels: row programs and pointwise programs, in launch order.

Every output is pulled in the space of a reduction it depends on, or in its own shape if it depends on none. A value
that a kernel cannot compute in place (`Cut`) becomes a temporary of an earlier kernel. Kernels over one space that do
not depend on each other are one kernel. What remains is coalesced: adjacent loops that every index walks as one
become one loop.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kforge.engine.importer import Graph
from kforge.engine.ir import FLOATS, Buffer, Builder, Expr, Origin, Program, Store, index_values, walk
from kforge.engine.rewrite import simplify
from kforge.engine.symbols import Atom, Poly, Quotient, Remainder, Size, Value, Var, product
from kforge.engine.tensors import Context, Cut, Index, Reduction, Tensor, linear, spread, squeeze, unflatten
from kforge.errors import NoCandidate

Sizes = tuple[Poly, ...]
SPLITTABLE = {"sum", "prod", "max", "min"}


@dataclass(eq=False)
class Stage:
    """A kernel to be: its row and column sizes and the tensors it writes."""

    rows: Sizes
    cols: Sizes
    axes: tuple[int, ...] = ()  # where the columns stand in a tensor of the whole space; () for last
    roots: list[tuple[Tensor, Buffer]] = field(default_factory=list)
    level: int = 0

    def writes_rows(self, tensor: Tensor) -> bool:
        return squeeze(tensor.shape) == self.rows

    def holds(self, tensor: Tensor) -> bool:
        return self.writes_rows(tensor) or product(tensor.shape) == product(self.rows + self.cols)


@dataclass
class Partition:
    """Programs in launch order and the temporaries between them."""

    programs: list[Program]
    temporaries: list[Buffer]
    outputs: list[Buffer]
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass
class Partitioner:
    builder: Builder
    orders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    home: dict[Tensor, Stage] = field(default_factory=dict)
    materialised: dict[Tensor, Buffer] = field(default_factory=dict)

    def place(self, tensor: Tensor, buffer: Buffer) -> Stage:
        """The stage that writes `tensor`; earlier stages are made for what it needs in memory."""
        for _ in range(100):
            blocked: Tensor | None = None
            for rows, cols, axes in self._spaces(tensor):
                trial = Stage(rows, cols, axes)
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
        for t in _upstream(tensor, self.materialised):
            if t.reduction is not None:
                lead, over = _signature(t)
                if Stage(lead, over).holds(tensor):
                    found[lead, over, t.reduction.axes] = None
        return [*found, ((), squeeze(tensor.shape), ())]

    def _context(self, stage: Stage) -> Context:
        rows = tuple(Var(f"r{k}", s) for k, s in enumerate(stage.rows))
        cols = tuple(Var(f"c{k}", s) for k, s in enumerate(stage.cols))
        ready = {t: b for t, b in self.materialised.items() if self.home[t] is not stage}
        return Context(self.builder, rows, cols, ready)

    def index(self, stage: Stage, ctx: Context, tensor: Tensor) -> Index:
        """Where in `tensor` the loops stand; through the flat offset where its shape is another view of the space."""
        if stage.writes_rows(tensor):
            return spread(tensor.shape, ctx.rows)
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
            whole = (
                not trial.rows
                and not stage.axes
                and trial.cols == stage.rows + stage.cols
                and not _reduces(self.value(trial, tensor))
            )
            fits = (same or whole) and stage.holds(tensor)
            if fits and all(self.home[t].level < stage.level for t in self._pull(stage, tensor)):
                return stage
        self.stages.append(trial)
        return trial

    def _materialise(self, tensor: Tensor, blocked: Tensor) -> None:
        reduction = tensor.reduction
        lead, over = _signature(blocked)
        if reduction is not None and reduction.kind in SPLITTABLE and over:
            mine = squeeze(reduction.source.shape[-reduction.width :])
            if len(mine) > len(over) and mine[-len(over) :] == over and squeeze(tensor.shape) + mine == lead + over:
                _split(tensor, len(over))
                return
        name = f"{blocked.name or 'partial'}_{len(self.materialised)}"
        buffer = Buffer(name, _storage(blocked), blocked.shape, "temporary")
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


def _upstream(tensor: Tensor, stop: dict[Tensor, Buffer]) -> list[Tensor]:
    """Tensors that `tensor` depends on, itself included, nearest first; not beyond those in memory."""
    seen: dict[Tensor, None] = {}
    queue = [tensor]
    while queue:
        t = queue.pop(0)
        if t in seen or t in stop:
            continue
        seen[t] = None
        queue.extend(t.inputs)
    return list(seen)


def _reduces(value: Expr) -> bool:
    return any(e.op == "reduce" for e in walk([value]))


def partition(graph: Graph, names: list[str], name: str, orders: dict[str, tuple[int, ...]] | None = None) -> Partition:
    """Programs for a graph. names: one per output; name: prefix of the kernels; orders: memory order of outputs.

    NoCandidate when it does not fit.
    """
    builder = Builder(simplify)
    work = Partitioner(builder, orders or {})
    outputs, roots = [], []
    for tensor, label in zip(graph.outputs, names, strict=True):
        if not isinstance(tensor, Tensor):
            continue  # a number, a string or None: written into the result as it is
        if tensor.buffer is not None:
            raise NoCandidate(f"the output {label} is an input unchanged", operator="output")
        buffer = Buffer(label, tensor.dtype, tensor.shape, "output")
        outputs.append(buffer)
        roots.append((tensor, buffer))
    # rows first: a pointwise output joins the kernel that reads its inputs anyway
    for tensor, buffer in sorted(roots, key=lambda r: all(t.reduction is None for t in _upstream(r[0], {}))):
        work.place(tensor, buffer)
    programs = []
    ordered = sorted(work.stages, key=lambda s: s.level)
    for k, stage in enumerate(ordered):
        suffix = "" if len(ordered) == 1 else f"_{k + 1}"
        programs.append(coalesce(builder, _program(work, stage, f"{name}{suffix}")))
    return Partition(programs, list(work.materialised.values()), outputs, orders or {})


def _program(work: Partitioner, stage: Stage, name: str) -> Program:
    ctx = work._context(stage)
    stores = []
    origins: dict[Origin, None] = {}
    for tensor, buffer in stage.roots:
        value = work.value(stage, tensor)
        position, shape = work.index(stage, ctx, tensor), tensor.shape
        if order := work.orders.get(buffer.name):
            position, shape = tuple(position[k] for k in order), tuple(shape[k] for k in order)
        offset = linear(position, shape)
        stores.append(Store(buffer, offset, value, stage.writes_rows(tensor)))
        for e in walk([value]):
            if e.origin is not None:
                origins[e.origin] = None
    lines = sorted(origins, key=lambda o: (o.file, o.line))
    return Program(name, ctx.rows, ctx.cols, tuple(stores), origins=tuple(lines))


# coalescing


def coalesce(builder: Builder, program: Program) -> Program:
    """Merge adjacent loops (both rows, or both columns) that every index walks as one."""
    merged = True
    while merged:
        merged = False
        for group in ("rows", "cols"):
            variables: tuple[Var, ...] = getattr(program, group)
            for k in range(len(variables) - 1):
                outer, inner = variables[k], variables[k + 1]
                if all(_walks_as_one(p, outer, inner) for p in _indices(program)):
                    one = Var(inner.name, outer.size * inner.size)
                    mapping = {outer: Poly(), inner: Poly.of(one)}
                    loops = (*variables[:k], one, *variables[k + 2 :])
                    with_loops = replace(program, rows=loops) if group == "rows" else replace(program, cols=loops)
                    program = _substitute(builder, with_loops, mapping)
                    merged = True
                    break
    return program


def _indices(program: Program) -> list[Poly]:
    found = [s.index for s in program.stores]
    for e in walk(s.value for s in program.stores):
        if e.index is not None:
            found.append(e.index)
    return found


def _walks_as_one(index: Poly, outer: Var, inner: Var) -> bool:
    for atom in index.atoms():
        if isinstance(atom, (Quotient, Remainder)) and {outer, inner} & (atom.top.atoms() | atom.bottom.atoms()):
            return False
    return index.coefficient(outer) == index.coefficient(inner) * inner.size


def _substitute(builder: Builder, program: Program, mapping: dict[Var, Poly]) -> Program:
    memo: dict[int, Expr] = {}

    def poly(p: Poly) -> Poly:
        inner: dict[Atom, Poly] = dict(mapping.items())
        for atom in p.atoms():
            if isinstance(atom, Value):
                inner[atom] = Poly.of(Value(memo[atom.expr.uid], atom.bound))  # type: ignore[attr-defined]
        return p.substitute(inner)

    for e in walk(s.value for s in program.stores):
        args = tuple(memo[a.uid] for a in e.args)
        builder.origin = e.origin
        if e.op == "load":
            assert e.buffer is not None and e.index is not None
            memo[e.uid] = builder.load(e.buffer, poly(e.index), args[0] if args else None)
        elif e.op == "index":
            assert e.index is not None
            memo[e.uid] = builder.index(poly(e.index))
        elif e.op == "reduce":
            memo[e.uid] = builder.reduce(e.kind, args[0], e.dtype)
        elif e.op == "const":
            memo[e.uid] = e
        else:
            memo[e.uid] = builder.op(e.op, *args, dtype=e.dtype)
    builder.origin = None
    stores = tuple(replace(s, index=poly(s.index), value=memo[s.value.uid]) for s in program.stores)
    return replace(program, stores=stores)


def sizes_of(program: Program) -> list[Size]:
    """Every size that the program's loops and indices mention, in order of name."""
    found: set[Size] = set()
    for p in [*_indices(program), *(v.size for v in program.rows + program.cols)]:
        found |= {a for a in p.atoms() if isinstance(a, Size)}
    return sorted(found, key=lambda s: s.name)


__all__ = ["Partition", "coalesce", "index_values", "partition", "sizes_of"]
