"""A drawing of lines, boxes, circles and text, written as SVG or, with Pillow, as PNG."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from kforge.errors import MissingError

Point = tuple[float, float]
SCALE = 2  # pixels of a PNG for each unit
MISSING_PILLOW = "a PNG needs Pillow", "pip install 'kforge-cuda[png]', or write an SVG (--svg)"


@dataclass(frozen=True)
class Line:
    """A path through points."""

    points: tuple[Point, ...]
    colour: str
    width: float = 1


@dataclass(frozen=True)
class Box:
    """A filled rectangle from its upper left corner."""

    at: Point
    size: Point
    colour: str


@dataclass(frozen=True)
class Circle:
    """A filled circle with a rim."""

    at: Point
    radius: float
    fill: str
    rim: str


@dataclass(frozen=True)
class Label:
    """Text on a base line. anchor: which part of it lies at `at`."""

    at: Point
    text: str
    colour: str = "#000000"
    size: int = 12
    anchor: Literal["start", "middle", "end"] = "start"


Shape = Line | Box | Circle | Label


@dataclass
class Drawing:
    """Shapes on white, the later ones above."""

    width: int
    height: int
    shapes: list[Shape] = field(default_factory=list)


def svg(drawing: Drawing) -> str:
    """The drawing as an SVG document."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width} {drawing.height}"'
        f' width="{drawing.width}" height="{drawing.height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{drawing.width}" height="{drawing.height}" fill="#ffffff"/>',
        *map(_element, drawing.shapes),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _element(shape: Shape) -> str:
    if isinstance(shape, Line):
        path = " ".join(f"{'M' if i == 0 else 'L'}{x:g} {y:g}" for i, (x, y) in enumerate(shape.points))
        return f'<path d="{path}" fill="none" stroke="{shape.colour}" stroke-width="{shape.width:g}"/>'
    x, y = shape.at
    if isinstance(shape, Box):
        w, h = shape.size
        return f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{shape.colour}"/>'
    if isinstance(shape, Circle):
        return (
            f'<circle cx="{x:g}" cy="{y:g}" r="{shape.radius:g}" fill="{shape.fill}" stroke="{shape.rim}"'
            ' stroke-width="2"/>'
        )
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{shape.size}" text-anchor="{shape.anchor}" fill="{shape.colour}">'
        f"{escape(shape.text)}</text>"
    )


def can_write_png() -> bool:
    """Whether Pillow is here."""
    return importlib.util.find_spec("PIL") is not None


def png(drawing: Drawing) -> bytes:
    """The drawing as a PNG, twice as large in pixels. MissingError without Pillow."""
    if not can_write_png():
        raise MissingError(*MISSING_PILLOW)
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (drawing.width * SCALE, drawing.height * SCALE), "#ffffff")
    canvas = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        if isinstance(shape, Line):
            canvas.line(_scaled(shape.points), shape.colour, max(1, round(shape.width * SCALE)), "curve")
        elif isinstance(shape, Box):
            (x, y), (w, h) = shape.at, shape.size
            canvas.rectangle(_scaled([(x, y), (x + w, y + h)]), shape.colour)
        elif isinstance(shape, Circle):
            (x, y), r = shape.at, shape.radius
            canvas.ellipse(_scaled([(x - r, y - r), (x + r, y + r)]), shape.fill, shape.rim, 2 * SCALE)
        else:
            font = ImageFont.load_default(shape.size * SCALE)
            anchor = {"start": "ls", "middle": "ms", "end": "rs"}[shape.anchor]
            canvas.text(_scaled([shape.at])[0], shape.text, shape.colour, font, anchor)
    written = io.BytesIO()
    image.save(written, "PNG")
    return written.getvalue()


def _scaled(points: Sequence[Point]) -> list[Point]:
    return [(x * SCALE, y * SCALE) for x, y in points]
