"""A Report and its files for a person: the table, the unified diff from op.py to the new module, the kernel source.

One renderer for terminal and plain text; nothing here judges, and foreign text is never interpreted.
"""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kforge.cli.progress import milliseconds, size
from kforge.cli.text import plain, style, table

if TYPE_CHECKING:
    from kforge.environment.report import Report

_COLOURS = {
    "verified": "green",
    "built": "yellow",
    "faster": "green",
    "same": "yellow",
    "unclear": "yellow",
    "mixed": "yellow",
    "untimed": "yellow",
}


def _number(value: float | None) -> str:
    return "exact" if value is None else f"{value:.3g}"


def headline(report: Report, colour: bool = False) -> str:
    """Status and verdict in one line, with the speed-up, what it is against, and its precision class."""
    status, verdict = report.status.value, report.verdict.value
    text = style(status.upper(), _COLOURS.get(status, "red"), colour)
    if status == "verified":
        text += ", " + style(verdict.upper(), _COLOURS.get(verdict, "red"), colour)
    if report.speedup is not None:
        low, high = report.speedup.ci95
        text += (
            f": {report.speedup.ratio:.2f}x over {plain(report.speedup.vs)}"
            f" (95 % interval {low:.2f} to {high:.2f}, noise {report.speedup.noise * 100:.1f} %)"
        )
    text += f" on {plain(report.target)}, plan {report.plan}"
    return text + (f", {plain(report.precision_class)}" if report.precision_class else "")


def _gates(report: Report) -> list[list[str]]:
    mark = {True: "passed", False: "FAILED", None: "not run"}
    return [
        [f"gate {g.name}", mark[g.passed], f"{g.seconds:.2f} s" if g.seconds else "", g.detail] for g in report.gates
    ]


def _facts(report: Report) -> list[list[str]]:
    rows = []
    if report.error is not None:
        rows.append(
            [
                "error (RMS)",
                _number(report.error.candidate_rms),
                f"baseline {_number(report.error.baseline_rms)}, ratio {_number(report.error.ratio)}",
            ]
        )
    rows += [[f"time {name}", milliseconds(ms), ""] for name, ms in report.times_ms.items()]
    if report.roofline is not None:
        reached = "" if report.roofline.achieved is None else f"reached {report.roofline.achieved * 100:.0f} % of it"
        bound = f"{report.roofline.bound} bound, {report.roofline.source}"
        rows.append(["floor", milliseconds(report.roofline.floor_ms), ", ".join(filter(None, [bound, reached]))])
    if report.memory_ratio is not None:
        rows.append(["peak memory", f"{report.memory_ratio:.2f}x", "of the baseline's"])
    for build in report.builds:
        occupancy = "" if build.occupancy is None else f", occupancy {build.occupancy * 100:.0f} %"
        detail = f"{size(build.shared)} shared, {size(build.spill_bytes)} spilled{occupancy} ({build.arch})"
        rows.append([f"kernel {build.name}", f"{build.registers} registers", detail])
    for variant in report.variants if len(report.variants) > 1 else ():
        ratio = "" if variant.speedup is None else f"{variant.speedup.ratio:.2f}x"
        rows.append([variant.label, variant.verdict.value, ratio])
    return rows


def report_text(report: Report, *, colour: bool = False) -> str:
    """The table of a Report: headline, gates, error, times, floor, kernels, and what a reader must know besides."""
    lines = [headline(report, colour)]
    for rows in (_gates(report), _facts(report)):
        if rows:
            lines.append(table(rows))
    for case in [case for case in report.cases if not case.passed][:3]:
        lines.append(plain(f"  wrong: {case.label}" + (f", output {case.output}" if case.output else "")))
        if case.detail:
            lines.append(plain(f"    {case.detail}"))
    notes = [f"detector {d.name} fired: {d.detail}" for d in report.detectors if d.fired]
    notes += ["vendor calls: " + ", ".join(report.vendor_calls)] if report.vendor_calls else []
    notes += ["degenerate task: the output does not depend on the inputs"] if report.degenerate else []
    notes += ["no room: the baseline runs at the hardware's floor"] if report.no_room else []
    notes += [f"warning: {text}" for text in report.warnings]
    notes += _not_tested(report)
    notes += [f"the failing input is reproduced by {report.repro}"] if report.repro else []
    indent = {"initial_indent": "  ", "subsequent_indent": "    ", "width": 110, "break_on_hyphens": False}
    return "\n".join(lines + [plain(textwrap.fill(note, **indent)) for note in notes])  # type: ignore[arg-type]


def _not_tested(report: Report) -> list[str]:
    """What was not tested, detectors by name alone: their reasons are in the JSON."""
    detectors = [text.removeprefix("detector ").partition(":")[0] for text in report.not_tested if _is_detector(text)]
    others = [text for text in report.not_tested if not _is_detector(text)]
    notes = ["not tested: " + "; ".join(others)] if others else []
    return notes + (["detectors that could not run: " + ", ".join(detectors)] if detectors else [])


def _is_detector(text: str) -> bool:
    return text.startswith("detector ")


def unified_diff(old: str, new: str, old_name: str, new_name: str) -> str:
    """The unified diff between two texts, or the empty string when they are equal."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), old_name, new_name, lineterm="")
    return "\n".join(lines)


def highlight(text: str, name: str, *, colour: bool) -> str:
    """Source text for the terminal: made harmless first, then coloured by pygments by the file's name (or "diff")."""
    text = plain(text)
    if not colour:
        return text
    from pygments import highlight as run
    from pygments.formatters import TerminalFormatter
    from pygments.lexers import CudaLexer, DiffLexer, PythonLexer

    lexers = {"py": PythonLexer, "cu": CudaLexer, "cuh": CudaLexer, "h": CudaLexer, "diff": DiffLexer}
    lexer = lexers.get(name.rsplit(".", 1)[-1])
    return text if lexer is None else run(text, lexer(stripnl=False), TerminalFormatter()).rstrip("\n")


def candidate_text(
    reference: str, reference_name: str, module: str, files: Mapping[str, str], *, colour: bool = False
) -> str:
    """The diff from op.py to the candidate's module, then each other source of the candidate in full."""
    diff = unified_diff(reference, files[module], reference_name, module)
    parts = [highlight(diff, "diff", colour=colour)]
    for name in sorted(files.keys() - {module}):
        parts.append(style(f"--- {plain(name)} ---", "bold", colour))
        parts.append(highlight(files[name].rstrip("\n"), name, colour=colour))
    return "\n".join(parts)
