"""Contrastive search as CUDA-L1 has it: two earlier attempts of different score in the prompt, drawn by score."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence

from kforge.agent.search.constants import BUCKET, EXEMPLARS, TAU
from kforge.agent.search.strategy import Selection, draws, repair
from kforge.agent.search.tree import ROOT, Node, Tree


class Contrastive:
    """Works from the better of two right attempts whose scores lie in different buckets. Never gives up."""

    name = "contrastive"

    def __init__(self, width: float = BUCKET, tau: float = TAU) -> None:
        self.width, self.tau = width, tau

    def select(self, tree: Tree) -> Selection | None:
        """With fewer than two buckets: what there is; without a right attempt: a repair, or from scratch."""
        buckets = self.buckets(tree)
        if not buckets:
            return repair(tree) or Selection(ROOT)
        chosen = draw_exemplars(buckets, draws(tree), self.tau)
        chosen.sort(key=lambda node: (-(node.reward or 0.0), node.id))
        return Selection(chosen[0].id, exemplars=tuple(node.id for node in chosen))

    def buckets(self, tree: Tree) -> dict[int, list[Node]]:
        """The right attempts by score; a bucket spans `width` of reward."""
        found: dict[int, list[Node]] = defaultdict(list)
        for node in tree.nodes.values():
            if node.verified and node.reward is not None:
                found[math.floor(node.reward / self.width)].append(node)
        return dict(sorted(found.items()))


def probabilities(means: Sequence[float], tau: float = TAU) -> list[float]:
    """CUDA-L1's rule: bucket i with probability proportional to exp((mean_i - mu) / tau), mu the mean of the means."""
    mu = sum(means) / len(means)
    weights = [math.exp((mean - mu) / tau) for mean in means]
    total = sum(weights)
    return [weight / total for weight in weights]


def draw_exemplars(buckets: Mapping[int, Sequence[Node]], rng: random.Random, tau: float = TAU) -> list[Node]:
    """Up to EXEMPLARS attempts, each from another bucket: buckets by `probabilities`, uniformly within one."""
    left = dict(buckets)
    chosen: list[Node] = []
    while left and len(chosen) < EXEMPLARS:
        keys = list(left)
        means = [sum(node.reward or 0.0 for node in left[key]) / len(left[key]) for key in keys]
        key = rng.choices(keys, probabilities(means, tau))[0]
        chosen.append(rng.choice(left.pop(key)))
    return chosen
