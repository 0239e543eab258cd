"""Which elements of an answer are wrong, in words that lead to the line of a kernel: how many, and in which part."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def spots(wrong: torch.Tensor) -> str:
    """wrong: bool, of the output's shape. "43 of 98304 elements, all of [1, :, 767]"; empty where none is.

    The part is the smallest box that holds them, written as an index; "within" where others of it are right.
    """
    count = int(wrong.sum())
    if count == 0:
        return ""
    if count == wrong.numel():
        return "every element" if count > 1 else "the only element"
    box, size = [], 1
    for axis, whole in enumerate(wrong.shape):
        others = [k for k in range(wrong.dim()) if k != axis]
        along = (wrong.any(tuple(others)) if others else wrong).nonzero()
        first, last = int(along[0]), int(along[-1])
        size *= last - first + 1
        if first == last and whole > 1:
            box.append(str(first))
        else:
            box.append(":" if last - first + 1 == whole else f"{first}:{last + 1}")
    part = f"{'all of' if size == count else 'within'} [{', '.join(box)}]"
    return f"{count} of {wrong.numel()} elements" + ("" if size == wrong.numel() else f", {part}")
