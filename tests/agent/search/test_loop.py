"""The loop: what ends a search, whom it asks, and that a killed one goes on as if nothing had happened."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from kforge.agent.budget import BudgetSpent
from kforge.agent.proposers import Context
from kforge.agent.search import SEARCHES, Greedy, Hybrid, ending, search
from kforge.agent.search.constants import FRUITLESS
from kforge.agent.search.tree import Node, Tree
from kforge.errors import Interrupted
from kforge.kernel.candidate import Candidate
from tests.agent.search.simulator import Killed, Refiner, World, candidate, rebuilt


def _shape(tree: Tree) -> list[tuple[int | None, str, float | None]]:
    return [(node.parent, node.candidate, node.ms) for node in tree.nodes.values()]


def _proposers() -> list[Refiner]:
    return [Refiner("engine", 4), Refiner("model", 22)]


@pytest.mark.parametrize("name", SEARCHES)
def test_killed_search_goes_on_as_it_would_have(name: str) -> None:
    """Killed after any of its events, a search that is resumed from its log ends with the same tree."""
    whole = World(seed=3, evaluations=26)
    best = search(whole, SEARCHES[name](), _proposers(), seed=11)
    assert best is not None and len(whole.tree) >= 12
    for cut in range(1, len(whole.log)):
        killed = World(seed=3, evaluations=26, die_after=cut)
        with pytest.raises(Killed):
            search(killed, SEARCHES[name](), _proposers(), seed=11)
        assert killed.log == whole.log[:cut]
        resumed = World(seed=3, evaluations=26, tree=rebuilt(killed.log), log=killed.log)
        again = search(resumed, SEARCHES[name](), _proposers(), seed=999)
        assert _shape(resumed.tree) == _shape(whole.tree) and again == best
        judged = [data["candidate"] for kind, data in resumed.log if kind == "evaluated"]
        assert len(judged) == len(set(judged)), "nothing is judged twice"


@pytest.mark.parametrize("name", SEARCHES)
def test_budget_ends_it(name: str) -> None:
    """No strategy goes beyond the budget; what it returns is the best of the tree."""
    world = World(evaluations=9)
    assert search(world, SEARCHES[name](), [Refiner("engine", 2), Refiner()], seed=1) is world.tree.best
    assert sum(kind == "evaluated" for kind, _ in world.log) == 9
    assert ending(world, ["engine", "model"], True) == "spent"


@pytest.mark.parametrize("name", SEARCHES)
def test_untimed_stops_at_the_first_right_one(name: str) -> None:
    """Where nothing can be timed, one right candidate ends the search: the rest could not be told apart."""
    world = World(timed=False, evaluations=50)
    best = search(world, SEARCHES[name](), [Refiner("engine", 9), Refiner()], seed=1)
    assert best is not None and best.id == len(world.tree)
    assert sum(node.verified for node in world.tree.nodes.values()) == 1


def test_untimed_goes_on_with_a_model_when_asked() -> None:
    """Beyond the first right one only the model is asked, until the budget ends; the engine never is."""
    world = World(timed=False, evaluations=12)
    search(world, Hybrid(), [Refiner("engine", 9), Refiner()], seed=1, beyond_right=True)
    made = [node.proposer for node in list(world.tree.nodes.values())[1:]]
    first = next(node.id for node in world.tree.nodes.values() if node.verified)
    assert len(made) == 12 and set(made[:first]) == {"engine"} and set(made[first:]) == {"model"}
    alone = World(timed=False, evaluations=12)
    search(alone, Hybrid(), [Refiner("engine", 9)], seed=1, beyond_right=True)
    assert sum(node.verified for node in alone.tree.nodes.values()) == 1


def test_ideas_end_it() -> None:
    """When every proposer has nothing more the search is over and says so."""
    world = World(evaluations=99)
    search(world, Greedy(), [Refiner("engine", 3), Refiner("model", 2)], seed=1)
    assert len(world.tree) == 5 and world.tree.steps.exhausted == ["engine", "model"]
    assert ending(world, ["engine", "model"]) == "nobody has a further proposal"


def test_engine_hangs_under_the_root() -> None:
    """The engine makes its kernels from the reference, whatever a strategy selected; a model from the selected one."""
    world = World(evaluations=12)
    search(world, Greedy(), _proposers(), seed=1)
    parents = {(node.proposer, node.parent) for node in world.tree.nodes.values() if node.proposer}
    assert {parent for by, parent in parents if by == "engine"} == {0}
    assert all(parent for by, parent in parents if by == "model")
    assert world.tree.nodes[1].direction == "engine:idea 0"


def test_no_room_ends_it_for_good() -> None:
    """A baseline at the hardware's floor ends the search at once, after a resumption too."""

    class NoRoom(World):
        def _report(self, made: Candidate, parent: int):  # type: ignore[no-untyped-def]
            return replace(super()._report(made, parent), no_room=True)

    world = NoRoom()
    search(world, Greedy(), [Refiner()], seed=1)
    assert len(world.tree) == 1
    again = World(tree=rebuilt(world.log), log=world.log)
    search(again, Greedy(), [Refiner()])
    assert len(again.tree) == 1 and ending(again, ["model"]) == "no room"


class Repeating:
    """A model that hands in the same candidate again and again, or nothing."""

    name = "model"
    conversational = True

    def __init__(self, text: str | None) -> None:
        self.text, self.asked = text, 0

    def propose(self, context: Context) -> Candidate | None:
        """The same as ever."""
        self.asked += 1
        return candidate(self.text) if self.text else None


@pytest.mark.parametrize(("text", "asked"), [("same", 1 + FRUITLESS), (None, FRUITLESS)])
def test_nothing_new_ends_it(text: str | None, asked: int) -> None:
    """A model that brings nothing new three times in a row is asked no more."""
    world, model = World(failing=0.0), Repeating(text)
    search(world, Greedy(), [model], seed=1)
    assert model.asked == asked
    assert ending(world, ["model"]) == "3 steps in a row brought nothing new"


def test_stop_is_heeded() -> None:
    """The developer's stop raises Interrupted between steps; the step that was done is whole in the log."""
    world = World()

    def stop(node: Node) -> None:
        if node.id == 2:
            world.control.stop()

    with pytest.raises(Interrupted):
        search(world, Greedy(), [Refiner()], on_step=stop, seed=1)
    assert len(world.tree) == 2 and rebuilt(world.log) == world.tree and world.tree.steps.open is None


def test_budget_spent_within_a_step_leaves_it_open() -> None:
    """A limit reached in the middle of a conversation ends the search; resuming begins with that step again."""

    class Spending:
        name, conversational = "model", True

        def propose(self, context: Context) -> Candidate | None:
            context.bench.evaluate(candidate("on the way"), "quick", parent=context.parent.id)
            raise BudgetSpent("the budget of 2 USD is spent")

    world = World(failing=0.0)
    best = search(world, Greedy(), [Spending()], seed=1)
    assert best is not None and best.candidate == candidate("on the way").digest
    opened = copy.deepcopy(world.tree.steps.open)
    assert opened is not None and opened["node"] == 0
    again = World(failing=0.0, tree=rebuilt(world.log), log=world.log)

    class Ending(Spending):
        def propose(self, context: Context) -> Candidate | None:
            assert context.parent.id == 0, "the same selection"
            context.bench.control.stop()
            return candidate("at last")

    with pytest.raises(Interrupted):
        search(again, Greedy(), [Ending()])
    assert [node.parent for node in again.tree.nodes.values()] == [None, 0, 0]


def test_memory_is_passed_on() -> None:
    """What memory says to avoid reaches the proposer with every step."""
    seen = []

    class Asked(Refiner):
        def propose(self, context: Context) -> Candidate | None:
            seen.append(context.avoid)
            return super().propose(context)

    search(World(evaluations=2), Greedy(), [Asked()], seed=1, avoid=lambda: ["launch"])
    assert seen == [("launch",), ("launch",)]
