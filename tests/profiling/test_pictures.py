"""Roofline and time breakdown: where points lie, and that the picture is one."""

from __future__ import annotations

import io
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from kforge.errors import MissingError
from kforge.profiling import drawing as drawings
from kforge.profiling.drawing import SCALE, Circle, Line, png, svg
from kforge.profiling.evidence import Evidence, Kind, StageOne, Timeline
from kforge.profiling.pictures import bars, breakdown, drawing, rate_text, roof, text

STAGE = StageOne(
    Kind.MEMORY, 1000.0, 1000.0, 20.0, 2.0, 0.25, "round", "calibrated", {"eager": 2000.0}, candidate_us=1250.0
)
EVIDENCE = Evidence(
    "t<1>", "d", "round", "sm_90a", 132, stage=STAGE, rates={"read": 4e12, "fp32": 50e12},
    counted={"read_bytes": 3e9, "write_bytes": 1e9, "fp32": 1e9},
)  # fmt: skip


def test_points_of_the_roofline() -> None:
    """1e9 operations in 4e9 bytes: intensity 0.25; the floor on the roof, a baseline at half of it."""
    picture = roof(EVIDENCE)
    assert picture is not None
    assert picture.bandwidth == pytest.approx(4e12) and picture.peak == 50e12
    assert picture.ridge == pytest.approx(12.5)
    rates = {p.label: p.rate for p in picture.points}
    assert rates["floor"] == pytest.approx(1e12)
    assert rates["eager"] == pytest.approx(0.5e12) and rates["candidate"] == pytest.approx(0.8e12)
    assert picture.rate(1.0) == pytest.approx(4e12) and picture.rate(100.0) == 50e12


def test_the_text_picture_has_its_marks() -> None:
    """Both parts of the roof, every point with its share of the floor, no line wider than asked for."""
    picture = roof(EVIDENCE)
    assert picture is not None
    lines = text(picture, 72, 12).splitlines()
    drawn = "\n".join(lines)
    assert "/" in drawn and "_" in drawn
    assert "a eager 500 Gop/s (50%)" in drawn and "b candidate 800 Gop/s (80%)" in drawn
    assert max(map(len, lines[:-1])) <= 72


def test_the_svg_is_one_and_foreign_text_is_escaped() -> None:
    """It parses; a title with a bracket is text; the floor's mark lies on the roof."""
    picture = roof(EVIDENCE)
    assert picture is not None
    root = ET.fromstring(svg(drawing(picture, "t<1> & more")))
    texts = [e.text or "" for e in root.iter() if e.tag.endswith("text")]
    assert "t<1> & more" in texts and any("candidate" in t for t in texts)
    bars_of = ET.fromstring(svg(drawing(picture, "", [("k<int>", 0.5), ("device idle", 0.25)])))
    widths = [float(e.attrib["width"]) for e in bars_of.iter() if e.tag.endswith("rect")][1:]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2) and int(bars_of.attrib["height"]) > 420
    circles = [e for e in root.iter() if e.tag.endswith("circle")]
    assert len(circles) == 3
    heights = [float(c.attrib["cy"]) for c in circles]
    assert heights[0] < heights[2] < heights[1]  # floor above candidate above eager


def test_the_png_shows_what_the_svg_does() -> None:
    """Twice the size in pixels; the roof's line and each mark have their colours where the drawing says."""
    image = pytest.importorskip("PIL.Image", reason="needs Pillow (extra png)")
    picture = roof(EVIDENCE)
    assert picture is not None
    drawn = drawing(picture, "t<1>", [("k", 0.5)])
    pixels = image.open(io.BytesIO(png(drawn))).convert("RGB")
    assert pixels.size == (drawn.width * SCALE, drawn.height * SCALE)
    (line,) = (s for s in drawn.shapes if isinstance(s, Line) and s.width == 2)
    x, y = ((a + b) / 2 for a, b in zip(*line.points[1:], strict=True))
    assert pixels.getpixel((int(x * SCALE), int(y * SCALE))) == (0x33, 0x33, 0x33)
    marks = [s for s in drawn.shapes if isinstance(s, Circle)]
    found = [pixels.getpixel((int(m.at[0] * SCALE), int(m.at[1] * SCALE))) for m in marks]
    assert found == [(255, 255, 255), (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)]  # the floor is hollow


def test_without_pillow_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra by name; SVG needs nothing."""
    monkeypatch.setattr(drawings, "can_write_png", lambda: False)
    picture = roof(EVIDENCE)
    assert picture is not None
    with pytest.raises(MissingError) as error:
        png(drawing(picture))
    assert "kforge-cuda[png]" in (error.value.hint or "")


def test_labels_of_close_marks_do_not_lie_on_each_other() -> None:
    """Two baselines of the same speed have their names a line apart."""
    stage = replace(STAGE, baselines_us={"eager": 2000.0, "compile_default": 2000.0})
    picture = roof(replace(EVIDENCE, stage=stage))
    assert picture is not None
    labels = [s for s in drawing(picture).shapes if isinstance(s, drawings.Label)]
    heights = [s.at[1] for s in labels if s.text.startswith(("eager", "compile_default"))]
    assert abs(heights[0] - heights[1]) >= 12


def test_no_picture_without_arithmetic() -> None:
    """A copy has no point on a roofline; neither has a task that could not be counted."""
    assert roof(replace(EVIDENCE, counted={"read_bytes": 1.0, "write_bytes": 1.0})) is None
    assert roof(replace(EVIDENCE, stage=None)) is None


def test_the_breakdown_adds_up() -> None:
    """Kernels, the rest together and the idle device make up the call."""
    kernels = tuple((f"k{i}", 10.0, 1) for i in range(8))
    shares = breakdown(replace(EVIDENCE, timeline=Timeline(100.0, kernels)), most=6)
    assert math.isclose(sum(s for _, s in shares), 1.0)
    assert shares[-1] == ("device idle", pytest.approx(0.2)) and ("others", pytest.approx(0.2)) in shares
    assert breakdown(EVIDENCE) == []


def test_bars_are_as_long_as_their_shares() -> None:
    """Twice the share, twice the bar."""
    one, two = bars([("a", 0.25), ("b", 0.5)], 72).splitlines()
    assert two.count("#") == 2 * one.count("#") > 0


def test_units_of_rates() -> None:
    """Three digits and a unit."""
    assert rate_text(4.14e12) == "4.14 Top/s" and rate_text(9e8) == "900 Mop/s" and rate_text(1e15) == "1 Pop/s"
