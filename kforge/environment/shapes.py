"""Derived shapes: a task's own inputs at other sizes; equal sizes change together (knowledge/inputs.md 5, 9).

Every dimension of an input belongs to a symbol (free to change) or is tied (to a parameter, to another input's values).
A kind gives each symbol a new size; whether the reference accepts the result is found by running it. The values are the
task's own: slices where a size shrinks, elements drawn again where it grows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.environment.trees import leaf_tensors, map_tensors

if TYPE_CHECKING:
    import torch

    from kforge.task import Call

KINDS = ("prime", "minus", "plus", "tile", "row", "column", "tall", "deep", "wide", "empty", "hollow")
RARE = ("long",)  # once in a plan, not in its covering array: sums that pass their lower levels on twice take long
ELEMENTS = 24 * 1024  # of all inputs of a derived shape together: small enough for the emulator, large for a statistic
DRAWN = 1 << 22  # numbers from which indices that differ are drawn
LARGEST = 4 * ELEMENTS  # where a kind asks for more than that, it gets less
PRIMES = (17, 13, 11, 7, 5, 3)


@dataclass(frozen=True)
class Sizes:
    """What is known about the sizes of a call: one tuple per tensor, a symbol or None (tied) for each dimension.

    given: symbol -> its size in the task. inner: the symbol of the last dimension of the largest input, None if tied.
    """

    symbols: tuple[tuple[int | None, ...], ...]
    shapes: tuple[tuple[int, ...], ...]
    given: Mapping[int, int]
    inner: int | None

    @property
    def outer(self) -> tuple[int, ...]:
        """The other symbols, in order of appearance."""
        return tuple(s for s in self.given if s != self.inner)

    def elements(self, new: Mapping[int, int]) -> int:
        """Elements of all inputs where symbols have these sizes."""
        total = 0
        for names, shape in zip(self.symbols, self.shapes, strict=True):
            count = 1
            for name, size in zip(names, shape, strict=True):
                count *= size if name is None else new[name]
            total += count
        return total


def find_sizes(call: Call, tied: Collection[int], accepts: Callable[[Call], bool]) -> Sizes:
    """Group the dimensions of a call's inputs by size.

    tied: sizes of parameters and of the constructor's arguments. accepts: whether the reference runs on a call; asked
    for each dimension whose size also occurs elsewhere or is tied. One that may change alone is a symbol of its own,
    together with those of its size at the same place of other inputs that may as well (two inputs' batch is one batch).
    """
    leaves = leaf_tensors(call)
    shapes = tuple(tuple(t.shape) for t in leaves)
    places = [(i, d) for i, shape in enumerate(shapes) for d in range(len(shape))]
    count: dict[int, int] = {}
    for i, d in places:
        count[shapes[i][d]] = count.get(shapes[i][d], 0) + 1
    shared = {p for p in places if (n := shapes[p[0]][p[1]]) > 1 and (count[n] > 1 or n in tied)}
    alone = {p for p in shared if accepts(_longer(call, p))}
    names: dict[tuple[int, int], int | None] = {}
    given: dict[int, int] = {}
    groups: dict[tuple[int, int | None], int] = {}  # (size, dimension or None for those that change together only)
    for place in places:
        size = shapes[place[0]][place[1]]
        if size < 2 or (size in tied and place not in alone):
            names[place] = None
            continue
        group = (size, place[1] if place in alone or place not in shared else None)
        if group not in groups:
            groups[group] = len(given)
            given[len(given)] = size
        names[place] = groups[group]
    symbols = tuple(tuple(names[i, d] for d in range(len(shape))) for i, shape in enumerate(shapes))
    largest = max(range(len(shapes)), key=lambda i: leaves[i].numel(), default=None)
    inner = symbols[largest][-1] if largest is not None and symbols[largest] else None
    return Sizes(symbols, shapes, given, inner)


def derive(sizes: Sizes, kind: str) -> dict[int, int] | None:
    """The new size of each symbol, None where the kind changes nothing here. `inner=N` and `outer=N` are kinds too."""
    if not sizes.given:
        return None
    name, _, number = kind.partition("=")
    kept = dict(sizes.given)
    inner, outer = sizes.inner, sizes.outer
    small = {s: min(kept[s], PRIMES[min(i, len(PRIMES) - 1)]) for i, s in enumerate(outer)}
    fixed: set[int] = set()

    def put(symbol: int | None, size: int) -> bool:
        if symbol is None:
            return False
        kept[symbol] = size
        fixed.add(symbol)
        return True

    if name in ("inner", "outer") and number:
        chosen = [inner] if name == "inner" else list(outer[:1])
        if not chosen or not put(chosen[0], int(number)):
            return None
        kept |= {s: min(kept[s], 3 if int(number) > 4096 else 17) for s in kept if s not in fixed}
    elif kind in ("minus", "plus"):
        for symbol, size in sizes.given.items():
            kept[symbol] = max(1, size + (1 if kind == "plus" else -1))
        fixed = {inner} if inner is not None else set()
    elif kind == "row":
        if not outer or all(kept[s] == 1 for s in outer):
            return None
        for symbol in outer:
            put(symbol, 1)
    elif kind == "column":
        if not put(inner, 1):
            return None
    elif kind == "prime":
        put(inner, 67)
        for i, symbol in enumerate(outer):
            put(symbol, (31, 19, 7, 5, 3)[min(i, 4)])
    elif kind == "tile":
        put(inner, 36)
        for i, symbol in enumerate(outer):
            put(symbol, (33, 65, 5, 3)[min(i, 3)])
    elif kind == "tall":
        if not outer:
            return None
        put(inner, 5)
        kept |= {s: min(kept[s], 3) for s in outer}
        put(outer[0], 1031)
    elif kind == "deep":
        if len(outer) < 2:
            return None
        put(inner, 6)
        kept |= {s: min(kept[s], 3) for s in outer}
        put(outer[-1], 521)
    elif kind == "long":
        if not outer:
            return None
        kept |= dict.fromkeys(outer, 1)
        put(inner, 5)
        put(outer[-1], 8209)
    elif kind == "wide":
        kept |= {s: min(kept[s], 3) for s in outer}
        if not put(inner, 4099):
            return None
    elif kind == "empty":
        if not outer:
            return None
        put(outer[0], 0)
    elif kind == "hollow":
        if not put(inner, 0):
            return None
    else:
        raise ValueError(f"no such kind of shape: {kind}")
    return _fit(sizes, kept, fixed, small) if kept != sizes.given else None


def _fit(sizes: Sizes, new: dict[int, int], fixed: set[int], small: Mapping[int, int]) -> dict[int, int]:
    """Shrink what the kind does not ask for, largest first, until the inputs are small."""
    loose = sorted((s for s in new if s not in fixed), key=lambda s: -new[s])
    for symbol in loose:
        while sizes.elements(new) > ELEMENTS and new[symbol] > small.get(symbol, 31):
            new[symbol] = max(small.get(symbol, 31), new[symbol] // 2 - 1)
    for symbol in sorted((s for s in new if s != sizes.inner), key=lambda s: (s in fixed, -new[s])):
        least = 7 if symbol in fixed else 3
        while sizes.elements(new) > LARGEST and new[symbol] > least:  # tied sizes may be large
            new[symbol] = max(least, new[symbol] * 2 // 3 | 1)
    return new


def resize(call: Call, sizes: Sizes, new: Mapping[int, int]) -> Call:
    """The call with each symbol at its new size. Draws from torch's generator where a size grows.

    An integer input whose values are indices or lengths along a changed size stays one: values up to the old size are
    cut to the new one, indices below it taken modulo the new one. ValueError for an index into nothing.
    """
    leaves = leaf_tensors(call)
    if tuple(tuple(t.shape) for t in leaves) != sizes.shapes:
        raise ValueError("the sizes of its inputs vary from draw to draw")
    order = {id(t): i for i, t in reversed(list(enumerate(leaves)))}

    def change(path: str, x: torch.Tensor) -> torch.Tensor:
        number, given = order[id(x)], x
        x = _indices(x, {sizes.given[s]: size for s, size in new.items()})
        for dim, symbol in enumerate(sizes.symbols[number]):
            if symbol is not None and new[symbol] != x.shape[dim]:
                x = _along(x, dim, new[symbol])
        along = _distinct(given)
        return x if along is None else _apart(x, along, given, {sizes.given[s]: size for s, size in new.items()})

    return map_tensors(call, change)


def _distinct(x: torch.Tensor) -> int | None:
    """The dimension along which the integers of `x` are all different, and in no order; None where there is none."""
    if x.dtype.is_floating_point or x.dtype.is_complex or x.element_size() < 4 or not x.numel() or int(x.min()) < 0:
        return None
    for dim, size in enumerate(x.shape):
        if size > 2 and _differ(x, dim) and not bool((x.diff(dim=dim) > 0).all()):
            return dim
    return None


def _differ(x: torch.Tensor, dim: int) -> bool:
    return bool((x.sort(dim).values.diff(dim=dim) > 0).all())


def _apart(x: torch.Tensor, dim: int, given: torch.Tensor, changes: Mapping[int, int]) -> torch.Tensor:
    """`x` with integers that are different along `dim`, as those of `given` are: new ones, in an order of each line's.

    They stay below the size that `given` seems to be indices into. `x` itself where they are different already, and
    where that size is too small.
    """
    import torch

    top, count = int(given.max()) + 1, x.shape[dim]
    size = next((new for old, new in sorted(changes.items()) if old >= top), top)
    bound = size if size < top or count > top else top
    lines = [bound if d == dim else n for d, n in enumerate(x.shape)]
    if count > bound or math.prod(lines) > DRAWN or _differ(x, dim):
        return x
    return torch.rand(lines).argsort(dim).narrow(dim, 0, count).to(x.device, x.dtype).contiguous()


def _along(x: torch.Tensor, dim: int, size: int) -> torch.Tensor:
    import torch

    old = x.shape[dim]
    if size <= old:
        return x.narrow(dim, 0, size).clone(memory_format=torch.contiguous_format)
    increasing = not x.dtype.is_floating_point and x.dim() == 1 and old > 1 and bool((x.diff() >= 0).all())
    if increasing and x.dtype is not torch.bool:  # positions, offsets: they go on as they were
        step = x[-1] - x[-2]
        more = x[-1] + step * torch.arange(1, size - old + 1, dtype=x.dtype, device=x.device)
        return torch.cat((x, more))
    again = torch.randint(old, (size - old,))
    return x.index_select(dim, torch.cat((torch.arange(old), again)).to(x.device))


def _indices(x: torch.Tensor, changes: Mapping[int, int]) -> torch.Tensor:
    import torch

    if x.dtype.is_floating_point or x.dtype.is_complex or x.dtype is torch.bool or not x.numel() or not x.dim():
        return x
    top = int(x.max())
    for old, new in sorted(changes.items()):
        if new == old or top > old or (new > old and top < old):
            continue
        if top == old:  # lengths, or offsets that end at the size
            return torch.where(x == old, new, x.clamp(max=new))
        if top >= new:
            if new == 0:
                raise ValueError("an index into nothing")
            return torch.where(x >= new, x % new, x)
    return x


def _longer(call: Call, place: tuple[int, int]) -> Call:
    """One dimension of one input longer by 1. (Shorter by 1 would turn 2 into 1, which broadcasts.)"""
    import torch

    chosen, dim = id(leaf_tensors(call)[place[0]]), place[1]
    return map_tensors(call, lambda path, x: torch.cat((x, x.narrow(dim, 0, 1)), dim) if id(x) == chosen else x)


def tied_sizes(state: Sequence[Any], init: Call) -> set[int]:
    """Sizes that parameters, buffers and the constructor's integers have."""
    from torch.utils import _pytree as pytree

    found = {int(n) for t in state for n in t.shape}
    return found | {n for n in pytree.tree_leaves((init.args, init.kwargs)) if isinstance(n, int)}
