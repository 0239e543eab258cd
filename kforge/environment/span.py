"""Which sizes of the inputs the passed cases of an evaluation had: the box that its verdict speaks of."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.environment.inputs import Case
    from kforge.task import Call

Box = tuple[tuple[int, int], ...]  # (least, most) of each dimension


def shapes_of(call: Call, forward: Callable[..., Any]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor by its path."""
    from kforge.task import call_leaves
    from kforge.task.call import tensors

    return {path: tuple(tensor.shape) for path, tensor in tensors(call_leaves(call, forward))}


def judged_sizes(
    shapes: Mapping[tuple[int, str], Mapping[str, tuple[int, ...]]], cases: Iterable[Case], passed: Collection[str]
) -> dict[str, Box]:
    """Box by input. shapes: of every input as it was made, by (variant, kind of shape); passed: labels of cases.

    An input that has another number of dimensions in each variant has no box.
    """
    found: dict[str, list[tuple[int, ...]]] = {}
    for form in sorted({(case.variant, case.shape) for case in cases if case.label in passed}):
        for name, shape in shapes.get(form, {}).items():
            found.setdefault(name, []).append(shape)
    return {
        name: tuple((min(sizes), max(sizes)) for sizes in zip(*known, strict=True))
        for name, known in found.items()
        if len({len(shape) for shape in known}) == 1
    }
