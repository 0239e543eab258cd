"""Diversity: where the last attempts all went one or two ways, the next must go another."""

from __future__ import annotations

from dataclasses import replace

from kforge.agent.search.constants import DISTINCT_DIRECTIONS, LAST_DIRECTIONS
from kforge.agent.search.strategy import ENGINE, Selection
from kforge.agent.search.tree import Tree

# Kinds of change, widest effect first (CUDA Agent: algorithm and fusion, then use of the hardware, then fine tuning).
DIRECTIONS = (
    "algorithm",
    "fusion",
    "memory hierarchy",
    "tiling",
    "vectorise",
    "parallelism",
    "pipelining",
    "tensor cores",
    "occupancy",
    "instructions",
    "launch",
)


def collapsed(tree: Tree) -> tuple[str, ...]:
    """The directions of the last attempts if they are at most two, else nothing. The engine's do not count."""
    taken = [node.direction for node in tree.nodes.values() if node.direction and node.proposer != ENGINE]
    last = taken[-LAST_DIRECTIONS:]
    distinct = tuple(dict.fromkeys(last))
    return distinct if len(last) == LAST_DIRECTIONS and len(distinct) <= DISTINCT_DIRECTIONS else ()


def diversify(tree: Tree, selection: Selection, avoid: tuple[str, ...] = ()) -> Selection:
    """The selection with what memory says to avoid; after a collapse with the least tried other direction, too."""
    stuck = collapsed(tree)
    shunned = tuple(dict.fromkeys((*selection.avoid, *avoid, *stuck)))
    if not stuck or selection.direction:
        return replace(selection, avoid=shunned)
    tried = [node.direction for node in tree.nodes.values()]
    free = [direction for direction in DIRECTIONS if direction not in shunned]
    return replace(selection, avoid=shunned, direction=min(free, key=tried.count, default=""))
