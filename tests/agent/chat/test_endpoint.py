"""The line to an endpoint: streaming, and everything that can go wrong with it, against a local server that does it."""

from __future__ import annotations

import email.utils
import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Self, cast

import openai
import pytest

from kforge.agent.chat.endpoint import STEERED, Answer, Endpoint, sendable
from kforge.agent.chat.model import Key, Model
from kforge.agent.chat.reader import Patience, Reader
from kforge.agent.chat.stream import Usage
from kforge.errors import ContextOverflow, Interrupted, ModelError, UsageError
from tests.agent.scripted_model import ScriptedModel, Step, calls, half, refusal, repeat, stall, status, text, tool
from tests.patience import PATIENCE_S

QUICK = Patience(attempts=3, first=0.01, silence=PATIENCE_S, longest=2.0)
SECRET = "sk-secret-0123456789"
HELLO = [{"role": "user", "content": "hello"}]


class Line:
    """An endpoint with what it told."""

    def __init__(self, served: ScriptedModel, patience: Patience = QUICK, key: str = SECRET) -> None:
        self.endpoint = Endpoint(Model("scripted", served.base_url, Key(key)), patience)
        self.pieces: list[str] = []
        self.retries: list[str] = []
        self.lost: list[Usage] = []

    def ask(self, **options: object) -> Answer:
        """One answer."""
        return self.endpoint.complete(
            HELLO, output=100, call=7, on_text=self.pieces.append, on_retry=self.retries.append,
            on_lost=self.lost.append, **options,  # type: ignore[arg-type]
        )  # fmt: skip


def failing(*script: Step, **options: object) -> str:
    """The message of the error that a script leads to."""
    with ScriptedModel(script, **options) as served, pytest.raises((ModelError, UsageError)) as caught:  # type: ignore[arg-type]
        Line(served).ask()
    assert SECRET not in f"{caught.value.message} {caught.value.hint}"
    return caught.value.message


def test_text_arrives_in_pieces_with_its_usage() -> None:
    """The words come in order as they are streamed, and the answer has the endpoint's own figures."""
    with ScriptedModel([text("hello there, this is an answer", usage=(50, 9, 30))]) as served:
        line = Line(served)
        answer = line.ask()
    assert answer.message == {"role": "assistant", "content": "hello there, this is an answer"}
    assert "".join(line.pieces) == "hello there, this is an answer"
    assert len(line.pieces) == 3
    assert answer.usage == Usage(50, 9, 30)
    assert (answer.finish, answer.refused) == ("stop", False)
    sent = served.requests[0]
    assert sent.headers["authorization"] == f"Bearer {SECRET}"
    assert sent.body["stream"] is True
    assert sent.body["max_tokens"] == 100


def test_parallel_calls_are_put_together() -> None:
    """Two calls of one answer keep their names, arguments and ids; the pieces of each are joined."""
    script = [calls(tool("write_file", name="a.cu", text="x" * 100), tool("evaluate", plan="quick"), words="now")]
    with ScriptedModel(script) as served:
        answer = Line(served).ask()
    found = answer.message["tool_calls"]
    assert [call["function"]["name"] for call in found] == ["write_file", "evaluate"]
    assert found[0]["function"]["arguments"] == '{"name": "a.cu", "text": "' + "x" * 100 + '"}'
    assert found[0]["id"] != found[1]["id"]
    assert answer.finish == "tool_calls"


def test_malformed_arguments_are_kept_apart() -> None:
    """What is sent back is valid JSON, what was written is kept for the answer to the model and never sent."""
    with ScriptedModel([calls(tool("evaluate", '{"plan": "qui'))]) as served:
        answer = Line(served).ask()
    call = answer.message["tool_calls"][0]
    assert call["function"]["arguments"] == "{}"
    assert answer.message["kforge_arguments"] == {call["id"]: '{"plan": "qui'}


def test_half_a_stream_is_thrown_away_and_asked_again() -> None:
    """A cut stream yields nothing of itself; the second answer is whole, and the cut one reported no cost."""
    with ScriptedModel([half("half an answ", tool("evaluate")), text("whole")]) as served:
        line = Line(served)
        answer = line.ask()
    assert answer.message == {"role": "assistant", "content": "whole"}
    assert len(served.requests) == 2
    assert line.lost == []
    assert "ended in the middle" in line.retries[0]


def test_what_a_broken_stream_reported_is_told() -> None:
    """Where an endpoint reports usage and then breaks off, those tokens are told once as lost."""
    step = half("half") | {"usage_first": (40, 3, 0)}
    with ScriptedModel([step, text("whole", usage=(40, 5, 0))]) as served:
        line = Line(served)
        answer = line.ask()
    assert line.lost == [Usage(40, 3, 0)]
    assert answer.usage == Usage(40, 5, 0)


def test_silence_is_a_broken_stream() -> None:
    """An endpoint that says nothing for the patience's time is asked again; so is one that stops in the middle."""
    silences = [stall(PATIENCE_S), stall(PATIENCE_S, after="some")]
    with ScriptedModel([*silences, repeat(text("late"))]) as served:
        line = Line(served, Patience(attempts=100, first=0.01, most=0.01, silence=0.6))
        assert line.ask().message["content"] == "late"
    assert len(line.retries) >= 2 and all("nothing came" in words or "in time" in words for words in line.retries)


def test_retry_after_in_seconds_is_heeded() -> None:
    """429 with Retry-After waits as long as it says, whatever the back-off would be."""
    with ScriptedModel([status(429, "slow down", retry_after=0.5), text("ok")]) as served:
        line = Line(served)
        line.ask()
        assert served.requests[1].at - served.requests[0].at >= 0.5
    assert line.retries == [f"{line.endpoint.model.host}: 429: slow down; asking again in 0.5 s"]


def test_retry_after_as_a_date_is_heeded() -> None:
    """Retry-After may be a date; one that has passed asks for no wait."""
    past = email.utils.formatdate(time.time() - 60, usegmt=True)
    with ScriptedModel([status(503, retry_after=past), text("ok")]) as served:
        line = Line(served)
        line.ask()
    assert line.retries[0].endswith("in 0.0 s")


def test_a_wait_that_is_too_long_is_an_error() -> None:
    """An endpoint that asks for more than the patience has is not waited for, and resume is named."""
    with ScriptedModel([status(429, "busy", retry_after=3600)]) as served, pytest.raises(ModelError) as caught:
        Line(served).ask()
    assert "asks to wait 3600 s: 429: busy" in caught.value.message
    assert "resume" in caught.value.hint


@pytest.mark.parametrize("step", [status(500, "boom"), status(502), status(429), half(), status(408)])
def test_what_does_not_pass_ends_after_the_attempts(step: Step) -> None:
    """Errors that may pass are asked three times here, then the last reason is told."""
    with ScriptedModel([repeat(step)]) as served:
        line = Line(served)
        with pytest.raises(ModelError) as caught:
            line.ask()
        assert len(served.requests) == 3
    assert "gave no answer in 3 attempts" in caught.value.message
    assert caught.value.exit_code == 3


def test_waits_grow() -> None:
    """Back-off doubles, keeps at least half of its figure, and stays under its bound."""
    patience = Patience(first=1.0, most=10.0)
    for attempt, whole in enumerate([1.0, 2.0, 4.0, 8.0, 10.0, 10.0]):
        waits = [patience.wait(attempt) for _ in range(50)]
        assert whole / 2 <= min(waits) <= max(waits) <= whole


@pytest.mark.parametrize(("code", "words"), [(401, "refused the key (401)"), (403, "refused the key (403)")])
def test_refused_key_is_one_line_and_not_retried(code: int, words: str) -> None:
    """A refused key is told at once, without the key even where the endpoint repeats it."""
    with ScriptedModel([status(code, f"Incorrect API key provided: {SECRET}")]) as served:
        with pytest.raises(ModelError) as caught:
            Line(served).ask()
        assert len(served.requests) == 1
    assert words in caught.value.message
    assert SECRET not in caught.value.message
    assert "KFORGE_API_KEY" in caught.value.hint


def test_endpoint_that_wants_a_key_says_so() -> None:
    """A local endpoint with a key, asked without one, is told apart from a refused key."""
    with ScriptedModel([], key="right") as served, pytest.raises(ModelError) as caught:
        Line(served, key="none").ask()
    assert "wants a key (401)" in caught.value.message


def test_unknown_model_lists_what_there_is() -> None:
    """404 names the model and the endpoint's own list."""
    with ScriptedModel([], models=["alpha", "beta"]) as served, pytest.raises(UsageError) as caught:
        Line(served).ask()
    assert "has no model 'scripted'" in caught.value.message
    assert caught.value.hint == "it has: alpha, beta"


def test_unreachable_endpoint_is_told() -> None:
    """Where nobody listens, the connection's failure is the reason."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(ModelError, match="the connection failed"):
            Endpoint(Model("m", address), QUICK).complete(HELLO, output=10)


def test_empty_account_is_not_retried() -> None:
    """429 for want of money ends at once: waiting would not help."""
    assert "nothing is left on this account" in failing(
        status(429, "You exceeded your quota", kind="insufficient_quota")
    )
    assert "nothing is left on this account" in failing(status(402, "pay"))


def test_model_without_tools_says_what_to_set() -> None:
    """An endpoint that refuses `tools` leads to the setting for fenced blocks, not to another route."""
    schema = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with ScriptedModel([], refuses=["tools"]) as served, pytest.raises(UsageError) as caught:
        Endpoint(Model("scripted", served.base_url), QUICK).complete(HELLO, schema, output=10)
    assert "takes no tools" in caught.value.message
    assert caught.value.hint == 'kforge.toml: [models."scripted"] tools = false'


@pytest.mark.parametrize(
    ("words", "refuses"),
    [
        ("x/llama2 does not support tools", True),
        ('"auto" tool choice requires --enable-auto-tool-choice', True),
        ("messages with role 'tool' must follow an assistant message", False),
    ],
)
def test_what_refuses_tools_and_what_does_not(words: str, refuses: bool) -> None:
    """Servers' own words for it are known; a complaint that merely names a tool is told as it is."""
    assert ("takes no tools" in failing(status(400, words))) is refuses


def test_an_empty_answer_is_sent_back_as_endpoints_take_it() -> None:
    """No words beside calls are null, an answer with nothing at all is not an empty text."""
    assert sendable({"role": "assistant", "content": "", "tool_calls": [1]})["content"] is None
    assert sendable({"role": "assistant", "content": ""})["content"] == "(nothing)"
    assert sendable({"role": "user", "content": ""})["content"] == ""


def test_overlong_request_is_its_own_error() -> None:
    """A request longer than the window is told apart, so that the conversation can be shortened."""
    for message, kind in (("too long", "context_length_exceeded"), ("exceeds the maximum context length", "")):
        with ScriptedModel([status(400, message, kind=kind)]) as served, pytest.raises(ContextOverflow):
            Line(served).ask()


def test_other_refused_requests_are_told() -> None:
    """Any other 400 is one line with the endpoint's words, asked once."""
    assert "refused the request (400): what is this" in failing(status(400, "what is this"))


def test_fields_that_an_endpoint_does_not_know_are_left_out() -> None:
    """stream_options is dropped, max_tokens gets its other name; then the answer comes, its tokens estimated."""
    with ScriptedModel([text("fine")], refuses=["stream_options", "max_tokens"]) as served:
        answer = Line(served).ask()
    sent = served.requests[-1].body
    assert "stream_options" not in sent
    assert "max_tokens" not in sent
    assert sent["max_completion_tokens"] == 100
    assert answer.usage.estimated
    assert answer.usage.tokens_out >= 1


def test_refusal_is_an_answer() -> None:
    """A refusal is marked, with its words as content."""
    with ScriptedModel([refusal("no")]) as served:
        answer = Line(served).ask()
    assert answer.refused
    assert answer.message["content"] == "no"


@pytest.mark.parametrize(
    "step",
    [stall(PATIENCE_S), text("word " * 400, delay=0.5), status(429, retry_after=PATIENCE_S / 2)],
)
def test_stop_ends_a_call_at_once(step: Step) -> None:
    """A stop is heeded while nothing comes, in the middle of a stream, and during a wait."""

    def check() -> None:
        if line.retries or line.pieces or (served.requests and "stall" in step):
            raise Interrupted("stopped")

    with ScriptedModel([repeat(step)]) as served:
        line = Line(served, Patience(silence=2 * PATIENCE_S))
        with pytest.raises(Interrupted):
            line.ask(check=check)
        assert len(served.requests) == 1


def test_probe_asks_for_one_token() -> None:
    """The check that a model is there takes no step of the script and asks for a single token."""
    with ScriptedModel([text("kept")]) as served:
        assert Line(served).endpoint.probe() == Usage(1, 1, 0)
        assert served.left == 1
        assert served.all_requests[0].body["max_tokens"] == 1


def test_redirects_are_not_followed() -> None:
    """An endpoint that sends elsewhere is an error: the route is never changed in silence."""
    assert "redirects to nowhere (307)" in failing(status(307, "go elsewhere"))


def test_a_steer_that_is_taken_back_has_cut_all_the_same() -> None:
    """What cut an answer may be gone when the answer is put together: it is no broken stream."""
    asked: list[bool] = []

    def cut() -> bool:
        asked.append(bool(line.pieces) and True not in asked)
        return asked[-1]

    with ScriptedModel([stall(PATIENCE_S, after="let me see")]) as served:
        line = Line(served, Patience(silence=PATIENCE_S))
        answer = line.ask(cut=cut)
    assert (answer.finish, answer.message["content"]) == (STEERED, "let me see")
    assert line.retries == [] and asked.count(True) == 1


def test_who_hangs_up_before_there_is_a_line_reads_nothing() -> None:
    """A reader that is closed while the connection is made hangs up by itself as soon as it is there."""
    connecting, closed = threading.Event(), threading.Event()

    class Stream:
        response = SimpleNamespace(headers={}, status_code=200)

        def __init__(self, **_: object) -> None:
            connecting.set()
            assert closed.wait(PATIENCE_S)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            hung_up.append(True)

        def __iter__(self) -> Iterator[object]:
            read.append(True)
            yield from ()

    hung_up, read = list[bool](), list[bool]()
    completions = SimpleNamespace(create=Stream)
    reader = Reader(cast("openai.OpenAI", SimpleNamespace(chat=SimpleNamespace(completions=completions))), {})
    assert connecting.wait(PATIENCE_S)
    reader.close()
    closed.set()
    reader._thread.join(PATIENCE_S)
    assert (hung_up, read) == ([True], []) and reader._found.empty()
