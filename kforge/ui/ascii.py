"""The screen in ASCII, for terminals that cannot show more: frames, bars and signs by characters of a keyboard."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_SIGNS = {
    "─━═▔▁▂╸╺╌┄": "-",
    "│┃║▏▕▎▌▐▊▍": "|",
    "┌┐└┘├┤┬┴┼╭╮╰╯┏┓┗┛╔╗╚╝": "+",
    "█▇▆▅▄▃▀": "#",
    "●•": "*",
    "▲△": "^",
    "▼▽▾": "v",
    "▶▸►": ">",
    "◀◂◄": "<",
    "✕✗✘×": "x",
    "✓✔": "+",
    "…": "~",
    "⏎": "$",
    "·": ".",
    "»": ">",
    "\u2013\u2014": "-",
}
TABLE = {ord(sign): plain for signs, plain in _SIGNS.items() for sign in signs}


class AsciiFilter(LineFilter):
    """Replaces what this program draws; other letters of a source file stay, for they are the file's."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """One line."""
        return [
            segment
            if segment.text.isascii()
            else Segment(segment.text.translate(TABLE), segment.style, segment.control)
            for segment in segments
        ]
