"""Whether two strided memory regions share a byte."""

from __future__ import annotations

from collections.abc import Sequence

MAX_STEPS = 20_000  # beyond, the answer is the cautious one


def extent(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> int:
    """Bytes from the first element to one past the last (torch's strides are not negative)."""
    if 0 in shape:
        return 0
    return (sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1) * itemsize


def overlap(
    a: int,
    a_layout: tuple[Sequence[int], Sequence[int], int],
    b: int,
    b_layout: tuple[Sequence[int], Sequence[int], int],
) -> bool:
    """Whether the elements at addresses a and b overlap; a layout is (shape, strides in elements, itemsize).

    Exact: looks for index vectors with a + i.s_a + u == b + j.s_b + v, bytes u and v within an element, by bounding
    what the smaller strides can still reach. True, too, when the search grows past MAX_STEPS.
    """
    if 0 in a_layout[0] or 0 in b_layout[0]:
        return False
    # b - a = sum of step * k with low <= k <= high over the terms; b's counts are negative. Equal strides merge.
    bounds: dict[int, tuple[int, int]] = {}
    for sign, (shape, strides, size) in ((1, a_layout), (-1, b_layout)):
        for n, step in (*zip(shape, (s * size for s in strides), strict=True), (size, 1)):
            if n > 1 and step:
                low, high = bounds.get(step, (0, 0))
                bounds[step] = (low, high + n - 1) if sign > 0 else (low - n + 1, high)
    terms = sorted(((step, *b) for step, b in bounds.items()), reverse=True)
    least, most = [0], [0]  # what the terms from here on can sum to
    for step, low, high in reversed(terms):
        least.append(least[-1] + step * low)
        most.append(most[-1] + step * high)
    least.reverse()
    most.reverse()
    budget = MAX_STEPS

    def reachable(at: int, rest: int) -> bool:
        nonlocal budget
        if not least[at] <= rest <= most[at]:
            return False
        if at == len(terms):
            return rest == 0
        step, low, high = terms[at]
        # rest - step * k must lie within [least, most] of the terms that follow
        first = max(low, -((most[at + 1] - rest) // step))
        last = min(high, (rest - least[at + 1]) // step)
        for k in range(first, last + 1):
            budget -= 1
            if budget < 0 or reachable(at + 1, rest - step * k):
                return True
        return False

    return reachable(0, b - a)
