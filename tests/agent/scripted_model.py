"""A chat model that says what a script tells it to, over local HTTP: the chat protocol, streaming, all its failures.

    with ScriptedModel([calls(tool("evaluate", plan="quick")), text("done")]) as model:
        ...   # model.base_url is an OpenAI-compatible endpoint, model.requests what it was asked

Each request for an answer takes the next step of the script. A step is a plain dict, so a script is also a JSON file:
`python -m tests.agent.scripted_model script.json --port 8123` serves it (and prints the address) until it is ended.
A request for at most one token is the check that a model is there: it is answered "ok" and takes no step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

Step = dict[str, Any]
Scripted = Step | Callable[[Mapping[str, Any]], Step]  # a function makes the step of the request's body

MODEL = "scripted"
USAGE = (100, 20, 0)
PIECE = 12  # characters of text or arguments in one chunk of the stream


# steps


def text(words: str, *, usage: Sequence[int] | None = USAGE, finish: str = "stop", delay: float = 0.0) -> Step:
    """Plain words. usage: tokens in, out and cached, None to report none. delay: seconds between chunks."""
    return {"text": words, "usage": usage, "finish": finish, "delay": delay}


def tool(called: str, raw: str | None = None, /, **arguments: Any) -> dict[str, Any]:
    """One call of a tool, for `calls`. raw: the arguments' text as it is sent, for malformed ones."""
    return {"name": called, "arguments": json.dumps(arguments) if raw is None else raw}


def calls(
    *tools: dict[str, Any], words: str = "", usage: Sequence[int] | None = USAGE, delay: float = 0.0, finish: str = ""
) -> Step:
    """One answer that calls tools; several are parallel calls."""
    return {"text": words, "calls": list(tools), "usage": usage, "delay": delay, "finish": finish or "tool_calls"}


def half(words: str = "half an ans", *tools: dict[str, Any]) -> Step:
    """A stream that begins and is cut off: no finish, no usage, the connection closed.

    With a field `usage_first` the tokens are reported before it breaks.
    """
    return {"text": words, "calls": list(tools), "half": True}


def stall(seconds: float, after: str = "") -> Step:
    """Silence for `seconds` after the first words, then the connection is closed."""
    return {"stall": seconds, "text": after}


def status(code: int, message: str = "", *, retry_after: str | float | None = None, kind: str = "") -> Step:
    """An HTTP error, with its Retry-After where one is given. kind: the error's `code`."""
    return {"status": code, "message": message or f"scripted {code}", "retry_after": retry_after, "kind": kind}


def refusal(words: str = "I can't help with that.") -> Step:
    """The model refuses."""
    return {"refusal": words, "usage": USAGE, "finish": "stop"}


def repeat(step: Step, times: int | None = None) -> Step:
    """The same step many times; None: for ever."""
    return {**step, "times": times if times is not None else -1}


@dataclass
class Request:
    """What was asked: path, headers with lower-case names, body, time of arrival."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)

    @property
    def is_probe(self) -> bool:
        """Whether it only checks that the model is there."""
        return 1 in (self.body.get("max_tokens"), self.body.get("max_completion_tokens"))


class ScriptedModel:
    """The endpoint. key: the only accepted bearer token, "" accepts any. models: the names it serves.

    probe: the step that answers the check that a model is there. A request after the last step is answered with 400.
    """

    def __init__(
        self,
        script: Sequence[Scripted],
        *,
        key: str = "",
        models: Sequence[str] = (MODEL,),
        probe: Step | None = None,
        port: int = 0,
        refuses: Sequence[str] = (),
    ) -> None:
        self.script: list[Scripted] = list(script)
        self.key, self.models, self.probe = key, tuple(models), probe
        self.refuses = tuple(refuses)  # fields of a request that this endpoint does not know: answered with 400
        self.all_requests: list[Request] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._ids = itertools.count(1)
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.model = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def base_url(self) -> str:
        """Where it listens, as `--base-url` takes it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def requests(self) -> list[Request]:
        """The requests for answers, in order, without the checks that a model is there."""
        return [r for r in self.all_requests if r.path.endswith("/chat/completions") and not r.is_probe]

    @property
    def left(self) -> int:
        """Steps that nobody has asked for yet."""
        return len(self.script)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def serve_forever(self) -> None:
        """Listen until interrupted."""
        self._server.serve_forever(0.05)

    def take(self, body: Mapping[str, Any]) -> Step:
        """The next step of the script."""
        with self._lock:
            if not self.script:
                return status(400, "the script is over")
            step = self.script[0]
            if callable(step):
                self.script.pop(0)
                return step(body)
            times = step.get("times", 1)
            if times == 1:
                self.script.pop(0)
            elif times > 1:
                self.script[0] = {**step, "times": times - 1}
            return step

    def number(self) -> int:
        """A number for an answer or a call."""
        return next(self._ids)

    def pause(self, seconds: float) -> None:
        """Sleep, but not longer than the endpoint lives."""
        self._closing.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    model: ScriptedModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read what was asked from `requests`."""

    def do_GET(self) -> None:
        model = self._admit({})
        if model is not None:
            self._json(200, {"object": "list", "data": [{"id": name, "object": "model"} for name in model.models]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        model = self._admit(body)
        if model is None:
            return
        if not self.path.endswith("/chat/completions"):
            return self._error(404, f"no such path: {self.path}")
        if body.get("model") not in model.models:
            return self._error(404, f"The model `{body.get('model')}` does not exist", kind="model_not_found")
        for name in model.refuses:
            if name in body:
                return self._error(400, f"Unsupported parameter: '{name}' is not supported", kind="unsupported")
        if Request("", {}, body).is_probe:
            return self._answer(model, body, model.probe or text("ok", usage=(1, 1, 0)))
        return self._answer(model, body, model.take(body))

    def _admit(self, body: dict[str, Any]) -> ScriptedModel | None:
        model = self.server.model
        headers = {name.lower(): value for name, value in self.headers.items()}
        model.all_requests.append(Request(self.path, headers, body))
        if model.key and headers.get("authorization") != f"Bearer {model.key}":
            self._error(401, "Incorrect API key provided", kind="invalid_api_key")
            return None
        return model

    def _answer(self, model: ScriptedModel, body: dict[str, Any], step: Step) -> None:
        if "status" in step:
            return self._error(step["status"], step["message"], step.get("retry_after"), step.get("kind", ""))
        if not body.get("stream"):
            return self._whole(model, step)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for chunk in _chunks(model, step):
            self._event(json.dumps(chunk))
            model.pause(step.get("delay", 0.0))
        if "usage_first" in step:
            self._event(json.dumps(_chunk(model, None, usage=_usage(step["usage_first"]))))
        if "stall" in step:
            return model.pause(step["stall"])
        if step.get("half"):
            return None
        if step.get("usage") is not None and (body.get("stream_options") or {}).get("include_usage"):
            self._event(json.dumps(_chunk(model, None, usage=_usage(step["usage"]))))
        return self._event("[DONE]")

    def _whole(self, model: ScriptedModel, step: Step) -> None:
        message: dict[str, Any] = {"role": "assistant", "content": step.get("text") or step.get("refusal") or ""}
        if step.get("calls"):
            message["tool_calls"] = [_call(model, place, call) for place, call in enumerate(step["calls"])]
        choice = {"index": 0, "message": message, "finish_reason": step.get("finish", "stop")}
        whole = {"id": "c", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        self._json(200, whole | ({"usage": _usage(step["usage"])} if step.get("usage") else {}))

    def _event(self, data: str) -> None:
        self.wfile.write(f"data: {data}\n\n".encode())
        self.wfile.flush()

    def _error(self, code: int, message: str, retry_after: Any = None, kind: str = "") -> None:
        error = {"message": message, "type": "scripted", "param": None, "code": kind or None}
        self._json(code, {"error": error}, {} if retry_after is None else {"Retry-After": str(retry_after)})

    def _json(self, code: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        for name, content in {"Content-Type": "application/json", "Content-Length": str(len(data))}.items():
            self.send_header(name, content)
        for name, content in (headers or {}).items():
            self.send_header(name, content)
        self.end_headers()
        self.wfile.write(data)


def _chunks(model: ScriptedModel, step: Step) -> list[dict[str, Any]]:
    """The stream of one answer: role, pieces of text, pieces of each call, finish."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(step.get("text", ""))]
    deltas += [{"refusal": piece} for piece in _pieces(step.get("refusal", ""))]
    for place, call in enumerate(step.get("calls", ())):
        begun = _call(model, place, call)
        arguments = begun["function"]["arguments"]
        begun["function"] = {"name": call["name"], "arguments": ""}
        deltas.append({"tool_calls": [begun]})
        deltas += [{"tool_calls": [{"index": place, "function": {"arguments": p}}]} for p in _pieces(arguments)]
    chunks = [_chunk(model, delta) for delta in deltas]
    if not step.get("half") and "stall" not in step:
        chunks.append(_chunk(model, {}, finish=step.get("finish", "stop")))
    return chunks


def _call(model: ScriptedModel, place: int, call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments)
    function = {"name": call["name"], "arguments": arguments}
    return {"index": place, "id": f"call_{model.number()}", "type": "function", "function": function}


def _chunk(
    model: ScriptedModel, delta: dict[str, Any] | None, *, finish: str | None = None, usage: Any = None
) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": choices}
    return chunk | ({"usage": usage} if usage else {})


def _pieces(words: str) -> list[str]:
    return [words[at : at + PIECE] for at in range(0, len(words), PIECE)]


def _usage(numbers: Sequence[int]) -> dict[str, Any]:
    read, written, cached = numbers
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def load(path: Path) -> list[Step]:
    """The steps of a JSON script. A value {"file": NAME} stands for the text of that file beside the script."""

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if set(value) == {"file"}:
                return (path.parent / value["file"]).read_text()
            return {key: resolve(item) for key, item in value.items()}
        return [resolve(item) for item in value] if isinstance(value, list) else value

    return [{"usage": USAGE} | resolve(step) for step in json.loads(path.read_text())]


def main() -> None:
    """Serve a script until interrupted."""
    parser = argparse.ArgumentParser(description="Serve a scripted chat model.")
    parser.add_argument("script", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key", default="", help="the only accepted key; without it any is")
    chosen = parser.parse_args()
    model = ScriptedModel(load(chosen.script), key=chosen.key, port=chosen.port)
    print(model.base_url, flush=True)
    try:
        model.serve_forever()
    except KeyboardInterrupt:
        model.close()


if __name__ == "__main__":
    main()
