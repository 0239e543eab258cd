"""Search: the tree of attempts, rewards, the strategies by name, and the loop that joins them."""

from __future__ import annotations

from collections.abc import Callable

from kforge.agent.search.beam import Beam
from kforge.agent.search.best_of_n import BestOfN
from kforge.agent.search.contrastive import Contrastive
from kforge.agent.search.greedy import Greedy
from kforge.agent.search.hybrid import Hybrid
from kforge.agent.search.loop import Judge, ending, search
from kforge.agent.search.mcts import MCTS
from kforge.agent.search.rewards import REWARDS
from kforge.agent.search.strategy import Selection, Strategy
from kforge.agent.search.tree import ROOT, Node, Tree
from kforge.errors import UsageError

__all__ = [
    "MCTS",
    "REWARDS",
    "ROOT",
    "SEARCHES",
    "Beam",
    "BestOfN",
    "Contrastive",
    "Greedy",
    "Hybrid",
    "Judge",
    "Node",
    "Selection",
    "Strategy",
    "Tree",
    "ending",
    "search",
    "strategy_named",
]

SEARCHES: dict[str, Callable[[], Strategy]] = {
    "hybrid": Hybrid,
    "greedy": Greedy,
    "best_of_n": BestOfN,
    "beam": Beam,
    "mcts": MCTS,
    "contrastive": Contrastive,
}


def strategy_named(name: str) -> Strategy:
    """A strategy by its name, "best-of-n" or "best_of_n". UsageError lists what exists."""
    kind = SEARCHES.get(name.replace("-", "_"))
    if kind is None:
        raise UsageError(f"{name!r} is not a search", "choose " + ", ".join(SEARCHES))
    return kind()
