"""What a terminal sends: bytes that are no UTF-8 (a Latin-1 paste, an eighth bit for alt) are shown as U+FFFD; alt and
a digit are that key."""

from __future__ import annotations

import codecs
from functools import partial
from typing import Any, cast

from textual import _ansi_sequences
from textual.drivers import linux_driver


def take_any_bytes() -> None:
    """Let Textual go on at bytes that it cannot decode; its own decoder is strict, and they would end the app."""
    strict = codecs.getincrementaldecoder
    # its reading thread makes the decoder itself: there is nothing of the driver's to override
    setattr(linux_driver, "getincrementaldecoder", lambda name: partial(strict(name), errors="replace"))  # noqa: B010


def take_alt_digits() -> None:
    """Let alt and a digit be keys; Textual takes them for what a Mac's option key types (¡, ™ ...)."""
    keys = cast("dict[str, Any]", _ansi_sequences.ANSI_SEQUENCES_KEYS)
    for digit in "0123456789":
        keys.pop(f"\x1b{digit}", None)
