"""A conversation under the model's window: what is kept when old turns go, and that nothing is torn apart."""

from __future__ import annotations

from typing import Any

import pytest

from kforge.agent.chat.conversation import Conversation, digest
from kforge.agent.chat.tokens import Estimator
from kforge.errors import ContextOverflow
from tests.agent.chat.conftest import Run
from tests.agent.scripted_model import ScriptedModel, calls, status, text, tool
from tests.agent.small import RIGHT, WRONG

CODE = "developer-0123456789abcdef"
GIVE_UP = calls(tool("give_up", reason="nothing is left"))


def talk(turns: int, size: int = 1000) -> Conversation:
    """A conversation with this many turns, each a call of a tool and its answer of `size` characters."""
    found = Conversation(CODE)
    found.open("system", "task")
    for number in range(turns):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "evaluate", "arguments": "{}"}}
        found.answer({"role": "assistant", "content": f"turn {number}", "tool_calls": [call]})
        found.result(call, "evaluate", f"measured {number}\n" + "x" * size, keep=True)
        if number == 1:
            found.say(f"[{CODE}] use float4")
    return found


def paired(messages: list[dict[str, Any]]) -> bool:
    """Whether each call is followed by its own result, and each result belongs to a call before it."""
    open_calls: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            if message["tool_call_id"] not in open_calls:
                return False
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return False
        open_calls += [call["id"] for call in message.get("tool_calls", ())]
    return not open_calls


def test_old_turns_go_and_no_call_is_torn_from_its_result() -> None:
    """After shortening the request fits: the opening whole, the memo, then the last turns."""
    found, count = talk(20), Estimator()
    memo, keep, clip = found.fit(lambda keep: f"memo, {keep} kept", 4000, count)
    messages = found.messages
    assert count(messages) <= 4000
    assert paired(messages)
    assert [message["content"] for message in messages[:2]] == ["system", "task\n\n" + memo]
    assert messages[-1]["content"].startswith("<data ") and "measured 19" in messages[-1]["content"]
    assert (memo, clip) == (f"memo, {keep} kept", 0)
    assert 1 <= keep < 20


def test_a_turn_that_is_too_long_alone_is_clipped() -> None:
    """Where not even the last turn fits, its results lose their middle, not their head and tail."""
    found, count = talk(3, size=30_000), Estimator()
    _, keep, clip = found.fit(lambda keep: "memo", 3000, count)
    assert (keep, clip) == (1, 6000)
    last = found.messages[-1]["content"]
    assert "measured 2" in last and "[... removed ...]" in last and last.endswith(">")
    assert count(found.messages) <= 3000


def test_what_cannot_fit_is_told() -> None:
    """An opening that leaves no room for a turn is an error that names the window."""
    found = talk(2)
    found.opening[1]["content"] = "op.py " * 5000
    with pytest.raises(ContextOverflow, match="do not fit into 2000 tokens"):
        found.fit(lambda keep: "memo", 2000, Estimator())


def test_steers_and_measurements_survive() -> None:
    """The developer's words are found again in memo and turns; measurements of turns that went are listed, in order."""
    found = talk(6)
    assert found.steers == [f"[{CODE}] use float4"]
    gone = [measured.text.split("\n")[0] for measured in found.dropped(2)]
    assert gone == ["measured 0", "measured 1", "measured 2", "measured 3"]
    found.shorten(f"memo\n\n[{CODE}] use float4", 2)
    assert found.steers == [f"[{CODE}] use float4"]
    assert [m.text.split("\n")[0] for m in found.dropped(1)][-1] == "measured 4"


def test_digest_depends_on_what_decides_the_answer() -> None:
    """Another model, message or tool is another request; what is only for ourselves does not count."""
    messages = [{"role": "user", "content": "a"}]
    base = digest("m", messages, [])
    assert base == digest("m", [{"role": "user", "content": "a", "kforge_arguments": {"x": "y"}}], [])
    assert len({base, digest("n", messages, []), digest("m", [{"role": "user", "content": "b"}], []),
                digest("m", messages, [{"name": "f"}])}) == 4  # fmt: skip


def test_a_long_conversation_is_shortened_with_all_that_counts(run: Run) -> None:
    """Old turns give way to rules, steers, every attempt with its figures, and the files as they are."""
    run.known(WRONG, "wrong")
    run.known(RIGHT, "verified")
    run.bench.constrain("deterministic", "command line")
    run.bench.control.steer("use float4", "queued")
    files = [tool("write_file", name=name, text=source) for name, source in RIGHT.files.items()]
    pages = [
        calls(tool("read_file", name="small_kforge.cu", first_line=n), words="hm " * 3000, usage=None)
        for n in (1, 2, 3, 4, 5)
    ]
    with ScriptedModel([calls(*files, usage=None), *pages, GIVE_UP]) as served:
        run.propose(served, model_window=20_000, model_output=1000)
        last = served.requests[-1].body["messages"]
        steps = [len(request.body["messages"]) for request in served.requests]
    (event,) = run.of("compacted")[:1]
    assert event["before"] > 20_000 - 1000 - 64 >= event["after"]
    assert min(steps[3:]) < max(steps)
    assert paired(last)
    memo = last[1]["content"]
    assert "Earlier turns were removed" in memo
    assert "Standing rules, checked on every candidate: deterministic." in memo
    assert memo.count("] use float4") == 2  # the task's own, and the memo's
    assert "1 | 0 | wrong | untimed" in memo and "2 | 0 | verified | untimed" in memo
    assert RIGHT.files["small_kforge.cu"].strip() in memo


def test_the_table_keeps_the_fastest_and_the_latest() -> None:
    """Of very many attempts the fastest twenty and the latest hundred are shown, and how many are not."""
    from kforge.agent.chat.briefing import FASTEST, LATEST, table
    from kforge.agent.search.tree import Tree

    tree = Tree()
    for number in range(300):
        node = tree.add(0, RIGHT.with_file("a.cu", f"// {number}"))
        node.status, node.ms = "verified", 1.0 + number  # the first are the fastest
    rows = table(tree).split("\n")
    assert len(rows) == 1 + FASTEST + LATEST + 1
    assert rows[1].startswith("1 | 0 | verified | 1 |") and rows[-2].startswith("300 | 0 | verified | 300 |")
    assert rows[-1].startswith(f"and {300 - FASTEST - LATEST} earlier ones")


def test_a_conversation_that_cannot_be_shortened_ends(run: Run) -> None:
    """Where the files alone outgrow the window the conversation ends with the reason, and the run goes on."""
    big = calls(tool("write_file", name="a.cu", text="int a;\n" * 6000), usage=None)
    with ScriptedModel([big, GIVE_UP]) as served:
        assert run.propose(served, model_window=20_000, model_output=1000) is None
    assert "do not fit into 18936 tokens" in run.of("conversation")[1]["reason"]


def test_an_endpoint_that_counts_differently_is_heeded(run: Run) -> None:
    """Told that a request is too long although it was thought to fit, it is shortened and asked once more."""
    pages = [calls(tool("read_file", name="a.cu", first_line=n), words="hm " * 3000) for n in (1, 2, 3)]
    script = [*pages, status(400, "too long", kind="context_length_exceeded"), GIVE_UP]
    with ScriptedModel(script) as served:
        run.propose(served, model_window=40_000, model_output=1000)
        sizes = [sum(len(str(m["content"])) for m in request.body["messages"]) for request in served.requests]
    assert len(run.of("compacted")) == 1
    assert sizes[-1] < sizes[-2]


def test_the_summariser_is_asked_where_one_is_cast(run: Run) -> None:
    """A model in that role sums up what goes; its words are in the memo, its call is paid and recorded as its own."""
    pages = [calls(tool("read_file", name="a.cu", first_line=n), words="hm " * 8000, usage=None) for n in (1, 2)]
    with ScriptedModel([*pages, text("Tiling was tried and failed."), GIVE_UP]) as served:
        run.propose(served, roles={"summariser": None}, model_window=24_000, model_output=1000)
        memo = served.requests[-1].body["messages"][1]["content"]
        asked = served.requests[-2].body["messages"]
    assert "Tiling was tried and failed." in memo
    assert len(asked) == 1 and "is being shortened" in asked[0]["content"]
    assert [event["role"] for event in run.of("model_call")][-2:] == ["summariser", "executor"]
