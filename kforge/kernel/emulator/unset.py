"""Local floats without an initial value hold NaN in the emulator: a sum and a maximum that begin so both show it.

g++ can fill them with a pattern of its own, but that is a number far below zero, with which a maximum comes out right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_DECLARATION = re.compile(r"(?<=[;{}])\s*(?:float|double|T)\s+(?P<names>[^;{}()=&*<>]+(?:=[^;{}]*)?);")
_NAME = re.compile(r"\s*([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)")
_TYPE = re.compile(r"\b(?:struct|class|union|enum|namespace|extern)\b")
_CONSTANT = re.compile(r"\bconstexpr\b(?!\s*\()")


def edits(masked: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, text) of what goes in after each such declaration. masked: text without comments and literals."""
    inside = _code(masked)
    for match in _DECLARATION.finditer(masked):
        if not inside[match.start()]:
            continue
        names = [name for part in _parts(match["names"]) if (name := _NAME.fullmatch(part))]
        if names:
            yield match.end(), match.end(), "".join(f" KFORGE_UNSET({name[1]});" for name in names)


def _parts(text: str) -> Iterator[str]:
    """Declarators, split at the commas outside of brackets."""
    depth, start = 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            yield text[start:i]
            start = i + 1
    yield text[start:]


def _code(masked: str) -> list[bool]:
    """For each place, whether it lies in the body of a function that runs (not of a type, a namespace, a constexpr)."""
    found = [False] * len(masked)
    stack: list[bool | None] = []  # None: a constexpr function, and all within
    last = 0
    for match in re.finditer(r"[;{}]", masked):
        at = match.start()
        for i in range(last, at + 1):
            found[i] = bool(stack and stack[-1])
        before, last = masked[last:at], at + 1
        if match.group() == "{":
            if (stack and stack[-1] is None) or _CONSTANT.search(before):
                stack.append(None)
            elif _TYPE.search(before) and not before.rstrip().endswith(")"):
                stack.append(False)
            else:
                stack.append(")" in before or bool(stack and stack[-1]))
        elif match.group() == "}" and stack:
            stack.pop()
        if match.group() != ";":
            found[at] = bool(stack and stack[-1])
    return found
