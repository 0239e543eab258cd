"""What every kernel body is written with: names of loops, pointers, loads, row values. Passes are in rowcode.py."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kforge.engine.emit.access import Access, Memory, moving
from kforge.engine.emit.cgen import Scope, Sizes, Types
from kforge.engine.emit.naming import Names, named_steps, wished_name
from kforge.engine.emit.passes import Pass, below
from kforge.engine.emit.ragged import place_of_row
from kforge.engine.emit.text import Lines
from kforge.engine.graph.ir import REAL, Expr, Program, is_element, walk
from kforge.engine.graph.symbols import Poly, Value, Var
from kforge.engine.graph.tensors import linear

RESERVED_WORDS = (
    "own row rows col cols lane warp tile base k j partials T U W at i n flat first end share rank team ticket tickets "
    "lead head last inside blocks workspace staged slots arrived"
)


@dataclass(frozen=True)
class Style:
    """How a schedule walks a row.

    threads, thread: how many walk together and which one this is. tiled: the row does not fit, walk it tile by tile.
    combine: the function that joins the threads' partial results; block scratch is given to it if `scratch`.
    """

    threads: str
    thread: str
    tiled: bool
    combine: str
    scratch: bool
    column: str = "int"
    end: str = "cols"
    first: str = "0"
    writer: str = ""

    @property
    def writes(self) -> str:
        """The condition under which this thread writes the row's results."""
        return self.writer or f"{self.thread} == 0"


@dataclass
class CodeBase:
    program: Program
    types: Types
    sizes: Sizes
    passes: list[Pass]
    style: Style
    helpers: set[str] = field(default_factory=set)
    scratch_lines: list[str] = field(default_factory=list)
    ragged: bool = False  # rows begin anywhere: ragged.py

    def __post_init__(self) -> None:
        self.inner: Var = self.program.cols[-1]
        self.memory = Memory.of(self.program, self.inner)
        self.flats: set[tuple[str, Poly]] = set()  # accesses that follow the columns of several loops as they lie
        if self.follows_columns and len(self.program.cols) > 1:
            self.memory.loads = {k: self._along_columns(access) for k, access in self.memory.loads.items()}
            self.memory.stores = {s: self._along_columns(access) for s, access in self.memory.stores.items()}
        if self.ragged:  # what lies alike for all rows has no vectors where theirs are
            here = place_of_row(self.program)
            self.memory.loads = {
                k: replace(a, kind="scalar") if a.kind == "vector" and a.base != here else a
                for k, a in self.memory.loads.items()
            }
        names = [b.name for b in self.program.buffers]
        reserved = RESERVED_WORDS.split()
        self.names = Names({*names, *self.sizes.params, *reserved})
        self.lines = Lines()
        self.pointers: dict[tuple[str, Poly], str] = {}
        self.arrays: dict[int, str] = {}  # kept or preloaded values: expression id -> array
        self.sites = 0
        self.scope = Scope(self.types, self.sizes, self.names, self._row_var, self._load_row)
        self.ready: set[int] = set()
        self.at = "col" if len(self.program.cols) == 1 else "at"
        self.final = final_values(self.program)
        if any(e.op in ("max", "min") for e in walk(s.value for s in self.program.stores)):
            self.helpers.add("extremes")
        if any(e.op == "draw" for e in walk(s.value for s in self.program.stores)):
            self.helpers.add("draw")
        for group, label in ((self.program.rows, "row"), (self.program.cols, self._col_label)):
            if len(group) > 1:
                self.names.taken |= {f"{label}_{k}" for k in range(len(group))}

    _col_label = "col"
    follows_columns = False  # the columns of a row are walked in order, `at` counts them

    def _along_columns(self, access: Access) -> Access:
        """An access at the row's place plus the column's number needs no column index of its own: no division."""
        cols = self.program.cols
        rest = access.index - linear(tuple(Poly.of(v) for v in cols), tuple(v.size for v in cols))
        if access.kind != "vector" or moving(rest) & set(cols):
            return access
        self.flats.add((access.buffer.name, access.index))
        return replace(access, base=rest)

    # names of loops

    def _row_var(self, v: Var) -> str:
        if v in self.program.rows:
            return "row" if len(self.program.rows) == 1 else f"row_{self.program.rows.index(v)}"
        return self._col_var(v)

    def _col_var(self, v: Var) -> str:
        return "col" if len(self.program.cols) == 1 else f"col_{self.program.cols.index(v)}"

    def _element_var(self, v: Var) -> str:
        return f"({self._col_var(v)} + j)" if v == self.inner else self._row_var(v)

    # memory

    def pointer(self, access: Access) -> str:
        """Text of a pointer to the access's base: a local pointer where the base belongs to the row."""
        if not access.base.terms:
            return access.buffer.name
        return self.pointers.get((access.buffer.name, access.base)) or (
            f"{access.buffer.name} + {self.scope.index(access.base)}"
        )

    def address(self, access: Access) -> str:
        """Text of a pointer to the first element of a vector."""
        if (access.buffer.name, access.index) in self.flats:
            return f"{self.pointer(access)} + {self.at}"
        return f"{self.pointer(access)} + {self._col_var(self.inner)}"

    def declare_pointers(self) -> None:
        """One local pointer for each buffer and row it walks along."""
        seen: dict[tuple[str, Poly], Access] = {}
        for access in self.memory.vectors():
            atoms = access.base.atoms()
            of_row = not any(a in self.program.cols or isinstance(a, Value) for a in atoms)
            if access.base.terms and of_row:
                seen.setdefault((access.buffer.name, access.base), access)
        for key, access in seen.items():
            name = self.names.fresh(f"{access.buffer.name}_row")
            const = "" if access.buffer.kind == "output" or self._is_written(access) else "const "
            element = self.types.element(access.buffer)
            self.lines.add(f"{const}{element}* {name} = {access.buffer.name} + {self.scope.index(access.base)};")
            self.pointers[key] = name

    def _is_written(self, access: Access) -> bool:
        return any(s.buffer is access.buffer for s in self.program.stores)

    def _convert(self, e: Expr, text: str) -> str:
        return f"{self.types.real}({text})" if e.dtype == REAL else text

    def _guarded(self, e: Expr, text: str, scope: Scope) -> str:
        if not e.args:
            return text
        return f"({scope.text(e.args[0], 2)} ? {text} : {self.types.literal(0, e.dtype)})"

    def _load_row(self, e: Expr, scope: Scope) -> str:
        access = self.memory.loads[e.uid]
        if access.kind == "vector" and e.uid in self.arrays:
            return self._convert(e, f"{self.arrays[e.uid]}.at[j]")
        text = f"{access.buffer.name}[{scope.index(access.index)}]"
        base = self.pointers.get((access.buffer.name, access.base))
        if access.kind == "vector" and base is not None and (access.buffer.name, access.index) not in self.flats:
            text = f"{base}[{scope.var(self.inner)}]".replace("[(", "[").replace(")]", "]")
        return self._guarded(e, self._convert(e, text), scope)

    # rows

    def prologue(self) -> None:
        """The row this thread works on, as one or several indices, and pointers into it."""
        rows = self.program.rows
        if len(rows) > 1:
            self._split_index("row", [f"row_{k}" for k in range(len(rows))], rows, "long long")
        self.declare_pointers()
        if self.ragged:
            self.declare_edges()
        self.lines.blank()

    lead = ""  # a variable: how many elements of the row's first vector lie before it; "" where that is 0

    def declare_edges(self) -> None:
        """Where the vectors of memory lie in this row."""
        place = place_of_row(self.program)
        assert place is not None
        if place.terms:
            self.lead = "lead"
            text = self.scope.index(place, True)
            self.lines.add(
                f"const int lead = static_cast<int>({text} % VEC);  // elements of another row before this one"
            )
        before, behind = ("(VEC - lead) % VEC", "(cols + lead) % VEC") if self.lead else ("0", "cols % VEC")
        self.lines.add(f"const {self.style.column} head = {before}, last = cols - VEC - {behind};  // whole vectors")

    def which_inside(self) -> None:
        """For the vector at hand, a bit for each of its elements that this row has."""
        if self.ragged:
            self.helpers.add("ragged")
            self.lines.add(f"const unsigned int inside = which_within<VEC>({self.at}, cols);")

    @property
    def less_lead(self) -> str:
        return f" - {self.lead}" if self.lead else ""

    def _split_index(self, flat: str, names: list[str], loops: tuple[Var, ...], ctype: str) -> None:
        rest = flat
        for k in range(len(loops) - 1, -1, -1):
            size = self.scope.index(loops[k].size, True)
            if k == 0:
                self.lines.add(f"const {ctype} {names[k]} = {rest};")
            else:
                self.lines.add(f"const {ctype} {names[k]} = {rest} % {size};")
                rest = f"{rest} / {size}"

    def hoist(self, roots: list[Expr]) -> None:
        """Row values that the coming pass uses become variables."""
        wanted: list[Expr] = []
        seen: set[int] = set()

        def visit(e: Expr, inside_element: bool) -> None:
            if e.uid in seen or e.uid in self.scope.known or e.uid in self.ready:
                return
            element = is_element(e, self.program.cols)
            if not element:
                if (
                    e.op not in ("const",)
                    and e.uid not in self.scope.sums
                    and inside_element
                    and not (e.op == "index" and not e.variables())
                ):
                    wanted.append(e)
                    seen.add(e.uid)
                return
            seen.add(e.uid)
            for a in below(e):
                visit(a, True)

        for r in roots:
            visit(r, True)
        for e in wanted:
            self._declare_row(e)

    def _declare_row(self, e: Expr) -> None:
        for step in named_steps([e], set(self.scope.known)):
            if step is not e:
                self.lines.add(self.scope.declare(step, wished_name(step, self.final)))
        if e.uid not in self.scope.known:
            self.lines.add(self.scope.declare(e, wished_name(e, self.final)))


def final_values(program: Program) -> set[int]:
    """Values that a name in op.py stands for: their line assigns one, and only other lines use them."""
    users: dict[int, set[object]] = {}
    everything = walk(s.value for s in program.stores)
    for e in everything:
        for a in below(e):
            users.setdefault(a.uid, set()).add(e.origin)
    return {
        e.uid for e in everything if e.origin is not None and e.origin.name and e.origin not in users.get(e.uid, set())
    }
