"""Where tiles of window kernels lie: their number, what they reach, pointers to the planes that they are in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kforge.engine.emit.cgen import Scope
from kforge.engine.graph.ir import Buffer
from kforge.engine.graph.symbols import Poly, Size, Var, product
from kforge.engine.graph.tensors import linear

KINDS = ("line", "plane", "volume")


def divided(size: str, count: str) -> str:
    """ceil(size / count) in C; a size that is known is worked out with the rest."""
    whole = f"({count})" if " " in count else count
    return f"({count} + {int(size) - 1}) / {whole}" if size.isdigit() else f"({size} + {count} - 1) / {whole}"


def spanned(count: str, stride: int, extent: int) -> str:
    """Places from the first to the last that `count` windows reach: (count - 1) * stride + extent."""
    more = extent - stride
    first = f"{count} * {stride}" if stride > 1 else count
    return f"{first} {'-' if more < 0 else '+'} {abs(more)}" if more else first


def in_vectors(columns: int) -> str:
    """ceil(columns / VEC) in C."""
    return "1" if columns == 1 else f"(VEC + {columns - 1}) / VEC"


def in_whole_vectors(columns: int) -> str:
    """The least multiple of VEC that is not below `columns`, in C."""
    return "VEC" if columns == 1 else f"{in_vectors(columns)} * VEC"


@dataclass
class Planes:
    """The loops around a window, `plane`, which counts through all of them, and pointers to planes of operands.

    outer: those loops; rank: of the window, 1 to 3; pointers: by buffer and what is the same for a whole tile of an
    index into it.
    """

    outer: tuple[Var, ...]
    rank: int
    scope: Scope
    pointers: dict[tuple[str, Poly], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        outer, sizes = self.outer, tuple(v.size for v in self.outer)
        self.around = linear(tuple(map(Poly.of, outer)), sizes)
        self.plane = outer[0] if len(outer) == 1 else Var("plane", product(sizes))
        image = self.scope.names.fresh("image") if len(outer) == 2 else ""
        names = [image or f"plane_{k}" for k in range(len(outer) - 1)]
        self.names = dict(zip(outer, [*names, "channel"], strict=False)) | {self.plane: "plane"}

    def indices(self) -> Iterator[str]:
        """Declares `plane` and the loops that it counts through, from what is left of a flat index in `rest`."""
        yield "const long long plane = rest;"
        left = "rest"
        for k in range(len(self.outer) - 1, -1 if len(self.outer) > 1 else 0, -1):
            size = self.scope.index(self.outer[k].size, True)
            yield f"const long long {self.names[self.outer[k]]} = {left}{f' % {size}' if k else ''};"
            left += f" / {size}"

    def flat(self, index: Poly) -> Poly:
        """`index` by the number of the plane where it follows the loops around the window as they lie."""
        factor = index.coefficient(self.outer[-1]) if self.outer else Poly()
        rest = index - self.around * factor
        return index if rest.atoms() & set(self.outer) else rest + factor * Poly.of(self.plane)

    def _still(self, index: Poly) -> Poly:
        """What is the same for the whole tile of a flat index."""
        still = {*self.outer, self.plane}
        return Poly(tuple((m, c) for m, c in index.terms if m and all(isinstance(a, Size) or a in still for a in m)))

    def pointer(self, buffer: Buffer, index: Poly) -> tuple[str, Poly]:
        """A pointer that is declared or the buffer itself, and the index from there."""
        index = self.flat(index)
        still = self._still(index)
        pointer = self.pointers.get((buffer.name, still))
        return (pointer, index - still) if pointer else (buffer.name, index)

    def address(self, buffer: Buffer, index: Poly) -> str:
        pointer, rest = self.pointer(buffer, index)
        return f"{pointer} + {self.scope.index(rest)}" if rest.terms else pointer

    def declare(self, accesses: Iterable[tuple[Buffer, Poly]], written: bool = False) -> Iterator[str]:
        """Pointers to the planes that a tile is read from, or written to."""
        for buffer, index in accesses:
            still = self._still(self.flat(index))
            if still.terms and (buffer.name, still) not in self.pointers:
                name = self.scope.names.fresh(f"{buffer.name}_{KINDS[self.rank - 1]}")
                element = f"{'' if written else 'const '}{self.scope.types.element(buffer)}"
                yield f"{element}* {name} = {buffer.name} + {self.scope.index(still)};"
                self.pointers[buffer.name, still] = name
