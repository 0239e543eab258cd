"""Row results in a kernel of their own, for few rows that are too long to be held on the chip.

Normalising takes the row's results for every element. Where the row fits neither registers nor shared memory it is read
twice in any case: many blocks that share each row reduce it first, and a pointwise kernel, whose blocks know nothing of
rows, does the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kforge.engine.emit.access import reads_across
from kforge.engine.graph.ir import Program
from kforge.engine.graph.symbols import Poly, product
from kforge.engine.graph.tensors import Tensor, squeeze, upstream

if TYPE_CHECKING:
    from kforge.engine.families import Target

THREADS = 2048  # a multiprocessor
SHORT = 1 << 14  # columns that one block holds in its registers
DOWN = 1 << 11  # the same where rows, not columns, are neighbours in memory


def row_results(tensor: Tensor, ready: Sequence[Tensor]) -> list[Tensor]:
    """What each element of `tensor` takes from whole rows: the largest subexpressions with fewer elements than it that
    depend on a reduction. `ready`: in memory already."""
    whole = _elements(tensor)
    found: dict[Tensor, None] = {}
    seen: set[Tensor] = set()
    queue = [tensor]
    while queue:
        t = queue.pop()
        if t in seen or t in ready:
            continue
        seen.add(t)
        if _elements(t) < whole:
            if _reduces(t):
                found[t] = None
        elif t.reduction is None:
            queue.extend(reversed(t.inputs))
    return list(found)


def row_value(tensor: Tensor, blocked: Tensor, ready: Collection[Tensor]) -> Tensor | None:
    """What a reduction over rows takes of each row, where `blocked` is a part of it.

    The kernel that has the row at hand computes all of it: the row's loss, not its maximum and its sum, goes to memory.
    """
    if blocked.reduction is None:
        return None
    lead = squeeze(blocked.reduction.source.shape[: -blocked.reduction.width])
    for t in _above(tensor, ready):
        if t.reduction is None or t is blocked:
            continue
        source = t.reduction.source
        if source is not blocked and lead and squeeze(source.shape) == lead and blocked in _above(source, ready):
            return source
    return None


def worthwhile(programs: Sequence[Program], target: Target) -> bool:
    """Whether a program writes elements that depend on reductions of few and long rows."""
    for p in programs:
        rows, cols = (product(v.size for v in loops).hint() for loops in (p.rows, p.cols))
        elements = any(not s.per_row for s in p.stores)
        across = reads_across(p)
        few = rows < 2 * target.multiprocessors or (across and rows < THREADS * target.multiprocessors // 16)
        if p.reductions and elements and max(cols, target.longest) > (DOWN if across else SHORT) and few:
            return True
    return False


def _elements(tensor: Tensor) -> int:
    return Poly.hint(product(tensor.shape))


def _reduces(tensor: Tensor) -> bool:
    return any(t.reduction is not None for t in _above(tensor, ()))


def _above(tensor: Tensor, ready: Collection[Tensor]) -> list[Tensor]:
    return upstream(tensor, ready, through=lambda _: True)
