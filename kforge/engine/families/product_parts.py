"""What every product kernel is written from: its operands as matrices, its sizes, the statements after the sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kforge.engine.coalescing import sizes_of
from kforge.engine.emit.cgen import Scope, Sizes, Types, total
from kforge.engine.emit.kernelcode import KernelCode, render, template_types, wrap
from kforge.engine.emit.passes import Pass, plan
from kforge.engine.emit.rowbase import Style
from kforge.engine.emit.text import Lines
from kforge.engine.families.pointwise import PointwiseCode
from kforge.engine.graph.ir import SCATTERS, Buffer, Expr, Program, walk
from kforge.engine.graph.symbols import Poly, Var
from kforge.engine.graph.tensors import PRODUCT, linear

HALF = {"float16": "f16", "bfloat16": "bf16"}

PROCESSORS = '''\
def processors(x):
    """How many blocks share the tiles: one a multiprocessor."""
    return torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4'''


@dataclass(frozen=True)
class Side:
    """An operand as a matrix in memory. along: its lines are along the depth; else along rows or columns.

    batched: there is one for each member of the batch.
    """

    buffer: Buffer
    along: bool
    batched: bool = False


@dataclass(frozen=True)
class Product:
    """The one product of a program, of elements [row, depth] and [depth, col].

    batch: loops over products, of which the first may be over `shares` of the depth; down: over the rows of one.
    """

    window: Expr
    depth: Var
    left: Side
    right: Side
    batch: tuple[Var, ...] = ()
    down: tuple[Var, ...] = ()
    shares: int = 1

    @property
    def factors(self) -> tuple[Expr, ...]:
        """The two loads that are multiplied."""
        return self.window.args[0].args


def multiplies(program: Program) -> bool:
    """Whether a program has a product that only this family computes."""
    return any(e.window is not None and e.window.kind == PRODUCT for e in walk(s.value for s in program.stores))


def product_of(program: Program) -> Product | None:
    """The product of a program over rows and columns."""
    windows = {e.uid: e for e in walk(s.value for s in program.stores) if e.window is not None}
    by_rows = bool(program.rows)
    if len(windows) != 1 or (len(program.cols) != 1 if by_rows else len(program.cols) < 2 or program.reductions):
        return None
    (window,) = windows.values()
    assert window.window is not None
    if window.window.kind != PRODUCT or any(s.value.op in SCATTERS or s.once for s in program.stores):
        return None
    (depth,), factors = window.window.free, window.args[0].args
    if window.args[0].op != "mul" or len(factors) != 2:
        return None
    shared = 0 if window.window.flat is None else 1
    loops = (*program.rows, *program.cols)
    share, loops, col = loops[:shared], loops[shared:-1], loops[-1]
    if not loops or (share and window.window.flat != Poly.of(share[0])):
        return None
    if {e.buffer for e in factors} & {s.buffer for s in program.stores}:
        return None
    # all loops but the innermost are rows of one matrix, or all but the last of them count matrices
    for batch, down in ((loops[:0], loops), (loops[:-1], loops[-1:])):
        for a, b in (factors, factors[::-1]):
            left, right = _side(a, batch, down, depth), _side(b, batch, (col,), depth)
            if left is not None and right is not None:
                shares = share[0].size.constant if share else 1
                return Product(window, depth, left, right, (*share, *batch), down, shares or 1)
    return None


def _side(e: Expr, batch: tuple[Var, ...], loops: tuple[Var, ...], depth: Var) -> Side | None:
    """A load at [batch, loops, depth] or [batch, depth, loops] of dense matrices, or of one for all."""
    if e.op != "load" or e.args or e.buffer is None or e.buffer.dtype not in HALF:
        return None
    for outer in (batch, ()):
        for order in ((*loops, depth), (depth, *loops)):
            places = (*outer, *order)
            if e.index == linear(tuple(Poly.of(v) for v in places), tuple(v.size for v in places)):
                return Side(e.buffer, order[-1] is depth, bool(outer))
    return None


@dataclass
class ProductCode(PointwiseCode):
    """The statements for VEC neighbours of a row of sums."""

    product: Product = field(kw_only=True)
    fetched: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.names.taken |= set(TAKEN.split())
        self.scope.known[self.product.window.uid] = "sums.at[j]"
        loops = (*self.product.batch, *self.rows, self.program.cols[-1])
        self.flat = linear(tuple(Poly.of(v) for v in loops), tuple(v.size for v in loops))

    def split_columns(self) -> None:
        """Row, column and member of the batch are known; they are taken apart where they are made of several loops."""
        for whole, loops in (("batch", self.product.batch), ("row", self.rows)):
            if len(loops) > 1:
                self._split_index(whole, [self._col_var(v) for v in loops], loops, "int")

    @property
    def rows(self) -> tuple[Var, ...]:
        """The loops whose places are rows."""
        return self.product.down

    def _row_var(self, v: Var) -> str:
        return self._col_var(v)

    def _col_var(self, v: Var) -> str:
        for whole, loops in (("batch", self.product.batch), ("row", self.rows)):
            if loops == (v,):
                return whole
        if v == self.program.cols[-1]:
            return "col"
        return f"i_{[*self.product.batch, *self.rows].index(v)}"

    def element(self, p: Pass, sums: dict[int, str]) -> None:
        """As of any vector, but that what it loads is there already (`fetched`)."""
        for e in self.ahead(p):
            name = self.names.fresh(f"{self.memory.loads[e.uid].buffer.name}_in")
            self.arrays[e.uid] = f"{name}[part % AHEAD]" + ("[k]" if self.down(e) else "")
        self.fetched = self.fetching(p)
        super().element(p, sums)

    def body(self) -> str:
        """The statements as they stand in a template."""
        return "\n".join(line if line.startswith("#") else " " * 8 + line for line in self.emit().splitlines())

    def at_the_end(self) -> dict[str, Any]:
        """What templates are told of values that rows gather: here none do."""
        return {"states": [], "walks": []}

    def know_more(self, p: Pass, scope: Scope) -> None:
        """GELU by fewer instructions, with error enough for 16 bits: the sums wait for what follows them."""
        if any(s.buffer.dtype not in HALF for s in self.program.stores):
            return
        for e in walk(p.roots):
            if e.uid not in scope.known and (x := gelu_of(e)) is not None and self.types.real == "float":
                self.helpers.add("gelu")
                scope.known[e.uid] = f"gelu_16({scope.text(x)})"

    def taken_apart(self) -> list[str]:
        """The statements that give the indices of a row."""
        lines, self.lines = self.lines, Lines()
        self.split_columns()
        lines, self.lines = self.lines, lines
        return [line.strip() for line in str(lines).splitlines()]

    def ahead(self, p: Pass) -> list[Expr]:
        """Vectors that lie along the columns of a row, or are the same in every row."""
        return [e for e in p.fresh if self.memory.loads[e.uid].kind == "vector" and not e.args]

    def down(self, e: Expr) -> bool:
        """Whether a load moves with the row."""
        return any(v in (*self.product.batch, *self.rows) for v in e.variables())

    def fetching(self, p: Pass) -> dict[str, list[str]]:
        """Declarations of what is fetched, the statements that fetch it (once a part, for each of its rows), and
        those that bring it near."""
        found: dict[str, list[str]] = {"declared": [], "once": [], "rows": [], "soon": []}
        for e in self.ahead(p):
            access, name = self.memory.loads[e.uid], self.arrays[e.uid]
            size = "[AHEAD][ITEMS]" if self.down(e) else "[AHEAD]"
            element = self.types.element(access.buffer)
            found["declared"].append(f"Pack<{element}, VEC> {name.partition('[')[0]}{size};")
            found["rows" if self.down(e) else "once"].append(f"{name} = {self._vector(e, access)};")
            if self.down(e):
                found["soon"].append(f"prefetch({self.address(access)});")
        return found


def gelu_of(e: Expr) -> Expr | None:
    """x where e is x / 2 (1 + erf(x / sqrt(2))), else None."""
    if e.op != "mul" or [a.op for a in e.args] != ["mul", "add"]:
        return None
    (half, x), (one, erf) = e.args[0].args, e.args[1].args
    plain = half.value == 0.5 and one.value == 1.0 and erf.op == "erf" and erf.args[0].op == "mul"
    return x if plain and erf.args[0].args[0] is x and erf.args[0].args[1].value == math.sqrt(0.5) else None


TAKEN = (
    "left right full empty ready ring memory member tiles_down tiles_across steps stage parity step from to a b d k "
    "before top part pair begin whole each v down across sums slab place at shared_address first own lines turn below "
    "m BN STAGES CLUSTER TURNS GROUP ACROSS VEC PITCH LINES SHARE processors warpgroup multiply mma release load store"
)


@dataclass(frozen=True)
class Parts:
    """A product kernel without its schedule. values: what every template is rendered with.

    pointers: buffers that are passed as such; left, right: the operands' parameters; condition: on VEC.
    """

    program: Program
    product: Product
    sizes: Mapping[str, Poly]
    types: tuple[str, ...]
    element: str
    left: str
    right: str
    pointers: tuple[str, ...]
    helpers: frozenset[str]
    condition: str
    values: Mapping[str, Any]

    @property
    def constants(self) -> tuple[dict[str, int | str], dict[str, tuple[int | str, ...]]]:
        """The last template parameters, and what they are tuned among. AHEAD: parts whose operands are under way."""
        some = self.values["ahead"]
        ahead: dict[str, int | str] = {"AHEAD": 2} if some else {}
        return {"VEC": 8, **ahead}, {"VEC": (8, 4, 2, 1), **({"AHEAD": (2, 3, 4)} if some else {})}

    @property
    def row_bytes(self) -> int:
        """Bytes that a warp leaves for each of its rows; 0 where rows gather nothing."""
        return int(self.values.get("row_bytes", 0))

    @property
    def whole_rows(self) -> bool:
        """Whether a tile has to be as wide as the result."""
        return len(self.values["walks"]) > 1

    def left_behind(self, shares: str, tickets: str) -> dict[str, Any]:
        """The workspace of values that rows gather, where there are any.

        shares: parts of a row that warps have, tickets: groups of rows, both in the launch language.
        """
        if not self.row_bytes:
            return {}
        batches = "batches * " if self.product.batch else ""
        text = f"{self.row_bytes} * {batches}rows * {shares} + 4 * {batches}{tickets}"
        return {"workspace": text, "zeroed": True}

    def kernel(
        self,
        name: str,
        template: str,
        idea: str,
        constants: Mapping[str, int | str],
        tune: Mapping[str, tuple[int | str, ...]],
        helpers: Iterable[str],
        require: Mapping[str, str],
        **more: Any,
    ) -> KernelCode:
        """The kernel of a template, with what every schedule has beside its own. more: as KernelCode has it."""
        last, among = self.constants
        constants = {**constants, **last}
        shares = self.product.shares
        after = "with all that follows in the same kernel" if shares == 1 else f"in {shares} shares of its depth"
        after = "reduced over its rows in the same kernel" if self.program.rows else after
        return KernelCode(
            name=name,
            program=self.program,
            schedule="product",
            idea=f"a product on {idea}, {after}",
            text=render(template, name=name, **self.values),
            template=(*self.types, *constants),
            helpers=self.helpers | {f"product_{self.half}", *helpers},
            sizes=self.sizes,
            constants=constants,
            tune={**tune, **among},
            require={**require, "VEC": self.condition},
            size_types=dict.fromkeys(self.sizes, "int"),
            types={self.element: self.left},
            pointers=self.pointers,
            **more,
        )

    @property
    def half(self) -> str:
        """PTX's name of the operands' type."""
        return HALF[self.product.left.buffer.dtype]

    @property
    def along(self) -> tuple[bool, bool]:
        """Whether each operand's lines are along the depth."""
        return self.product.left.along, self.product.right.along

    def shapes(self) -> list[tuple[str, tuple[str, ...]]]:
        """The operands as they lie in memory: buffer, and sizes by name."""
        found: list[tuple[str, tuple[str, ...]]] = []
        for side, outer in ((self.product.left, "rows"), (self.product.right, "cols")):
            shape = (outer, "depth") if side.along else ("depth", outer)
            count = "batches" if self.product.shares == 1 else "matrices"
            found.append((side.buffer.name, (count, *shape) if side.batched else shape))
        return found

    def hints(self) -> tuple[int, int, int, int]:
        """Batches, rows, columns and depth as captured; each share is one of the batches."""
        batches, rows = total(self.product.batch).hint(), total(self.product.down).hint()
        depth = -(-self.product.depth.size.hint() // (64 * self.product.shares)) * 64
        return batches, rows, self.program.cols[-1].size.hint(), depth


def parts_of(program: Program, types: Types, operand: str, extra: tuple[str, ...] = ()) -> Parts | None:
    """operand: the declaration of an operand's parameter, with {} for its name; extra: parameters after the sizes."""
    found = product_of(program)
    if found is None:
        return None
    sizes = Sizes({"rows": total(found.down), "cols": program.cols[-1].size})
    sizes.add("depth", found.depth.size)
    if found.batch:
        sizes.add("batches", total(found.batch))
    if found.shares > 1 and len(found.batch) > 1:
        sizes.add("matrices", total(found.batch[1:]))
    polys = [*program.indices, *(v.size for v in (*program.rows, *program.cols))]
    for size in sizes_of(program):
        if any(size in sizes.write(p).atoms() for p in polys):
            sizes.add(size.name, Poly.of(size))
    code: ProductCode
    if program.rows:
        from kforge.engine.families.product_rows import rows_code

        by_rows = rows_code(program, types, sizes, found, tiles="CUtensorMap" in operand)
        if by_rows is None:
            return None
        code = by_rows
    else:
        style = Style("", "", False, "", False)
        code = ProductCode(program, types, sizes, plan(program, keep=True), style, product=found)
    body = code.body()
    read = {e.buffer for e in walk(s.value for s in program.stores) if e.op == "load" and e not in found.factors}
    written = {s.buffer for s in program.stores}
    pointers = [b for b in program.buffers if b in read | written]
    taken = {b.name for b in program.buffers} | set(sizes.params)
    left, right = (f"{side}_operand" if side in taken else side for side in ("left", "right"))
    element = types.element(found.left.buffer)
    declared = [operand.format(name, element=element) for name in (left, right)]
    declared += [f"{'' if b in written else 'const '}{types.element(b)}* __restrict__ {b.name}" for b in pointers]
    workspace = ["unsigned char* workspace"] if program.rows and not getattr(code, "within", False) else []
    values: dict[str, Any] = {
        "types": template_types(program, types),
        "half": element,
        "parameters": wrap([*declared, *(f"int {s}" for s in sizes.params), *extra, *workspace]),
        "left": left,
        "right": right,
        "left_along": found.left.along,
        "right_along": found.right.along,
        "batched": bool(found.batch),
        "left_batched": found.left.batched,
        "right_batched": found.right.batched,
        "shares": found.shares,
        "matrix": "batch" if found.shares == 1 else "batch % matrices",
        "share": "batch / matrices" if len(found.batch) > 1 else "batch",
        "body": body,
        "fetched": code.fetched,
        "taken_apart": code.taken_apart(),
        **code.at_the_end(),
    }
    values["ahead"] = any(walk["fetched"]["declared"] for walk in [values, *values["walks"]])
    helpers = frozenset((code.helpers - {"cascade"}) | {"pack", "product"})
    if program.rows:
        helpers |= {"product_rows", "warp_reduce"}
    condition = code.memory.condition(types, sizes, "cols")
    if program.rows and "cols % VEC == 0" not in condition:
        condition = " and ".join(filter(None, (condition, "cols % VEC == 0")))
    names, own = tuple(b.name for b in pointers), tuple(template_types(program, types))
    return Parts(program, found, dict(sizes.params), own, element, left, right, names, helpers, condition, values)
