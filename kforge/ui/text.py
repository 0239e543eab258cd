"""Foreign text for widgets: source, compiler output, paths and model text, never markup and never control codes.

Everything that was not written in this package goes through `plain`, `cuda`, `python` or `source` before a widget
shows it: a title or a line like `tile[threadIdx.x] = v[/]` would otherwise lose its brackets or end the program.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.content import Content

HIGHLIGHTED = 60_000  # characters; beyond that a text is shown without colours
_HARMFUL = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def clean(text: str) -> str:
    """`text` without what could move the cursor: control, formatting and line-separator characters become U+FFFD.

    Newline and tab stay; CRLF becomes a newline.
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in _HARMFUL else "�" for c in text)


def one_line(text: str, width: int | None = None) -> str:
    """`clean` text with its white space folded into single spaces, cut with an ellipsis at `width` characters."""
    folded = " ".join(clean(text).split())
    return folded if width is None or len(folded) <= width else folded[: max(0, width - 1)] + "…"


def plain(text: str, style: str = "") -> Content:
    """`text` as it is, in one style of Textual's (such as "$text-muted" or "bold"); nothing in it is markup."""
    from textual.content import Content

    content = Content(clean(text))
    return content.stylize(style) if style else content


def cuda(text: str) -> Content:
    """CUDA C++ in the colours of the app's theme; as many lines as `text.split("\\n")` has."""
    return _highlighted(text, "cuda")


def python(text: str) -> Content:
    """Python in the colours of the app's theme; as many lines as `text.split("\\n")` has."""
    return _highlighted(text, "python")


def source(text: str, name: str) -> Content:
    """A source file highlighted by its name: .py as Python, .cu, .cuh, .h, .hpp and .cpp as CUDA, else plain."""
    if name.endswith(".py"):
        return python(text)
    return cuda(text) if name.endswith((".cu", ".cuh", ".h", ".hpp", ".cpp", ".cc")) else plain(text)


def lines(content: Content) -> list[Content]:
    """One Content a line; an empty line is an empty Content."""
    return list(content.split("\n", allow_blank=True))


def _highlighted(text: str, language: str) -> Content:
    safe = clean(text)
    if len(safe) > HIGHLIGHTED or not safe.strip():
        return plain(safe)
    from textual.content import Content
    from textual.highlight import highlight

    # The highlighter drops what follows the last newline where that is empty, and str.splitlines splits at more
    # characters than a newline; `clean` has left none of those.
    shown = highlight(safe, language=language)
    missing = safe.count("\n") - shown.plain.count("\n")
    return Content.assemble(shown, "\n" * missing) if missing > 0 else shown
