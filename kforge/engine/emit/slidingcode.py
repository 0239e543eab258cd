"""The body of a window kernel (families/window.py): how lines of the operand become outputs of a thread's tile."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.engine.emit.cgen import identity
from kforge.engine.emit.naming import Names
from kforge.engine.emit.sliding import Line
from kforge.engine.emit.slidingbase import SlidingBase
from kforge.engine.emit.tiles import divided, in_whole_vectors, spanned


@dataclass
class SlidingCode(SlidingBase):
    """Emits one thread's work: it reads what its own outputs reach."""

    def emit(self) -> str:
        self._place()
        self._hoist([self.sliding.value, *([self.sliding.weight] if self.sliding.weight else [])])
        self._constants()
        zero = identity(self.kind, self.sliding.window.dtype, self.types)
        name = "sums" if self.kind == "sum" else "best"
        free = self.sliding.free
        if self.sliding.weight is None and not free:
            self._declare(name, self.counts)
        else:
            self._fill(name, self.counts, zero)
        if free:
            with self.out.block(f"for (int in_channel = 0; in_channel < {free[0].size.constant}; ++in_channel)"):
                self._weights()
                self._walk(0, name)
        else:
            self._weights()
            self._walk(0, name)
        self.out.blank()
        self._outputs(name)
        return str(self.out)

    def _fill(self, name: str, counts: tuple[str, ...], value: str) -> None:
        """An array of one value for each output."""
        sizes = "".join(f"[{c}]" for c in counts)
        if value in ("0.0f", "0.0", "0"):
            self.out.add(f"{self.real} {name}{sizes} = {{}};")
            return
        self.out.add(f"{self.real} {name}{sizes};")
        self._each(counts, lambda at: self.out.add(f"{name}{at} = {value};"))

    def _place(self) -> None:
        """Where this warp's strip and this thread's tile begin."""
        out, sizes = self.out, [self.scope.index(line.var.size, True) for line in self.sliding.lines]
        out.add("const int lane = threadIdx.x % 32;")
        out.add("Index<WIDE> rest = static_cast<long long>(blockIdx.x) * (BLOCK / 32) + threadIdx.x / 32;")
        out.add(f"const Index<WIDE> across = {divided(sizes[-1], '32 * COLS')};")
        out.add("const int strip = rest % across * (32 * COLS);", "rest /= across;")
        out.add("const int col = strip + lane * COLS;")
        self._place_rows(sizes)
        out.blank()

    def _constants(self) -> None:
        inner = self.sliding.lines[-1]
        span = spanned("COLS", inner.stride, inner.extent)
        self.out.add(f"constexpr int SPAN = {span};  // columns that the tile reads of a line")
        if inner.padding:
            self.out.add(f"constexpr int LEAD = {in_whole_vectors(inner.padding)};  // the padding in whole vectors")
            self.out.add(f"constexpr int SHIFT = LEAD - {inner.padding};  // the first of them in the first vector")
            self.out.add("constexpr int VECTORS = (SHIFT + SPAN + VEC - 1) / VEC;")
        else:
            self.out.add("constexpr int VECTORS = (SPAN + VEC - 1) / VEC;")

    def _weights(self) -> None:
        weight = self.sliding.weight
        if weight is None:
            return
        shape = "".join(f"[{line.taps}]" for line in self.sliding.lines if line.taps > 1)
        self.out.add(f"{self.real} weights{shape};")
        lines = list(zip(self.sliding.lines, self.places, strict=True))

        def loop(left: list[tuple[Line, str]], at: str) -> None:
            if not left:
                inner = self.scope.child()
                inner.names = Names(self.names.taken)
                self.out.add(*inner.declare_steps([weight], but=weight))
                self.out.add(f"weights{at} = {inner.text(weight)};")
                return
            line, place = left[0]
            if line.taps == 1:
                loop(left[1:], at)
                return
            tap = f"{place}_tap"
            with self.out.block(f"for (int {tap} = 0; {tap} < {line.taps}; ++{tap})", unroll=True):
                loop(left[1:], f"{at}[{tap}]")

        loop(lines, "")

    def _line(self, target: str, inside: str) -> None:
        """One line: its vectors, then what each column of the tile takes from it."""
        inner = self.sliding.lines[-1]
        dtype = self.sliding.value.dtype
        pointers: dict[int, str] = {}
        for uid, access in self.lines_read.items():
            pointers[uid] = self.planes.address(access.buffer, access.base)
            if " " in pointers[uid]:
                name = self.names.fresh(f"{access.buffer.name}_line")
                self.out.add(f"const {self.types.element(access.buffer)}* {name} = {pointers[uid]};")
                pointers[uid] = name
        self.out.add(f"{self.types.scalar(dtype)} line[VECTORS * VEC];")
        with self.out.block("for (int v = 0; v < VECTORS; ++v)", unroll=True):
            start = f"col * {inner.stride}" if inner.stride > 1 else "col"
            start += " - LEAD" if inner.padding else ""
            self.out.add(f"const int first = {start} + v * VEC;")
            end = self.scope.index(inner.reach.end)
            tests = [inside] if inside else []
            tests += ["first >= 0"] if inner.padding else []
            self.out.add(f"const bool within = {' && '.join([*tests, f'first < {end}'])};")
            for uid, access in self.lines_read.items():
                name = self.names.fresh(f"{access.buffer.name}_in")
                element = self.types.element(access.buffer)
                self.out.add(
                    f"const Pack<{element}, VEC> {name} = "
                    f"within ? load<VEC>({pointers[uid]} + first) : Pack<{element}, VEC>();"
                )
                self.elements[uid] = f"{name}.at[j]"
            with self.out.block("for (int j = 0; j < VEC; ++j)", unroll=True):
                self._value("line[v * VEC + j]", "(first + j)", "within")
        column = self.loop["COLS"]
        place = f"SHIFT + {column}" if inner.padding else column
        place += f" * {inner.stride}" if inner.stride > 1 else ""
        step = f"k * {inner.dilation}" if inner.dilation > 1 else "k"
        if self.sliding.weight is not None:
            self._products(place, step)
            return
        with self.out.block(f"for (int {column} = 0; {column} < COLS; ++{column})", unroll=True):
            if self.rank == 1 and self.free:
                with self.out.block(f"for (int k = 0; k < {inner.taps}; ++k)", unroll=True):
                    self._join(f"{target}[{column}]", f"line[{place} + {step}]")
            else:
                self._join_taps(f"{target}[{column}]", lambda k: f"line[{place}{f' + {k}' if k else ''}]")

    def _products(self, place: str, step: str) -> None:
        """Every output that has a tap on this line adds its products."""
        inner = self.sliding.lines[-1]

        def loop(k: int, sums: str, weights: str) -> None:
            column = self.loop["COLS"]
            if k == self.rank - 1:
                columns = f"for (int {column} = 0; {column} < COLS; ++{column})"
                if inner.taps == 1:
                    with self.out.block(columns, unroll=True):
                        self.out.add(f"sums{sums}[{column}] += line[{place}] * weights{weights};")
                    return
                with (
                    self.out.block(f"for (int k = 0; k < {inner.taps}; ++k)", unroll=True),
                    self.out.block(columns, unroll=True),
                ):
                    self.out.add(f"sums{sums}[{column}] += line[{place} + {step}] * weights{weights}[k];")
                return
            line, count = self.sliding.lines[k], self.counts[k]
            index, walked = self.loop[count], self.loop[self.places[k]]
            if line.extent == 1:
                loop(k + 1, f"{sums}[{index}]", weights)
                return
            with self.out.block(f"for (int {index} = 0; {index} < {count}; ++{index})", unroll=True):
                self.out.add(f"if ({self._misses(line, walked, index)}) continue;")
                first = f"{index} * {line.stride}" if line.stride > 1 else index
                tap = f"({walked} - {first})" if line.dilation > 1 else f"{walked} - {first}"
                tap += f" / {line.dilation}" if line.dilation > 1 else ""
                loop(k + 1, f"{sums}[{index}]", f"{weights}[{tap}]")

        loop(0, "", "")
