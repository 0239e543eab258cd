"""Monte-Carlo tree search with progressive widening: which attempt deserves another child.

A node gets children up to k N^alpha, N the attempts at or below it; one that gained over its parent gets twice as many.
Above that the child with the highest upper confidence bound is descended into.
"""

from __future__ import annotations

import math

from kforge.agent.search.constants import (
    ALPHA,
    DEAD_ATTEMPTS,
    DEAD_REPAIRS,
    SUCCESSFUL_WIDENING,
    UCB,
    WIDENING,
)
from kforge.agent.search.strategy import Selection
from kforge.agent.search.tree import ROOT, Node, Tree


class MCTS:
    """Rewards are mapped to [0, 1] between the worst and the best of the tree, which the constant of UCB presumes."""

    name = "mcts"

    def __init__(self, c: float = UCB, k: float = WIDENING, alpha: float = ALPHA) -> None:
        self.c, self.k, self.alpha = c, k, alpha

    def select(self, tree: Tree) -> Selection | None:
        """Descends until a node may have another child. Never gives up: the budget or the proposers end the run."""
        prune_dead_ends(tree)
        rewards = [node.reward for node in tree.nodes.values() if node.reward is not None]
        low, high = (min(rewards), max(rewards)) if rewards else (0.0, 0.0)
        node = tree.root
        while True:
            children = [tree.nodes[id] for id in node.children]
            alive = [child for child in children if not child.pruned and child.visits]
            if not alive or len(children) < self.limit(tree, node):
                return Selection(node.id)
            above = node.visits
            node = max(alive, key=lambda child: (self.bound(child, above, low, high), -child.id))

    def limit(self, tree: Tree, node: Node) -> int:
        """How many children the node may have now; at least one."""
        k = self.k * (SUCCESSFUL_WIDENING if successful(tree, node) else 1.0)
        return max(1, math.ceil(k * node.visits**self.alpha))

    def bound(self, child: Node, above: int, low: float, high: float) -> float:
        """UCB: the child's mean reward, mapped to [0, 1], plus c sqrt(ln N / n); N = `above`, its parent's visits."""
        q = (child.value - low) / (high - low) if high > low else 0.5
        return q + self.c * math.sqrt(math.log(max(above, 1)) / child.visits)


def successful(tree: Tree, node: Node) -> bool:
    """Right, and worth more than what it was made from (the reference: more than nothing)."""
    if not node.verified or node.parent is None or node.reward is None:
        return False
    above = tree.nodes[node.parent].reward
    return node.reward > (above if above is not None else 0.0)


def prune_dead_ends(tree: Tree) -> None:
    """Mark the nodes below which enough was tried in vain."""
    best: dict[int, float] = {}  # the highest reward strictly below, of right attempts
    below: dict[int, int] = {}
    for node in reversed(list(tree.nodes.values())):  # children have higher numbers than their parents
        rewards = [best.get(child, -math.inf) for child in node.children]
        for child in map(tree.nodes.__getitem__, node.children):
            if child.verified and child.reward is not None:
                rewards.append(child.reward)
        best[node.id] = max(rewards, default=-math.inf)
        below[node.id] = node.visits - (node.reward is not None)
        if node.id == ROOT or node.pruned:
            continue
        if node.failed and below[node.id] >= DEAD_REPAIRS and best[node.id] == -math.inf:
            tree.prune(node.id, f"not one right attempt in {below[node.id]} below")
        elif node.verified and below[node.id] >= DEAD_ATTEMPTS and best[node.id] <= (node.reward or 0.0):
            tree.prune(node.id, f"no gain in {below[node.id]} attempts below")
