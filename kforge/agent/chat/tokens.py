"""How many tokens a request will take, before it is sent: an estimate from its bytes, corrected by what was reported.

No tokenizer: each endpoint has its own. Code has some 3 to 4 bytes a token in the vocabularies of large models and
fewer in small ones, so 2.5 is on the safe side until an answer's usage says more.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

BYTES_PER_TOKEN = 2.5
PER_MESSAGE = 8  # role and separators
MARGIN = 1.1  # over what the last answers showed
LEAST = 0.5  # of the first estimate: no vocabulary has more than 5 bytes a token in code


class Estimator:
    """Learns an endpoint's tokens per byte from its usage figures."""

    def __init__(self) -> None:
        self._ratio: float | None = None  # reported over estimated

    def __call__(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()) -> int:
        """Tokens that this request will take, rather too many than too few."""
        factor = 1.0 if self._ratio is None else self._ratio * MARGIN
        return math.ceil(_raw(messages, tools) * factor)

    def learn(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], reported: int) -> None:
        """An endpoint says what a request took; the largest of the last ratios counts, forgetting slowly."""
        if reported <= 0:
            return
        seen = max(LEAST, reported / max(1, _raw(messages, tools)))
        self._ratio = seen if self._ratio is None else max(seen, 0.8 * self._ratio + 0.2 * seen)


def estimate(text: str) -> int:
    """Tokens of a text, rather too many."""
    return math.ceil(len(text.encode(errors="replace")) / BYTES_PER_TOKEN)


def _raw(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> int:
    count = 0
    for message in messages:
        count += PER_MESSAGE + estimate(str(message.get("content") or ""))
        if message.get("tool_calls"):
            count += estimate(json.dumps(message["tool_calls"], ensure_ascii=False))
    return count + (estimate(json.dumps(list(tools))) if tools else 0)
