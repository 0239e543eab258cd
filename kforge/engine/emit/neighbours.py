"""The body of a pooling kernel in which lanes give each other their columns: each element is loaded by one lane only.

A lane joins the lines of its own columns into what they give to each row of the result; then an output takes the
columns that it reaches from its own lane and its neighbours'. The lanes at the ends of a warp only give.
"""

from __future__ import annotations

from dataclasses import dataclass

from kforge.engine.emit.sliding import Line
from kforge.engine.emit.slidingbase import JoiningCode
from kforge.engine.emit.tiles import divided, in_vectors, spanned


@dataclass
class NeighbourCode(JoiningCode):
    """Emits one warp's work."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.helpers.add("neighbour")
        self.names.taken |= {"VECTOR", "LEFT", "RIGHT", "OUTPUTS", "place", "own", "reach", "results", "last"}

    def _place(self) -> None:
        out, lines = self.out, self.sliding.lines
        inner, sizes = lines[-1], [self.scope.index(line.var.size, True) for line in lines]
        times = f" * {inner.stride}" if inner.stride > 1 else ""
        out.add(f"constexpr int VEC = COLS{times};  // columns of the operand in a lane")
        left, right = inner.padding, inner.extent - inner.padding - inner.stride
        giving = " - ".join(["32", *["LEFT"] * (left > 0), *["RIGHT"] * (right > 0)])
        note = "  // lanes that only give"
        if left > 0:
            out.add(f"constexpr int LEFT = {in_vectors(left)};{note}")
        if right > 0:
            out.add(f"constexpr int RIGHT = {in_vectors(right)};{'' if left > 0 else note}")
        out.add(f"constexpr int OUTPUTS = {f'({giving})' if '-' in giving else giving} * COLS;")
        own = "threadIdx.x % 32"
        if left > 0:
            out.add(f"const int place = static_cast<int>({own}) - LEFT, lane = place & 31;")
        else:
            out.add(f"const int lane = {own};")
        place = "place" if left > 0 else "lane"
        out.add("Index<WIDE> rest = static_cast<long long>(blockIdx.x) * (BLOCK / 32) + threadIdx.x / 32;")
        out.add(f"const Index<WIDE> across = {divided(sizes[-1], 'OUTPUTS')};")
        out.add("const int strip = rest % across * OUTPUTS;", "rest /= across;")
        out.add("const int col = strip + lane * COLS;")
        self._place_rows(sizes)
        width = self.scope.index(inner.reach.end)
        out.add(f"const int last = min(strip + OUTPUTS, {self.scope.index(inner.var.size)});")
        out.add(f"const int first = strip{times} + {place} * VEC;", "bool own[VEC];  // columns that there are")
        column = self.loop["COLS"]
        low = f"first + {column} >= 0 && " if left > 0 else ""
        with out.block(f"for (int {column} = 0; {column} < VEC; ++{column})", unroll=True):
            out.add(f"own[{column}] = {low}first + {column} < {width};")
        out.blank()

    def _line(self, target: str, inside: str) -> None:
        """This lane's part of a line."""
        out, column = self.out, self.loop["VEC"]
        within = f"{inside} && " if inside else ""
        for uid, access in self.lines_read.items():
            name = self.names.fresh(f"{access.buffer.name}_in")
            element = self.types.element(access.buffer)
            pointer = self.planes.address(access.buffer, access.base)
            if " " in pointer:
                line = self.names.fresh(f"{access.buffer.name}_line")
                out.add(f"const {element}* {line} = {pointer};")
                pointer = line
            out.add(f"Pack<{element}, VEC> {name} = {{}};")
            with out.block("if constexpr (VECTOR)"):
                out.add(f"if ({within}own[0]) {name} = load<VEC>({pointer} + first);")
            loop = f"for (int {column} = 0; {column} < VEC; ++{column})"
            with out.block("else"), out.block(loop, unroll=True):
                out.add(f"if ({within}own[{column}]) {name}.at[{column}] = {pointer}[first + {column}];")
            self.elements[uid] = f"{name}.at[{column}]"
        with out.block(f"for (int {column} = 0; {column} < VEC; ++{column})", unroll=True):
            self._value(f"{target}[{column}]", f"(first + {column})", f"{within}own[VECTOR ? 0 : {column}]")

    def _store_line(self, results: str) -> None:
        """Columns from the neighbours, then as for every tile."""
        out, inner, column = self.out, self.sliding.lines[-1], self.loop["VEC"]
        times = f" * {inner.stride}" if inner.stride > 1 else ""
        span = spanned("COLS", inner.stride, inner.extent)
        out.add(f"{self.real} reach[{span}], results[COLS];")
        with out.block(f"for (int k = 0; k < {span}; ++k)", unroll=True):
            shift = f" - {inner.padding}" if inner.padding else ""
            out.add(f"reach[k] = neighbour({results}, k{shift});")
        with out.block(f"for (int {column} = 0; {column} < COLS; ++{column})", unroll=True):
            self._join_taps(f"results[{column}]", lambda k: f"reach[{column}{times}{f' + {k}' if k else ''}]")
        super()._store_line("results")

    @property
    def end(self) -> str:
        return "last"


def outputs_of(line: Line) -> str:
    """How many outputs of a line a warp computes, in the launch language."""
    vec = f"(COLS * {line.stride})" if line.stride > 1 else "COLS"
    right = line.extent - line.padding - line.stride
    ends = f"ceil_div({line.padding}, {vec})" if line.padding else "0"
    ends += f" - ceil_div({right}, {vec})" if right > 0 else ""
    return f"((32 - {ends}) * COLS)"
