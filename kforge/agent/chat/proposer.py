"""The chat proposer: one proposal is one open-ended conversation of a model with tools.

The model decides what to do; kforge heeds the developer, the budgets and the window, sees circles, and ends it. What is
evaluated on the way is in the tree already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kforge.agent.chat.briefing import briefing, profiled
from kforge.agent.chat.caller import Caller
from kforge.agent.chat.conversation import Conversation
from kforge.agent.chat.dialogue import MOST_CALLS, Dialogue
from kforge.agent.chat.endpoint import Endpoint
from kforge.agent.chat.journal import Journal
from kforge.agent.chat.model import Model
from kforge.agent.chat.reader import Patience
from kforge.agent.chat.team import Team
from kforge.agent.chat.tokens import Estimator
from kforge.agent.roles import EXECUTOR, PLANNER, PROFILER
from kforge.agent.roles.planner import read_plan
from kforge.agent.roles.prompts import Prompts
from kforge.agent.tools.toolbox import Limits, Toolbox

if TYPE_CHECKING:
    from kforge.agent.proposers import Context
    from kforge.agent.workbench import Workbench
    from kforge.kernel.candidate import Candidate


class ChatProposer:
    """models: by role, the executor's at least, or one that executes alone. code: folders that the model may read.

    most_calls: answers of one conversation; 150 as CUDA Agent has in training.
    """

    conversational = True  # no answer is no end, and a step that was cut off is begun again (kforge.agent.search.loop)

    def __init__(
        self,
        models: Model | Team | Mapping[str, Model],
        *,
        prompts: Prompts | None = None,
        code: Sequence[Path] = (),
        most_calls: int = MOST_CALLS,
        patience: Patience | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.models: dict[str, Model] = {}
        if isinstance(models, Team):
            self.models.update(models.models)
            prompts = prompts or models.prompts
        elif isinstance(models, Model):
            self.models[EXECUTOR] = models
        else:
            self.models.update(models)
        self.name = self.models[EXECUTOR].name
        self.prompts = prompts or Prompts()
        self.code, self.most_calls, self.limits = tuple(code), most_calls, limits or Limits()
        self._endpoints = {role: Endpoint(model, patience) for role, model in self.models.items()}
        self._estimators = {role: Estimator() for role in self.models}
        self._journals: WeakKeyDictionary[Workbench, Journal] = WeakKeyDictionary()
        self._profiles: dict[str, dict[str, Any] | None] = {}

    def propose(self, context: Context) -> Candidate | None:
        """What the model submits, else the best it made right on the way, else None.

        Interrupted on a stop, BudgetSpent at a limit: the conversation stays open in the log, and can go on from there.
        """
        bench = context.bench
        journal = self._journal(bench)
        past = journal.resume(context.parent.id)
        if past is not None and past.ended is not None:
            digest = past.ended.get("candidate")
            return bench.candidate(str(digest)) if digest else None
        if past is None:
            number = journal.next_conversation()
            bench.event("conversation", conversation=number, state="began", node=context.parent.id, proposer=self.name)
        else:
            number = past.number
        caller = Caller(bench, self._endpoints, self._estimators, journal, number, past)
        box = self._toolbox(context, number, fresh=past is None or not past.calls)
        ending = Dialogue(caller, box, self.prompts, self.most_calls, past).run(lambda: self._briefing(context, caller))
        digest = ending.candidate.digest if ending.candidate else None
        if ending.candidate is not None:  # in the store before the log names it
            bench.propose(ending.candidate, context.parent.id, context.direction)
        bench.event("conversation", conversation=number, state="ended", reason=ending.reason, candidate=digest)
        return ending.candidate

    def _journal(self, bench: Workbench) -> Journal:
        if bench not in self._journals:
            self._journals[bench] = Journal(bench.session.log.replay(), self.name)
        return self._journals[bench]

    def _toolbox(self, context: Context, number: int, *, fresh: bool) -> Toolbox:
        """The conversation's own folder, begun from the parent's files; one that was cut off goes on in it."""
        bench = context.bench
        folder = bench.session.folder / "chat" / str(number)
        box = Toolbox(bench, folder, context.parent, self.code, self.limits, self.name)
        if (fresh or not folder.is_dir()) and context.parent.candidate:
            box.fill(bench.candidate(context.parent.candidate))
        folder.mkdir(parents=True, exist_ok=True)
        return box

    def _briefing(self, context: Context, caller: Caller) -> dict[str, Any]:
        """What the executor is told; the profiler and the planner, where a model plays them, are asked first."""

        def profile(digest: str) -> dict[str, Any] | None:
            if digest not in self._profiles:
                self._profiles[digest] = profiled(context.bench, digest)
            return self._profiles[digest]

        values = briefing(context, profile)
        if caller.plays(PROFILER) and values["findings"]:
            values["findings"] = self._once(caller, PROFILER, values)
        if caller.plays(PLANNER):
            plan = read_plan(self._once(caller, PLANNER, values))
            values["plan"] = plan.text + (f" (expected gain {plan.gain:g}x)" if plan.gain else "")
            values["direction"] = values["direction"] or plan.direction
        return values

    def _once(self, caller: Caller, role: str, values: Mapping[str, Any]) -> str:
        """One question, one answer, no tools."""
        conversation = Conversation()
        prompt = {"role": "user", "content": self.prompts.render(role, **values)}
        conversation.opening = [prompt]
        conversation.written = [prompt]
        answer, _, _ = caller.ask(role, conversation)
        return str(answer.message.get("content") or "")
