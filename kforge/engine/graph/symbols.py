"""Sizes and indices as polynomials with integer coefficients; owns their arithmetic and nothing about tensors.

A size is a polynomial over size symbols (`cols`, `x_0`), an index one over loop variables, sizes and opaque quotients
and remainders. Division is exact where a bound proves it, which is what lets a view be read as an index map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import gcd, prod


@dataclass(frozen=True)
class Size:
    """A size read from a tensor at run time. `hint` is its value at capture."""

    name: str
    hint: int

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Derived(Size):
    """A size that follows from another: floor((base + shift) / step)."""

    base: Poly
    shift: int
    step: int


@dataclass(frozen=True)
class Var:
    """A loop variable that runs over [0, size)."""

    name: str
    size: Poly

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, repr=False)
class Tap(Var):
    """A variable of a window's own loops; level counts the windows around it, from 1."""

    level: int = 1


@dataclass(frozen=True)
class Quotient:
    """floor(top / bottom), both non-negative."""

    top: Poly
    bottom: Poly


@dataclass(frozen=True)
class Remainder:
    """top mod bottom, both non-negative."""

    top: Poly
    bottom: Poly


@dataclass(frozen=True)
class Value:
    """An integer computed by the kernel (a gathered index); `expr` is an ir.Expr and `bound` its exclusive limit."""

    expr: object
    bound: Poly

    def __repr__(self) -> str:
        return f"Value({self.expr!r})"


Atom = Size | Var | Quotient | Remainder | Value
Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class Poly:
    """A sum of `coefficient * product of atoms`, in one canonical order so that equal polynomials compare equal."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(value: int | Atom | Poly) -> Poly:
        if isinstance(value, Poly):
            return value
        if isinstance(value, int):
            return Poly((((), value),)) if value else Poly()
        return Poly((((value,), 1),))

    @staticmethod
    def _make(terms: Mapping[Monomial, int]) -> Poly:
        return Poly(tuple(sorted(((m, c) for m, c in terms.items() if c), key=_order)))

    def __add__(self, other: int | Poly) -> Poly:
        total = dict(self.terms)
        for monomial, c in Poly.of(other).terms:
            total[monomial] = total.get(monomial, 0) + c
        return Poly._make(total)

    def __mul__(self, other: int | Poly) -> Poly:
        total: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in Poly.of(other).terms:
                key = tuple(sorted(m + n, key=repr))
                total[key] = total.get(key, 0) + c * d
        return Poly._make(total)

    def __neg__(self) -> Poly:
        return self * -1

    def __sub__(self, other: int | Poly) -> Poly:
        return self + -Poly.of(other)

    __radd__ = __add__
    __rmul__ = __mul__

    @property
    def constant(self) -> int | None:
        """The integer that this polynomial is, or None."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def atoms(self) -> set[Atom]:
        """The atoms of this polynomial, those inside quotients and remainders included."""
        found: set[Atom] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                found.add(atom)
                if isinstance(atom, (Quotient, Remainder)):
                    found |= atom.top.atoms() | atom.bottom.atoms()
        return found

    def coefficient(self, atom: Atom) -> Poly:
        """The polynomial that multiplies `atom` (linear occurrences only)."""
        picked: dict[Monomial, int] = {}
        for m, c in self.terms:
            if m.count(atom) == 1:
                rest = list(m)
                rest.remove(atom)
                picked[tuple(rest)] = picked.get(tuple(rest), 0) + c
        return Poly._make(picked)

    def substitute(self, mapping: Mapping[Atom, Poly]) -> Poly:
        """This polynomial with atoms replaced, quotients and remainders worked out again."""
        total = Poly()
        for m, c in self.terms:
            term = Poly.of(c)
            for atom in m:
                term = term * _replace(atom, mapping)
            total = total + term
        return total

    def hint(self) -> int:
        """The value at capture; loop variables count as zero."""
        return sum(c * prod((_hint(a) for a in m), start=1) for m, c in self.terms)

    def divide(self, other: Poly) -> Poly | None:
        """The exact quotient by a monomial, or None."""
        if len(other.terms) != 1:
            return Poly.of(1) if self == other else None
        (factors, d) = other.terms[0]
        total: dict[Monomial, int] = {}
        for m, c in self.terms:
            rest = list(m)
            for atom in factors:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if c % d:
                return None
            total[tuple(rest)] = c // d
        return Poly._make(total)


def _order(term: tuple[Monomial, int]) -> tuple[int, str]:
    return (-len(term[0]), repr(term[0]))


def _replace(atom: Atom, mapping: Mapping[Atom, Poly]) -> Poly:
    if atom in mapping:
        return mapping[atom]
    if isinstance(atom, Quotient):
        return floor_div(atom.top.substitute(mapping), atom.bottom.substitute(mapping))
    if isinstance(atom, Remainder):
        return remainder(atom.top.substitute(mapping), atom.bottom.substitute(mapping))
    return Poly.of(atom)


def _hint(atom: Atom) -> int:
    if isinstance(atom, Size):
        return atom.hint
    if isinstance(atom, Quotient):
        return atom.top.hint() // atom.bottom.hint()
    if isinstance(atom, Remainder):
        return atom.top.hint() % atom.bottom.hint()
    return 0


def product(sizes: Iterable[Poly]) -> Poly:
    total = Poly.of(1)
    for size in sizes:
        total = total * size
    return total


def largest(index: Poly) -> Poly | None:
    """An upper bound of a non-negative index: every variable at its last value; None where a sign forbids it."""
    mapping: dict[Atom, Poly] = {}
    for m, c in index.terms:
        for atom in m:
            if isinstance(atom, Size):
                continue
            if c < 0:
                return None
            if isinstance(atom, Var):
                mapping[atom] = atom.size - 1
            elif isinstance(atom, Value):
                mapping[atom] = atom.bound - 1
            elif isinstance(atom, Remainder):
                mapping[atom] = atom.bottom - 1
            else:
                top = largest(atom.top)
                if top is None:
                    return None
                mapping[atom] = floor_div(top, atom.bottom)
    total = Poly()
    for m, c in index.terms:
        term = Poly.of(c)
        for atom in m:
            term = term * mapping.get(atom, Poly.of(atom))
        total = total + term
    return total


def _least(index: Poly) -> Poly | None:
    """A lower bound: what is added at zero, what is taken away at its last value; None where that is not known."""
    total = Poly()
    for m, c in index.terms:
        moving = [a for a in m if not isinstance(a, Size)]
        if c > 0 and moving:
            continue
        most = largest(Poly(((m, -c),))) if moving else Poly(((m, -c),))
        if most is None:
            return None
        total = total - most
    return total


def counts_up(poly: Poly) -> bool:
    """Whether it is a sum of what cannot be negative, whatever the sizes are, and of nothing that a kernel computes."""
    return all(c > 0 for _, c in poly.terms) and not any(isinstance(a, Value) for a in poly.atoms())


def _is_index(poly: Poly) -> bool:
    """Whether it is provably no less than zero."""
    if all(c > 0 for _, c in poly.terms):
        return True
    least = _least(poly)
    return least is not None and never_negative(least)


def never_negative(poly: Poly) -> bool:
    """True when sizes of at least 1 make it non-negative: provable by shifting every size s to s' + 1."""
    sizes = {a for m, _ in poly.terms for a in m}
    if not all(isinstance(a, (Size, Quotient)) for a in sizes):
        return False
    shifted = Poly()
    for m, c in poly.terms:
        term = Poly.of(c)
        for atom in m:
            term = term * (Poly.of(atom) + 1)
        shifted = shifted + term
    return all(c >= 0 for _, c in shifted.terms)


BACK = 9
"""How many multiples of a size may be added again to what counts backwards, as where it was repeated."""


def _split(top: Poly, bottom: Poly) -> tuple[Poly, Poly]:
    """top as quotient * bottom + rest, term by term; what counts backwards leaves no rest below zero."""
    quotient, rest = Poly(), Poly()
    for m, c in top.terms:
        term = Poly(((m, c),))
        exact = term.divide(bottom)
        if exact is None and bottom.constant and not m:
            quotient, rest = quotient + c // bottom.constant, rest + c % bottom.constant
        elif exact is None:
            rest = rest + term
        else:
            quotient = quotient + exact
    for turns in range(BACK):
        if _is_index(moved := rest + bottom * turns):
            return quotient - turns, moved
    return Poly(), top


def _below(index: Poly, limit: Poly) -> bool:
    top = largest(index)
    return top is not None and never_negative(limit - 1 - top)


def floor_div(top: Poly, bottom: Poly) -> Poly:
    """floor(top / bottom) of a non-negative index by a positive size."""
    if bottom.constant == 1:
        return top
    quotient, rest = _split(top, bottom)
    if not rest.terms or _below(rest, bottom):
        return quotient
    if (cut := _cut(rest, bottom)) is not None:
        high, step, _ = cut
        return quotient + floor_div(high, _exact(bottom, step))
    return quotient + Poly.of(Quotient(rest, bottom))


def remainder(top: Poly, bottom: Poly) -> Poly:
    """top mod bottom of a non-negative index by a positive size."""
    if bottom.constant == 1:
        return Poly()
    _, rest = _split(top, bottom)
    if not rest.terms or _below(rest, bottom):
        return rest
    if (cut := _cut(rest, bottom)) is not None:
        high, step, low = cut
        return remainder(high, _exact(bottom, step)) * step + low
    return Poly.of(Remainder(rest, bottom))


def _cut(top: Poly, bottom: Poly) -> tuple[Poly, Poly, Poly] | None:
    """(high, step, low): top = high * step + low where step divides bottom and low is below it; the largest step."""
    if len(bottom.terms) != 1:
        return None
    (factors, d) = bottom.terms[0]
    steps: dict[Poly, None] = {}
    for m, c in top.terms:
        rest, shared = list(m), []
        for atom in factors:
            if atom in rest:
                rest.remove(atom)
                shared.append(atom)
        steps[Poly(((tuple(shared), gcd(c, d)),))] = None
    for step in sorted(steps, key=Poly.hint, reverse=True):
        if step.constant == 1 or step == bottom:
            continue
        parts = [(Poly((term,)), Poly((term,)).divide(step)) for term in top.terms]
        low = sum((whole for whole, high in parts if high is None), Poly())
        if _is_index(low) and _below(low, step):
            return sum((high for _, high in parts if high is not None), Poly()), step, low
    return None


def _exact(bottom: Poly, step: Poly) -> Poly:
    found = bottom.divide(step)
    assert found is not None
    return found


def rejoin(index: Poly) -> Poly:
    """Quotient * divisor + remainder is the index that was taken apart."""
    for atom in sorted((a for a in index.atoms() if isinstance(a, Remainder)), key=repr):
        quotient = floor_div(atom.top, atom.bottom)
        factor = index.coefficient(atom)
        whole = index - factor * (Poly.of(atom) + quotient * atom.bottom) + factor * atom.top
        if factor.terms and len(whole.terms) < len(index.terms):
            index = whole
    return index
