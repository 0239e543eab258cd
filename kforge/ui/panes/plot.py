"""The roofline as characters: braille dots, or plain ASCII where a terminal has none of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from textual.content import Content

from kforge.profiling.pictures import Point, Roof, rate_text
from kforge.ui.panes.glyphs import MUTED, Glyphs
from kforge.ui.text import one_line, plain

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # of a braille cell, by row and column
_LEFT = 11  # cells of the labels of the vertical axis
_COLOURS = {"floor": MUTED, "candidate": "bold $text-success"}


def read_roof(data: Mapping[str, Any] | None) -> Roof | None:
    """The roofline of a profile; None where it has none, or one that cannot be drawn."""
    if not data or not data.get("points"):
        return None
    points = tuple(
        Point(one_line(str(p["label"]), 24), float(p["intensity"]), float(p["rate"]), bool(p["measured"]))
        for p in data["points"]
    )
    roof = Roof(float(data["bandwidth"]), float(data["peak"]), str(data["kind"]), str(data["source"]), points)
    numbers = [roof.bandwidth, roof.peak, *(n for p in points for n in (p.intensity, p.rate))]
    return roof if all(n > 0 and math.isfinite(n) for n in numbers) else None


def roofline(roof: Roof, width: int, height: int, signs: Glyphs) -> list[Content]:
    """The plot and its legend, in rows of at most `width` cells; both axes are logarithmic."""
    columns, lines = max(16, width - _LEFT - 1), max(4, height)
    xs = [math.log10(n) for n in (*(p.intensity for p in roof.points), roof.ridge)]
    ys = [math.log10(n) for n in (*(p.rate for p in roof.points), roof.peak)]
    left, right = math.floor(min(xs) - 0.5), math.ceil(max(xs) + 0.5)
    low, high = math.floor(min(ys) - 0.3), math.ceil(max(ys) + 0.1)
    fine_x, fine_y = (2, 4) if signs.unicode else (1, 1)
    dots = [[0] * columns for _ in range(lines)]

    def place(x: float, y: float) -> tuple[int, int]:
        column = round((x - left) / (right - left) * (columns * fine_x - 1))
        row = round((high - y) / (high - low) * (lines * fine_y - 1))
        return column, row

    def dot(column: int, row: int) -> None:
        if 0 <= row < lines * fine_y and 0 <= column < columns * fine_x:
            dots[row // fine_y][column // fine_x] |= _DOTS[row % 4][column % 2] if signs.unicode else 1

    before: int | None = None
    for column in range(columns * fine_x):
        x = left + (right - left) * column / (columns * fine_x - 1)
        _, row = place(x, math.log10(min(roof.peak, 10**x * roof.bandwidth)))
        dot(column, row)
        for between in range(row + 1, before or 0):  # no holes where it is steep
            dot(column, between)
        before = row
    marks: dict[tuple[int, int], tuple[str, str]] = {}
    legend: list[Content] = []
    for number, point in enumerate(roof.points):
        letter = "o" if not point.measured else chr(ord("a") + (number - 1) % 26)
        column, row = place(math.log10(point.intensity), math.log10(point.rate))
        style = _COLOURS.get(point.label, "bold $text-secondary")
        at = min(lines - 1, row // fine_y), min(columns - 1, column // fine_x)
        while at in marks:  # beside the one that is there
            at = at[0], at[1] + 1
        marks[at] = (letter, style)
        share = f", {point.rate / roof.points[0].rate:.0%} of the floor" if point.measured else ""
        legend.append(Content.assemble((letter, style), plain(f" {point.label} {rate_text(point.rate)}{share}")))
    found = [
        Content.styled(f"{rate_text(roof.peak)} {roof.kind}, {roof.bandwidth / 1e12:.3g} TB/s ({roof.source})", MUTED)
    ]
    bar = "│" if signs.unicode else "|"
    for line in range(lines):
        exponent = high - (high - low) * line / (lines - 1)
        label = rate_text(10**exponent) if line in (0, lines - 1) or line == lines // 2 else ""
        parts: list[Content | tuple[str, str]] = [(f"{label:>{_LEFT}}{bar}", MUTED)]
        run = ""
        for column in range(columns):
            mark = marks.get((line, column))
            value = dots[line][column]
            cell = " " if not value else chr(0x2800 + value) if signs.unicode else "."
            if mark is None:
                run += cell
                continue
            parts += [(run, "$text-primary"), mark]
            run = ""
        found.append(Content.assemble(*parts, (run.rstrip(), "$text-primary")))
    first, last = f"{10.0**left:g}", f"{10.0**right:g} op/byte"
    corner = ("└" if signs.unicode else "+") + signs.rule * columns
    found.append(Content.styled(" " * _LEFT + corner, MUTED))
    found.append(Content.styled(" " * (_LEFT + 1) + first + last.rjust(max(0, columns - len(first))), MUTED))
    return [*found, *(Content("  ") + entry for entry in legend)]
