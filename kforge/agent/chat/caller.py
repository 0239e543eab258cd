"""One conversation's line to its models: limits before a call, meter and log after it, the log instead on resume."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kforge.agent.budget import BudgetSpent
from kforge.agent.chat.conversation import Conversation, digest
from kforge.agent.chat.endpoint import Answer, Endpoint
from kforge.agent.chat.journal import BROKEN, Journal, Past, Recorded
from kforge.agent.chat.stream import Usage
from kforge.agent.chat.tokens import Estimator
from kforge.agent.roles import EXECUTOR, SUMMARISER
from kforge.errors import ContextOverflow, UsageError

if TYPE_CHECKING:
    from kforge.agent.chat.model import Model
    from kforge.agent.workbench import Workbench

LEAST_OUTPUT = 256  # tokens: an answer that may be shorter than this is not paid for
SLACK = 64  # tokens of the window that are left free


class Caller:
    """number: of the conversation. past: what the log holds of it, to be gone through before anything is asked."""

    def __init__(
        self,
        bench: Workbench,
        endpoints: Mapping[str, Endpoint],
        estimators: Mapping[str, Estimator],
        journal: Journal,
        number: int,
        past: Past | None = None,
    ) -> None:
        self.bench, self.journal, self.number = bench, journal, number
        self._endpoints, self._estimators = endpoints, estimators
        self.summary = ""  # paid for before the run was cut off, and not used yet
        self._past: deque[Recorded] = past.calls if past is not None else deque()

    @property
    def replaying(self) -> bool:
        """Whether the next call is answered from the log."""
        return bool(self._past)

    def plays(self, role: str) -> bool:
        """Whether a model was named for a role."""
        return role in self._endpoints

    def model(self, role: str) -> Model:
        """Who plays a role."""
        return self._endpoints[role].model

    def count(self, role: str, tools: Sequence[Mapping[str, Any]] = ()) -> Callable[[Sequence[Mapping[str, Any]]], int]:
        """Counts the tokens of messages as the role's model will, rather too many."""
        estimator = self._estimators[role]
        return lambda messages: estimator(messages, tools)

    def room(self, role: str) -> int:
        """Tokens that a request may have and leave room for an answer."""
        model = self.model(role)
        return model.window - model.output - SLACK

    def ask(
        self, role: str, conversation: Conversation, tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[Answer, Recorded | None, int]:
        """The next answer, entered into the conversation: (answer, its record if the log had it, number of the call).

        BudgetSpent where the call might not fit what is left; Interrupted on a stop.
        """
        recorded = self._recorded(role, conversation, tools)
        if recorded is not None:
            conversation.answer(recorded.message)
            usage = Usage(recorded.tokens_in, recorded.tokens_out)
            return Answer(recorded.message, usage, recorded.finish, 0.0, recorded.refused), recorded, recorded.call
        return self._live(role, conversation, tools)

    def compacted(self) -> list[dict[str, Any]]:
        """The shortenings that the log records before the next call. A summary made for one is kept at hand."""
        while self._past and self._past[0].role == SUMMARISER:
            self.summary = str(self._past.popleft().message.get("content") or "")
        return self._past[0].compacted if self._past else []

    # inside

    def _recorded(self, role: str, conversation: Conversation, tools: Sequence[Mapping[str, Any]]) -> Recorded | None:
        if not self._past:
            return None
        head = self._past[0]
        if head.role == role:
            before = list(conversation.written)
            conversation.put(head.added)
            if digest(self.model(role).name, conversation.messages, tools) == head.request:
                return self._past.popleft()
            if conversation.turns:  # what was said then stays said
                conversation.written = list(head.added)
            else:
                conversation.put(before)
        self._past.clear()
        self.bench.event(
            "message", level="warning", text="the log's further answers belong to another model, prompt or set of tools"
        )
        return None

    def _live(
        self, role: str, conversation: Conversation, tools: Sequence[Mapping[str, Any]]
    ) -> tuple[Answer, Recorded | None, int]:
        bench, model, estimator = self.bench, self.model(role), self._estimators[role]
        messages = conversation.messages
        expected = estimator(messages, tools)
        output = self._output(model, expected)
        call = self.journal.next_call()
        bench.event("model_started", call=call, role=role, model=model.name, conversation=self.number)
        request = digest(model.name, messages, tools)

        def lost(usage: Usage) -> None:
            self._paid(call, role, model, request, usage, {}, BROKEN, 0.0, [])

        answer = self._endpoints[role].complete(
            messages,
            tools,
            output=output,
            call=call,
            check=bench.check,
            cut=lambda: role == EXECUTOR and any(steer.when == "now" for steer in bench.control.pending),
            on_text=lambda piece: bench.event("model_text", call=call, text=piece),
            on_retry=lambda words: bench.event("message", text=words, level="warning"),
            on_lost=lost,
        )
        usage = answer.usage
        if usage.estimated:
            usage = Usage(expected, usage.tokens_out, 0, estimated=True)
        else:
            estimator.learn(messages, tools, usage.tokens_in)
        added = list(conversation.written)
        self._paid(
            call, role, model, request, usage, answer.message, answer.finish, answer.seconds, added, answer.refused
        )
        conversation.answer(answer.message)
        return answer, None, call

    def _output(self, model: Model, expected: int) -> int:
        """The most tokens that an answer may have: what window, tokens and money leave."""
        bench = self.bench
        bench.check()
        room = model.window - expected - SLACK
        least = min(LEAST_OUTPUT, model.output)
        if room < least:
            raise ContextOverflow(f"the request is too long for {model.name}", f"its window is {model.window} tokens")
        output = min(model.output, room)
        left = bench.left()
        if (tokens := left["tokens"]) is not None and tokens - expected < output:
            output = int(tokens) - expected
            if output < least:
                raise BudgetSpent(f"the next call would not fit the {int(tokens)} tokens that are left")
        if (usd := left["usd"]) is not None:
            if model.prices is None:
                raise UsageError(
                    f"the price of {model.name} is unknown, and a budget in USD was set", price_hint(model)
                )
            rest = usd - model.prices.usd(expected, 0)
            if rest < model.prices.usd(0, output):
                output = int(rest * 1e6 / model.prices.output) if rest > 0 else 0
                if output < least:
                    raise BudgetSpent(f"the next call would not fit the {usd:.4g} USD that are left")
        return output

    def _paid(
        self,
        call: int,
        role: str,
        model: Model,
        request: str,
        usage: Usage,
        message: dict[str, Any],
        finish: str,
        seconds: float,
        added: list[dict[str, Any]],
        refused: bool = False,
    ) -> None:
        """Into the log first: what is paid is never forgotten."""
        bench, prices = self.bench, model.prices
        usd = None if prices is None else prices.usd(usage.tokens_in, usage.tokens_out, usage.tokens_cached)
        bench.event(
            "model_call",
            call=call,
            role=role,
            model=model.name,
            request=request,
            message=message,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            tokens_cached=usage.tokens_cached,
            usd=usd,
            seconds=seconds,
            finish=finish,
            conversation=self.number,
            added=added,
            **({"estimated": True} if usage.estimated else {}),
            **({"refused": True} if refused else {}),
        )
        bench.meter.add_call(usage.tokens_in, usage.tokens_out, usage.tokens_cached, usd)
        bench.event("meter", **bench.meter.as_dict(), seconds=round(bench.session.seconds, 3), left=bench.left())


def price_hint(model: Model) -> str:
    """How a price is written."""
    return f'kforge.toml: [prices."{model.name}"] input = ..., output = ... in USD per million tokens'
