"""CUDA text of sizes, indices and expressions; owns types, knows nothing about schedules."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kforge.engine.emit.functions import argument_of_sigmoid
from kforge.engine.emit.naming import Names, named_steps, wished_name
from kforge.engine.graph.ir import FLOAT8, FLOATS, INTEGERS, REAL, Buffer, Expr, Program
from kforge.engine.graph.symbols import Atom, Poly, Quotient, Remainder, Size, Value, Var, product
from kforge.engine.handlers.operators import C_REAL, PRECEDENCE
from kforge.errors import NoCandidate

C_TYPES = {
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float64": "double",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}
FLOAT_MAX = 2.0**128 - 2.0**103  # from here on a number rounds to infinity in single precision
FLOAT_MIN = 2.0**-150  # and down from here to zero
BYTES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


@dataclass
class Types:
    """Element types of one source: aliases bound to buffers, the computing type, and its C suffix."""

    real: str
    aliases: dict[str, str] = field(default_factory=dict)  # torch dtype -> alias
    bound: dict[str, str] = field(default_factory=dict)  # alias -> buffer that binds it
    fixed: bool = False  # the kernels hold for the dtypes that they were captured with, no others

    @staticmethod
    def of(programs: Iterable[Program], real: str) -> Types:
        """The first floating inputs give T, U, W; integers, booleans and temporaries are written out."""
        types = Types(real)
        for program in programs:
            for b in program.buffers:
                given = b.kind in ("input", "parameter", "library") and b.dtype in FLOATS
                if given and b.dtype not in types.aliases and len(types.aliases) < 3:
                    alias = "TUW"[len(types.aliases)]
                    types.aliases[b.dtype] = alias
                    types.bound[alias] = b.name
        return types

    @property
    def suffix(self) -> str:
        return "f" if self.real == "float" else ""

    def element(self, buffer: Buffer) -> str:
        """The C type of a buffer's elements."""
        if buffer.kind != "temporary" and buffer.dtype in self.aliases:
            return self.aliases[buffer.dtype]
        if buffer.kind == "temporary" and buffer.dtype in ("float32", "float64"):
            return self.real
        return C_TYPES[buffer.dtype]

    def scalar(self, dtype: str) -> str:
        """The C type in which values of a computing type are held."""
        return self.real if dtype == REAL else C_TYPES[dtype]

    def stored(self, buffer: Buffer, value: Expr, scope: Scope) -> str:
        """A value of a computing type as an element of `buffer`."""
        element = self.element(buffer)
        if buffer.dtype in FLOAT8:
            once = value.op == f"to_{buffer.dtype}" and value.uid not in scope.known
            return f"eight_bits<{element}>({scope.text(value.args[0] if once else value)})"
        text = scope.text(value)
        if element == self.scalar(value.dtype):
            return text
        return f"static_cast<{element}>({text})" if " " in element else f"{element}({text})"

    def literal(self, value: float | int | bool, dtype: str) -> str:
        if dtype == "bool":
            return "true" if value else "false"
        if dtype != REAL:
            return f"{int(value)}LL" if dtype == "int64" and abs(int(value)) > 2**31 - 1 else str(int(value))
        v = float(value)
        if self.real == "float" and (abs(v) >= FLOAT_MAX or 0 < abs(v) <= FLOAT_MIN):  # as torch converts it
            v = math.copysign(math.inf if abs(v) > 1 else 0.0, v)
        if math.isnan(v):
            return "NAN"
        if math.isinf(v):
            return "INFINITY" if v > 0 else "-INFINITY"
        text = repr(v) if abs(v) < 1e16 or "e" in repr(v) else f"{v:.1f}"
        return text + self.suffix


@dataclass
class Sizes:
    """Sizes as the kernel's parameters name them: `rows`, `cols` and the rest; each is a polynomial of tensor sizes.

    params: name -> what it is at run time. replace: how an index over tensor sizes is written with the names.
    """

    params: dict[str, Poly] = field(default_factory=dict)

    def add(self, name: str, poly: Poly) -> None:
        self.params[name] = poly

    def write(self, poly: Poly) -> Poly:
        """`poly` with every named product of sizes replaced by its name, largest products first."""
        named = [(p, Size(n, p.hint())) for n, p in self.params.items() if p.atoms() and len(p.terms) == 1]
        named.sort(key=lambda pair: -len(pair[0].terms[0][0]))
        result = Poly()
        for monomial, c in poly.terms:
            term = Poly(((tuple(self._atom(a) for a in monomial), c),))
            result = result + self._term(term, named)
        return result

    def _term(self, term: Poly, named: list[tuple[Poly, Size]]) -> Poly:
        for p, size in named:
            rest = term.divide(p)
            if rest is not None and rest != term and p != Poly.of(size):
                return self._term(rest, named) * Poly.of(size)
        return term

    def _atom(self, atom: Atom) -> Atom:
        if isinstance(atom, Quotient):
            return Quotient(self.write(atom.top), self.write(atom.bottom))
        if isinstance(atom, Remainder):
            return Remainder(self.write(atom.top), self.write(atom.bottom))
        return atom


VarText = Callable[[Var], str]
ValueText = Callable[[Expr], str]


def poly_text(poly: Poly, var: VarText, value: ValueText, tight: bool = False) -> str:
    """An index in C: loop variables first in each product, so that 64-bit ones widen what follows."""
    if not poly.terms:
        return "0"
    parts: list[str] = []
    for monomial, c in poly.terms:
        wide = [a for a in monomial if not isinstance(a, Size)]
        narrow = [a for a in monomial if isinstance(a, Size)]
        factors = [_atom_text(a, var, value) for a in wide]
        if "0" in factors:  # a loop of one turn, which is not written
            continue
        sizes = [a.name for a in sorted(narrow, key=lambda s: s.name)]
        if not factors and len(sizes) > 1:
            factors = ["1LL"]
        factors += sizes
        if abs(c) != 1 or not factors:
            factors.append(str(abs(c)))
        alone = len(factors) == 1 and c > 0
        if wide and isinstance(wide[0], (Quotient, Remainder, *([Var] if alone else []))):
            factors[0] = bare(factors[0])  # nothing around it binds tighter
        text = " * ".join(factors)
        parts.append(("- " if c < 0 else "+ ") + text)
    if not parts:
        return "0"
    text = " ".join(parts)
    text = text[2:] if text.startswith("+ ") else "-" + text[2:]
    return f"({text})" if tight and (text.startswith("-") or re.search(r" [-+*/%] ", text)) else text


def _atom_text(atom: Atom, var: VarText, value: ValueText) -> str:
    if isinstance(atom, Var):
        return var(atom)
    if isinstance(atom, Value):
        return value(atom.expr)  # type: ignore[arg-type]
    if isinstance(atom, (Quotient, Remainder)):
        sign = "/" if isinstance(atom, Quotient) else "%"
        top = poly_text(atom.top, var, value)
        top = f"({top})" if re.search(r" [-+] ", top) or top.startswith("-") else top
        return f"({top} {sign} {poly_text(atom.bottom, var, value, True)})"
    return atom.name


@dataclass
class Scope:
    """What is already in a variable at one place of the kernel: expression id -> C text."""

    types: Types
    sizes: Sizes
    names: Names
    var: VarText
    load: Callable[[Expr, Scope], str]
    known: dict[int, str] = field(default_factory=dict)
    sums: dict[int, tuple[str, str]] = field(
        default_factory=dict
    )  # values held as a sum of two, to be subtracted singly
    divisors: dict[int, str] = field(default_factory=dict)  # values with a Divisor that divides by them
    twins: dict[int, Expr] = field(default_factory=dict)  # maxima of windows whose place is wanted, too

    def child(self, var: VarText | None = None, load: Callable[[Expr, Scope], str] | None = None) -> Scope:
        inner = Scope(self.types, self.sizes, self.names, var or self.var, load or self.load, dict(self.known))
        inner.sums, inner.divisors, inner.twins = self.sums, self.divisors, self.twins
        return inner

    def index(self, poly: Poly, tight: bool = False) -> str:
        return poly_text(self.sizes.write(poly), self.var, lambda e: self.text(e, 99), tight)

    def text(self, e: Expr, outer: int = 0) -> str:
        """`e` as an expression, in parentheses where `outer` binds tighter."""
        if e.uid in self.known:
            return self.known[e.uid]
        text, level = self._write(e)
        return f"({text})" if level < outer else text

    def _write(self, e: Expr) -> tuple[str, int]:
        if e.op == "const":
            assert e.value is not None
            text = self.types.literal(e.value, e.dtype)
            return text, 12 if text.startswith("-") else 99
        if e.op == "index":
            assert e.index is not None
            text = self.index(e.index)
            return text, 99 if re.fullmatch(r"\w+", text) else 10
        if e.op == "load":
            return self.load(e, self), 99
        if e.op == "cast":
            inner = e.args[0]
            target = self.types.scalar(e.dtype)
            return f"static_cast<{target}>({bare(self.text(inner))})", 99
        if e.op in ("reduce", "window"):
            raise NoCandidate("the engine cannot place a reduction within an element's index", operator=e.kind)
        return self._operator(e)

    def _operator(self, e: Expr) -> tuple[str, int]:
        name = e.op
        if name == "sub" and e.args[1].uid in self.sums:
            large, small = self.sums[e.args[1].uid]
            return f"{self.text(e.args[0], 10)} - {large} - {small}", 10
        if name == "div" and e.args[1].uid in self.divisors:
            return f"{self.divisors[e.args[1].uid]}.under({self.text(e.args[0])})", 99
        if self.types.suffix and (argument := argument_of_sigmoid(e, self.known)) is not None:
            return f"sigmoid({self.text(argument)})", 99
        if e.dtype == "bool" and name == "mul":
            name = "and"
        if e.dtype in INTEGERS and name in {"pow", "fmod", "atan2", "div", "exp", "log", "sqrt", "round"}:
            raise NoCandidate(f"integer {name} has no kernel", operator=f"{name} of {e.dtype}")
        if name == "abs" and e.dtype != REAL:
            x = self.text(e.args[0], 99)
            return f"{x} < 0 ? -{x} : {x}", 1
        level = PRECEDENCE.get(name, 99)
        template = C_REAL[name]
        if level == 99:
            args = [self.text(a) for a in e.args]
        elif len(e.args) == 1:
            args = [self.text(e.args[0], level)]
        elif name == "where":
            args = [self.text(e.args[0], 2), self.text(e.args[1], 2), self.text(e.args[2], 1)]
        else:
            args = [self.text(e.args[0], level), self.text(e.args[1], level + 1)]
        text = template.format(*args, f=self.types.suffix)
        if e.dtype in ("int8", "int16", "uint8") and name in {"add", "sub", "mul", "neg", "shl", "bitnot"}:
            return f"static_cast<{C_TYPES[e.dtype]}>({text})", 99  # C computes these in int
        return text, level

    def declare(self, e: Expr, wish: str) -> str:
        """A statement that puts `e` into a variable; later uses write the variable."""
        if e.op == "window":
            from kforge.engine.emit.windowcode import declare_window

            return declare_window(self, e, wish)
        text = self.text(e)
        name = self.names.fresh(wish)
        self.known[e.uid] = name
        comment = f"  // {e.origin.file}:{e.origin.line}" if e.origin is not None and e.origin.name else ""
        return f"const {self.types.scalar(e.dtype)} {name} = {text};{comment}"

    def declare_steps(
        self, roots: list[Expr], but: Expr | None = None, wish: Callable[[Expr], str] = wished_name
    ) -> list[str]:
        """Statements for what under the roots deserves a variable and has none. but: this one gets none."""
        steps = named_steps(roots, set(self.known))
        return [self.declare(e, wish(e)) for e in steps if e is not but and e.uid not in self.known]


def bare(text: str) -> str:
    """Without the parentheses around the whole of it, for where others stand around it already."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for k, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and k < len(text) - 1:
            return text
    return text[1:-1]


def identity(kind: str, dtype: str, types: Types) -> str:
    """The neutral element of a reduction in C."""
    if kind == "sum":
        return types.literal(0, dtype)
    if kind == "prod":
        return types.literal(1, dtype)
    low = kind.endswith("max")
    if dtype == REAL:
        return "-INFINITY" if low else "INFINITY"
    if dtype == "int32":
        return "-2147483647 - 1" if low else "2147483647"
    return "-9223372036854775807LL - 1" if low else "9223372036854775807LL"


def total(variables: tuple[Var, ...]) -> Poly:
    return product(v.size for v in variables)
