"""One streamed answer put together from its chunks. Knows the protocol's objects, not the network."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

MOST_CALLS = 64  # tools that one answer may call
MOST_TOKENS = 10**9  # of one call, as an endpoint reports them
_ID = re.compile(r"[\x21-\x7e]{1,100}")


@dataclass(frozen=True)
class Usage:
    """Tokens of one call as the endpoint reported them; estimated: it reported none."""

    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    estimated: bool = False


@dataclass
class _Call:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass
class Assembly:
    """What has arrived of an answer. on_text: told each piece of text. most: characters that it may have."""

    on_text: Callable[[str], None] = lambda piece: None
    most: int = 1 << 24
    text: list[str] = field(default_factory=list)
    refusal: list[str] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    finish: str = ""
    usage: Usage | None = None
    size: int = 0  # characters of text and arguments
    begun: bool = False  # a chunk has arrived
    _by_index: dict[int, _Call] = field(default_factory=dict)

    def add(self, chunk: Any) -> bool:
        """One ChatCompletionChunk. False where the answer is longer than any should be: what has arrived is taken as
        one that was cut off. ValueError for what is no chunk of an answer."""
        try:
            self._add(chunk)
        except (AttributeError, TypeError) as error:
            raise ValueError(f"a chunk is no part of an answer: {error}") from error
        if self.size <= self.most and len(self.calls) <= MOST_CALLS:
            return True
        del self.calls[MOST_CALLS:]
        self.finish = "length"
        return False

    def _add(self, chunk: Any) -> None:
        choices, usage = chunk.choices, getattr(chunk, "usage", None)
        self.begun = True
        if usage:
            self.usage = read_usage(usage)
        for choice in choices or ():
            if choice.index:  # only one answer was asked for
                continue
            delta = choice.delta
            if delta is not None:
                self._piece(self.text, delta.content)
                self._piece(self.refusal, getattr(delta, "refusal", None))
                for call in delta.tool_calls or ():
                    self._call(call)
            if choice.finish_reason:
                self.finish = _words(choice.finish_reason)[:40]

    def _piece(self, pieces: list[str], piece: str | None) -> None:
        if piece:
            pieces.append(_words(piece))
            self.size += len(piece)
            self.on_text(piece)

    def _call(self, piece: Any) -> None:
        """A piece of a tool call. Some servers number every call 0: a new id with a name begins a new one."""
        index, id, function = piece.index or 0, _words(piece.id or ""), piece.function
        name = _words(function.name or "") if function is not None else ""
        arguments = _words(function.arguments or "") if function is not None else ""
        known = self._by_index.get(index)
        if known is None or (id and known.id and id != known.id and name):
            known = self._by_index[index] = _Call()
            self.calls.append(known)
        known.id = known.id or id
        known.name += name
        known.arguments.append(arguments)
        self.size += len(name) + len(arguments)

    def message(self, call: int) -> dict[str, Any]:
        """The whole answer in the form in which it is sent back: arguments that are no JSON object become {}.

        call: number of the call, for ids that the endpoint did not give, or gave twice. The arguments as they were
        written are in `kforge_arguments`, which is never sent.
        """
        message: dict[str, Any] = {"role": "assistant", "content": _unicode("".join(self.text))}
        if self.refusal:
            message["content"] = message["content"] or _unicode("".join(self.refusal))
        if self.calls:
            message["tool_calls"] = []
            written: dict[str, str] = {}
            taken: set[str] = set()
            for place, found in enumerate(self.calls):
                id = found.id if _ID.fullmatch(found.id) and found.id not in taken else f"call_{call}_{place}"
                taken.add(id)
                arguments = _unicode("".join(found.arguments))
                if not is_object(arguments):
                    written[id] = arguments
                    arguments = "{}"
                function = {"name": _sendable_name(found.name), "arguments": arguments}
                message["tool_calls"].append({"id": id, "type": "function", "function": function})
            if written:
                message["kforge_arguments"] = written
        return message


def _words(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where text belongs")
    return value


def _unicode(text: str) -> str:
    """Pairs of surrogates joined (they may come in two chunks), single ones replaced: they cannot be sent back."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if not text.isascii() else text


def _sendable_name(name: str) -> str:
    """A tool's name as endpoints take it back, whatever the model has called."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "unnamed"


def is_object(text: str) -> bool:
    """Whether a text is one JSON object, as arguments must be for servers that read the history again."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def read_usage(usage: Any) -> Usage | None:
    """The endpoint's usage object; None where its figures can be none of a request and an answer."""
    read, written = _count(getattr(usage, "prompt_tokens", None)), _count(getattr(usage, "completion_tokens", None))
    if not read or written is None:
        return None
    details = getattr(usage, "prompt_tokens_details", None)
    cached = _count(getattr(details, "cached_tokens", None)) or 0
    return Usage(read, written, min(cached, read))


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_TOKENS:
        return None
    return math.ceil(value)
