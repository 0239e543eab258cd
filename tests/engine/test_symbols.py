"""Polynomials of sizes: the algebra that lets a view be an index map."""

from __future__ import annotations

from kforge.engine.graph.symbols import Poly, Size, Var, floor_div, product, remainder
from kforge.engine.graph.tensors import linear, unflatten

B, T, D = (Poly.of(Size(n, h)) for n, h in (("B", 2), ("T", 5), ("D", 8)))
b, t, d = (Poly.of(Var(n, s)) for n, s in (("b", B), ("t", T), ("d", D)))


def test_equal_sums_are_equal() -> None:
    """Order of operations does not matter, cancelled terms vanish."""
    assert (b * D + t) * 2 == t * 2 + D * b * 2
    assert b * D - D * b == Poly()
    assert (B * T).hint() == 10


def test_index_taken_apart_gives_itself() -> None:
    """Flattening an index and taking it apart again is the identity, by proof and not by sampling."""
    assert unflatten(linear((b, t, d), (B, T, D)), (B, T, D)) == (b, t, d)
    assert unflatten(linear((b, t, d), (B, T, D)), (B * T, D)) == (b * T + t, d)


def test_division_with_remainder() -> None:
    """What is provably below the divisor is the remainder; what is not stays a quotient."""
    index = b * T * D + t * D + d
    assert floor_div(index, D) == b * T + t
    assert remainder(index, T * D) == t * D + d
    assert floor_div(index, T) != floor_div(index, D)
    assert remainder(b * D + 7, D) != Poly.of(7)  # D may be smaller than 8


def test_exact_division() -> None:
    """A product divides by its factors and by nothing else."""
    assert product([B, T, D]).divide(T) == B * D
    assert (B * 4).divide(Poly.of(2)) == B * 2
    assert (B * 3).divide(Poly.of(2)) is None
    assert B.divide(T) is None
