"""An endpoint that sends what none should: each case ends in an answer or in one clear error, never in a fault."""

from __future__ import annotations

import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from kforge.agent.chat.endpoint import Answer, Endpoint
from kforge.agent.chat.model import Key, Model
from kforge.agent.chat.reader import Patience
from kforge.agent.chat.ready import check_models
from kforge.errors import MissingError, ModelError

HELLO = [{"role": "user", "content": "hello"}]
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
Reply = Callable[[socket.socket], None]


@contextmanager
def raw(reply: Reply) -> Iterator[str]:
    """An endpoint that answers each request with what `reply` writes; yields its address."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                connection.settimeout(20)
                asked = b""
                while b"\r\n\r\n" not in asked:
                    asked += connection.recv(65536)
                reply(connection)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"
        server.shutdown(socket.SHUT_RDWR)


def ask(reply: Reply, *, output: int = 100, patience: Patience | None = None) -> Answer:
    """One answer of such an endpoint."""
    patience = patience or Patience(attempts=1, first=0.01, silence=5.0, longest=1.0, whole=10.0)
    with raw(reply) as address:
        return Endpoint(Model("m", address, Key("sk-secret-0123456789")), patience).complete(HELLO, output=output)


def chunk(delta: Any = None, finish: Any = None, **fields: Any) -> dict[str, Any]:
    """One chunk of a stream."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": choices} | fields


def stream(*chunks: Any) -> Reply:
    """A whole stream of these chunks, bytes as they are."""

    def reply(connection: socket.socket) -> None:
        connection.sendall(STREAM)
        for item in chunks:
            connection.sendall(b"data: " + (item if isinstance(item, bytes) else json.dumps(item).encode()) + b"\n\n")
        connection.sendall(b"data: [DONE]\n\n")

    return reply


def endless(head: bytes, piece: bytes, pause: float = 0.0) -> Reply:
    """What never ends."""

    def reply(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(piece)
            time.sleep(pause)

    return reply


WORDS, DONE = chunk({"role": "assistant", "content": "hi"}), chunk({}, "stop")


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": -5, "completion_tokens": -7},
        {"prompt_tokens": 0, "completion_tokens": 0},
        {"prompt_tokens": 10**400, "completion_tokens": 1},
        {"prompt_tokens": "many", "completion_tokens": "few"},
        {"prompt_tokens": float("nan"), "completion_tokens": float("inf")},
        {"prompt_tokens": [1], "completion_tokens": {}},
        {"prompt_tokens": True, "completion_tokens": True},
        {"prompt_tokens": 5},
        "lots",
    ],
)
def test_figures_that_can_be_none_are_estimated(usage: Any) -> None:
    """Tokens that are negative, no number, infinite, none or beyond all reason are estimated instead of counted."""
    usage_read = ask(stream(WORDS, DONE, chunk(usage=usage))).usage
    assert usage_read.estimated
    assert usage_read.tokens_out == 1


def test_cached_tokens_that_are_no_number_count_as_none() -> None:
    """The other figures stay the endpoint's."""
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": "all"}}
    read = ask(stream(WORDS, DONE, chunk(usage=usage))).usage
    assert (read.tokens_in, read.tokens_out, read.tokens_cached, read.estimated) == (5, 3, 0, False)


@pytest.mark.parametrize(
    "foreign",
    [
        [1, 2], "text", 5, None, chunk("text"), chunk([1]), chunk({"content": 5}), chunk({"content": {"a": 1}}),
        chunk({"refusal": 3}), chunk({"content": "x"}, {"a": 1}), chunk(choices=[None]),
        chunk({"tool_calls": "text"}), chunk({"tool_calls": [None]}),
        chunk({"tool_calls": [{"index": [1], "id": "a", "function": {"name": "b", "arguments": "{}"}}]}),
        chunk({"tool_calls": [{"index": 0, "id": "a", "function": "b"}]}),
        chunk({"tool_calls": [{"index": 0, "id": 7, "function": {"name": 5, "arguments": {}}}]}),
        b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"{",
    ],
)  # fmt: skip
def test_chunks_of_another_form_break_the_stream(foreign: Any) -> None:
    """Whatever stands where a chunk belongs is an attempt that broke, told in one line."""
    with pytest.raises(ModelError, match="gave no answer in 1 attempts: the stream broke"):
        ask(stream(WORDS, foreign, DONE))


def test_half_characters_are_joined_or_replaced() -> None:
    """Surrogates, in one chunk or parted between two, leave a message that can be sent back and written."""
    first, second = b'{"id":"c","choices":[{"index":0,"delta":{"content":"%s"}}]}', b"a\\ud83d"
    message = ask(stream(first % second, first % b"\\ude00b\\ud800", DONE)).message
    assert message["content"] == "a\N{GRINNING FACE}b\ufffd"
    message["content"].encode()


def test_calls_are_sent_back_as_endpoints_take_them() -> None:
    """Ids that are given twice or hold anything, names of any length and sign: each call has an id and a name of its
    own that a server accepts, and its own arguments."""
    ids = ["same", "same", "\ud800", "x" * 5000, ""]
    names = ["read_file", "rm -rf /", "\x1b[31m", "n" * 5000, ""]
    calls = [
        chunk({"tool_calls": [{"index": n, "id": ids[n], "function": {"name": names[n], "arguments": f"[{n}"}}]})
        for n in range(5)
    ]
    message = ask(stream(*calls, chunk({}, "tool_calls")), output=1000).message
    found = message["tool_calls"]
    assert [call["id"] for call in found] == ["same", "call_0_1", "call_0_2", "call_0_3", "call_0_4"]
    assert [call["function"]["name"] for call in found] == ["read_file", "rm_-rf__", "__31m", "n" * 64, "unnamed"]
    assert [message["kforge_arguments"][call["id"]] for call in found] == [f"[{n}" for n in range(5)]


def test_thousands_of_calls_are_cut_off() -> None:
    """The first 64 of ten thousand calls are taken; the answer counts as one that was cut off."""
    calls = [
        chunk({"tool_calls": [{"index": n, "id": f"c{n}", "function": {"name": "list_files", "arguments": "{}"}}]})
        for n in range(10_000)
    ]
    answer = ask(stream(*calls, chunk({}, "tool_calls")), output=100_000)
    assert (len(answer.message["tool_calls"]), answer.finish) == (64, "length")


def test_an_answer_without_an_end_is_cut_off() -> None:
    """Text that goes on far beyond the tokens asked for is hung up on; what came is an answer that was cut off."""
    piece = b"data: " + json.dumps(chunk({"content": "x" * 1000})).encode() + b"\n\n"
    answer = ask(endless(STREAM, piece))
    assert answer.finish == "length"
    assert len(answer.message["content"]) < 12_000
    assert answer.usage.estimated


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (endless(STREAM, b"data: " + json.dumps(chunk({})).encode() + b"\n\n", 0.02), "no end of the answer in 1 s"),
        (endless(STREAM, b": still there\n\n", 0.02), "in 1 s|nothing came"),
        (endless(STREAM + b"data: ", b"x" * 65536), "more than 8 MiB were sent"),
        (endless(b"HTTP/1.1 500 Bad\r\nConnection: close\r\n\r\n", b"x" * 65536), "does not end"),
        (endless(b"HTTP/1.1 404 Not\r\nConnection: close\r\n\r\n", b"x" * 65536), "does not end"),
        (endless(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"y" * 1000 + b"\r\n"), "the connection failed"),
    ],
    ids=["empty chunks", "comments", "one line", "an error", "no such model", "headers"],
)
def test_what_never_ends_is_ended(reply: Reply, words: str) -> None:
    """Chunks without content, a line, headers or an error without an end: one error within seconds, little memory."""
    with pytest.raises(ModelError, match=words):
        ask(reply, patience=Patience(attempts=1, silence=5.0, whole=1.0))


def test_a_packed_answer_is_not_unpacked() -> None:
    """An answer that is packed unasked is refused before any of it is unpacked: it may be gigabytes."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packer.compress(b"x" * (64 << 20)) + packer.flush()
    head = STREAM.replace(b"Connection", b"Content-Encoding: gzip\r\nConnection")
    with pytest.raises(ModelError, match=r"the answer is packed \(gzip\)"):
        ask(lambda connection: connection.sendall(head + bomb))


@pytest.mark.parametrize("kind", [b"application/json", b"text/html"])
def test_an_answer_that_is_no_stream_is_asked_for_once(kind: bytes) -> None:
    """A page or a whole JSON answer in the place of a stream ends it at once: each attempt may be paid."""
    asked = []

    def reply(connection: socket.socket) -> None:
        asked.append(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: 2\r\n\r\n{}" % kind)

    with pytest.raises(ModelError, match=f"answers with {kind.decode()} and no stream of events"):
        ask(reply, patience=Patience(attempts=5, first=0.01, silence=5.0))
    assert len(asked) == 1


def test_a_redirect_is_named_and_not_followed() -> None:
    """Where it leads is told, without the key that may stand in it."""
    head = b"HTTP/1.1 307 T\r\nLocation: http://else.example/?k=sk-secret-0123456789\r\nContent-Length: 0\r\n\r\n"
    with pytest.raises(ModelError, match=r"redirects to http://else.example/\?k=\[key\] \(307\)"):
        ask(lambda connection: connection.sendall(head))


def test_the_check_of_a_model_ends() -> None:
    """An endpoint that streams empty chunks for ever is found out before any work, as one that does not answer."""
    reply = endless(STREAM, b"data: " + json.dumps(chunk({})).encode() + b"\n\n", 0.02)
    patience = Patience(attempts=1, silence=5.0, whole=1.0)
    with raw(reply) as address, pytest.raises(MissingError, match="cannot be reached"):
        check_models([Model("m", address, Key("sk-secret-0123456789"))], patience=patience)
