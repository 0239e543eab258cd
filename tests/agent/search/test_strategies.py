"""Each strategy by worked examples: which attempt it turns to, how many children, when it stops, what it draws."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from kforge.agent.search import MCTS, SEARCHES, Beam, BestOfN, Contrastive, Greedy, Hybrid, Selection, strategy_named
from kforge.agent.search.constants import BUCKET, DEAD_ATTEMPTS, PATIENCE, RETRIES, SAMPLES
from kforge.agent.search.contrastive import draw_exemplars, probabilities
from kforge.agent.search.diversity import DIRECTIONS, collapsed, diversify
from kforge.agent.search.hybrid import engine_done
from kforge.agent.search.mcts import prune_dead_ends, successful
from kforge.agent.search.strategy import draws
from kforge.agent.search.tree import Node, Tree
from kforge.environment.report import Status
from kforge.errors import UsageError
from tests.agent.search.simulator import candidate, report


class Grower:
    """Grows a tree step by step: each attempt is a step of its own."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.tree.mark({"seed": 7})

    def add(
        self, parent: int = 0, ms: float | None = 1.0, *, right: bool = True, by: str = "model", direction: str = ""
    ) -> Node:
        """One step that brings one attempt; right is False for a wrong one."""
        self.tree.mark({"open": Selection(parent).as_dict() | {"proposer": by}})
        made = candidate(f"{len(self.tree)}", by)
        node = self.tree.add(parent, made, direction)
        status = Status.VERIFIED if right else Status.WRONG
        self.tree.record(node.id, report(made, ms if right else None, status=status), 1.0)
        self.tree.mark({"done": True})
        return node

    def nothing(self, parent: int = 0, by: str = "model") -> None:
        """One step that brings nothing new."""
        self.tree.mark({"open": Selection(parent).as_dict() | {"proposer": by}})
        self.tree.mark({"done": True})


def test_names() -> None:
    """Each strategy is found by its name, with - or _; another name lists what exists."""
    assert {name: strategy_named(name).name for name in SEARCHES} == {name: name for name in SEARCHES}
    assert strategy_named("best-of-n").name == "best_of_n"
    with pytest.raises(UsageError) as error:
        strategy_named("annealing")
    assert error.value.hint.startswith("choose hybrid, greedy")


# greedy, best of n


def test_greedy_follows_the_best() -> None:
    """From scratch first, then from the fastest right attempt."""
    grown = Grower()
    assert Greedy().select(grown.tree) == Selection(0)
    first = grown.add(ms=0.9)
    grown.add(first.id, ms=1.2)
    assert Greedy().select(grown.tree) == Selection(first.id)
    better = grown.add(first.id, ms=0.5)
    assert Greedy().select(grown.tree) == Selection(better.id)


def test_greedy_repairs_then_turns_back() -> None:
    """A failed attempt is repaired, RETRIES times in a row at most; then the best is refined again."""
    grown = Grower()
    best = grown.add(ms=0.9)
    at = best
    for _ in range(1 + RETRIES):
        at = grown.add(at.id, right=False)
        expected = at.id
        if at.id < 2 + RETRIES:
            assert Greedy().select(grown.tree) == Selection(expected)
    assert Greedy().select(grown.tree) == Selection(best.id)


def test_greedy_gives_up() -> None:
    """After PATIENCE attempts of the model without a new best it gives up; the engine's attempts do not count."""
    grown = Grower()
    best = grown.add(ms=0.5)
    for _ in range(PATIENCE - 1):
        grown.add(best.id, ms=0.6)
    grown.add(ms=0.7, by="engine")
    assert Greedy().select(grown.tree) == Selection(best.id)
    grown.add(best.id, ms=0.6)
    assert Greedy().select(grown.tree) is None


def test_best_of_n() -> None:
    """n independent steps from the root, whatever came of them; the engine's come on top."""
    grown = Grower()
    grown.add(by="engine")
    for number in range(SAMPLES):
        assert BestOfN().select(grown.tree) == Selection(0)
        grown.add(right=number % 2 == 0)
    assert BestOfN().select(grown.tree) is None


# beam


def test_beam_first_iteration() -> None:
    """Four plans from the reference; a failed one is repaired at most four times and then left."""
    grown = Grower()
    beam = Beam()
    for _ in range(3):
        assert beam.select(grown.tree) == Selection(0)
        grown.add(ms=1.0)
    assert beam.select(grown.tree) == Selection(0)
    at = grown.add(right=False)
    for _ in range(RETRIES):
        assert beam.select(grown.tree) == Selection(at.id)
        at = grown.add(at.id, right=False)
    assert beam.select(grown.tree) == Selection(1), "the second iteration begins with the best of the first"


def test_beam_keeps_the_best_four() -> None:
    """The second iteration gives four plans each to the four fastest of all, fastest first."""
    grown = Grower()
    for _ in range(4):
        grown.add(ms=None, by="engine", right=False)  # the engine's failures take no place
    for ms in (0.9, 0.7, 0.8, 0.6):
        grown.add(ms=ms)
    order = []
    for _ in range(16):
        selection = Beam().select(grown.tree)
        assert selection is not None
        order.append(grown.tree.nodes[selection.node].ms)
        grown.add(selection.node, ms=1.0)
    assert order == [0.6] * 4 + [0.7] * 4 + [0.8] * 4 + [0.9] * 4


def test_beam_stops_after_two_iterations_without_gain() -> None:
    """Nothing better in two iterations ends the search: 4 + 16 + 16 plans here, not five iterations."""
    grown = Grower()
    count = 0
    while (selection := Beam().select(grown.tree)) is not None:
        grown.add(selection.node, ms=1.0 if selection.node == 0 else 1.5)
        count += 1
    assert count == 4 + 16 + 16


def test_beam_runs_five_iterations_while_it_gains() -> None:
    """With a gain in each iteration it ends after the fifth: 4 + 4 * 16 plans."""
    grown = Grower()
    count, ms = 0, 10.0
    while (selection := Beam().select(grown.tree)) is not None:
        ms *= 0.9
        grown.add(selection.node, ms=ms)
        count += 1
    assert count == 4 + 4 * 16


def test_beam_spends_a_plan_on_nothing() -> None:
    """A step that brought nothing takes a plan's place, so that the beam cannot stand still."""
    grown = Grower()
    grown.add(ms=1.0)
    for _ in range(3):
        grown.nothing()
    assert Beam().select(grown.tree) == Selection(1)


def test_beam_begins_with_the_engines_best() -> None:
    """Where the engine found kernels they are the first beam, four of them, and the reference is not."""
    grown = Grower()
    for ms in (0.9, 0.5, 0.8, 0.6, 0.7):
        grown.add(ms=ms, by="engine")
    assert Beam().select(grown.tree) == Selection(2)


# MCTS


def test_ucb_by_hand() -> None:
    """Between two children UCB takes the better until the other has been left alone long enough."""
    grown = Grower()
    good, poor = grown.add(ms=math.exp(-1.0)), grown.add(ms=math.exp(-0.5))
    search = MCTS(c=1.4, k=0.1)  # hardly any widening: the choice among children is what is seen
    # Rewards 1.0 and 0.5 become q = 1 and 0 between the worst and the best.
    assert search.bound(good, 2, 0.5, 1.0) == pytest.approx(1.0 + 1.4 * math.sqrt(math.log(2)))
    assert search.bound(poor, 2, 0.5, 1.0) == pytest.approx(1.4 * math.sqrt(math.log(2)))
    assert search.select(grown.tree) == Selection(good.id)
    # Good's children are as good: its value stays 1.0 while its visits n grow, N = n + 1 in all. By hand,
    # 1 + 1.4 sqrt(ln N / n) is 1.888 against 1.4 sqrt(ln N) = 1.776 at n = 4, and 1.838 against 1.874 at n = 5.
    for n in range(2, 6):
        grown.add(good.id, ms=math.exp(-1.0))
        n_good, total = grown.tree.nodes[good.id].visits, grown.tree.root.visits
        assert (n_good, total) == (n, n + 1)
        turned = 1 + 1.4 * math.sqrt(math.log(total) / n) < 1.4 * math.sqrt(math.log(total))
        assert turned is (n == 5)
        selection = search.select(grown.tree)
        assert selection is not None
        assert (selection.node == poor.id) is turned


def test_widening_limits() -> None:
    """A node may have ceil(k N^alpha) children, at least one; twice k if it gained over its parent."""
    grown = Grower()
    search = MCTS(k=1.0, alpha=0.5)
    plain, gained = grown.add(ms=1.2), grown.add(ms=0.5)
    assert (successful(grown.tree, plain), successful(grown.tree, gained)) == (False, True)
    for visits, limit in ((0, 1), (1, 1), (2, 2), (4, 2), (5, 3), (9, 3), (10, 4), (100, 10)):
        plain.visits = visits
        assert search.limit(grown.tree, plain) == limit
    for visits, limit in ((0, 1), (1, 2), (2, 3), (4, 4), (5, 5), (100, 20)):
        gained.visits = visits
        assert search.limit(grown.tree, gained) == limit
    assert MCTS(k=10, alpha=0.5).limit(grown.tree, Node(9, 0, visits=4)) == 20


def test_mcts_widens_before_it_descends() -> None:
    """While the root has fewer children than it may, the next attempt is one more of them."""
    grown = Grower()
    search = MCTS(k=1.0)
    assert search.select(grown.tree) == Selection(0)
    grown.add(ms=1.5)
    assert search.select(grown.tree) == Selection(1), "one attempt: one child"
    grown.add(1, ms=1.6)
    assert search.select(grown.tree) == Selection(0), "two attempts: ceil(sqrt 2) = 2 children"


def test_dead_ends_are_pruned() -> None:
    """A failed node without a right repair and a right one without gain are left after enough attempts."""
    grown = Grower()
    failed = grown.add(right=False)
    for _ in range(RETRIES):
        grown.add(failed.id, right=False)
    right = grown.add(ms=0.5)
    for _ in range(DEAD_ATTEMPTS - 1):
        grown.add(right.id, ms=0.8)
    prune_dead_ends(grown.tree)
    assert failed.pruned == "not one right attempt in 4 below" and not right.pruned
    grown.add(right.id, ms=0.8)
    prune_dead_ends(grown.tree)
    assert right.pruned == "no gain in 6 attempts below"
    alive = grown.add(ms=0.9)
    for _ in range(DEAD_ATTEMPTS):
        grown.add(alive.id, ms=0.85)
    prune_dead_ends(grown.tree)
    assert not alive.pruned
    for _ in range(20):
        selection = MCTS().select(grown.tree)
        assert selection is not None
        assert {node.id for node in grown.tree.path(selection.node)}.isdisjoint({failed.id, right.id})
        grown.add(selection.node, ms=1.1)


def test_equal_is_no_gain_and_pruned_children_keep_their_places() -> None:
    """Attempts as good as their parent do not keep it alive; a pruned child still counts towards its parent's limit."""
    grown = Grower()
    right = grown.add(ms=0.5)
    for _ in range(DEAD_ATTEMPTS):
        grown.add(right.id, ms=0.5)
    prune_dead_ends(grown.tree)
    assert right.pruned
    other = grown.add(ms=0.6)
    assert MCTS(k=0.7).limit(grown.tree, grown.tree.root) == 2 == len(grown.tree.root.children)
    assert MCTS(k=0.7).select(grown.tree) == Selection(other.id)


# contrastive


def test_bucket_probabilities() -> None:
    """CUDA-L1's rule by hand: exp((mean - mu) / tau) over its sum; mu cancels, a small tau prefers the best."""
    e = math.e
    assert probabilities([0.0, 1.0], tau=1.0) == pytest.approx([1 / (1 + e), e / (1 + e)])
    assert probabilities([3.0, 4.0], tau=1.0) == pytest.approx(probabilities([0.0, 1.0], tau=1.0))
    assert probabilities([0.0, 1.0], tau=0.1)[1] > 0.9999


def test_exemplars_are_drawn_by_the_rule() -> None:
    """Over 20,000 draws the first bucket is taken as often as the rule says, and both exemplars never share one."""
    import random

    buckets = {
        0: [Node(1, 0, reward=0.0), Node(2, 0, reward=0.1)],
        5: [Node(3, 0, reward=0.5)],
        9: [Node(4, 0, reward=1.0)],
    }
    rng = random.Random(3)
    firsts: Counter[int] = Counter()
    within: Counter[int] = Counter()
    for _ in range(20_000):
        one, two = draw_exemplars(buckets, rng, tau=0.5)
        assert {one.id, two.id} != {1, 2}
        firsts[{1: 0, 2: 0, 3: 1, 4: 2}[one.id]] += 1
        within[one.id] += 1
    for bucket, share in enumerate(probabilities([0.05, 0.5, 1.0], tau=0.5)):
        assert firsts[bucket] / 20_000 == pytest.approx(share, abs=0.012)
    assert within[1] / firsts[0] == pytest.approx(0.5, abs=0.04)


def test_contrastive_works_from_the_better_exemplar() -> None:
    """Two right attempts of different buckets are shown, the better first, and it is the parent; wrong ones never."""
    grown = Grower()
    assert Contrastive().select(grown.tree) == Selection(0)
    slow = grown.add(ms=1.0)
    assert Contrastive().select(grown.tree) == Selection(slow.id, exemplars=(slow.id,))
    grown.add(ms=1.0 * math.exp(-BUCKET / 4))  # in the same bucket
    fast = grown.add(ms=0.5)
    grown.add(right=False)
    seen = set()
    for _ in range(40):
        selection = Contrastive().select(grown.tree)
        assert selection is not None and selection.node == fast.id and selection.exemplars[0] == fast.id
        seen.add(selection.exemplars[1])
        grown.nothing(fast.id)
    assert seen == {1, 2}


def test_draws_depend_on_seed_and_step_alone() -> None:
    """The same step of the same seed draws the same numbers; the next step draws others."""
    one, two = Grower(), Grower()
    assert draws(one.tree).random() == draws(two.tree).random()
    one.nothing()
    assert draws(one.tree).random() != draws(two.tree).random()


# hybrid


def test_hybrid_asks_the_engine_first() -> None:
    """The engine until four of its attempts brought no gain; then the tree, and the engine is left out."""
    grown = Grower()
    hybrid = Hybrid(Greedy())
    best = grown.add(ms=0.5, by="engine")
    for _ in range(4):
        assert hybrid.select(grown.tree) == Selection(0)
        grown.add(ms=0.8, by="engine")
    assert engine_done(grown.tree)
    assert hybrid.select(grown.tree) == Selection(best.id, skip=("engine",))


def test_hybrid_goes_on_when_the_engine_is_exhausted() -> None:
    """What the engine has no more of is not asked for again."""
    grown = Grower()
    grown.tree.mark({"exhausted": ["engine"]})
    assert Hybrid(Greedy()).select(grown.tree) == Selection(0, skip=("engine",))


def test_hybrid_needs_one_right_kernel_where_nothing_is_timed() -> None:
    """Without times one right kernel of the engine is enough to start from; wrong ones are not."""
    grown = Grower()
    grown.add(right=False, by="engine")
    assert not engine_done(grown.tree)
    grown.add(ms=None, by="engine")
    assert engine_done(grown.tree)


# diversity


def test_diversity_is_forced_after_a_collapse() -> None:
    """Six attempts in at most two directions: both are avoided and the least tried other one is asked for."""
    grown = Grower()
    for direction in ("algorithm", "tiling", "tiling", "vectorise", "tiling", "tiling"):
        grown.add(direction=direction)
        grown.add(direction="engine:rows", by="engine")
    assert collapsed(grown.tree) == (), "three directions among the last six"
    assert diversify(grown.tree, Selection(3)) == Selection(3)
    grown.add(direction="tiling")
    assert collapsed(grown.tree) == ("tiling", "vectorise")
    forced = diversify(grown.tree, Selection(3), ("launch",))
    assert forced.direction == "fusion" and forced.avoid == ("launch", "tiling", "vectorise")
    assert forced.direction in DIRECTIONS


def test_five_attempts_are_no_collapse() -> None:
    """Fewer than six attempts force nothing, and what memory says to avoid is passed on."""
    grown = Grower()
    for _ in range(5):
        grown.add(direction="tiling")
    assert diversify(grown.tree, Selection(0), ("launch",)) == Selection(0, avoid=("launch",))
