"""The body of a pooling kernel that goes down columns first: right for large windows and for rows of any alignment.

A block reads whole stretches of a line, each element once, and joins them into what each column gives to its rows of
the result; then, through shared memory, each output joins the columns that it reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

from kforge.engine.emit.sliding import Line
from kforge.engine.emit.slidingbase import JoiningCode
from kforge.engine.emit.tiles import divided, in_whole_vectors


@dataclass
class ColumnsCode(JoiningCode):
    """Emits one block's work."""

    shares_blocks = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names.taken |= {"columns", "outputs", "OUTPUTS", "own", "total"}

    def _place(self) -> None:
        out, lines = self.out, self.sliding.lines
        inner, sizes = lines[-1], [self.scope.index(line.var.size, True) for line in lines]
        if inner.padding:
            out.add(f"constexpr int LEAD = {in_whole_vectors(inner.padding)};  // columns before the windows")
            out.add(f"constexpr int SHIFT = LEAD - {inner.padding};")
        columns = f"(BLOCK * VEC{' - SHIFT' if inner.padding else ''} - {inner.extent})"
        reached = f"{columns} / {inner.stride} + 1" if inner.stride > 1 else f"{columns[1:-1]} + 1"
        out.add(f"constexpr int OUTPUTS = ({reached}) / VEC * VEC;")
        out.add("Index<WIDE> rest = blockIdx.x;")
        out.add(f"const Index<WIDE> across = {divided(sizes[-1], 'OUTPUTS')};")
        out.add("const int strip = rest % across * OUTPUTS;", "rest /= across;")
        self._place_rows(sizes)
        start = f"strip * {inner.stride}" if inner.stride > 1 else "strip"
        lead = " - LEAD" if inner.padding else ""
        out.add(f"const int first = {start}{lead} + threadIdx.x * VEC;  // this thread's columns")
        low = "first >= 0 && " if inner.padding else ""
        out.add(f"const bool own = {low}first < {self.scope.index(inner.reach.end)};")
        out.blank()

    def _line(self, target: str, inside: str) -> None:
        """This thread's part of a line."""
        within = "within" if inside else "own"
        if inside:
            self.out.add(f"const bool within = {inside} && own;")
        for uid, access in self.lines_read.items():
            name = self.names.fresh(f"{access.buffer.name}_in")
            element = self.types.element(access.buffer)
            pointer = f"{self.planes.address(access.buffer, access.base)} + first"
            self.out.add(
                f"const Pack<{element}, VEC> {name} = {within} ? load<VEC>({pointer}) : Pack<{element}, VEC>();"
            )
            self.elements[uid] = f"{name}.at[{self.loop['VEC']}]"
        column = self.loop["VEC"]
        with self.out.block(f"for (int {column} = 0; {column} < VEC; ++{column})", unroll=True):
            self._value(f"{target}[{column}]", f"(first + {column})", within)

    def exchange(self) -> None:
        self.out.add(f"__shared__ Pack<{self.real}, VEC> columns[BLOCK];")

    def _store_line(self, results: str) -> None:
        out, inner, stores = self.out, self.sliding.lines[-1], self.program.stores
        width = self.scope.index(inner.var.size)
        if self.rank > 1:  # the line before has been read
            out.add("__syncthreads();")
        column = self.loop["VEC"]
        with out.block(f"for (int {column} = 0; {column} < VEC; ++{column})", unroll=True):
            out.add(f"columns[threadIdx.x].at[{column}] = {results}[{column}];")
        out.add("__syncthreads();")
        places = {s: f"{self._line_of(s)}[out_col]" for s in stores}
        scope = self._hoist_line()
        head = f"for (int j = threadIdx.x; j < OUTPUTS && strip + j < {width}; j += BLOCK)"
        with out.block(head):
            place = " + SHIFT" * bool(inner.padding) + (f" + j * {inner.stride}" if inner.stride > 1 else " + j")
            out.add(f"const {self.real}* reached = columns[0].at{place};")
            self._join_taps("total", lambda k: f"reached[{k or 0}]", f"{self.real} ")
            out.add("const int out_col = strip + j;")
            self._store_each(scope, "total", places)


def outputs_of(line: Line) -> str:
    """How many outputs of a line a block computes, in the launch language."""
    shift = f"(ceil_div({line.padding}, VEC) * VEC - {line.padding})" if line.padding else "0"
    return f"(((BLOCK * VEC - {shift} - {line.extent}) // {line.stride} + 1) // VEC * VEC)"
