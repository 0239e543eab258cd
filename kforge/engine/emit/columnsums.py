"""The body of a pooling kernel that goes down columns first: right for large windows and for rows of any alignment.

A block reads whole stretches of a line, each element once, and joins them into what each column gives to its rows of
the result; then, through shared memory, each output joins the columns that it reaches.
"""

from __future__ import annotations

from dataclasses import dataclass

from kforge.engine.emit.sliding import Line
from kforge.engine.emit.slidingbase import JoiningCode


@dataclass
class ColumnsCode(JoiningCode):
    """Emits one block's work."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names.taken |= {"columns", "outputs", "OUTPUTS", "own", "total"}

    def _place(self) -> None:
        out, lines = self.out, self.sliding.lines
        inner, sizes = lines[-1], [self.scope.index(line.var.size, True) for line in lines]
        if inner.padding:
            out.add(f"constexpr int LEAD = ({inner.padding} + VEC - 1) / VEC * VEC;  // columns before the windows")
        shift = f"LEAD - {inner.padding}" if inner.padding else "0"
        out.add(f"constexpr int SHIFT = {shift};")
        step = f" / {inner.stride}" if inner.stride > 1 else ""
        out.add(f"constexpr int OUTPUTS = ((BLOCK * VEC - SHIFT - {inner.extent}){step} + 1) / VEC * VEC;")
        out.add("Index<WIDE> rest = blockIdx.x;")
        out.add(f"const Index<WIDE> across = ({sizes[-1]} + OUTPUTS - 1) / OUTPUTS;")
        out.add("const int strip = rest % across * OUTPUTS;", "rest /= across;")
        for k in range(self.rank - 2, -1, -1):
            label, count = {"row": "down", "slice": "deep"}[self.places[k]], self.counts[k]
            out.add(f"const Index<WIDE> {label} = ({sizes[k]} + {count} - 1) / {count};")
            out.add(f"const Offset<WIDE> {self.places[k]} = rest % {label} * {count};", f"rest /= {label};")
        self._place_outer()
        start = f"strip * {inner.stride}" if inner.stride > 1 else "strip"
        lead = " - LEAD" if inner.padding else ""
        out.add(f"const int first = {start}{lead} + threadIdx.x * VEC;  // this thread's columns")
        low = "first >= 0 && " if inner.padding else ""
        out.add(f"const bool own = {low}first < {self.scope.index(inner.reach.end)};")
        out.blank()

    def _line(self, target: str, inside: str) -> None:
        """This thread's part of a line."""
        within = f"{inside} && own" if inside else "own"
        self.out.add(f"const bool within = {within};")
        for uid, access in self.lines_read.items():
            name = self.names.fresh(f"{access.buffer.name}_in")
            element = self.types.element(access.buffer)
            base = f" + {self.scope.index(access.base)}" if access.base.terms else ""
            pointer = f"{access.buffer.name}{base} + first"
            self.out.add(f"const Pack<{element}, VEC> {name} =")
            self.out.add(f"    within ? load<VEC>({pointer}) : Pack<{element}, VEC>();")
            self.elements[uid] = f"{name}.at[{self.loop['VEC']}]"
        column = self.loop["VEC"]
        with self.out.block(f"for (int {column} = 0; {column} < VEC; ++{column})", unroll=True):
            self._value(f"{target}[{column}]", f"(first + {column})", "within")

    def _outputs(self, name: str) -> None:
        self._hoist([s.value for s in self.program.stores])
        self.out.add(f"__shared__ Pack<{self.real}, VEC> columns[BLOCK];")
        super()._outputs(name)

    def exchange(self) -> None:
        """Shared memory is declared already."""

    def _store_line(self, results: str) -> None:
        out, inner, stores = self.out, self.sliding.lines[-1], self.program.stores
        width = self.scope.index(inner.var.size)
        out.add("__syncthreads();")
        with out.block("for (int c = 0; c < VEC; ++c)".replace("c", self.loop["VEC"]), unroll=True):
            column = self.loop["VEC"]
            out.add(f"columns[threadIdx.x].at[{column}] = {results}[{column}];")
        out.add("__syncthreads();")
        places = {s: f"{self._line_of(s)}[out_col]" for s in stores}
        head = f"for (int j = threadIdx.x; j < OUTPUTS && strip + j < {width}; j += BLOCK)"
        with out.block(head):
            place = f"SHIFT + j * {inner.stride}" if inner.stride > 1 else "SHIFT + j"
            out.add(f"const {self.real}* reached = columns[0].at + {place};", f"{self.real} total = reached[0];")
            with out.block(f"for (int k = 1; k < {inner.taps}; ++k)", unroll=True):
                self._join("total", f"reached[k * {inner.dilation}]" if inner.dilation > 1 else "reached[k]")
            out.add("const int out_col = strip + j;")
            self._store_each("total", places)


def outputs_of(line: Line) -> str:
    """How many outputs of a line a block computes, in the launch language."""
    shift = f"(ceil_div({line.padding}, VEC) * VEC - {line.padding})" if line.padding else "0"
    return f"(((BLOCK * VEC - {shift} - {line.extent}) // {line.stride} + 1) // VEC * VEC)"
