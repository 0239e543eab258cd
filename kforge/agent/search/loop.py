"""The loop of a search: select, propose, judge, record; until a limit, the end of ideas or of room.

Where it stands is written into the log with each step (field `step` of the `node` events), so that a run that was
killed goes on with the same selections and random draws.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from kforge.agent.budget import BudgetSpent
from kforge.agent.search.constants import FRUITLESS
from kforge.agent.search.diversity import diversify
from kforge.agent.search.strategy import ENGINE, Selection, Strategy
from kforge.agent.search.tree import ROOT, Node, Tree

if TYPE_CHECKING:
    from kforge.agent.attempts import Attempt
    from kforge.agent.control import Control
    from kforge.agent.proposers import Proposer
    from kforge.kernel.candidate import Candidate


class Judge(Protocol):
    """What a search needs of kforge.agent.workbench.Workbench."""

    tree: Tree
    control: Control

    def evaluate(
        self, candidate: Candidate, plan: str = "quick", parent: int | None = None, direction: str = ""
    ) -> Attempt: ...

    def spent(self) -> str: ...

    def event(self, kind: str, /, **data: Any) -> None: ...


def search(
    judge: Judge,
    strategy: Strategy,
    proposers: Sequence[Proposer],
    *,
    on_step: Callable[[Node], None] = lambda node: None,
    seed: int | None = None,
    avoid: Callable[[], Sequence[str]] = tuple,
    beyond_right: bool = False,
) -> Node | None:
    """Search until something ends it (see `ending`); returns the best attempt.

    proposers are asked in order: each until it has nothing more. One with a true attribute `conversational` may have
    judged attempts before its answer: a step of it that was cut off is begun again, and no answer is no end.
    on_step gets the node that each step led to, or worked on in vain. avoid: directions that memory advises against.
    seed: of the draws; the log's where the run has one, else random. beyond_right: a model goes on after the first
    right candidate where nothing is timed; the engine never does. Interrupted when the developer stops.
    """
    steps = judge.tree.steps
    seed = steps.seed if steps.seed is not None else seed if seed is not None else secrets.randbelow(2**31)
    if (steps.search, steps.seed) != (strategy.name, seed):
        _mark(judge, judge.tree.root, search=strategy.name, seed=seed)
    try:
        while not ending(judge, [p.name for p in proposers], beyond_right):
            if not _step(judge, strategy, proposers, on_step, tuple(avoid())):
                break
    except BudgetSpent:  # in the middle of a step, which stays open
        pass
    return judge.tree.best


def ending(judge: Judge, names: Sequence[str], beyond_right: bool = False) -> str:
    """Why the search is over, in words; "" while it goes on. Interrupted on the developer's stop."""
    judge.control.check()
    steps, best = judge.tree.steps, judge.tree.best
    if steps.ended:
        return steps.ended
    left = [name for name in names if name not in steps.exhausted]
    if not left:
        return "nobody has a further proposal"
    if best is not None and best.ms is None and not (beyond_right and any(name != ENGINE for name in left)):
        return "a right candidate is found and nothing can be timed here"
    if fruitless(judge.tree) >= FRUITLESS:
        return f"{FRUITLESS} steps in a row brought nothing new"
    return judge.spent()


def fruitless(tree: Tree) -> int:
    """Steps at the end of the history that brought no new attempt."""
    last = max((node.step for node in tree.nodes.values() if node.id != ROOT), default=-1)
    return max(0, len(tree.steps.history) - 1 - last)


def _step(
    judge: Judge,
    strategy: Strategy,
    proposers: Sequence[Proposer],
    on_step: Callable[[Node], None],
    avoid: tuple[str, ...],
) -> bool:
    """One selection, proposal and verdict. False where the strategy gives up."""
    from kforge.agent.proposers import Context

    tree, steps = judge.tree, judge.tree.steps
    if steps.open is None:
        selection = _select(judge, strategy, avoid)
        if selection is None:
            return False
        proposer = _next(tree, selection, proposers)
        opened = selection.as_dict() | {"proposer": proposer.name}
        _mark(judge, tree.nodes[selection.node], open=opened)
    else:  # the run was cut off within this step
        selection = Selection.read(steps.open)
        proposer = next((p for p in proposers if p.name == steps.open["proposer"]), proposers[0])
        made = [n for n in tree.nodes.values() if n.step == len(steps.history) and n.status is not None and n.id]
        if made and not getattr(proposer, "conversational", False):
            _mark(judge, made[-1], done=True)
            on_step(made[-1])
            return True
    parent = tree.nodes[selection.node]
    context = Context(
        judge,  # type: ignore[arg-type]
        parent,
        tuple(tree.nodes[id] for id in selection.exemplars),
        selection.direction,
        selection.avoid,
    )
    candidate = proposer.propose(context)
    if candidate is None:
        # A model that gave up on one attempt may have ideas for another.
        over = set() if getattr(proposer, "conversational", False) else {proposer.name}
        _mark(judge, parent, done=True, exhausted=sorted({*steps.exhausted, *over}))
        on_step(parent)
        return True
    above, direction = parent.id, selection.direction
    if proposer.name == ENGINE:  # made from the reference, whatever was selected
        above, direction = ROOT, engine_direction(candidate)
    attempt = judge.evaluate(candidate, "quick", parent=above, direction=direction)
    node = attempt.node
    _mark(judge, node, done=True, **({"ended": "no room"} if attempt.report.no_room else {}))
    on_step(node)
    return True


def _select(judge: Judge, strategy: Strategy, avoid: tuple[str, ...]) -> Selection | None:
    pruned = {node.id for node in judge.tree.nodes.values() if node.pruned}
    selection = strategy.select(judge.tree)
    for node in list(judge.tree.nodes.values()):
        if node.pruned and node.id not in pruned:
            judge.event("node", **node.state())
    return diversify(judge.tree, selection, avoid) if selection else None


def _next(tree: Tree, selection: Selection, proposers: Sequence[Proposer]) -> Proposer:
    """The first who has more, those to be skipped last; of the engine's kernels one is enough where none is timed."""
    left = [proposer for proposer in proposers if proposer.name not in tree.steps.exhausted]
    skip = set(selection.skip)
    if tree.best is not None and tree.best.ms is None:
        skip.add(ENGINE)
    return next((proposer for proposer in left if proposer.name not in skip), left[0])


def _mark(judge: Judge, node: Node, **step: Any) -> None:
    """Into the tree and into the log."""
    judge.tree.mark(step)
    judge.event("node", **node.state(), step=step)


def engine_direction(candidate: Candidate) -> str:
    """What the engine did, short: the beginning of its idea."""
    words = candidate.idea.partition(";")[0].partition(",")[0].strip()
    return f"{ENGINE}:{words[:48] or 'kernel'}"
