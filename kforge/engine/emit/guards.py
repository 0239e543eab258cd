"""The checks at the top of a candidate's forward: ranks, sizes and dtypes of every tensor that the kernels rely on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kforge.engine.emit.cgen import Types
from kforge.engine.emit.hostcode import derived_text
from kforge.engine.graph.ir import FLOAT8, FLOATS, Buffer
from kforge.engine.graph.symbols import Derived, Poly, Size

FOLLOWED = ("float16", "bfloat16", "float32")
"""The dtypes that kernels computing in float take where all floating tensors have the same one."""
HALVES = ("float16", "bfloat16")


@dataclass
class Guards:
    """Lines that refuse what the kernels were not written for.

    tensors: those that forward receives or reads from self, under its names. minimum: sizes that must be at least so
    much. A size is taken from the first dimension that has it, inputs before parameters; every other is compared to it.
    """

    tensors: Sequence[Buffer]
    minimum: Mapping[Poly, int]
    _atoms: dict[Size, str] = field(default_factory=dict)
    _places: dict[Poly, tuple[str, Buffer]] = field(default_factory=dict)
    _seen: list[Buffer] = field(default_factory=list)

    def sizes(self) -> list[str]:
        """One ValueError for each relation, naming both sides; every rank is checked before a size is read."""
        lines: list[str] = []
        later: list[tuple[Buffer, int]] = []
        for b in sorted(self.tensors, key=lambda b: b.kind != "input"):
            lines += self._whole(b) or self._by_axis(b, later)
            self._seen.append(b)
        for b, axis in later:
            lines += self._compare(f"{_place(b, axis)}", b, self._written(b.shape[axis]))
        for poly, least in self.minimum.items():
            if poly.constant is None:
                left, among = self._written(poly)
                owner = among or self._seen[0]
                lines += refuse(f"{left} < {least}", f"these kernels need {left} >= {least}", _shapes(owner))
        return lines

    def _whole(self, b: Buffer) -> list[str]:
        """The whole shape at once where every size is known already."""
        if not all(self._known(p) for p in b.shape):
            return []
        left = f"{b.name}.shape"
        free = [p for p in b.shape if p.constant is None]
        for other in self._seen if free else []:
            if other.shape == b.shape:
                return self._compare(left, b, (f"{other.name}.shape", other))
        for other in self._seen if free else []:
            if other.shape[-len(b.shape) :] == b.shape:
                return self._compare(left, b, (f"{other.name}.shape[-{len(b.shape)}:]", other))
        parts = [self._written(p) for p in b.shape]
        inner = ", ".join(text for text, _ in parts) + ("," if len(parts) == 1 else "")
        return self._compare(left, b, (f"({inner})", next((o for _, o in parts if o is not None), None)))

    def _by_axis(self, b: Buffer, later: list[tuple[Buffer, int]]) -> list[str]:
        rank = len(b.shape)
        plural = "dimension" if rank == 1 else "dimensions"
        wish = f"these kernels need {b.name} with {rank} {plural}"
        lines = refuse(f"{b.name}.dim() != {rank}", wish, f"it has shape {{tuple({b.name}.shape)}}")
        for axis, poly in enumerate(b.shape):
            place = _place(b, axis)
            monomial, c = poly.terms[0] if len(poly.terms) == 1 else ((), 0)
            if self._known(poly):
                lines += self._compare(place, b, self._written(poly))
            elif len(monomial) == 1 and c > 0 and isinstance(monomial[0], Size) and type(monomial[0]) is not Derived:
                if c > 1:
                    lines += refuse(f"{place} % {c} != 0", f"these kernels need {place} % {c} == 0", _shapes(b))
                self._atoms[monomial[0]] = place if c == 1 else f"{place} // {c}"
                self._places[poly] = place, b
            else:
                later.append((b, axis))
        return lines

    def _compare(self, left: str, b: Buffer, right: tuple[str, Buffer | None]) -> list[str]:
        text, other = right
        if left == text:
            return []
        return refuse(f"{left} != {text}", f"these kernels need {left} == {text}", _shapes(b, other))

    def _known(self, poly: Poly) -> bool:
        return all(self._known(a.base) if isinstance(a, Derived) else a in self._atoms for a in poly.atoms())

    def _written(self, poly: Poly) -> tuple[str, Buffer | None]:
        """A size as Python and the tensor that it is read from; what no tensor gives has its captured value."""
        if poly.constant is not None:
            return str(poly.constant), None
        if poly in self._places:
            return self._places[poly]
        owners = [b for p, (_, b) in self._places.items() if p.atoms() & poly.atoms()]
        terms = []
        for monomial, c in poly.terms:
            factors = [str(c)] if c != 1 or not monomial else []
            for atom in monomial:
                assert isinstance(atom, Size)
                text = self._atoms.get(atom, str(atom.hint))
                if isinstance(atom, Derived):
                    text, among = self._written(atom.base)
                    text = derived_text(atom, text)
                    owners += [among] if among is not None else []
                factors.append(f"({text})" if "//" in text and (c != 1 or len(monomial) > 1) else text)
            terms.append(" * ".join(factors))
        return " + ".join(terms).replace("+ -", "- "), owners[0] if owners else None


def dtypes(tensors: Sequence[Buffer], types: Types) -> list[str]:
    """One TypeError for each tensor whose dtype the kernels were not written for.

    Kernels of one floating type follow it, and those of one 16-bit type beside float32 follow the former: torch's
    promotion is the same. Any other mix holds for its own dtypes only.
    """
    lines = []
    floating = {b.dtype for b in tensors if b.dtype in FLOATS}
    first: dict[str, Buffer] = {}
    for b in tensors:
        actual = f"{b.name} is {{{b.name}.dtype}}"
        fitting = [f"torch.{name}" for name in _followed(b.dtype, floating, types)]
        leader = first.setdefault(b.dtype, b)
        if len(fitting) == 1:
            wish = f"these kernels need {b.name} as {fitting[0]}"
            lines += refuse(f"{b.name}.dtype != {fitting[0]}", wish, actual, "TypeError")
        elif b is leader:
            wish = f"these kernels need {b.name} as {', '.join(fitting[:-1])} or {fitting[-1]}"
            lines += refuse(f"{b.name}.dtype not in ({', '.join(fitting)})", wish, actual, "TypeError")
        else:
            test = f"{b.name}.dtype != {leader.name}.dtype"
            both = f"{actual}, {leader.name} is {{{leader.name}.dtype}}"
            lines += refuse(test, f"these kernels need {b.name} of the dtype of {leader.name}", both, "TypeError")
    return lines


def _followed(dtype: str, floating: set[str], types: Types) -> tuple[str, ...]:
    """The dtypes that tensors captured as `dtype` may have."""
    if types.fixed or types.real != "float" or dtype not in types.aliases or dtype in FLOAT8:
        return (dtype,)
    if len(floating) == 1:
        return FOLLOWED
    return HALVES if dtype in HALVES and floating == {dtype, "float32"} else (dtype,)


def refuse(test: str, wish: str, actual: str, error: str = "ValueError", width: int = 112) -> list[str]:
    """An `if` that raises with what is needed and, from an f-string's fields, what there is."""
    one = f'    raise {error}(f"{wish}; {actual}")'
    if len(one) <= width:
        return [f"if {test}:", one]
    lines = [f'        "{part}"' for part in _packed(f"{wish}; ", width - 10)]
    lines += [f'        f"{part}"' for part in _packed(actual, width - 11)]
    return [f"if {test}:", f"    raise {error}(", *lines, "    )"]


def _packed(text: str, width: int) -> list[str]:
    """Words, an f-string's fields among them, in parts of bounded length."""
    parts = [""]
    for word in re.findall(r"(?:\{[^}]*\}+|[^\s{])+ ?", text):
        if parts[-1] and len(parts[-1]) + len(word) > width:
            parts.append("")
        parts[-1] += word
    return parts


def _place(b: Buffer, axis: int) -> str:
    rank = len(b.shape)
    return f"{b.name}.shape[{axis - rank if axis * 2 >= rank else axis}]"


def _shapes(*tensors: Buffer | None) -> str:
    named = dict.fromkeys(b.name for b in tensors if b is not None)
    return ", ".join(f"{name} has shape {{tuple({name}.shape)}}" for name in named)
