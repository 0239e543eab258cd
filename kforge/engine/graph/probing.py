"""Whether sizes that an import took to be one are one: the graph at other sizes of the inputs says so.

A literal of a graph that equals a size may follow it or be the user's own number, and nothing in one graph tells which.
The reference is captured again, with every size another one; what then has another shape than the import gave it was
taken for something else, and the import starts over with what the second graph shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import prod
from typing import Any

from kforge.engine.graph.evidence import numbers_of
from kforge.engine.graph.importer import Graph, Importer
from kforge.engine.graph.ir import Buffer
from kforge.engine.graph.symbols import Derived, Poly, Quotient, Remainder, Size
from kforge.engine.graph.tensors import Tensor

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Placeholders and the shapes that they get; the others keep theirs."""
Resized = Callable[[Shapes], Any]
"""The same graph for other shapes of its inputs; None where the reference does not take them."""
Sizes = dict[Size, Poly]

TOGETHER: tuple[Callable[[int, int], int], ...] = (lambda n, k: n + k + 1, lambda n, k: n * (k + 2))
"""The k-th size n, all at once: each becomes another, so that equal ones part."""
ALONE: tuple[Callable[[int], int], ...] = (lambda n: n + 1, lambda n: 2 * n, lambda n: 3 * n)


def contradictions(imp: Importer, graph: Graph, module: Any, resized: Resized) -> Sizes:
    """What must be known about sizes for the graph to hold at others too; empty where it does.

    A size at which alone the reference runs, or runs as another graph, is fixed.
    """
    sizes = _changeable(imp, graph)
    for grow in TOGETHER if len(sizes) > 1 else ():
        found = _compared(imp, graph, module, resized, {size: grow(size.hint, k) for k, size in enumerate(sizes)})
        if found is not None:
            return found
    for size in sizes:
        tried = (_compared(imp, graph, module, resized, {size: grow(size.hint)}) for grow in ALONE)
        found = next((f for f in tried if f is not None), None)
        if found is None:
            found = _tied(imp, graph, module, resized, size, [a for a in sizes if a.hint == size.hint])
        if found:
            return found
    return {}


def _tied(imp: Importer, graph: Graph, module: Any, resized: Resized, size: Size, equal: list[Size]) -> Sizes:
    """A size at others of which alone the reference does not run: one with an equal one where it runs at others of all
    that are equal, else fixed."""
    tried = (_compared(imp, graph, module, resized, dict.fromkeys(equal, grow(size.hint))) for grow in ALONE)
    return (_one(size, equal) if len(equal) > 1 and any(f is not None for f in tried) else {}) or _fixed([size])


def _one(size: Size, equal: list[Size]) -> Sizes:
    """A size and the first other one of these, in order of appearance, as one; empty where there is no other."""
    pair = [a for a in equal if a in (size, next((b for b in equal if b != size), None))]
    return {pair[1]: Poly.of(pair[0])} if len(pair) > 1 else {}


def _changeable(imp: Importer, graph: Graph) -> list[Size]:
    """The sizes that inputs alone have, in order of appearance. One might be there to be broadcast: it is changed only
    where a literal may be it."""
    inputs = (b for b in graph.inputs.values() if b.kind == "input")
    pinned = {a for b in graph.inputs.values() if b.kind != "input" for p in b.shape for a in p.atoms()}
    found = dict.fromkeys(a for b in inputs for p in b.shape for a in sorted(p.atoms(), key=repr))
    return [
        a
        for a in found
        if isinstance(a, Size) and a not in pinned and a not in imp.literals and (a.hint > 1 or a in imp.ones)
    ]


def _compared(imp: Importer, graph: Graph, module: Any, resized: Resized, new: Mapping[Size, int]) -> Sizes | None:
    """As `contradictions`, for these sizes; None where the reference does not run as the same graph."""
    other = resized(_shapes(graph.inputs, new))
    if other is None:
        return None
    own, theirs = list(module.graph.nodes), list(other.graph.nodes)
    if [_kind(n) for n in own] != [_kind(n) for n in theirs]:
        return None
    there = dict(zip(own, theirs, strict=True))
    if literals := _literals(imp, there, new):
        return literals
    odd = [size for node, size in imp.numbers if numbers_of(node) != numbers_of(there[node])]
    if odd:
        return _fixed(a for size in odd for a in size.atoms())
    beside = {a for a, (name, _) in imp.sources.items() if name not in {b.name for b in graph.inputs.values()}}
    for shape, value in _tensors(imp, there):  # but for sizes that only a library's results have
        told = [(size, n) for size, n in zip(value.shape, shape, strict=True) if not _atoms(size) & beside]
        wrong = [(size, n) for size, n in told if _at(size, new) != n]
        follows = [a for size, n in wrong for a in new if size.constant == a.hint and new[a] == n]
        if follows:  # what was taken for a number of the reference's own
            return _fixed(follows[:1])
        sizes = [size for size, _ in wrong]
        if sizes:
            plain = next((a for a in new if Poly.of(a) in sizes), None)
            same = _one(plain, [a for a in new if a.hint == plain.hint]) if plain is not None else {}
            return same or _fixed([a for size in sizes for a in size.atoms() if a in new] or new)
    return {}


def _kind(node: Any) -> Any:
    return node.target if node.op == "call_function" else node.op


def _shapes(inputs: Mapping[str, Buffer], new: Mapping[Size, int]) -> Shapes:
    found = []
    for name, buffer in inputs.items():
        if buffer.kind == "input" and any(a in new for p in buffer.shape for a in p.atoms()):
            found.append((name, tuple(_at(p, new) for p in buffer.shape)))
    return tuple(found)


def _literals(imp: Importer, there: Mapping[Any, Any], new: Mapping[Size, int]) -> Sizes:
    """Literals that follow no size although they were taken to, or follow one although they were not."""
    found: Sizes = {}
    sources = dict.fromkeys(imp.resolve(Poly.of(symbol)) for symbol in imp.sources)
    for literal, (node, read) in imp.literals.items():
        if read(node) != literal.hint:
            continue
        wide = read(there[node])
        if wide == _at(imp.resolve(Poly.of(literal)), new):
            continue
        follows = (p for p in sources if p.hint() == literal.hint and _at(p, new) == wide)
        same = Poly.of(literal.hint) if wide == literal.hint else next(follows, None)
        if same is None:
            return _fixed(new)
        found[literal] = same
    return found


def _tensors(imp: Importer, there: Mapping[Any, Any]) -> Iterator[tuple[tuple[int, ...], Tensor]]:
    """Each node's results: shape in the other graph, and as it was imported."""
    for node, value in imp.values.items():
        fake = there[node].meta.get("val")
        several = isinstance(value, (tuple, list)) and isinstance(fake, (tuple, list))
        for mine, other in zip(value, fake, strict=False) if several else [(value, fake)]:
            if isinstance(mine, Tensor) and hasattr(other, "shape") and len(mine.shape) == len(other.shape):
                yield tuple(int(n) for n in other.shape), mine


def _atoms(poly: Poly) -> set[Any]:
    """The sizes that a size is made of."""
    found = poly.atoms()
    return set(found).union(*(_atoms(a.base) for a in found if isinstance(a, Derived)))


def _at(poly: Poly, new: Mapping[Size, int]) -> int:
    """A size's value where some are others."""

    def value(atom: Any) -> int:
        if isinstance(atom, Derived):
            return (_at(atom.base, new) + atom.shift) // atom.step
        if isinstance(atom, Quotient):
            return _at(atom.top, new) // _at(atom.bottom, new)
        if isinstance(atom, Remainder):
            return _at(atom.top, new) % _at(atom.bottom, new)
        return new.get(atom, atom.hint)

    return sum(c * prod((value(a) for a in m), start=1) for m, c in poly.terms)


def _fixed(sizes: Any) -> Sizes:
    found: Sizes = {}
    for size in sizes:
        found |= _fixed(size.base.atoms()) if isinstance(size, Derived) else {size: Poly.of(size.hint)}
    return found
