"""What an endpoint may send, whoever it is: bytes, time and lines are bounded, and nothing is unpacked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

MOST_BYTES = 128 << 20  # of one answer
MOST_LINE = 8 << 20  # of one event of a stream
MOST_ERROR = 4 << 20  # of an error or a document
ERROR_S = 30.0  # until one is complete
DOCUMENTS = ("application/json", "text/html")


class TooMuch(ValueError):
    """An endpoint sends what no answer is."""


def bound(response: Any) -> None:
    """Hook of the HTTP client: what is read of this response is counted. TooMuch for one that is packed.

    A packed answer of a few kilobytes may be gigabytes; the client asks for plain ones.
    """
    packed = str(response.headers.get("content-encoding", "")).strip().lower()
    if packed not in ("", "identity"):
        raise TooMuch(f"the answer is packed ({packed[:20]}), which was not asked for")
    short = response.status_code >= 400 or content_type(response) in DOCUMENTS
    response.stream = _bounded(response, response.stream, short)


def is_stream(response: Any) -> bool:
    """Whether it says that it is a stream of events and no error."""
    return response.status_code < 400 and "event-stream" in content_type(response)


def content_type(response: Any) -> str:
    """What the answer says it is, in lower case."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()[:60]


def _bounded(response: Any, inner: Any, short: bool) -> Any:
    base = import_module(type(response).__module__.partition(".")[0]).SyncByteStream

    class Bounded(base):  # type: ignore[misc, valid-type]
        def __iter__(self) -> Iterator[bytes]:
            total = line = 0
            begin = time.monotonic()
            for piece in inner:
                total += len(piece)
                newline = piece.rfind(b"\n")
                line = line + len(piece) if newline < 0 else len(piece) - newline - 1
                if line > MOST_LINE or total > MOST_BYTES:
                    raise TooMuch(f"more than {(MOST_LINE if line > MOST_LINE else MOST_BYTES) >> 20} MiB were sent")
                if short and (total > MOST_ERROR or time.monotonic() - begin > ERROR_S):
                    raise TooMuch("an answer that is no stream of events does not end")
                yield piece

        def close(self) -> None:
            inner.close()

    return Bounded()
