"""The signs that panes draw with: box and braille characters, or ASCII where a terminal cannot show them."""

from __future__ import annotations

import locale
import os
from collections.abc import Mapping
from dataclasses import dataclass

MUTED = "$foreground 65%"  # Textual's own $text-muted is "auto 60%", which a span of a line does not dim


@dataclass(frozen=True)
class Glyphs:
    """One sign a meaning; each one cell wide. Colour never says anything that a sign or word does not say too."""

    passed: str = "✓"
    failed: str = "✗"
    skipped: str = "–"
    running: str = "●"
    open: str = "▾"
    closed: str = "▸"
    best: str = "★"
    arrow: str = "→"
    dot: str = "·"
    branch: str = "├─"
    last: str = "└─"
    pipe: str = "│ "
    corner: str = "└"
    rule: str = "─"
    bar: str = "█"
    ellipsis: str = "…"
    unicode: bool = True


UNICODE = Glyphs()
ASCII = Glyphs(
    passed="+", failed="x", skipped="-", running="*", open="v", closed=">", best="#", arrow="->", dot="-", branch="|-",
    last="`-", pipe="| ", corner="`", rule="-", bar="#", ellipsis="~", unicode=False,
)  # fmt: skip


def glyphs(environment: Mapping[str, str] = os.environ) -> Glyphs:
    """ASCII where KFORGE_ASCII is set, on the Linux console, and where the terminal's encoding is not UTF-8."""
    if environment.get("KFORGE_ASCII") or environment.get("TERM") == "linux":
        return ASCII
    # The locale's own: the streams are UTF-8 in any (kforge/cli/main.py), whatever the terminal can show.
    return UNICODE if locale.getencoding().lower().replace("-", "").startswith("utf") else ASCII
