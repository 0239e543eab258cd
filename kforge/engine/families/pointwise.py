"""Pointwise kernels: one vector per thread over the flattened output, everything fused.

One 16-byte vector per thread in a one-shot grid reaches 0.99 of the copy rate on an H200; several vectors per thread
0.97, a persistent grid-stride loop 0.92, and streaming cache hints cost more.
"""

from __future__ import annotations

from collections.abc import Iterator

from kforge.engine.emit.access import Access, Memory
from kforge.engine.emit.cgen import Sizes, Types, total
from kforge.engine.emit.kernelcode import KernelCode, name_loops, parameters, render, template_types
from kforge.engine.emit.naming import named_steps, wished_name
from kforge.engine.emit.passes import Pass, below, plan
from kforge.engine.emit.rowbase import Style
from kforge.engine.emit.rowcode import RowCode
from kforge.engine.emit.windowcode import twins_of, window_helpers
from kforge.engine.families import Target, register
from kforge.engine.graph.ir import SCATTERS, Expr, Program, walk
from kforge.engine.graph.symbols import Poly, Tap, Var
from kforge.engine.graph.tensors import linear


class PointwiseCode(RowCode):
    """The statements of one thread: its vector's loads, its elements, its stores."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at = "i"
        self.names.taken |= {self._col_var(v) for v in self.program.cols}
        loops = self.program.cols
        self.flat = linear(tuple(Poly.of(v) for v in loops), tuple(v.size for v in loops))
        for e in walk(s.value for s in self.program.stores):
            self.helpers |= window_helpers(e)
        self.scope.twins = twins_of(walk(s.value for s in self.program.stores))

    def _col_var(self, v: Var) -> str:
        loops = self.program.cols
        if len(loops) == 1:
            return "i"
        place = len(loops) - loops.index(v)
        return ("col", "row", "plane")[place - 1] if place <= 3 else f"i_{loops.index(v)}"

    def walk(self, p: Pass) -> None:
        self.split_columns()
        self.hoist_outer(p.roots)
        self.element(p, {})

    def hoist_outer(self, roots: list[Expr]) -> None:
        """What is the same along the innermost loop is computed once for a vector."""
        left, seen, found = [(e, False) for e in reversed(roots)], set[int](), list[Expr]()
        while left:
            e, within = left.pop()  # within: a window, whose taps it may depend on
            if e.uid in seen or e.uid in self.scope.known or e.op in ("const", "index"):
                continue
            seen.add(e.uid)
            moving = e.variables()
            if self.inner in moving or (within and any(isinstance(v, Tap) for v in moving)):
                inside = within or e.op == "window"
                left += [(a, inside) for a in reversed(e.args if e.op == "window" else below(e))]
            else:
                found.append(e)
        for step in [*named_steps(found, set(self.scope.known)), *found]:
            if step.uid not in self.scope.known:
                self.lines.add(self.scope.declare(step, wished_name(step, self.final)))

    def split_columns(self) -> None:
        loops = self.program.cols
        if len(loops) > 1:
            self.lines.add("const Index<WIDE> flat = i;")
            self._split_index("flat", [self._col_var(v) for v in loops], loops, "long long")

    @property
    def first_thread(self) -> str:
        return f"{self.at} == 0"

    def address(self, access: Access) -> str:
        return f"{access.buffer.name} + i" if access.index == self.flat else super().address(access)


def reads_apart(program: Program) -> bool:
    """Whether a program reads anything that does not lie along its innermost loop."""
    return any(a.kind == "scalar" for a in Memory.of(program, program.cols[-1]).loads.values())


@register("pointwise")
def pointwise(program: Program, types: Types, name: str, target: Target) -> Iterator[KernelCode]:
    """Applies to programs without rows and reductions."""
    if program.rows or program.reductions or program.scans or not program.cols:
        return
    yield kernel_of(PointwiseCode, program, types, f"{name}_kernel")  # a bare name may be CUDA's: tanh, float4


def kernel_of(code_type: type[PointwiseCode], program: Program, types: Types, name: str) -> KernelCode:
    """A kernel of one vector per thread, its body by this class."""
    sizes = Sizes()
    sizes.add("n", total(program.cols))
    name_loops(sizes, program)
    labels = {f"cols_{len(program.cols) - 2}": "rows", f"cols_{len(program.cols) - 3}": "planes"}
    sizes.params = {labels.get(name, name): size for name, size in sizes.params.items()}
    several = len(program.cols) > 1
    windows = any(e.op == "window" for e in walk(s.value for s in program.stores))
    code = code_type(program, types, sizes, plan(program, keep=True), Style("", "", False, "", False))
    body = code.emit()
    helpers = code.helpers | ({"index"} if several else set())
    size_types = {s: "long long" if s == "n" else "int" for s in sizes.params}
    element_types = template_types(program, types)
    constants: dict[str, int | str] = {"BLOCK": 256, "VEC": 8}
    tune: dict[str, tuple[int | str, ...]] = {"BLOCK": (256, 128, 512), "VEC": (8, 4, 2, 1)}
    if any(s.value.op in SCATTERS for s in program.stores):  # neighbouring threads write what lies side by side
        constants["VEC"], tune["VEC"] = 1, (1, 2, 4, 8)
    inner = next((s for s, p in sizes.params.items() if p == program.cols[-1].size), None)
    edge = inner or str(program.cols[-1].size.constant)
    require = {"VEC": code.memory.condition(types, sizes, edge)}
    template = [*element_types, "BLOCK", "VEC"]
    if several:
        constants["WIDE"] = 0
        tune["WIDE"] = (0, 1)
        require["WIDE"] = "WIDE == 1 or n + BLOCK * VEC <= 4294967295"
        template.append("WIDE")
    text = render(
        "cuda/pointwise.cu.j2",
        name=name,
        types=element_types,
        wide=several,
        parameters=parameters(program, types, size_types),
        body=body,
    )
    return KernelCode(
        name=name,
        program=program,
        schedule="taps" if windows else "scattered" if several and reads_apart(program) else "pointwise",
        idea="each output walks over its window's taps, everything else fused"
        if windows
        else "everything fused into one pointwise kernel, one vector per thread: each input is read once",
        text=text,
        template=tuple(template),
        helpers=frozenset(helpers),
        sizes=dict(sizes.params),
        grid="ceil_div(n, BLOCK * VEC)",
        block="BLOCK",
        constants=constants,
        tune=tune,
        require=require,
        size_types=size_types,
    )
