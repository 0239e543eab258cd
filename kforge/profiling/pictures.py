"""The roofline and the time breakdown as text for a terminal and as a drawing. Pure functions of Evidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kforge.profiling.drawing import Box, Circle, Drawing, Label, Line
from kforge.profiling.evidence import Evidence

OTHERS = "others"


@dataclass(frozen=True)
class Point:
    """A mark: operations a byte, operations a second. measured: achieved, else a bound."""

    label: str
    intensity: float
    rate: float
    measured: bool


@dataclass(frozen=True)
class Roof:
    """The roofline of one task: bytes/s, operations/s of the kind that binds, and what is marked under it."""

    bandwidth: float
    peak: float
    kind: str
    source: str
    points: tuple[Point, ...]

    @property
    def ridge(self) -> float:
        """Operations a byte from which arithmetic binds."""
        return self.peak / self.bandwidth

    def rate(self, intensity: float) -> float:
        """The most operations a second at an intensity."""
        return min(self.peak, intensity * self.bandwidth)


def roof(evidence: Evidence) -> Roof | None:
    """None where nothing is counted (no stage one, or a task without operations)."""
    stage, counted = evidence.stage, evidence.counted
    operations = sum(n for kind, n in counted.items() if not kind.endswith("bytes"))
    total = counted.get("read_bytes", 0.0) + counted.get("write_bytes", 0.0)
    if stage is None or not operations or not total:
        return None
    kinds = {k: n for k, n in counted.items() if not k.endswith("bytes") and k in (*evidence.rates, "tensor")}
    kind = max(kinds, key=lambda k: kinds[k], default="fp32")
    peak = evidence.rates.get(kind) or evidence.rates.get("fp16" if kind == "tensor" else "fp32") or 1e12
    bandwidth = total / (stage.memory_us * 1e-6) if stage.memory_us else evidence.rates["read"]
    intensity = operations / total
    points = [Point("floor", intensity, min(peak, intensity * bandwidth), False)]
    for name, us in sorted(stage.baselines_us.items()):
        points.append(Point(name, intensity, operations / (us * 1e-6), True))
    if stage.candidate_us:
        points.append(Point("candidate", intensity, operations / (stage.candidate_us * 1e-6), True))
    return Roof(bandwidth, peak, kind, stage.source, tuple(points))


def _span(picture: Roof) -> tuple[float, float, float, float]:
    """Logarithms of what is shown: intensities from, to; rates from, to."""
    xs = [math.log10(p.intensity) for p in picture.points] + [math.log10(picture.ridge)]
    ys = [math.log10(p.rate) for p in picture.points] + [math.log10(picture.peak)]
    return math.floor(min(xs) - 0.5), math.ceil(max(xs) + 0.5), math.floor(min(ys) - 0.3), math.ceil(max(ys) + 0.1)


def rate_text(rate: float) -> str:
    """Operations a second in a unit that reads well."""
    for unit, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if rate >= scale:
            return f"{rate / scale:.3g} {unit}op/s"
    return f"{rate:.3g} op/s"


def text(picture: Roof, columns: int = 72, rows: int = 14) -> str:
    """The roofline in characters, both axes logarithmic."""
    left, right, low, high = _span(picture)
    width, height = max(24, columns - 12), max(6, rows)
    grid = [[" "] * width for _ in range(height)]

    def place(x: float, y: float) -> tuple[int, int]:
        column = round((x - left) / (right - left) * (width - 1))
        row = round((high - y) / (high - low) * (height - 1))
        return min(height - 1, max(0, row)), column

    for column in range(width):
        x = left + (right - left) * column / (width - 1)
        y = math.log10(picture.rate(10**x))
        if y >= low:
            row, _ = place(x, y)
            grid[row][column] = "_" if 10**x > picture.ridge else "/"
    marks = []
    for number, point in enumerate(picture.points):
        mark = "o" if not point.measured else chr(ord("a") + number - 1)
        row, column = place(math.log10(point.intensity), math.log10(point.rate))
        grid[row][column] = mark
        share = point.rate / picture.points[0].rate
        marks.append(f"{mark} {point.label} {rate_text(point.rate)}" + (f" ({share:.0%})" if point.measured else ""))
    lines = []
    for row in range(height):
        exponent = high - (high - low) * row / (height - 1)
        lines.append(f"{rate_text(10**exponent):>10} |" + "".join(grid[row]).rstrip())
    lines.append(f"{'':>10} +" + "-" * width)
    first, last = f"{10.0**left:g}", f"{10.0**right:g} op/byte"
    lines.append(f"{'':>12}{first}{last:>{width - len(first)}}")
    lines.append(f"{'':>12}{'   '.join(marks)}")
    return "\n".join(lines)


def drawing(picture: Roof, title: str = "", shares: Sequence[tuple[str, float]] = ()) -> Drawing:
    """The roofline 640 wide, with a bar for each share of a call's time below it, to be written as SVG or PNG.

    Colours that are told apart by everyone.
    """
    left, right, low, high = _span(picture)
    width, height, x0, y0 = 640, 420 + (24 * len(shares) + 16 if shares else 0), 78, 44
    w, h = width - x0 - 24, 420 - y0 - 56
    drawn = Drawing(width, height)
    add = drawn.shapes.append

    def at(intensity: float, rate: float) -> tuple[float, float]:
        x = x0 + (math.log10(intensity) - left) / (right - left) * w
        return round(x, 1), round(y0 + (high - math.log10(rate)) / (high - low) * h, 1)

    add(Label((x0, 22), title, size=14))
    for x in range(int(left), int(right) + 1):
        column, _ = at(10.0**x, 10.0**low)
        add(Line(((column, y0), (column, y0 + h)), "#dddddd"))
        add(Label((column, y0 + h + 16), f"{10.0**x:g}", anchor="middle"))
    for y in range(int(low), int(high) + 1):
        _, row = at(10.0**left, 10.0**y)
        add(Line(((x0, row), (x0 + w, row)), "#dddddd"))
        add(Label((x0 - 6, row + 4), rate_text(10.0**y), anchor="end"))
    add(Label((x0 + w / 2, 420 - 14), "operations a byte", anchor="middle"))
    start = max(10.0**left, 10.0**low / picture.bandwidth)
    corners = at(start, picture.rate(start)), at(picture.ridge, picture.peak), at(10.0**right, picture.peak)
    add(Line(corners, "#333333", 2))
    roof_text = f"{picture.kind} {rate_text(picture.peak)}, {picture.bandwidth / 1e12:.3g} TB/s ({picture.source})"
    add(Label((corners[2][0], corners[2][1] - 6), roof_text, anchor="end"))
    spots = [at(point.intensity, point.rate) for point in picture.points]
    heights = _apart([y for _, y in spots], 14)
    for number, (point, (mx, my), label_y) in enumerate(zip(picture.points, spots, heights, strict=True)):
        colour = _COLOURS[number % len(_COLOURS)]
        add(Circle((mx, my), 5, colour if point.measured else "#ffffff", colour))
        add(Label((mx + 9, label_y + 4), f"{point.label} {rate_text(point.rate)}", colour))
    for number, (name, share) in enumerate(shares):
        top = 424 + 24 * number
        add(Box((x0, top), (round(share * w, 1), 18), "#b8d4e8"))
        add(Label((x0 + 6, top + 13), name[:60]))
        add(Label((x0 - 6, top + 13), f"{share:.1%}", anchor="end"))
    return drawn


_COLOURS = ("#333333", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")


def _apart(heights: Sequence[float], least: float) -> list[float]:
    """The same heights, moved down where two would be closer than `least`."""
    moved = list(heights)
    last = -math.inf
    for i in sorted(range(len(moved)), key=lambda i: moved[i]):
        moved[i] = last = max(moved[i], last + least)
    return moved


def breakdown(evidence: Evidence, most: int = 6) -> list[tuple[str, float]]:
    """(name, share of a call's wall time) of the longest kernels, the others together, and the idle device."""
    line = evidence.timeline
    if line is None or not line.wall_us:
        return []
    whole = max(line.wall_us, line.device_us)
    ranked = sorted(line.kernels, key=lambda row: -row[1])
    found = [(name, us / whole) for name, us, _ in ranked[:most]]
    rest = sum(us for _, us, _ in ranked[most:])
    found += [(OTHERS, rest / whole)] if rest else []
    return [*found, ("device idle", line.idle)] if line.idle > 0.005 else found


def bars(rows: Sequence[tuple[str, float]], columns: int = 72) -> str:
    """Shares as bars of text."""
    name_width = min(40, max((len(name) for name, _ in rows), default=0))
    room = max(10, columns - name_width - 10)
    return "\n".join(
        f"  {name[:name_width]:<{name_width}} {share:6.1%} {'#' * round(share * room)}".rstrip() for name, share in rows
    )
