"""A Report and its files for a person: the table, the unified diff from op.py to the new module, the kernel source.

One renderer for terminal and plain text; nothing here judges, and foreign text is never interpreted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kforge.cli.progress import gist, milliseconds, size
from kforge.cli.text import fill, plain, style, table

if TYPE_CHECKING:
    from kforge.environment.report import Error, Report

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


def _ratio(error: Error) -> str:
    """`ratio 2.89 of 8 allowed (x0.01, shape prime)`."""
    allowed = "" if error.allowed is None else f" of {_number(error.allowed)} allowed"
    return f"ratio {_number(error.ratio)}{allowed}" + (f" ({plain(error.where)})" if error.where else "")


def headline(report: Report) -> str:
    """Status and verdict in one line, with the speed-up, what it is against, how much was tried, and its class."""
    text = report.status.value.upper()
    if report.status.value == "verified":
        text += f", {report.verdict.value.upper()}"
    if report.speedup is not None:
        low, high = report.speedup.ci95
        text += (
            f": {report.speedup.ratio:.2f}x over {plain(report.speedup.vs)}"
            f" (95 % interval {low:.2f} to {high:.2f}, noise {report.speedup.noise * 100:.1f} %,"
            f" {'confirmed' if report.confirmed else 'provisional'})"
        )
    text += f" on {plain(report.target)}, {report.effort}"
    return text + (f", {plain(report.precision_class)}" if report.precision_class else "")


def closing(report: Report, exit_code: int, files: Sequence[str] = (), run: str = "") -> str:
    """The last line of a command that judged: status, verdict, how much was tried, what was written, the run."""
    verdict = f", {report.verdict.value}" if report.status.value == "verified" else ""
    parts = [f"{report.status.value}{verdict}, {report.effort}"]
    parts += [f"wrote {', '.join(files)}"] if files else []
    parts += [f"run {run}"] if run else []
    return "; ".join([*parts, f"exit code {exit_code}"])


def _painted(text: str, report: Report, colour: bool) -> str:
    for value in (report.status.value, report.verdict.value):
        text = text.replace(value.upper(), style(value.upper(), _COLOURS.get(value, "red"), colour), 1)
    return text


def _gates(report: Report) -> list[list[str]]:
    mark = {True: "passed", False: "FAILED", None: "not run"}
    return [
        [f"gate {g.name}", mark[g.passed], f"{g.seconds:.2f} s" if g.seconds else "", gist(g.detail)]
        for g in report.gates
    ]


def _logs(report: Report) -> list[str]:
    """What a gate says in several lines (a compiler's errors, a traceback), but for the line that is in the table."""
    found = []
    for gate in report.gates:
        if "\n" in gate.detail.strip():
            lines = plain(gate.detail.strip()).splitlines()
            lines = lines[1:] if gist(gate.detail) == gate.detail.strip().splitlines()[0] else lines[:-1]
            found += [f"  gate {gate.name} said:", *(f"    {line.rstrip()}" for line in lines)]
    return found


def _facts(report: Report) -> list[list[str]]:
    rows = []
    if report.error is not None:
        rows.append(
            [
                "error (RMS)",
                _number(report.error.candidate_rms),
                f"baseline {_number(report.error.baseline_rms)}, {_ratio(report.error)}",
            ]
        )
    rows += [[f"time {name}", milliseconds(ms), ""] for name, ms in report.times_ms.items()]
    if report.roofline is not None:
        reached = "" if report.roofline.achieved is None else f"reached {report.roofline.achieved * 100:.0f} % of it"
        bound = f"{report.roofline.bound} bound, {report.roofline.source}"
        rows.append(["floor", milliseconds(report.roofline.floor_ms), ", ".join(filter(None, [bound, reached]))])
    rows += _costs(report)
    if report.memory_ratio is not None:
        rows.append(["peak memory", f"{report.memory_ratio:.2f}x", "of the baseline's"])
    for build in report.builds:
        occupancy = "" if build.occupancy is None else f", occupancy {build.occupancy * 100:.0f} %"
        detail = f"{size(build.shared)} shared, {size(build.spill_bytes)} spilled{occupancy} ({build.arch})"
        never = "never launched: " if build.launches == 0 else ""
        rows.append([f"kernel {build.name}", f"{build.registers} registers", never + detail])
    for variant in report.variants if len(report.variants) > 1 else ():
        ratio = "" if variant.speedup is None else f"{variant.speedup.ratio:.2f}x"
        rows.append([variant.label, variant.verdict.value, ratio])
    return rows


def _costs(report: Report) -> list[list[str]]:
    """What stands beside the time: the whole step, calls that find L2 warm, the host's part, the first call, energy."""
    rows = []
    if report.context is not None:
        low, high = report.context.ci95
        rows.append(["whole step", f"{report.context.ratio:.3f}x", f"95 % interval {low:.3f} to {high:.3f}"])
    costs = report.costs
    if costs is None:
        return rows
    if costs.amortised_ms is not None:
        rows.append(["amortised", milliseconds(costs.amortised_ms), "a call that finds its derived weights"])
    rows += [[f"warm L2 {name}", milliseconds(ms), ""] for name, ms in costs.warm_ms.items()]
    host = {name: f"{us:.0f} us" for name, us in costs.call_us.items()}
    if host:
        own = host.pop("candidate", "")
        rows.append(["call on the host", own, ", ".join(f"{name} {us}" for name, us in host.items())])
    rows += [[f"energy {name}", f"{mj:.3g} mJ", "per call"] for name, mj in costs.energy_mj.items()]
    rows.append(["first call", f"{costs.first_call_s * 1e3:.0f} ms", f"after {costs.build_s:.2f} s of building"])
    return rows


def report_text(report: Report, *, colour: bool = False, columns: int = 80) -> str:
    """The table of a Report: headline, gates, error, times, floor, kernels, and what a reader must know besides."""
    lines = [_painted(fill(headline(report), columns, hang="  "), report, colour)]
    lines += [table(_gates(report), columns=columns)] if report.gates else []
    lines += _logs(report)
    facts = _facts(report)
    lines += [table(facts, columns=columns)] if facts else []
    for case in [case for case in report.cases if not case.passed][:3]:
        lines.append(fill(f"wrong: {case.label}" + (f", output {case.output}" if case.output else ""), columns, "  "))
        if case.detail:
            lines.append(fill(case.detail, columns, "    ", ""))
    notes = [f"detector {d.name} fired: {d.detail}" for d in report.detectors if d.fired]
    if report.backward is not None:
        notes.append(f"gradients of {', '.join(report.backward.gradients)} judged: {', '.join(report.backward.judged)}")
    notes += ["under the rules: " + ", ".join(report.rules)] if report.rules else []
    notes += _never_launched(report)
    notes += ["vendor calls: " + ", ".join(report.vendor_calls)] if report.vendor_calls else []
    notes += ["degenerate task: the output does not depend on the inputs"] if report.degenerate else []
    notes += ["no room: the baseline runs at the hardware's floor"] if report.no_room else []
    notes += [f"warning: {text}" for text in report.warnings]
    notes += _not_tested(report)
    notes += [f"the failing input is reproduced by {report.repro}"] if report.repro else []
    return "\n".join(lines + [fill(note, columns, "  ", "  ") for note in notes])


def _never_launched(report: Report) -> list[str]:
    names = [build.name for build in report.builds if build.launches == 0]
    return [f"never launched in any case, so not judged: {', '.join(names)}"] if names else []


def _not_tested(report: Report) -> list[str]:
    """What was not tested, cases counted under their reasons; detectors that did not run are gathered under theirs."""
    told = "never launched: "  # has a line of its own
    others = [_counted(text) for text in report.not_tested if not _is_detector(text) and not text.startswith(told)]
    why: dict[str, list[str]] = {}
    # Of a candidate that failed nobody asks what else could not be looked at; --json has it.
    for text in filter(_is_detector, report.not_tested if report.status.value == "verified" else ()):
        name, _, reason = text.removeprefix("detector ").partition(": ")
        why.setdefault(reason, []).append(name)
    notes = [f"not tested: {text}" for text in _impossible(others)]
    return notes + [f"detectors that did not run ({reason}): {', '.join(names)}" for reason, names in why.items()]


_CASES = re.compile(r"variant \d+, [^;:]+(?:; variant \d+, [^;:]+?)+(?: and (\d+) more)?(?=: |$)")


def _counted(text: str) -> str:
    """The text with `30 cases` where it names several: under one reason there may be dozens. --json names them."""
    return _CASES.sub(lambda found: f"{found[0].count('; ') + 1 + int(found[1] or 0)} cases", text)


_CANNOT = re.compile(
    r"(?:(\d+) cases|variant .+?): (?:no size of the inputs can be|no input can be|the reference rejects shape) (\w+)"
)


def _impossible(texts: list[str]) -> list[str]:
    """What these inputs cannot have is one line in the place of one for each kind; where it is one kind, as it was."""
    found = {text: match for text in texts if (match := _CANNOT.fullmatch(text))}
    if len(found) < 2:
        return texts
    cases = sum(int(match[1] or 1) for match in found.values())
    kinds = ", ".join(dict.fromkeys(match[2] for match in found.values()))
    return [f"{cases} cases of shapes or layouts that these inputs cannot have: {kinds}"] + [
        text for text in texts if text not in found
    ]


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
