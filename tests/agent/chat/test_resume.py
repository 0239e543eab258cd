"""A run that was cut off: what was paid is answered from its log, the call under way is made again, nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kforge.agent.chat.conversation import digest
from kforge.agent.chat.journal import Journal
from kforge.errors import Interrupted
from kforge.store.events import RunLog, replay
from tests.agent.chat.conftest import Run
from tests.agent.scripted_model import ScriptedModel, calls, half, stall, text, tool
from tests.agent.small import RIGHT
from tests.patience import PATIENCE_S

GIVE_UP = calls(tool("give_up", reason="nothing is left"))
WRITE = calls(*[tool("write_file", name=name, text=source) for name, source in RIGHT.files.items()])


def cut_off(run: Run, served: ScriptedModel, **options: Any) -> RunLog:
    """Propose until the script is over: the next answer never comes, and the log is left as a kill leaves it."""

    def silent(body: Any) -> dict[str, Any]:
        run.bench.control.stop()
        return stall(PATIENCE_S)

    served.script.append(silent)
    with pytest.raises(Interrupted):
        run.propose(served, **options)
    run.bench.close()
    run.bench.session.close()
    return run.bench.session.log


def asked(served: ScriptedModel) -> list[str]:
    """The digests of what was asked."""
    return [digest("scripted", r.body["messages"], r.body.get("tools", ())) for r in served.requests]


def test_paid_calls_are_answered_from_the_log(begin: Callable[..., Run]) -> None:
    """After a cut in the third call the first two are not asked again, the third is, and the conversation goes on."""
    script = [calls(tool("list_files"), tool("device_facts")), WRITE]
    with ScriptedModel(script) as served:
        first = begin()
        log = cut_off(first, served)
        before = asked(served)
        served.script[:] = [calls(tool("evaluate")), calls(tool("submit", idea="as it was"))]
        again = begin(log)
        candidate = again.propose(served)
        after = asked(served)[len(before) :]
    assert candidate is not None and candidate.files == RIGHT.files
    assert after[0] == before[2]  # the call that was under way, word for word
    assert len(after) == 2
    assert [event["call"] for event in again.of("model_call")] == [4, 5]
    calls_made = [event.data["request"] for event in replay(log.path) if event.kind == "model_call"]
    assert len(calls_made) == len(set(calls_made)) == 4
    assert again.bench.meter.calls == 4
    assert again.bench.meter.tokens == 4 * 120


def test_tools_are_not_run_again(begin: Callable[..., Run]) -> None:
    """What tools answered before the cut is taken from the log, measurements included; files stay as they were."""
    script = [WRITE, calls(tool("evaluate", idea="first"))]
    with ScriptedModel(script) as served:
        first = begin()
        log = cut_off(first, served)
        assert len(first.of("evaluated")) == 1
        served.script[:] = [calls(tool("submit", idea="first"))]
        again = begin(log)
        assert again.propose(served) is not None
    assert [event["tool"] for event in again.of("tool_call")] == ["submit"]
    assert again.of("evaluated") == []


def test_a_tool_that_was_cut_off_is_run(begin: Callable[..., Run]) -> None:
    """Of two parallel calls, one of which is in the log, only the other is carried out."""
    with ScriptedModel([WRITE]) as served:
        first = begin()
        log = cut_off(first, served)
        lines = log.path.read_bytes().splitlines(keepends=True)
        second = max(n for n, line in enumerate(lines) if b'"kind":"tool_call"' in line)
        log.path.write_bytes(b"".join(lines[:second]))  # killed before the second file was written
        served.script[:] = [GIVE_UP]
        again = begin(log)
        again.propose(served)
        names = [message["content"] for message in served.requests[-1].body["messages"] if message["role"] == "tool"]
    assert [event["tool"] for event in again.of("tool_call")] == ["write_file", "give_up"]
    assert ["wrote small_kforge.py" in names[0], "small_kforge.cu" in names[1]] == [True, True]


def test_steers_of_the_log_stay_where_they_were(begin: Callable[..., Run]) -> None:
    """A steer that was in a paid request is there again; one taken for a call that was lost reaches the next."""

    def steering(body: Any) -> dict[str, Any]:
        run.bench.control.steer("use float4")
        return calls(tool("list_files"))

    def last(body: Any) -> dict[str, Any]:
        run.bench.control.steer("and half")
        return calls(tool("device_facts"))

    run = begin()
    with ScriptedModel([steering, last]) as served:
        log = cut_off(run, served)
        served.script[:] = [GIVE_UP]
        again = begin(log)
        again.propose(served)
        words = [str(message["content"]) for message in served.requests[-1].body["messages"]]
    assert sum("] use float4" in text for text in words) == 1
    assert sum("] and half" in text for text in words) == 1
    assert words.index(next(w for w in words if "] use float4" in w)) < words.index(
        next(w for w in words if "] and half" in w)
    )


def test_another_model_ends_the_replay(begin: Callable[..., Run]) -> None:
    """Resumed with another model, its answers are its own: the log's do not pass for them, and that is said."""
    with ScriptedModel([calls(tool("list_files"))], models=["scripted", "other"]) as served:
        log = cut_off(begin(), served)
        served.script[:] = [GIVE_UP]
        again = begin(log)
        from kforge.agent.chat.model import Model
        from kforge.agent.chat.proposer import ChatProposer

        ChatProposer(Model("other", served.base_url)).propose(again.context())
        assert len(served.requests) == 3
        assert served.requests[-1].body["model"] == "other"


def test_an_ended_conversation_whose_step_is_open_is_not_held_again(begin: Callable[..., Run]) -> None:
    """Killed between a submission and the end of its search step, the submission stands and nothing is asked."""
    with ScriptedModel([WRITE, calls(tool("submit", idea="as it is"))]) as served:
        first = begin()
        candidate = first.propose(served)
        first.bench.close()
        first.bench.session.close()
        again = begin(first.bench.session.log)
        proposer = again.proposer(served)
        assert proposer.propose(again.context()) == candidate
        assert len(served.requests) == 2
        served.script[:] = [GIVE_UP]
        assert proposer.propose(again.context()) is None  # the next proposal is a conversation of its own


def test_a_complete_step_is_not_answered_again(begin: Callable[..., Run]) -> None:
    """Once the search has closed its step, an equal first request is a new call: models do not answer twice alike."""
    with ScriptedModel([GIVE_UP, calls(tool("give_up", reason="other"))]) as served:
        first = begin()
        first.propose(served)
        first.bench.event("node", node=0, step={"done": True})
        first.bench.close()
        first.bench.session.close()
        again = begin(first.bench.session.log)
        again.propose(served)
        assert len(served.requests) == 2
    assert again.of("conversation")[0]["conversation"] == 2


def test_lost_answers_are_no_answers(begin: Callable[..., Run]) -> None:
    """A broken call that reported tokens counts in the meter of the resumed run and answers nothing."""
    with ScriptedModel([half() | {"usage_first": (40, 3, 0)}]) as served:
        log = cut_off(begin(), served)
        journal = Journal(replay(log.path), "scripted")
        assert journal.past is not None
        assert list(journal.past.calls) == []
        served.script[:] = [GIVE_UP]
        again = begin(log)
        again.propose(served)
    assert again.bench.meter.tokens == 43 + 120


def test_words_only_are_replayed_too(begin: Callable[..., Run]) -> None:
    """Answers without an action and their reminders are gone through like the others."""
    with ScriptedModel([text("Hm."), text("Well.")]) as served:
        log = cut_off(begin(), served)
        before = asked(served)
        served.script[:] = [GIVE_UP]
        again = begin(log)
        again.propose(served)
        assert asked(served)[len(before) :] == [before[-1]]
