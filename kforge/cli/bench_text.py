"""Tables of `kforge bench` for a person: results, figures of all and of each class, what became worse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kforge.cli.progress import milliseconds
from kforge.cli.text import plain, style, table
from kforge.environment.suite import ratio_over

if TYPE_CHECKING:
    from kforge.environment.regression import Change
    from kforge.environment.suite import Row

HEAD = ["", "status", "verdict", "speed-up", "95 % interval", "over eager", "candidate", "memory", "error ratio"]
_GOOD, _BAD = {"verified", "faster"}, {"slower", "wrong", "hacked", "error", "crashed", "rejected", "build_failed"}


def table_text(rows: Sequence[Row], several: bool, *, colour: bool = False) -> str:
    """One line a result, in the order given; a column "where" when there were several workers. Then why, below."""
    timed = any(row.report and row.report.speedup for row in rows)
    head = HEAD if timed else [*HEAD[:2], HEAD[-1]]
    cells = [head + (["where"] if several else [])]
    for row in rows:
        line = _cells(row) if timed else [row.name, row.status, _error_ratio(row)]
        cells.append(line + ([f"{row.target} ({row.worker})" if row.target else row.worker] if several else []))
    lines = table(cells, indent="").splitlines()
    shown = [lines[0]] + [_coloured(line, row, colour) for line, row in zip(lines[1:], rows, strict=True)]
    return "\n".join(shown + _why(rows))


def _cells(row: Row) -> list[str]:
    report = row.report
    if report is None:
        return [row.name, row.status, *[""] * 7]
    speedup = report.speedup
    eager = ratio_over(report, "eager")
    return [
        row.name,
        row.status,
        report.verdict.value,
        "" if speedup is None else f"{speedup.ratio:.2f}x {speedup.vs}",
        "" if speedup is None else f"{speedup.ci95[0]:.2f} to {speedup.ci95[1]:.2f}",
        "" if eager is None else f"{eager:.2f}x",
        milliseconds(report.times_ms["candidate"]) if "candidate" in report.times_ms else "",
        "" if report.memory_ratio is None else f"{report.memory_ratio:.2f}x",
        _error_ratio(row),
    ]


def _error_ratio(row: Row) -> str:
    error = row.report.error if row.report else None
    if error is None:
        return ""
    return "exact baseline" if error.ratio is None else f"{error.ratio:.2f}"


def _coloured(line: str, row: Row, colour: bool) -> str:
    words = {row.status, row.report.verdict.value if row.report else ""}
    if words & _BAD:
        return style(line, "red", colour)
    return style(line, "green", colour) if words >= _GOOD else line


def _why(rows: Sequence[Row]) -> list[str]:
    """For each result that is not verified, the first line of what failed."""
    found = []
    for row in rows:
        if row.status == "verified":
            continue
        words = row.error or (row.report.failure if row.report else "")
        first = next((line for line in words.splitlines() if line.strip()), "no gate says why")
        found.append(plain(f"  {row.name}: {first}"[:300]))
    return found


def statistics_text(figures: Mapping[str, Mapping[str, Any]]) -> str:
    """Figures of all, and of each class below."""
    rows = []
    for name, item in figures.items():
        row = [name, f"{item['verified']} of {item['count']} verified"]
        if item["timed"]:
            row += [f"geomean {item['geomean']:.3f}x", f"median {item['median']:.3f}x"]
            row += [f"{item['outside_noise'] * 100:.0f} % outside noise"]
            over = item.get("geomean_over_eager")
            row += [f"geomean over eager {over:.3f}x" if over else ""]
        else:
            row += ["untimed", "", "", ""]
        rows.append(row)
    return table(rows, indent="")


def changes_text(changes: Sequence[Change], path: str, *, colour: bool = False) -> str:
    """What differs from the saved run, regressions first."""
    regressions = [change for change in changes if change.regression]
    lines = []
    for change in changes:
        line = plain(f"  {'REGRESSION ' if change.regression else ''}{change.kind} {change.name}: {change.detail}")
        lines.append(style(line, "red", colour and change.regression))
    verdict = f"{len(regressions)} confirmed regressions" if regressions else "no regression"
    return "\n".join([f"against {plain(path)}: {verdict}", *lines])
