"""The Python of a candidate's forward: sizes, allocation, launches, results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kforge.engine.emit.kernelcode import KernelCode
from kforge.engine.graph.importer import Graph
from kforge.engine.graph.ir import Buffer
from kforge.engine.graph.symbols import Derived, Poly, Size, product

Shape = tuple[Poly, ...]


@dataclass
class Host:
    """Expressions over the shapes of forward's tensors. known_names: sizes that already are local variables."""

    graph: Graph
    names: dict[str, Buffer]
    locals: dict[Poly, str] = field(default_factory=dict)

    @property
    def tensors(self) -> list[Buffer]:
        return [b for b in self.names.values() if b.kind == "input" and b.shape] + [
            b for b in self.names.values() if b.kind in ("parameter", "library") and b.shape
        ]

    def size(self, poly: Poly, use_locals: bool = True) -> str:
        """A size as Python: a constant, a dimension, a run of dimensions of one tensor, else a product or sum."""
        if poly.constant is not None:
            return str(poly.constant)
        if use_locals and poly in self.locals:
            return self.locals[poly]
        return self._run(poly) or self._parts(poly)

    def _run(self, poly: Poly) -> str | None:
        for b in self.tensors:
            rank = len(b.shape)
            if product(b.shape) == poly and rank > 1:
                return f"{b.name}.numel()"
            for axis in range(rank):
                if b.shape[axis] == poly:
                    return f"{b.name}.shape[{axis - rank if axis * 2 >= rank else axis}]"
        for b in self.tensors:
            rank = len(b.shape)
            for first in range(rank):
                for last in range(first + 2, rank + 1):
                    if product(b.shape[first:last]) == poly:
                        end = "" if last == rank else str(last - rank)
                        return f"{b.name}.shape[{first or ''}:{end}].numel()"
        return None

    def _parts(self, poly: Poly) -> str:
        terms = []
        for monomial, c in poly.terms:
            factors = [self._atom(a) for a in monomial]
            if c != 1 or not factors:
                factors.insert(0, str(c))
            terms.append(" * ".join(factors))
        if len(terms) == 1 and len(poly.terms[0][0]) == 1 and poly.terms[0][1] == 1:
            return terms[0].removeprefix("(").removesuffix(")") if terms[0].startswith("(") else terms[0]
        return " + ".join(terms).replace("+ -", "- ")

    def _atom(self, atom: object) -> str:
        assert isinstance(atom, Size)
        symbol = Poly.of(atom)
        if symbol in self.locals:
            return self.locals[symbol]
        if isinstance(atom, Derived):
            return derived_text(atom, self.size(atom.base))
        direct = self._run(symbol)
        if direct is not None:
            return direct
        for size, value in self.graph.known.items():  # a part of a size that was divided
            if value.atoms() == {atom} and len(value.terms) == 1 and size in self.graph.sources:
                name, axis = self.graph.sources[size]
                return f"{name}.shape[{axis}] // {value.terms[0][1]}"
        return str(atom.hint)

    def shape(self, shape: Shape) -> str:
        """A shape as Python: another tensor's where one has it, else a tuple."""
        for b in self.tensors:
            if b.shape == shape:
                return f"{b.name}.shape"
            if len(b.shape) > 1 and b.shape[:-1] == shape:
                return f"{b.name}.shape[:-1]"
            if len(b.shape) > 1 and (*b.shape[:-1], Poly.of(1)) == shape:
                return f"(*{b.name}.shape[:-1], 1)"
            if len(b.shape) > 1 and len(shape) == len(b.shape) and b.shape[:-1] == shape[:-1]:
                return f"(*{b.name}.shape[:-1], {self.size(shape[-1])})"
        inner = ", ".join(self.size(s) for s in shape)
        return f"({inner},)" if len(shape) == 1 else f"({inner})"


def derived_text(size: Derived, base: str) -> str:
    """A derived size as Python, in parentheses, given that of its base."""
    whole = f"{base} {'+' if size.shift > 0 else '-'} {abs(size.shift)}" if size.shift else base
    return (
        f"({whole})"
        if size.step == 1
        else f"(({whole}) // {size.step})"
        if " " in whole
        else f"({base} // {size.step})"
    )


def launch_lines(
    options: Sequence[KernelCode], variables: Mapping[str, str], host: Host, local: Mapping[tuple[str, str], str]
) -> list[str]:
    """Calls of the first kernel whose limit holds; an error where none does."""
    lines: list[str] = []
    limit = ""
    for k, code in enumerate(options):
        last = not code.limit
        sizes = {s: local.get((code.name, s)) or host.size(p) for s, p in code.sizes.items()}
        arguments = [text.format(", ".join(sizes[s] for s in shape)) for text, shape in code.operands]
        arguments += [*code.passed, *sizes.values(), *code.counts]
        call = f"{variables[code.name]}({', '.join(arguments)})"
        if last and not lines:
            return [call]
        limit = re.sub(r"\b(rows|cols)\b", lambda m, n=code.name: local[n, m.group(1)], code.limit)  # type: ignore[misc]
        head = "else:" if last else f"{'if' if k == 0 else 'elif'} {limit}:"
        lines += [head, f"    {call}"]
        if last:
            return lines
    count, _, most = limit.partition(" <= ")
    need = f"these kernels need rows of at most {most} elements; these have {{{count}}}"
    return [*lines, "else:", f'    raise ValueError(f"{need}")']
