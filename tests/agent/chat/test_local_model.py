"""The recorded session with a real local model is whole, and can be gone through again without the model."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from kforge.agent.budget import Meter
from kforge.agent.chat.conversation import Conversation, digest
from kforge.agent.chat.fenced import parse
from kforge.agent.chat.journal import Journal
from kforge.agent.search.tree import Tree
from kforge.store.events import Event, replay
from kforge.store.schema import check

FOLDER = Path(__file__).parents[1] / "fixtures" / "local_model"


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """All events of the log."""
    return list(replay(FOLDER / "events.jsonl"))


def test_the_log_is_whole(events: list[Event]) -> None:
    """It is numbered without a gap, every event is of a known kind with its fields, and it ends with run_finished."""
    assert [event.seq for event in events] == list(range(len(events)))
    for event in events:
        check(event.kind, event.data)
    assert (events[0].kind, events[-1].kind) == ("run_started", "run_finished")
    assert events[-1].data["status"] == "verified"
    assert "/tmp" not in (FOLDER / "events.jsonl").read_text()


def test_every_conversation_has_its_end(events: list[Event]) -> None:
    """Three conversations began and ended; each began call was answered, by the model that the run names."""
    states = Counter(event.data["state"] for event in events if event.kind == "conversation")
    assert states == {"began": 3, "ended": 3}
    begun = [event.data["call"] for event in events if event.kind == "model_started"]
    answered = [event.data["call"] for event in events if event.kind == "model_call"]
    assert begun == answered == list(range(1, 8))
    assert {event.data["model"] for event in events if event.kind == "model_call"} == {"smollm2"}


def test_each_request_can_be_made_again_from_the_log(events: list[Event]) -> None:
    """Rebuilt from what the log holds, every request has the digest it was sent with: a resume would pay none again."""
    talks: dict[int, Conversation] = {}
    checked = 0
    for event in events:
        data = event.data
        if event.kind == "model_call":
            talk = talks.setdefault(data["conversation"], Conversation(fenced=True))
            talk.put(data["added"])
            assert digest(data["model"], talk.messages, []) == data["request"]
            talk.answer(dict(data["message"]))
            last = talk
            checked += 1
        elif event.kind == "tool_call":
            last.result({}, data["tool"], data["result"], keep=False)
    assert checked == 7


def test_what_the_model_did_is_what_its_blocks_say(events: list[Event]) -> None:
    """The three actions of the fourth answer are the three calls of tools in the log, in order."""
    schemas = {"list_files": {}, "evaluate": {"properties": {"plan": {"type": "string"}}},
               "give_up": {"properties": {"reason": {"type": "string"}}}}  # fmt: skip
    answer = next(e.data["message"]["content"] for e in events if e.kind == "model_call" and e.data["call"] == 4)
    done = [(e.data["tool"], e.data["arguments"]) for e in events if e.kind == "tool_call"]
    assert [(block.tool, block.arguments) for block in parse(answer, schemas)] == done
    assert [tool for tool, _ in done] == ["list_files", "evaluate", "give_up"]


def test_figures_are_rebuilt(events: list[Event]) -> None:
    """Meter and tree read from the log give the tokens that the endpoint reported and the engine's verified kernel."""
    meter, tree = Meter(), Tree()
    for event in events:
        meter.apply(event.kind, event.data)
        tree.apply(event.kind, event.data)
    paid = [event.data for event in events if event.kind == "model_call"]
    assert meter.tokens == sum(data["tokens_in"] + data["tokens_out"] for data in paid) > 1000
    assert meter.as_dict()["usd"] is None
    assert tree.best is not None and tree.best.proposer == "engine"
    assert Journal(events, "smollm2").past is None


def test_the_streamed_pieces_are_the_answers(events: list[Event]) -> None:
    """What was shown while it arrived is, put together, what was recorded as the answer."""
    pieces: dict[int, str] = {}
    for event in events:
        if event.kind == "model_text":
            pieces[event.data["call"]] = pieces.get(event.data["call"], "") + event.data["text"]
    answers = {e.data["call"]: e.data["message"]["content"] for e in events if e.kind == "model_call"}
    assert pieces == answers
    assert json.loads((FOLDER / "events.jsonl").read_text().splitlines()[-1])["kind"] == "run_finished"
