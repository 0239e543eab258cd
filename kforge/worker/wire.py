"""The worker's protocol, version 1: one JSON object a line each way. What a request is, and what an answer is.

A request has protocol, id and kind (describe, evaluate, cancel). Every describe and evaluate ends with exactly one line
of kind description, report or error under its id; events come before. docs/workers.md has the whole of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from kforge.errors import KforgeError, ProtocolError

PROTOCOL = 1
KINDS = ("describe", "evaluate", "cancel")
FINAL = ("description", "report", "error")
LINE_BYTES = 64 << 20
ID_CHARACTERS = 200
_DROPPED = 1 << 20  # bytes at a time of a line that is too long


@dataclass(frozen=True)
class Request:
    """One line of the client's, checked as far as every kind goes; `body` is the whole object."""

    id: str
    kind: str
    body: dict[str, Any] = field(hash=False)


class BadLine(ProtocolError):
    """A line that is no request; `id` where it could be read, so that the answer finds its asker."""

    def __init__(self, message: str, hint: str = "", id: str | None = None) -> None:
        super().__init__(message, hint)
        self.id = id


def lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Lines as they come. Of one that is longer than LINE_BYTES its first LINE_BYTES + 1 bytes, the rest is dropped."""
    while line := stream.readline(LINE_BYTES + 1):
        yield line
        if len(line) > LINE_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(_DROPPED)


def parse(line: bytes | str) -> Request:
    """A request from a line. BadLine, in one sentence, for anything else."""
    if len(line) > LINE_BYTES:
        raise BadLine(f"a line of over {LINE_BYTES} bytes")
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        shown = line[:60].decode(errors="replace") if isinstance(line, bytes) else line[:60]
        raise BadLine(f"not JSON: {shown.strip()!r}", "one JSON object a line") from error
    if not isinstance(data, dict):
        raise BadLine("not a JSON object", "one JSON object a line")
    name = data.get("id")
    if not isinstance(name, str) or not 0 < len(name) <= ID_CHARACTERS:
        raise BadLine("id is missing", "give each request a text as id")
    if data.get("protocol") != PROTOCOL:
        raise BadLine(
            f"protocol {data.get('protocol')!r} is not spoken here, this worker speaks {PROTOCOL}",
            "use the same version of kforge on both sides",
            name,
        )
    kind = data.get("kind")
    if kind not in KINDS:
        raise BadLine(f"unknown kind {kind!r}; available: {', '.join(KINDS)}", id=name)
    return Request(name, str(kind), data)


def request(id: str, kind: str, **body: Any) -> dict[str, Any]:
    """A request as an object."""
    return {"protocol": PROTOCOL, "id": id, "kind": kind, **body}


def answer(id: str | None, kind: str, **body: Any) -> dict[str, Any]:
    """An answer as an object."""
    return {"protocol": PROTOCOL, "id": id, "kind": kind, **body}


def failure(id: str | None, error: KforgeError) -> dict[str, Any]:
    """An error as the last line of a request."""
    return answer(id, "error", **error.as_dict())


def well_formed(message: Mapping[str, Any]) -> bool:
    """Whether an answer has the fields of its kind. What else is in it is not looked at."""
    kind = message.get("kind")
    if kind == "event":
        return isinstance(message.get("event"), str) and isinstance(message.get("data"), dict)
    if kind == "error":
        error = message.get("error")
        return isinstance(error, dict) and isinstance(error.get("message"), str)
    if kind == "description":
        versions = message.get("manifest", {})
        named = isinstance(versions, dict) and all(isinstance(v, str | None) for v in versions.values())
        return named and isinstance(message.get("target"), str)
    return kind == "report" and isinstance(message.get("report"), dict)


def encode(message: Mapping[str, Any]) -> bytes:
    """One line."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
