"""The body of a window kernel (families/window.py): how lines of the operand become outputs of a thread's tile."""

from __future__ import annotations

from dataclasses import dataclass

from kforge.engine.emit.cgen import identity
from kforge.engine.emit.naming import Names
from kforge.engine.emit.sliding import Line
from kforge.engine.emit.slidingbase import SlidingBase


@dataclass
class SlidingCode(SlidingBase):
    """Emits one thread's work: it reads what its own outputs reach."""

    def emit(self) -> str:
        self._place()
        self._hoist([self.sliding.value, *([self.sliding.weight] if self.sliding.weight else [])])
        self._constants()
        zero = identity(self.kind, self.sliding.window.dtype, self.types)
        name = "sums" if self.kind == "sum" else "best"
        free = self.sliding.window.window.free  # type: ignore[union-attr]
        if self.sliding.weight is None and not free and self.rank > 1:
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
        out.add(f"const Index<WIDE> across = ({sizes[-1]} + 32 * COLS - 1) / (32 * COLS);")
        out.add("const int strip = rest % across * (32 * COLS);", "rest /= across;")
        out.add("const int col = strip + lane * COLS;")
        self._place_rows(sizes)
        out.blank()

    def _constants(self) -> None:
        inner = self.sliding.lines[-1]
        span = f"(COLS - 1) * {inner.stride} + {inner.extent}" if inner.stride > 1 else f"COLS + {inner.extent - 1}"
        self.out.add(f"constexpr int SPAN = {span};  // columns that the tile reads of a line")
        if inner.padding:
            whole = "the padding in whole vectors"
            self.out.add(f"constexpr int LEAD = ({inner.padding} + VEC - 1) / VEC * VEC;  // {whole}")
            self.out.add(f"constexpr int SHIFT = LEAD - {inner.padding};  // the first of them in the first vector")
            self.out.add("constexpr int VECTORS = (SHIFT + SPAN + VEC - 1) / VEC;")
        else:
            self.out.add("constexpr int VECTORS = (SPAN + VEC - 1) / VEC;")

    def _weights(self) -> None:
        weight = self.sliding.weight
        if weight is None:
            return
        shape = "".join(f"[{line.taps}]" for line in self.sliding.lines)
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
            pointers[uid] = self.names.fresh(f"{access.buffer.name}_line")
            self.out.add(
                f"const {self.types.element(access.buffer)}* {pointers[uid]} = "
                f"{access.buffer.name}{' + ' + self.scope.index(access.base) if access.base.terms else ''};"
            )
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
            direct = self.rank == 1
            if not direct:
                self.out.add(f"{target}[{column}] = line[{place}];")
            with self.out.block(f"for (int k = {0 if direct else 1}; k < {inner.taps}; ++k)", unroll=True):
                self._join(f"{target}[{column}]", f"line[{place} + {step}]")

    def _products(self, place: str, step: str) -> None:
        """Every output that has a tap on this line adds its products."""
        inner = self.sliding.lines[-1]

        def loop(k: int, sums: str, weights: str) -> None:
            if k == self.rank - 1:
                with self.out.block(f"for (int k = 0; k < {inner.taps}; ++k)", unroll=True):
                    column = self.loop["COLS"]
                    with self.out.block(f"for (int {column} = 0; {column} < COLS; ++{column})", unroll=True):
                        self.out.add(f"sums{sums}[{column}] += line[{place} + {step}] * weights{weights}[k];")
                return
            line, count = self.sliding.lines[k], self.counts[k]
            index, walked = self.loop[count], self.loop[self.places[k]]
            with self.out.block(f"for (int {index} = 0; {index} < {count}; ++{index})", unroll=True):
                self.out.add(f"if ({self._misses(line, walked, index)}) continue;")
                first = f"{index} * {line.stride}" if line.stride > 1 else index
                tap = f"({walked} - {first})" if line.dilation > 1 else f"{walked} - {first}"
                tap += f" / {line.dilation}" if line.dilation > 1 else ""
                loop(k + 1, f"{sums}[{index}]", f"{weights}[{tap}]")

        loop(0, "", "")
