"""Reductions over the rows of a product inside the product's kernel: the matrix is never written to memory.

Each lane gathers what its elements of a row come to, the lanes of a warp that share a row join that, and the warps that
share a row leave it in the workspace; the last of them to finish joins all of it in order and writes the row's results.
Sums, products, extremes, and a maximum with the sum of exponentials below it (logsumexp). Where the elements are needed
again, as in softmax and norms, rows have to be as short as a tile: a warp on Hopper then has all of its rows. Places of
extremes are a kernel of their own: torch finds them in rounded values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from kforge.engine.emit.cgen import Scope, Sizes, Types, identity
from kforge.engine.emit.merging import Merged, find_pairs
from kforge.engine.emit.passes import Pass, plan
from kforge.engine.emit.reducing import OPERATIONS
from kforge.engine.emit.rowbase import Style
from kforge.engine.emit.splitcode import SplitCode
from kforge.engine.emit.text import Lines
from kforge.engine.families.product_parts import Product, ProductCode
from kforge.engine.graph.ir import REAL, Expr, Program

GATHERED = ("sum", "prod", "max", "min")
WIDEST = 256  # columns of a tile
TAKEN = "slot shares share ticket tickets count left SLOTS workspace"
LANE = "lane % (32 / VEC) == 0"  # one of those that share a row


@dataclass(frozen=True)
class State:
    """What is gathered for a row: a C type, the operation that joins two of it, and its neutral element."""

    name: str
    ctype: str
    operation: str
    neutral: str
    bytes: int
    offset: int = 0


@dataclass
class ProductRowsCode(ProductCode):
    """The statements for VEC neighbours of a row of sums that go into the row's states, and those at a row's end."""

    within: bool = False  # a warp has whole rows: no other one is waited for, and elements may be looked at again
    states: list[State] = field(default_factory=list)
    walks: list[dict[str, Any]] = field(default_factory=list)
    scales: frozenset[int] = frozenset()  # quotients that are written otherwise: none
    _results: dict[int, str] = field(default_factory=dict)
    _values: dict[int, str] = field(default_factory=dict)  # of each pair, the state that takes its values
    _pairs: list[Merged] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.at = "col"
        self.names.taken |= {f"i_{k}" for k in range(len(self.product.batch) + len(self.rows))}
        self.names.taken |= set(TAKEN.split())

    def declare_divisors(self, roots: list[Expr]) -> None:
        SplitCode.declare_divisors(self, roots)  # type: ignore[arg-type]

    def body(self) -> str:
        return self.emit()

    def emit(self) -> str:
        """The statements of the first walk over the elements; those of the others are in `walks`."""
        for p in self.passes:
            if p.roots:
                states, known, self.lines = len(self.states), dict(self.scope.known), Lines()
                self.hoist(p.roots)
                self.declare_divisors(p.roots)
                self._pairs = p.pairs
                self.element(p, {r.uid: self._state_of(r) for r in p.reductions})
                self._take_apart()
                body, fetched = self._inner(8), self.fetched
                self.walks.append({"body": body, "fetched": fetched, "states": self.states[states:], "ending": ""})
                self.scope.known, self.scope.divisors = known, {}  # without what was declared for a vector
            self.scope.known |= self._results
            if self.within:
                self.lines = Lines()
                self.row_stores(p)
                self.walks[-1]["ending"] += self._inner(4)
        self.fetched = self.walks[0]["fetched"]
        return str(self.walks[0]["body"])

    def _take_apart(self) -> None:
        """Declare, before the statements so far, those of a row's indices that they mention."""
        for line in reversed(self.taken_apart()):
            name = line.removeprefix("const int ").split(" = ")[0]
            if re.search(rf"\b{name}\b", str(self.lines)):
                self.lines._lines.insert(0, f"    {line}")

    def _inner(self, indent: int) -> str:
        """The lines so far, further in."""
        lines = str(self.lines).splitlines()
        return "\n".join(line if line.startswith("#") else " " * indent + line for line in lines)

    def at_the_end(self) -> dict[str, Any]:
        """The states, the widest first, where each lies in the workspace, and the statements that write a row's
        results once each state is known as `<name>_total`."""
        if self.within:
            return {"states": self.states, "walks": self.walks}
        states, offset = [], 0
        for state in sorted(self.states, key=lambda s: -s.bytes):
            states.append(replace(state, offset=offset))
            offset += state.bytes
        self.lines = Lines()
        for p in self.passes:
            self.row_stores(p)
        return {"states": states, "row_bytes": offset, "ending": self._inner(8), "walks": self.walks}

    def _name_of(self, state: str) -> str:
        """A row's joined state."""
        return f"{state}[slot]" if self.within else f"{state}_total"

    def _state_of(self, r: Expr) -> str:
        name = self.names.fresh(f"row_{r.kind}")
        neutral = identity(r.kind, r.args[0].dtype, self.types)
        self.helpers |= {OPERATIONS[r.kind], *(("extremes",) if r.kind in ("max", "min") else ())}
        self.states.append(State(name, self.types.real, OPERATIONS[r.kind], neutral, 4))
        self._results[r.uid] = self._name_of(name)
        return name

    @contextmanager
    def elements(self, sums: list[str], kept: Sequence[Expr] = ()) -> Iterator[None]:
        real = self.types.real
        self._values = {}
        for pair in self._pairs:
            name = self.names.fresh("row_exp")
            self.states.append(State(name, f"MaxSum<{real}>", "JoinMaxSum", "{-INFINITY, 0}", 8))
            self._publish(pair, name)
            self._values[id(pair)] = name
            self.lines.add(f"{real} {name}_values[VEC];")
        if sums:
            self.helpers.add("pairwise")
        with super().elements(sums, kept):
            yield
        for name in self._values.values():
            self.lines.add(f"add_exponentials({name}[slot], {name}_values);")

    def add_terms(self, name: str) -> None:
        self.lines.add(f"{name}[slot] += pairwise({name}_terms);")

    def accumulate(self, r: Expr, name: str, scope: Scope) -> None:
        super().accumulate(r, name if self.by_pairs(r) else f"{name}[slot]", scope)

    def element_pairs(self, p: Pass, scope: Scope) -> None:
        for pair in p.pairs:
            self.lines.add(f"{self._values[id(pair)]}_values[j] = {scope.text(pair.body)};")

    def _publish(self, pair: Merged, name: str) -> None:
        """The two results of a pair, infinite maxima as torch has them."""
        self.helpers |= {"max_sumexp", "extremes", "pairwise", "exponentials"}
        state = self._name_of(name)
        infinite = f"({state}.max > 0 ? INFINITY : 0.0f)" if pair.finite else "NAN"
        self._results[pair.first.uid] = f"{state}.max"
        self._results[pair.second.uid] = f"(isinf({state}.max) ? {infinite} : {state}.sum)"


def only_rows(program: Program) -> bool:
    """Whether rows alone are stored, and reductions see each element once."""
    _, *later = _passes(program)
    return all(s.per_row for s in program.stores) and not any(p.roots for p in later) and _gathers(program)


def whole_rows(program: Program) -> bool:
    """Whether rows are as short as a tile, so that elements may be looked at again."""
    return program.cols[-1].size.hint() <= WIDEST and _gathers(program)


def limit(program: Program) -> str:
    """The condition on calls under which rows are whole in a tile; '' where they always are."""
    return f"cols <= {WIDEST}" if program.cols[-1].size.constant is None else ""


def _gathers(program: Program) -> bool:
    """Whether each reduction is of a kind that a row gathers."""
    plain = not any(s.once or s.carried for s in program.stores)
    return plain and all(r.args[0].dtype == REAL and r.kind in GATHERED for r in program.reductions)


def _passes(program: Program) -> list[Pass]:
    return plan(program, keep=False, pairs=[p for p in find_pairs(program) if p.kind == "max_sumexp"])


def rows_code(program: Program, types: Types, sizes: Sizes, product: Product, tiles: bool) -> ProductRowsCode | None:
    """The code of a product with reductions over its rows; None where that needs the elements twice and rows are longer
    than a tile. tiles: a warp has rows of tiles, not parts of them."""
    within = tiles and not only_rows(program)
    if not (whole_rows(program) if within else only_rows(program)):
        return None
    style = Style("", "", False, "", False, writer=f"row < rows && {LANE}")
    return ProductRowsCode(program, types, sizes, _passes(program), style, product=product, within=within)
