"""What a run's log holds of its conversations: on resume equal requests are answered from it, unpaid.

Only a conversation that was cut off is gone through again, call by call: what was said to the model, its answers and
the tools' are taken from the log. A call under way when the run died is not there, and is made again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kforge.agent.roles import SUMMARISER
from kforge.store.events import Event

BROKEN = "broken"  # finish of a call whose answer was lost, recorded for what the endpoint said it cost


@dataclass
class Recorded:
    """One paid call: what was sent since the one before (`added`), the answer, and the tools' answers in order."""

    call: int
    role: str
    request: str
    message: dict[str, Any]
    finish: str
    added: list[dict[str, Any]]
    refused: bool = False
    tokens_in: int = 0
    tokens_out: int = 0
    compacted: list[dict[str, Any]] = field(default_factory=list)  # the shortenings before it
    tools: list[Mapping[str, Any]] = field(default_factory=list)


@dataclass
class Past:
    """A conversation of the log. ended: its event, None where it was cut off."""

    number: int
    node: int
    proposer: str
    calls: deque[Recorded] = field(default_factory=deque)
    ended: Mapping[str, Any] | None = None
    made: set[str] = field(default_factory=set)  # candidates that were judged in it
    heard: list[str] = field(default_factory=list)  # steers that were taken and had not reached the model yet


class Journal:
    """Of one proposer in one run. numbers go on where the log ends; `past` is the conversation still open, if any."""

    def __init__(self, events: Iterable[Event], proposer: str) -> None:
        self.calls = 0
        self.conversations = 0
        self.past: Past | None = None
        found: dict[int, Past] = {}
        calls: dict[int, Recorded] = {}
        compacted: dict[int, list[dict[str, Any]]] = {}
        for event in events:
            data = event.data
            if event.kind in ("model_started", "model_call"):
                self.calls = max(self.calls, int(data["call"]))
            if event.kind == "conversation":
                number = int(data["conversation"])
                self.conversations = max(self.conversations, number)
                if data["state"] == "began":
                    found[number] = Past(number, int(data.get("node") or 0), str(data.get("proposer") or ""))
                elif number in found:
                    found[number].ended = data
            elif event.kind == "compacted" and "memo" in data:
                compacted.setdefault(int(data.get("conversation") or 0), []).append(dict(data))
            elif event.kind == "model_call" and data.get("finish") != BROKEN:
                past = found.get(int(data.get("conversation") or 0))
                if past is not None:
                    past.heard.clear()
                    recorded = calls[int(data["call"])] = _recorded(data)
                    if recorded.role != SUMMARISER:
                        recorded.compacted = compacted.pop(past.number, [])
                    past.calls.append(recorded)
            elif event.kind == "tool_call" and data.get("call") in calls:
                calls[data["call"]].tools.append(data)
            elif event.kind == "steer" and data.get("state") == "taken":
                for past in found.values():
                    if past.ended is None:
                        past.heard.append(str(data["text"]))
            elif event.kind == "evaluated":
                for past in found.values():
                    if past.ended is None:
                        past.made.add(str(data["candidate"]))
            elif event.kind == "node" and (data.get("step") or {}).get("done"):
                # the step that the last conversation served is complete
                found = {n: past for n, past in found.items() if past.ended is None}
        own = [past for past in found.values() if past.proposer == proposer]
        if own:
            self.past = own[-1]

    def resume(self, node: int) -> Past | None:
        """The conversation that was cut off, once; None where there is none or it started from another attempt."""
        past, self.past = self.past, None
        return past if past is not None and past.node == node else None

    def next_call(self) -> int:
        """The number of a call that is about to be made."""
        self.calls += 1
        return self.calls

    def next_conversation(self) -> int:
        """The number of a conversation that begins."""
        self.conversations += 1
        return self.conversations


def _recorded(data: Mapping[str, Any]) -> Recorded:
    return Recorded(
        int(data["call"]),
        str(data.get("role") or ""),
        str(data.get("request") or ""),
        dict(data.get("message") or {}),
        str(data.get("finish") or ""),
        [dict(message) for message in data.get("added") or ()],
        bool(data.get("refused")),
        int(data.get("tokens_in") or 0),
        int(data.get("tokens_out") or 0),
    )
