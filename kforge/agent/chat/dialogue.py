"""One conversation from its first prompt to its end: answers, tools, steers, circles, the window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kforge.agent.chat import untrusted
from kforge.agent.chat.briefing import left, line, table
from kforge.agent.chat.conversation import Conversation
from kforge.agent.chat.endpoint import STEERED
from kforge.agent.chat.fenced import describe, parse
from kforge.agent.chat.loops import ENDED, REMINDERS, TOLD, Guard
from kforge.agent.roles import EXECUTOR, SUMMARISER
from kforge.agent.tools import ToolResult, call, schemas
from kforge.errors import ContextOverflow

if TYPE_CHECKING:
    from kforge.agent.chat.caller import Caller
    from kforge.agent.chat.endpoint import Answer
    from kforge.agent.chat.journal import Past, Recorded
    from kforge.agent.roles.prompts import Prompts
    from kforge.agent.tools import Toolbox
    from kforge.kernel.candidate import Candidate

MOST_CALLS = 150
MEASURING = frozenset({"evaluate", "time_variants", "sweep", "profile", "compare", "probe", "submit"})
LOW = 0.25  # share of a limit at which the model is told what is left


@dataclass(frozen=True)
class Ending:
    """How a conversation ended, in words, and what it yields."""

    reason: str
    candidate: Candidate | None = None


@dataclass(frozen=True)
class Action:
    """One call of a tool as the model wrote it. id: of the protocol; wrong: what is malformed, told instead of done."""

    id: str
    tool: str
    arguments: str | dict[str, Any]
    wrong: str = ""


class Dialogue:
    """Runs one conversation with the executor. past: what the log holds of it."""

    def __init__(
        self, caller: Caller, box: Toolbox, prompts: Prompts, most_calls: int = MOST_CALLS, past: Past | None = None
    ) -> None:
        self._made = frozenset(past.made if past else ())
        self._heard = list(past.heard) if past else []
        self.caller, self.box, self.prompts, self.most_calls = caller, box, prompts, most_calls
        self.bench = box.bench
        self.model = caller.model(EXECUTOR)
        self.schemas = schemas(box)
        self.tools = self.schemas if self.model.tools else []
        self.talk = Conversation(untrusted.password(), fenced=not self.model.tools)
        self.guard = Guard()
        self._before = len(self.bench.attempts)
        self._warned: set[str] = set()

    def run(self, briefing: Callable[[], Mapping[str, Any]]) -> Ending:
        """Until submit, give_up, a circle or the last call. Interrupted and BudgetSpent go through."""
        self._open(briefing())
        for _ in range(self.most_calls):
            ending = self._turn()
            if ending is not None:
                return ending
        return self._kept(f"the conversation had its {self.most_calls} calls")

    # the turns

    def _open(self, values: Mapping[str, Any]) -> None:
        stem = self.box.module.removesuffix(".py")
        fenced = "" if self.tools else self.prompts.render(
            "fenced", actions=describe(self.schemas), module=self.box.module
        )  # fmt: skip
        common = {"code": self.talk.code, "module": self.box.module, "stem": stem, "tools": bool(self.tools)}
        system = self.prompts.render("executor_system", **{**values, **common, "fenced": fenced})
        steers = [self._words(text) for text in self._steers(queued=True)]
        task = self.prompts.render("executor_task", **{"plan": "", **values, **common, "steers": steers})
        self.talk.open(system, task)

    def _turn(self) -> Ending | None:
        if not self.caller.replaying:
            for text in self._steers():
                self.talk.say(self._words(text))
            self._warn()
        try:
            answer, recorded, number = self._ask()
        except ContextOverflow as error:
            if not self.talk.turns:
                raise
            return self._kept(error.message)
        if recorded is not None and self.talk.code not in str(self.talk.opening):
            self._take_code()
        if answer.finish == STEERED:  # the next turn says what was to be heard
            return None
        actions = self._actions(answer.message)
        if not actions:
            return self._idle("refused" if answer.refused else "plain", answer.finish, recorded is not None)
        ending = self._act(actions, number, recorded)
        if ending is None and answer.finish == "length" and not self._is_past(recorded):
            self.talk.say(self.prompts.render("reminder", kind="cut", output=answer.usage.tokens_out))
        return ending

    def _ask(self) -> tuple[Answer, Recorded | None, int]:
        """The next answer; a request that the endpoint finds too long is shortened once more."""
        self._shorten()
        try:
            return self.caller.ask(EXECUTOR, self.talk, self.tools)
        except ContextOverflow:
            asked = self.caller.count(EXECUTOR, self.tools)(self.talk.messages)
            self._shorten(min(self.caller.room(EXECUTOR), asked) * 2 // 3)
            return self.caller.ask(EXECUTOR, self.talk, self.tools)

    def _act(self, actions: Sequence[Action], number: int, recorded: Recorded | None) -> Ending | None:
        """Each call in order; an ending ends the others too, but each has its answer."""
        done = list(recorded.tools) if recorded is not None else []
        ending: Ending | None = None
        circle = 0
        for action in actions:
            count = self.guard.call(action.tool, action.arguments)
            if ending is not None:
                result = ToolResult("not done: the conversation has ended", is_error=True)
            elif done:
                result = self._again(action, done.pop(0))
            elif action.wrong:
                result = self._refuse(action, number)
            else:
                result = call(action.tool, action.arguments, self.box, model_call=number)
            self.guard.done(action.tool, result.is_error)
            self.talk.result({"id": action.id}, action.tool, result.text, action.tool in MEASURING)
            circle = max(circle, count)
            if ending is None:
                ending = self._ended(action, result, count)
        if ending is None and circle >= TOLD and not self._is_past(recorded):
            self.talk.say(self.prompts.render("reminder", kind="loop", count=circle, most=ENDED))
        return ending

    def _ended(self, action: Action, result: ToolResult, count: int) -> Ending | None:
        if result.ends == "submit":
            return Ending("submitted", result.candidate)
        if result.ends:
            return Ending(line(result.text, 500))
        if count >= ENDED:
            return self._kept(f"the model went in circles: {action.tool} {count} times with the same arguments")
        return None

    def _again(self, action: Action, recorded: Mapping[str, Any]) -> ToolResult:
        """A tool's answer from the log. What ended the conversation is done again: it is judged already."""
        text, is_error = str(recorded.get("result") or ""), bool(recorded.get("error"))
        if not is_error and action.tool in ("submit", "give_up"):
            return call(action.tool, action.arguments, self.box, model_call=recorded.get("call"))
        return ToolResult(text, is_error)

    def _refuse(self, action: Action, number: int) -> ToolResult:
        """A call that cannot be read is answered with how to write it, and is in the log like the others."""
        self.bench.event(
            "tool_call",
            call=number,
            tool=action.tool or "?",
            arguments=action.arguments,
            result=action.wrong,
            error=True,
            seconds=0.0,
        )
        return ToolResult(action.wrong, is_error=True)

    def _idle(self, kind: str, finish: str, past: bool) -> Ending | None:
        """An answer without an action: a reminder, or the end."""
        count = self.guard.nothing()
        if count > REMINDERS:
            what = "refused" if kind == "refused" else "answered without an action"
            return self._kept(f"the model {what} {count} times in a row")
        if not (past and self.caller.replaying):
            most = REMINDERS
            if finish == "length":
                text = self.prompts.render("reminder", kind="cut", output=self.model.output)
            else:
                text = self.prompts.render("reminder", kind=kind, tools=bool(self.tools), count=count, most=most)
            self.talk.say(text)
        return None

    # what is said besides

    def _actions(self, message: Mapping[str, Any]) -> list[Action]:
        if not self.tools:
            parameters = {schema["function"]["name"]: schema["function"]["parameters"] for schema in self.schemas}
            blocks = parse(str(message.get("content") or ""), parameters)
            return [Action("", block.tool, block.arguments, block.told if block.wrong else "") for block in blocks]
        written: Mapping[str, str] = message.get("kforge_arguments") or {}
        found = []
        for called in message.get("tool_calls") or ():
            arguments = written.get(called["id"], called["function"]["arguments"])
            found.append(Action(called["id"], called["function"]["name"], arguments))
        return found

    def _steers(self, queued: bool = False) -> list[str]:
        if self.caller.replaying:
            return []
        heard, self._heard = self._heard, []
        return [*heard, *(steer.text for steer in self.bench.control.take(queued))]

    def _words(self, text: str) -> str:
        return untrusted.developer(text, self.talk.code)

    def _warn(self) -> None:
        """Once for each limit of which little is left."""
        bench, whole = self.bench, self.bench.budget
        for name, rest in bench.left().items():
            limit = getattr(whole, name)
            if limit and rest is not None and rest < LOW * limit and name not in self._warned:
                self._warned.add(name)
                if self.talk.turns:
                    self.talk.say(self.prompts.render("reminder", kind="left", left=left(bench)))

    def _take_code(self) -> None:
        """A conversation of the log has the code word that it began with."""
        found = untrusted.PASSWORD.search(str(self.talk.opening[0]["content"]))
        if found:
            self.talk.code = found[0]

    def _is_past(self, recorded: Recorded | None) -> bool:
        return recorded is not None and self.caller.replaying

    # the window

    def _shorten(self, limit: int | None = None) -> None:
        """Remove old turns where the next request would not fit, as the log did where it is gone through again."""
        for past in self.caller.compacted():
            self.talk.shorten(str(past["memo"]), int(past["keep"]), int(past["clip"]))
        count = self.caller.count(EXECUTOR, self.tools)
        limit = self.caller.room(EXECUTOR) if limit is None else limit
        before = count(self.talk.messages)
        if before <= limit or not self.talk.turns or self.caller.replaying:
            return
        summary = self._summary()
        memo, keep, clip = self.talk.fit(lambda turns: self._memo(turns, summary), limit, count)
        self.bench.event(
            "compacted",
            call=self.caller.journal.calls + 1,
            before=before,
            after=count(self.talk.messages),
            conversation=self.caller.number,
            memo=memo,
            keep=keep,
            clip=clip,
        )

    def _summary(self) -> str:
        """The summariser's words on what goes, where a model plays it."""
        if self.caller.summary:
            text, self.caller.summary = self.caller.summary, ""
            return text
        transcript = self.talk.transcript(1)
        if not self.caller.plays(SUMMARISER) or not transcript:
            return ""
        room = 2 * self.caller.room(SUMMARISER)
        talk = Conversation()
        prompt = self.prompts.render("summariser", transcript=transcript[-room:])
        talk.opening = talk.written = [{"role": "user", "content": prompt}]
        answer, _, _ = self.caller.ask(SUMMARISER, talk)
        return str(answer.message.get("content") or "")[:4000]

    def _memo(self, keep: int, summary: str) -> str:
        """What stands for the turns that go: rules, the developer's words, every measurement, the files."""
        names = self.box.files.names()
        return self.prompts.render(
            "compacted",
            constraints=[str(rule) for rule in self.bench.constraints],
            steers=self.talk.steers,
            attempts=table(self.bench.tree),
            measurements="\n".join(f"{m.tool}: {m.text}" for m in self.talk.dropped(keep)[-20:]),
            summary=summary,
            files={name: self.box.files.read(name) for name in names},
        )

    def _kept(self, reason: str) -> Ending:
        """An end without a submission: the fastest that this conversation made right, if any."""
        made = [
            attempt
            for place, attempt in enumerate(self.bench.attempts)
            if attempt.verified and (place >= self._before or attempt.candidate.digest in self._made)
        ]
        best = min(made, key=lambda attempt: attempt.ms, default=None)
        return Ending(reason, best.candidate if best is not None else None)
