"""Row code that computes pairs of reductions in one pass: online over tiles, or on a chunk held in registers."""

from __future__ import annotations

from kforge.engine.emit.cgen import Scope
from kforge.engine.emit.merging import Merged
from kforge.engine.emit.naming import Names
from kforge.engine.emit.passes import Pass
from kforge.engine.emit.rowcode import RowCode
from kforge.engine.graph.ir import REAL, Expr, walk

NEUTRAL = {"max_sumexp": "{-INFINITY, 0}", "moments": "{0, 0, 0}"}
MOMENTS = "Moments"  # joined in double: a handful of operations a thread, and variances as exact as torch's on a CPU


class PairCode(RowCode):
    """What the online and the chunked form share: the names of a pair's results."""

    states: dict[int, str]
    shifts: dict[int, str]
    follows_columns = True

    def open_pairs(self, p: Pass, outside: Names) -> None:
        self.states, self.shifts = {}, {}
        for pair in p.pairs:
            self.helpers |= {"extremes", "warp_reduce"}
            self.states[id(pair)] = outside.fresh("running" if pair.kind == "max_sumexp" else "moments")

    def declare_shift(self, pair: Merged, outside: Names, column: str = "0", exists: str = "cols > 0") -> None:
        """Values are taken relative to one of them: sums are then small, and their rounding with them."""
        scope = self.scope.child(
            var=lambda v: column if v in self.program.cols else self._row_var(v), load=self._load_plain
        )
        first, shift = outside.fresh("first_value"), outside.fresh("shift")
        self.names.taken |= {first, shift}
        real, zero = self.types.real, self.types.literal(0, REAL)
        self.lines.add(f"const {real} {first} = {exists} ? {scope.text(pair.body, 2)} : {zero};")
        self.lines.add(f"const {real} {shift} = isfinite({first}) ? {first} : {zero};")
        self.shifts[id(pair)] = shift

    def _load_plain(self, e: Expr, scope: Scope) -> str:
        """A load that ignores what is in registers: at another column than the current one."""
        assert e.buffer is not None and e.index is not None
        return self._guarded(e, self._convert(e, f"{e.buffer.name}[{scope.index(e.index)}]"), scope)

    def _shifted(self, pair: Merged, text: str) -> str:
        return f"{text} - {self.shifts[id(pair)]}" if pair.kind == "moments" else text

    def publish(self, pair: Merged, state: str) -> None:
        """Make the two reductions known as row values, given the joined state of the whole row."""
        real = self.types.real
        known = self.scope.known
        if pair.kind == "moments":
            if not pair.mean_elsewhere:
                mean = self.names.fresh("mean_above")
                self.lines.add(f"const {real} {mean} = {state}.mean;  // above the shift")
                self.scope.sums[pair.mean.uid] = (self.shifts[id(pair)], mean)
            deviations = self.names.fresh("deviations")
            self.lines.add(f"const {real} {deviations} = {state}.deviations;")
            known[pair.second.uid] = deviations
            return
        known[pair.first.uid] = f"{state}.max"
        total = self.names.fresh("row_sum")
        at_infinity = f"({state}.max > 0 ? INFINITY : {self.types.literal(0.0, REAL)})" if pair.finite else "NAN"
        self.lines.add(f"const {real} {total} = isinf({state}.max) ? {at_infinity} : {state}.sum;")
        known[pair.second.uid] = total


class OnlineCode(PairCode):
    """Tile by tile, each thread with a running state: the row is read once for both reductions."""

    values: dict[int, str]

    def open_pairs(self, p: Pass, outside: Names) -> None:
        super().open_pairs(p, outside)
        real = self.types.real
        for pair in p.pairs:
            self.helpers |= {pair.kind, "running"}
            if pair.kind == "max_sumexp":
                self.lines.add(f"RunningMaxSum<{real}> {self.states[id(pair)]};")
            else:
                self.declare_shift(pair, outside)
                self.lines.add(f"{MOMENTS} {self.states[id(pair)]} = {NEUTRAL[pair.kind]};")
        self.values = {}

    def _tile_partials(self, p: Pass, sums: dict[int, str]) -> dict[int, str]:
        parts = super()._tile_partials(p, sums)
        real = self.types.real
        self.values = {}
        for pair in p.pairs:
            value = self.names.fresh("value")
            self.values[id(pair)] = value
            self.lines.add(f"{real} {value}[ITEMS][VEC];")
            if pair.kind == "max_sumexp":
                self.lines.add(f"{real} {value}_max = -INFINITY;")
            else:
                self.declare_sum(f"{value}_sum")
                self.lines.add(f"{real} {value}_count = 0;")
            self.names.taken |= {f"{value}_{part}" for part in ("sum", "count", "max", "part", "mean")}
        return parts

    def pair_sums(self, p: Pass) -> list[str]:
        return [f"{self.values[id(pair)]}_sum" for pair in p.pairs if pair.kind == "moments"]

    def element_pairs(self, p: Pass, scope: Scope) -> None:
        for pair in p.pairs:
            value = self.values[id(pair)]
            self.lines.add(f"{value}[k][j] = {self._shifted(pair, scope.text(pair.body, 10))};")
            if pair.kind == "max_sumexp":
                self.lines.add(f"{value}_max = larger({value}_max, {value}[k][j]);")
            else:
                self.lines.add(f"{value}_sum_terms[j] = {value}[k][j];")
                self.lines.add(f"{value}_count += 1;")

    def tile_pairs(self, p: Pass) -> None:
        for pair in p.pairs:
            value, state = self.values[id(pair)], self.states[id(pair)]
            real = self.types.real
            if pair.kind == "max_sumexp":
                self.lines.add(f"{state}.raise({value}_max);")
            else:
                self.lines.add(
                    f"const {real} {value}_mean ="
                    f" {value}_count > 0 ? pairwise({value}_sum) / {value}_count : {real}(0);"
                )
            self.declare_sum(f"{value}_part")
            with self.vectors(p), self.elements([f"{value}_part"]):
                if pair.kind == "max_sumexp":
                    self.lines.add(f"{value}_part_terms[j] = rescale({value}[k][j], {state}.max);")
                else:
                    self.lines.add(f"const {real} deviation = {value}[k][j] - {value}_mean;")
                    self.lines.add(f"{value}_part_terms[j] = deviation * deviation;")
            if pair.kind == "max_sumexp":
                self.lines.add(f"{state}.add(pairwise({value}_part));")
            else:
                part = f"{MOMENTS}{{{value}_count, {value}_mean, pairwise({value}_part)}}"
                self.lines.add(f"{state} = JoinMoments::join({state}, {part});")

    def close_pairs(self, p: Pass) -> None:
        real = self.types.real
        for pair in p.pairs:
            state = self.states[id(pair)]
            operation = "JoinMaxSum" if pair.kind == "max_sumexp" else "JoinMoments"
            ctype = f"MaxSum<{real}>" if pair.kind == "max_sumexp" else MOMENTS
            value = f"{state}.total()" if pair.kind == "max_sumexp" else state

            def then(text: str, pair: Merged = pair, ctype: str = ctype) -> None:
                joined = self.names.fresh("extent" if pair.kind == "max_sumexp" else "spread")
                self.lines.add(f"const {ctype} {joined} = {text};")
                self.publish(pair, joined)

            self.join(operation, value, f"{ctype}{NEUTRAL[pair.kind]}", ctype, then)


class ChunkCode(PairCode):
    """On a chunk in registers: the chunk's own maximum or mean first, then the sum around it, then the exchange."""

    def element_pairs(self, p: Pass, scope: Scope) -> None:
        for pair in p.pairs:
            state = self.states[id(pair)]
            text = scope.text(pair.body, 10)
            if pair.kind == "max_sumexp":
                self.lines.add(f"{state}_max = larger({state}_max, {text});")
            else:
                self.lines.add(f"{state}_sum_terms[j] = {self._shifted(pair, text)};")

    def pair_sums(self, p: Pass) -> list[str]:
        return [f"{self.states[id(pair)]}_sum" for pair in p.pairs if pair.kind == "moments"]

    def open_pairs(self, p: Pass, outside: Names) -> None:
        super().open_pairs(p, outside)
        for pair in p.pairs:
            state = self.states[id(pair)]
            if pair.kind == "max_sumexp":
                self.lines.add(f"{self.types.real} {state}_max = -INFINITY;")
            else:
                self.declare_sum(f"{state}_sum")
            outside.taken |= {f"{state}_max", f"{state}_sum"}

    def after_loads(self, p: Pass, outside: Names) -> None:
        """The chunk's first value, read last: what waits for it may not hold up the loads of the chunk."""
        for pair in p.pairs:
            if pair.kind == "moments" and self.style.first != "0" and len(self.program.cols) == 1:
                self.declare_shift(pair, outside, self.style.first, f"{self.style.first} < {self.style.end}")
            elif pair.kind == "moments":
                self.declare_shift(pair, outside)

    def close_pairs(self, p: Pass) -> None:
        for pair in p.pairs:
            self.helpers.add("Sum")
            if pair.kind == "max_sumexp":
                self._sum_of_exponentials(p, pair, self.states[id(pair)])
            else:
                self._deviations(p, pair, self.states[id(pair)])

    def _sum_of_exponentials(self, p: Pass, pair: Merged, state: str) -> None:
        real = self.types.real
        self.helpers |= {"Max", "max_sumexp"}
        power = pair.exponential
        keeps = power is not None and power in p.kept
        local = f"{state}_max"
        self.lines.add(f"{local} = {self.combine_block('Max', local, '-INFINITY', real)};")
        self.declare_sum(f"{state}_sum")
        origin = self.names.fresh("origin")  # of a chunk that is -infinity throughout, exp(x - 0) is the 0 that it adds
        self.lines.add(f"const {real} {origin} = {local} == -INFINITY ? {real}(0) : {local};")
        with self.vectors(p), self.elements([f"{state}_sum"], [power] if power is not None and keeps else []):
            term = f"exp({self._body_again(p, pair.body)} - {origin})"
            if power is not None and keeps:
                self.lines.add(f"{self.place(power)} = {term};")
                term = self.place(power)
            self.lines.add(f"{state}_sum_terms[j] = {term};")
        total = self.combine_block("Sum", f"pairwise({state}_sum)", self.types.literal(0.0, REAL), real)
        mine = f"MaxSum<{real}>{{{local}, {total}}}"
        joined = self.exchange("JoinMaxSum", mine, f"MaxSum<{real}>{NEUTRAL['max_sumexp']}", f"MaxSum<{real}>")
        result = self.names.fresh("extent")
        self.lines.add(f"const MaxSum<{real}> {result} = {joined};")
        self.publish(pair, result)
        if power is not None and keeps:
            factor = self.names.fresh("factor")
            self.lines.add(f"const {real} {factor} = rescale({local}, {result}.max);")
            self.factors[power.uid] = factor
            self._shares(pair, power, factor)

    def _deviations(self, p: Pass, pair: Merged, state: str) -> None:
        """Deviations from a mean that is a single number near the true one; their own sum then corrects both.

        However far off the shift is, an outlier say, only the number's nearness suffers, not the result.
        """
        real = self.types.real
        self.helpers.add("powers")
        zero = self.types.literal(0.0, REAL)
        count, mean = f"{state}_count", f"{state}_mean"
        joined = self.combine_block("Sum", f"pairwise({state}_sum)", zero, real)
        self.lines.add(f"const {real} {count} = {self.count};")
        self.lines.add(f"const {real} {mean} = {self.shifts[id(pair)]} + ({count} > 0 ? {joined} / {count} : {zero});")
        self.declare_sum(f"{state}_rest")
        self.declare_sum(f"{state}_squares")
        with self.vectors(p), self.elements([f"{state}_rest", f"{state}_squares"]):
            self.lines.add(f"const {real} deviation = {self._body_again(p, pair.body)} - {mean};")
            self.lines.add(f"{state}_rest_terms[j] = deviation;")
            self.lines.add(f"{state}_squares_terms[j] = deviation * deviation;")
        powers = self.names.fresh("powers")
        ctype = f"Powers<{real}>"
        value = f"{ctype}{{pairwise({state}_rest), pairwise({state}_squares)}}"
        self.lines.add(f"const {ctype} {powers} = {self.combine_block('JoinPowers', value, ctype + '{0, 0}', ctype)};")
        rest, deviations = self.names.fresh("mean_rest"), self.names.fresh("deviations")
        self.lines.add(f"const {real} {rest} = {count} > 0 ? {powers}.sum / {count} : {zero};")
        self.lines.add(f"const {real} {deviations} = larger({powers}.squares - {powers}.sum * {rest}, {zero});")
        self.join_moments(pair, mean, rest, deviations)

    def join_moments(self, pair: Merged, mean: str, rest: str, deviations: str) -> None:
        """The row's mean, a sum of two numbers, and its deviations are known from here on."""
        if not pair.mean_elsewhere:
            self.scope.sums[pair.mean.uid] = (mean, rest)
        self.scope.known[pair.second.uid] = deviations

    def _shares(self, pair: Merged, power: Expr, factor: str) -> None:
        """exp(x - max) / sum: one product an element instead of a product and a division."""
        real = self.types.real
        for e in walk(s.value for s in self.program.stores):
            if e.op == "div" and e.args[0].uid == power.uid and e.args[1].uid == pair.second.uid:
                scale = self.names.fresh("scale")
                self.lines.add(f"const {real} {scale} = {factor} / {self.scope.known[pair.second.uid]};")
                self.scales[e.uid] = (power, scale)

    def know_more(self, p: Pass, scope: Scope) -> None:
        for uid, (power, scale) in self.scales.items():
            if power in p.reused:
                scope.known[uid] = f"({self.kept_at(power)} * {scale})"

    def _body_again(self, p: Pass, body: Expr) -> str:
        """The pair's operand at (k, j), from what the first loop kept."""
        if body.op == "load" and body.uid in self.arrays and self._is_vector(body):
            return self._load_row(body, self.scope)
        return self.kept_at(body)

    factors: dict[int, str]
    scales: dict[int, tuple[Expr, str]]
    count = "end - first"

    def kept_text(self, e: Expr) -> str:
        text = super().kept_text(e)
        factor = self.factors.get(e.uid)
        return f"({text} * {factor})" if factor else text

    def combine_block(self, operation: str, value: str, neutral: str, ctype: str) -> str:
        return super().combine(operation, value, neutral, ctype)

    def exchange(self, operation: str, mine: str, neutral: str, ctype: str) -> str:
        raise NotImplementedError
