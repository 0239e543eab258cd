"""One conversation with a model: its opening, its turns, how it is cut to the window.

Data only: it neither asks a model nor runs a tool. A turn is an answer of the model with all that followed it, so that
no tool call is ever parted from its result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kforge.agent.chat.endpoint import sendable
from kforge.agent.chat.untrusted import data
from kforge.errors import ContextOverflow

Message = dict[str, Any]
CLIPS = (6000, 2000, 600)  # characters that a kept result may have, tried in order


@dataclass
class Measured:
    """A tool's answer that is kept when its turn is removed: what was asked, and its first lines."""

    tool: str
    text: str


@dataclass
class Conversation:
    """opening: what is never removed. written: what was added since the last answer and is no tool's, for the log.

    code: the developer's code word. fenced: results go into user messages, for a model without tool calls.
    """

    code: str = ""
    fenced: bool = False
    opening: list[Message] = field(default_factory=list)
    memo: Message | None = None  # stands for the turns that were removed
    turns: list[list[Message]] = field(default_factory=list)
    written: list[Message] = field(default_factory=list)
    measured: list[tuple[int, Measured]] = field(default_factory=list)  # with the turn it belongs to
    removed: int = 0

    def open(self, system: str, task: str) -> None:
        """Begin with the system prompt and the task."""
        self.opening = [{"role": "system", "content": system}, {"role": "user", "content": task}]
        self.written = list(self.opening)

    def say(self, text: str) -> None:
        """A message to the model, from kforge or from the developer."""
        message = {"role": "user", "content": text}
        self.written.append(message)
        self._last().append(message)

    def answer(self, message: Message) -> None:
        """The model's answer; a new turn begins."""
        self.turns.append([message])
        self.written = []

    def result(self, call: Mapping[str, Any], tool: str, text: str, keep: bool) -> None:
        """A tool's answer. keep: it is a measurement, of which something stays when the turn goes."""
        shown = data(text, f"result of {tool}" if tool else "result")
        if self.fenced:
            self._last().append({"role": "user", "content": shown})
        else:
            self._last().append({"role": "tool", "tool_call_id": call["id"], "content": shown})
        if keep:
            lines = "\n".join(text.strip().split("\n")[:6])
            self.measured.append((self.removed + len(self.turns) - 1, Measured(tool, lines[:400])))

    def put(self, written: Sequence[Message]) -> None:
        """Replay: what was written before this call stands in the place of what is."""
        if self.turns:
            turn = self._last()
            turn[:] = [message for message in turn if not any(message is own for own in self.written)] + list(written)
        else:
            self.opening = list(written)
        self.written = list(written)

    def _last(self) -> list[Message]:
        return self.turns[-1] if self.turns else self.opening

    @property
    def messages(self) -> list[Message]:
        """All of it in order, results of one fenced turn joined into one message."""
        found = [*self.opening, *([self.memo] if self.memo else [])]
        for turn in self.turns:
            found += turn
        return _joined(found)

    @property
    def steers(self) -> list[str]:
        """What the developer has said in this conversation, in order."""
        lines = []
        for message in [*self.opening, *([self.memo] if self.memo else []), *(m for turn in self.turns for m in turn)]:
            if message["role"] == "user" and self.code:
                lines += [line for line in _paragraphs(str(message["content"])) if line.startswith(f"[{self.code}]")]
        return list(dict.fromkeys(lines))

    def transcript(self, keep: int) -> str:
        """The turns that would be removed, in words."""
        parts = []
        for turn in self.turns[: len(self.turns) - keep]:
            for message in turn:
                parts.append(f"{message['role']}: {str(message.get('content') or '')[:1500]}")
                parts += [
                    f"  calls {call['function']['name']} {call['function']['arguments'][:300]}"
                    for call in message.get("tool_calls", ())
                ]
        return "\n".join(parts)

    def dropped(self, keep: int) -> list[Measured]:
        """Measurements of the turns that would be removed, and of those that were."""
        first = self.removed + len(self.turns) - keep
        return [measured for turn, measured in self.measured if turn < first]

    def fitting(self, limit: int, count: Callable[[Sequence[Message]], int]) -> int:
        """How many of the last turns fit into `limit` tokens, at least one."""
        kept, used = 0, 0
        for turn in reversed(self.turns):
            used += count(turn)
            if kept and used > limit:
                break
            kept += 1
        return kept

    def shorten(self, memo: str, keep: int, clip: int = 0) -> None:
        """All but the last `keep` turns go, `memo` stands for them; kept results have at most `clip` characters."""
        self.removed += len(self.turns) - keep
        self.turns = self.turns[len(self.turns) - keep :]
        self.memo = {"role": "user", "content": memo}
        if clip:
            for turn in self.turns:
                turn[:] = [_clipped(message, clip) for message in turn]
            self.written = [_clipped(message, clip) for message in self.written]

    def fit(
        self, memo: Callable[[int], str], limit: int, count: Callable[[Sequence[Message]], int]
    ) -> tuple[str, int, int]:
        """Shorten to at most `limit` tokens; returns (memo, turns kept, clip). ContextOverflow where nothing helps."""
        keep = self.fitting(limit // 3, count)
        for turns in range(keep, 0, -1):
            text = memo(turns)
            for clip in (0, *CLIPS) if turns == 1 else (0,):
                trial = Conversation(self.code, self.fenced, self.opening, None, [list(turn) for turn in self.turns])
                trial.shorten(text, turns, clip)
                if count(trial.messages) <= limit:
                    self.shorten(text, turns, clip)
                    return text, turns, clip
        raise ContextOverflow(
            f"the task and one turn do not fit into {limit} tokens",
            "use a model with a larger window, or a smaller op.py",
        )


def digest(model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
    """Of a request, as far as it decides the answer; 16 hex digits."""
    value = {"model": model, "messages": [sendable(message) for message in messages], "tools": list(tools)}
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _clipped(message: Message, limit: int) -> Message:
    """A message with a shorter content; an answer's calls keep their names, and their arguments as far as they fit."""
    short = dict(message)
    content = str(message.get("content") or "")
    if len(content) > limit:
        tail = limit // 3
        short["content"] = f"{content[: limit - tail]}\n[... removed ...]\n{content[len(content) - tail :]}"
    if message.get("tool_calls"):
        short["tool_calls"] = [_short_call(call, limit) for call in message["tool_calls"]]
    return short


def _short_call(call: Mapping[str, Any], limit: int) -> dict[str, Any]:
    function = call["function"]
    if len(function["arguments"]) <= limit:
        return dict(call)
    arguments = {
        name: value if len(str(value)) <= 200 else f"[{len(str(value))} characters removed]"
        for name, value in json.loads(function["arguments"]).items()
    }
    return {**call, "function": {**function, "arguments": json.dumps(arguments)}}


def _joined(messages: Sequence[Message]) -> list[Message]:
    """User messages that follow each other become one: many templates want the speakers to alternate."""
    found: list[Message] = []
    for message in messages:
        if found and message["role"] == "user" == found[-1]["role"]:
            found[-1] = {"role": "user", "content": f"{found[-1]['content']}\n\n{message['content']}"}
        else:
            found.append(message)
    return found


def _paragraphs(text: str) -> list[str]:
    return text.split("\n\n")
