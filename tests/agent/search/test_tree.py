"""The tree of attempts: what is entered, what is best, what a reward is worth above, and the same tree from the log."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from kforge.agent.search import SEARCHES, search
from kforge.agent.search.tree import Tree
from kforge.agent.session import Session
from kforge.environment.report import Status
from kforge.errors import KforgeError
from kforge.store.events import LOG_NAME, replay
from tests.agent.search.simulator import Refiner, World, candidate, rebuilt, report
from tests.patience import PATIENCE_S


def _grown() -> Tree:
    """Root -> 1 (1.0 ms) -> 2 (wrong), 3 (0.5 ms)."""
    tree = Tree()
    for text, parent, ms in (("a", 0, 1.0), ("b", 1, None), ("c", 1, 0.5)):
        made = candidate(text)
        node = tree.add(parent, made, "tiling")
        tree.record(node.id, report(made, ms, status=Status.VERIFIED if ms else Status.WRONG), 1.0)
    return tree


def test_numbers_children_and_paths() -> None:
    """Attempts are numbered in order, know their parent and children, and a path leads up to the root."""
    tree = _grown()
    assert list(tree.nodes) == [0, 1, 2, 3] and len(tree) == 3
    assert tree.root.children == [1] and tree.nodes[1].children == [2, 3]
    assert [node.id for node in tree.path(3)] == [3, 1, 0]
    with pytest.raises(KforgeError, match="attempt 9 is not in the tree"):
        tree.add(9, candidate("z"))


def test_equal_candidate_is_one_attempt() -> None:
    """The same files proposed again from elsewhere are the node that exists, unchanged."""
    tree = _grown()
    again = tree.add(0, candidate("c"), "another direction")
    assert again is tree.nodes[3] and (again.parent, again.direction) == (1, "tiling")
    assert tree.find(candidate("c").digest) is again and tree.find("0" * 16) is None


def test_best_is_the_fastest_right_one() -> None:
    """The fastest verified attempt is best; where none is timed, the first; without a verified one there is none."""
    tree = _grown()
    assert tree.best is tree.nodes[3]
    untimed = Tree()
    assert untimed.best is None
    for text, status in (("a", Status.WRONG), ("b", Status.VERIFIED), ("c", Status.VERIFIED)):
        untimed.record(untimed.add(0, candidate(text)).id, report(candidate(text), None, status=status))
    assert untimed.best is untimed.nodes[2]


def test_rewards_reach_the_nodes_above() -> None:
    """visits and value of a node are the number and mean reward of the attempts at or below it."""
    tree = _grown()
    rewards = [0.0, -1.0, math.log(2.0)]
    assert [tree.nodes[n].reward for n in (1, 2, 3)] == pytest.approx(rewards)
    assert (tree.nodes[1].visits, tree.root.visits, tree.nodes[3].visits) == (3, 3, 1)
    assert tree.root.value == pytest.approx(sum(rewards) / 3) and tree.nodes[1].value == pytest.approx(tree.root.value)


def test_second_report_takes_the_firsts_place() -> None:
    """Judged again and found wrong, an attempt is no longer best; the means above change without a further visit."""
    tree = _grown()
    tree.record(3, report(candidate("c"), None, status=Status.WRONG, failure="at seed 3\nmore"), 1.0)
    assert tree.best is tree.nodes[1]
    assert (tree.nodes[3].status, tree.nodes[3].failure, tree.nodes[3].ms) == ("wrong", "at seed 3", None)
    assert tree.root.visits == 3 and tree.root.value == pytest.approx(-2 / 3)


def test_speedup_over_the_given_baseline_where_the_report_has_none() -> None:
    """A time without a verdict is compared with the baseline that the caller names."""
    from dataclasses import replace

    tree = Tree()
    node = tree.add(0, candidate("a"))
    tree.record(node.id, replace(report(candidate("a"), 0.5), speedup=None), 2.0)
    assert node.speedup == pytest.approx(4.0)


@pytest.mark.parametrize("name", SEARCHES)
def test_tree_from_the_log_is_equal(name: str) -> None:
    """For every strategy, the events of a search rebuild the same tree and the same place in the search."""
    world = World(seed=5, evaluations=40)
    search(world, SEARCHES[name](), [Refiner("engine", 5), Refiner()], seed=1)
    assert len(world.tree) >= 12
    assert rebuilt(json.loads(json.dumps(world.log))) == world.tree


def test_tree_from_a_sessions_log(tmp_path: Path) -> None:
    """What a session writes to disk rebuilds the tree that wrote it."""
    session = Session(tmp_path, tmp_path / "op.py", {}, lambda kind, data: None)
    tree = Tree()
    for text, parent, ms in (("a", 0, 1.25), ("b", 1, None), ("c", 1, 0.3)):
        made = candidate(text)
        node = tree.add(parent, made, "tiling")
        session.proposed(made, node)
        found = report(made, ms, status=Status.VERIFIED if ms else Status.WRONG)
        tree.record(node.id, found, 1.0)
        session.evaluated(found, node)
    session.event("node", **tree.prune(2, "hopeless").state())
    session.close()
    again = Tree()
    for event in replay(session.folder / LOG_NAME):
        again.apply(event.kind, event.data)
    assert again == tree and again.nodes[2].pruned == "hopeless"


def test_log_without_numbers_is_read() -> None:
    """Runs from before attempts had numbers give a tree too: in order, under their parents' digests."""
    first, second = candidate("a").digest, candidate("b").digest
    gates = [{"name": "build", "passed": True}, {"name": "correctness", "passed": False, "detail": "off\nby one"}]
    tree = rebuilt(
        [
            ("run_started", {"task": "x.py"}),
            ("proposed", {"candidate": first, "proposer": "engine", "parent": None}),
            ("evaluated", {"candidate": first, "status": "verified", "speedup": 2.0, "ms": 1.5}),
            ("proposed", {"candidate": second, "proposer": "engine", "parent": first}),
            ("evaluated", {"candidate": second, "status": "wrong", "report": {"gates": gates}}),
        ]
    )
    assert tree.nodes[1].reward == pytest.approx(math.log(2)) and tree.best is tree.nodes[1]
    assert (tree.nodes[2].parent, tree.nodes[2].failure, tree.nodes[2].reward) == (1, "off", -1.0)


def test_numbers_that_do_not_fit_are_refused() -> None:
    """A log whose numbers contradict its order is damaged, and said to be."""
    with pytest.raises(KforgeError, match="numbers candidate"):
        Tree().apply("proposed", {"candidate": "ab" * 8, "node": 7})


def test_no_torch_in_the_tree() -> None:
    """The interface's process rebuilds trees without loading torch."""
    code = "import sys, kforge.agent.search.tree, kforge.agent.memory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE_S).returncode == 0
