"""Strides of results as torch would give them: rules over the strides that inputs have when a candidate is called.

A rule is an input (as it is given), a dense tensor, a view of another, or what torch's pointwise operators make of
several. Candidates evaluate it on tensors without elements (`written`), where inputs are not contiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kforge.engine.graph.ir import Buffer
from kforge.engine.graph.symbols import Poly

Shape = tuple[Poly, ...]


@dataclass(frozen=True)
class Dense:
    """A contiguous tensor of this shape."""

    shape: Shape


@dataclass(frozen=True)
class Viewed:
    """A view: a method with dimensions, or a shape; `cut` takes the beginning of each dimension, `stepped` (dimension,
    step, end) every so-many-th element of one."""

    of: Layout
    method: str  # permute | unsqueeze | squeeze | select | expand | reshape | cut | stepped
    arguments: tuple[Poly | int, ...]


@dataclass(frozen=True)
class Image:
    """A result of this shape, in channels-last order where all that it follows looks so (formats.py)."""

    operands: tuple[Layout, ...]
    shape: Shape
    dense: bool


@dataclass(frozen=True)
class Joined:
    """The result of a pointwise operator on these."""

    operands: tuple[Layout, ...]


@dataclass(frozen=True)
class Kept:
    """A copy of an input with its very strides, gaps included; an expanded one is copied as others are."""

    of: Buffer


@dataclass(frozen=True)
class Seen:
    """A view of a computed tensor, gaps included; always: also where inputs are contiguous."""

    of: Layout
    always: bool = True


Layout = Buffer | Dense | Viewed | Image | Joined | Kept | Seen
"""A buffer is an input as it is given."""


def inputs_of(layout: Layout) -> list[Buffer]:
    """The inputs whose strides decide; none where the result always lies the same way."""
    if isinstance(layout, Buffer):
        return [layout]
    if isinstance(layout, Dense):
        return []
    below = layout.operands if isinstance(layout, (Joined, Image)) else (layout.of,)
    return list(dict.fromkeys(b for part in below for b in inputs_of(part)))


def joined(operands: Sequence[tuple[Layout | None, Shape]], shape: Shape) -> Layout | None:
    """The layout of a pointwise result of operands with these layouts and shapes; None: contiguous.

    The first operand that fills the shape decides, unless one before it has two dimensions of its own to go by, or it
    is an input, which may be given expanded and leave it to a view behind it.
    """
    operands = [(layout, own) for layout, own in operands if not _repeated(layout)]
    full = next((k for k, (_, own) in enumerate(operands) if own == shape), None)
    if full is not None and not any(_plane(own) for _, own in operands[:full]):
        layout = operands[full][0]
        behind = any(isinstance(other, (Viewed, Image, Joined)) for other, _ in operands[full + 1 :])
        if layout is None or (isinstance(layout, Buffer) and not behind):
            return layout
    known = [layout for layout, _ in operands if layout is not None and _plane(_shape_of(layout))]
    if not known:
        return None
    rules = [as_shaped(layout, own) if layout is not None else Dense(own) for layout, own in operands if own]
    return rules[0] if len(rules) == 1 and isinstance(rules[0], Joined) else Joined(tuple(rules))


def viewed(layout: Layout | None, shape: Shape, method: str, arguments: Sequence[Poly | int]) -> Layout | None:
    """The layout of a view of a tensor of this shape; None where it is contiguous whatever is given."""
    if method in ("reshape", "expand") and tuple(arguments) == shape:
        return layout
    moves = method in ("permute", "expand")
    if layout is None and not moves:
        return None
    if layout is not None and not any(_plane(b.shape) for b in inputs_of(layout)) and not moves:
        return None
    return Viewed(Dense(shape) if layout is None else as_shaped(layout, shape), method, tuple(arguments))


def channels_last(shape: Shape) -> Layout:
    """Dense, channels last."""
    rank = len(shape)
    return Viewed(Dense((shape[0], *shape[2:], shape[1])), "permute", (0, rank - 1, *range(1, rank - 1)))


def written(layout: Layout, size: Callable[[Poly], str], shape: Callable[[Shape], str]) -> str:
    """A tensor without elements that lies so, in Python. size, shape: write one or several sizes."""
    if isinstance(layout, Buffer):
        return f"bare({layout.name}_given)"
    if isinstance(layout, Dense):
        return f'torch.empty({shape(layout.shape)}, device="meta")'
    if isinstance(layout, Joined):
        return f"joined({', '.join(written(o, size, shape) for o in layout.operands)})"
    if isinstance(layout, Image):
        sources = ", ".join(written(o, size, shape) for o in layout.operands)
        dense = ", dense=True" if layout.dense else ""
        return f'ordered(torch.empty({shape(layout.shape)}, device="meta"), {sources}{dense})'
    of = written(layout.of, size, shape)
    if isinstance(layout, Seen):
        return of
    if isinstance(layout, Kept):
        return f"{of} if 0 not in {layout.of.name}_given.stride() else joined({of})"
    if layout.method == "stepped":
        dim, step, end = layout.arguments
        assert isinstance(dim, int) and isinstance(end, Poly)
        return f"{of}[{':, ' * dim}:{size(end)}:{step}]"
    arguments = ", ".join(str(a) if isinstance(a, int) else size(a) for a in layout.arguments)
    if layout.method == "cut":
        cuts = ", ".join(":" if isinstance(a, int) else f":{size(a)}" for a in layout.arguments)
        return f"{of}[{cuts}]"
    return f"{of}.{layout.method}({arguments})"


def _repeated(layout: Layout | None) -> bool:
    """Whether this is one row or column of numbers again and again, which has no order to go by."""
    return isinstance(layout, Viewed) and layout.method == "expand" and not _plane(_shape_of(layout.of))


def _plane(shape: Shape) -> bool:
    """Whether more than one dimension has elements to step over."""
    return sum(size.constant != 1 for size in shape) > 1


def _shape_of(layout: Layout) -> Shape:
    """A shape that is a plane where the layout's own is: of the inputs below."""
    if isinstance(layout, (Buffer, Dense, Image)):
        return layout.shape
    below = layout.operands if isinstance(layout, Joined) else (layout.of,)
    return max((_shape_of(o) for o in below), key=_plane)


def as_shaped(layout: Layout, shape: Shape) -> Layout:
    """What a part of an input keeps: the order of its dimensions, at its own sizes."""
    return layout if not isinstance(layout, Buffer) else part_of(layout, layout.shape, shape)


def part_of(layout: Layout, whole: Shape, shape: Shape) -> Layout:
    """The beginning of a tensor of the shape `whole`."""
    if whole == shape:
        return layout
    return Viewed(layout, "cut", tuple(0 if a == b else b for a, b in zip(whole, shape, strict=True)))
