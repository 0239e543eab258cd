"""Lines of source text: indentation of C, and Python lines kept within a width. Nothing about CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Lines:
    """Collects lines; `block` indents."""

    def __init__(self, indent: int = 1) -> None:
        self._lines: list[str] = []
        self._indent = indent

    def add(self, *lines: str) -> None:
        for line in "\n".join(lines).split("\n") if lines else ():
            self._lines.append("    " * self._indent + line if line else "")

    def comment(self, text: str) -> None:
        self.add(f"// {text}")

    def blank(self) -> None:
        if self._lines and self._lines[-1]:
            self._lines.append("")

    @contextmanager
    def block(self, head: str, unroll: bool = False) -> Iterator[None]:
        if unroll:
            self.add("#pragma unroll")
        self.add(f"{head} {{")
        self._indent += 1
        yield
        self._indent -= 1
        self.add("}")

    def __str__(self) -> str:
        return "\n".join(self._lines)


def fold(line: str, width: int = 120) -> list[str]:
    """A line of Python within `width` columns: the contents of its longest bracket on lines of their own.

    What holds no bracket, or one long string, stays as it is.
    """
    if len(line) <= width:
        return [line]
    pairs, commas = _brackets(line)
    pairs = [p for p in pairs if p[1] - p[0] > 1]
    if not pairs:
        return [line]
    start, end, depth = max(pairs, key=lambda p: (p[1] - p[0], -p[2]))
    pad = " " * (len(line) - len(line.lstrip()))
    cuts = [k for k, d in commas if start < k < end and d == depth]
    items = [line[a + 1 : b + (b != end)].strip() for a, b in zip([start, *cuts], [*cuts, end], strict=True)]
    packed: list[str] = []
    for item in filter(None, items):
        joined = f"{packed[-1]} {item}" if packed else ""
        if joined and len(joined) + len(pad) + 4 <= width:
            packed[-1] = joined
        else:
            packed.append(item)
    inner = [part for item in packed for part in fold(f"{pad}    {item}", width)]
    return [line[: start + 1], *inner, *fold(pad + line[end:], width)]


def _brackets(line: str) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """Bracket pairs (start, end, depth inside) and commas (place, depth) of a line, strings left out."""
    pairs, commas, opened, quote = [], [], [], ""
    k = 0
    while k < len(line):
        c = line[k]
        if quote:
            k += c == "\\"
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in "([{":
            opened.append(k)
        elif c in ")]}" and opened:
            pairs.append((opened[-1], k, len(opened)))
            opened.pop()
        elif c == ",":
            commas.append((k, len(opened)))
        k += 1
    return pairs, commas
