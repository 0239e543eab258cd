"""The worker's loop with small handlers: one final line a request, bad lines, queueing, cancelling, its end."""

from __future__ import annotations

import io
import json
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kforge.errors import TaskError
from kforge.worker import wire
from kforge.worker.service import AHEAD, Emit, Service, Unusable

WAIT_S = 10.0


class Echo:
    """Answers with the request's own id; a request names in `wait` an event that must be set before it goes on."""

    def __init__(self) -> None:
        self.events: dict[str, threading.Event] = {}
        self.built: list[str] = []
        self.evaluated: list[str] = []

    def event(self, name: str) -> threading.Event:
        return self.events.setdefault(name, threading.Event())

    def describe(self) -> dict[str, Any]:
        return {"device": "cpu"}

    def build(self, body: dict[str, Any]) -> None:
        self.built.append(body["id"])
        self.event(f"built {body['id']}").set()
        if body.get("build") == "fails":
            raise RuntimeError("no compiler")

    def evaluate(self, body: dict[str, Any], emit: Emit) -> dict[str, Any]:
        emit("begun", {})
        if "wait" in body:
            assert self.event(body["wait"]).wait(WAIT_S), f"{body['wait']} did not come"
        emit("gate", {"name": "static"})
        self.evaluated.append(body["id"])
        if body.get("fails"):
            raise {"task": TaskError("no reference"), "fault": ZeroDivisionError("by zero"), "gone": Unusable("lost")}[
                body["fails"]
            ]
        return {"report": {"of": body["id"]}}


class Lines:
    """What a client writes, line by line, until `end`."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

    def put(self, *lines: dict[str, Any] | bytes) -> None:
        for line in lines:
            self._queue.put(line if isinstance(line, bytes) else wire.encode(line))

    def end(self) -> None:
        self._queue.put(None)

    def __iter__(self) -> Iterator[bytes]:
        while (line := self._queue.get()) is not None:
            yield line


def evaluate(id: str, **fields: Any) -> dict[str, Any]:
    return wire.request(id, "evaluate", **fields)


def serve(*lines: dict[str, Any] | bytes, handlers: Echo | None = None) -> list[dict[str, Any]]:
    """Everything that the service says to these lines."""
    said: list[dict[str, Any]] = []
    given = Lines()
    given.put(*lines)
    given.end()
    Service(lambda message: said.append(json.loads(wire.encode(message))) or True, handlers or Echo()).run(given)
    return said


def final(said: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The final line of each request; there must be one only."""
    found: dict[str, dict[str, Any]] = {}
    for message in said:
        if message["kind"] in wire.FINAL:
            assert message["id"] not in found
            found[message["id"]] = message
    return found


def test_each_request_ends_with_one_line() -> None:
    """Descriptions and reports come under the id that asked, events before their report; then it ends."""
    said = serve(wire.request("d", "describe"), evaluate("a"), evaluate("b"))
    ends = final(said)
    assert {name: message["kind"] for name, message in ends.items()} == {
        "d": "description",
        "a": "report",
        "b": "report",
    }
    assert ends["b"]["report"] == {"of": "b"}
    of_a = [message["kind"] for message in said if message["id"] == "a"]
    assert of_a == ["event", "event", "report"]


@pytest.mark.parametrize(
    ("line", "id", "words"),
    [
        (b"nonsense\n", None, "not JSON"),
        (b"[1]\n", None, "not a JSON object"),
        (b'{"protocol":1,"kind":"describe"}\n', None, "id is missing"),
        (b'{"protocol":2,"id":"x","kind":"describe"}\n', "x", "protocol 2 is not spoken here"),
        (b'{"protocol":1,"id":"x","kind":"destroy"}\n', "x", "unknown kind 'destroy'"),
    ],
)
def test_a_bad_line_is_answered_and_the_next_served(line: bytes, id: str | None, words: str) -> None:
    """A line that is no request gets an error object that says why; the request after it is served."""
    said = serve(line, evaluate("good"))
    (bad,) = [message for message in said if message["kind"] == "error"]
    assert bad["id"] == id and words in bad["error"]["message"] and bad["exit_code"] == 2
    assert final(said)["good"]["kind"] == "report"


def test_a_line_that_is_too_long_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is cut at the limit, never held, and refused; the line after it is a line of its own, and so is a last one."""
    monkeypatch.setattr(wire, "LINE_BYTES", 100)
    stream = io.BytesIO(b"a\n" + b"b" * 100_000 + b"\nc\n" + b"d" * 5000)
    found = list(wire.lines(stream))
    assert [line[:1] for line in found] == [b"a", b"b", b"c", b"d"] and max(map(len, found)) == 101
    with pytest.raises(wire.BadLine, match="a line of over 100 bytes"):
        wire.parse(found[1])


def test_no_more_is_built_ahead_than_there_is_room_for() -> None:
    """While one request is evaluated only so many others are built; all of them are answered in the end."""
    handlers, asked = Echo(), [str(number) for number in range(AHEAD + 4)]

    class Waits(Lines):
        def __iter__(self) -> Iterator[bytes]:
            yield from super().__iter__()
            for built in range(AHEAD):
                assert handlers.event(f"built {built}").wait(WAIT_S)
            assert not handlers.event(f"built {AHEAD}").wait(0.2) and len(handlers.built) == AHEAD
            handlers.event("go").set()

    given, said = Waits(), []
    given.put(evaluate("0", wait="go"), *(evaluate(name) for name in asked[1:]))
    given.end()
    Service(lambda message: said.append(json.loads(wire.encode(message))) or True, handlers).run(given)
    assert sorted(final(said), key=int) == asked == sorted(handlers.built, key=int)


def test_an_id_in_use_is_refused() -> None:
    """A second request under the id of an open one is refused; the first keeps its answer."""
    handlers, given, said = Echo(), Lines(), []
    service = Service(lambda message: said.append(message) or True, handlers)
    given.put(evaluate("a", wait="go"), evaluate("a"))
    thread = threading.Thread(target=service.run, args=(given,))
    thread.start()
    _until(lambda: any(message["kind"] == "error" for message in said))
    handlers.event("go").set()
    given.end()
    thread.join(WAIT_S)
    kinds = [message["kind"] for message in said if message["kind"] != "event"]
    assert (
        kinds == ["error", "report"] and "in use" in said[[m["kind"] for m in said].index("error")]["error"]["message"]
    )


def test_later_requests_are_built_while_one_is_evaluated() -> None:
    """The build of the second request happens before the first evaluation, which waits for it, has ended."""
    handlers = Echo()
    said = serve(evaluate("first", wait="built second"), evaluate("second"), handlers=handlers)
    assert [message["kind"] for message in final(said).values()] == ["report", "report"]
    assert sorted(handlers.evaluated) == ["first", "second"]


def test_a_failed_build_ahead_does_not_lose_the_request() -> None:
    """What goes wrong while building ahead is left to the evaluation, which still takes place."""
    assert final(serve(evaluate("a", build="fails")))["a"]["kind"] == "report"


def test_errors_of_one_request_leave_the_others() -> None:
    """A task's error keeps its kind and hint, a fault of the handlers becomes an internal error, and both end only
    their request."""
    ends = final(serve(evaluate("t", fails="task"), evaluate("f", fails="fault"), evaluate("g")))
    assert ends["t"]["error"]["kind"] == "task" and ends["t"]["exit_code"] == 2
    assert ends["f"]["error"]["kind"] == "internal" and "ZeroDivisionError: by zero" in ends["f"]["error"]["message"]
    assert ends["g"]["kind"] == "report"


def test_cancel() -> None:
    """A cancelled request ends with an error of kind cancelled: the running one at its next event, a waiting one
    without being begun; a name that is not open is an error."""
    handlers, given, said = Echo(), Lines(), []
    service = Service(lambda message: said.append(message) or True, handlers)
    given.put(evaluate("running", wait="go"))
    thread = threading.Thread(target=service.run, args=(given,))
    thread.start()
    _until(lambda: any(message.get("event") == "begun" for message in said))
    given.put(evaluate("waiting"), evaluate("kept"))
    given.put(*(wire.request(f"c {name}", "cancel", job=name) for name in ("running", "waiting", "unknown")))
    _until(lambda: any(message["id"] == "c unknown" for message in said))
    handlers.event("go").set()
    given.end()
    thread.join(WAIT_S)
    ends = final(said)
    assert ends["running"]["error"]["kind"] == ends["waiting"]["error"]["kind"] == "cancelled"
    assert ends["kept"]["kind"] == "report" and handlers.evaluated == ["kept"]
    assert "no request 'unknown'" in ends["c unknown"]["error"]["message"]


def test_it_ends_when_nobody_reads() -> None:
    """When the answers cannot be written, the service stops at once, though its input goes on."""
    handlers, given = Echo(), Lines()
    given.put(evaluate("a"), evaluate("b"))
    thread = threading.Thread(target=Service(lambda message: False, handlers).run, args=(given,), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive() and handlers.evaluated == []


def test_an_unusable_worker_ends_without_an_answer() -> None:
    """When the device is lost the worker raises: the request has no final line, its client gives it to another."""
    said: list[dict[str, Any]] = []
    given = Lines()
    given.put(evaluate("a", fails="gone"))
    with pytest.raises(Unusable):
        Service(lambda message: said.append(message) or True, Echo()).run(given)
    assert final(said) == {}


def test_a_line_after_the_end_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request after the worker has ended is left to its client, without a word from the reading thread."""
    raised: list[Any] = []
    before = set(threading.enumerate())
    monkeypatch.setattr(threading, "excepthook", raised.append)
    given = Lines()
    given.put(evaluate("a", fails="gone"))
    with pytest.raises(Unusable):
        Service(lambda _: True, Echo()).run(given)
    given.put(evaluate("b"))
    given.end()
    _until(lambda: all(t.name != "kforge-requests" for t in set(threading.enumerate()) - before))
    assert raised == []


def _until(condition: Any) -> None:
    deadline = threading.Event()
    for _ in range(int(WAIT_S * 100)):
        if condition():
            return
        deadline.wait(0.01)
    raise AssertionError("it did not happen")
