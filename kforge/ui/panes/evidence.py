"""What is known of a candidate as blocks of text: its report and its profile. The profile pane and the accept dialog
show the same words."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from textual.content import Content

from kforge.environment.report import effort_text
from kforge.ui.panes.entries import COLOURS, milliseconds
from kforge.ui.panes.glyphs import MUTED, Glyphs
from kforge.ui.text import one_line, plain

Report = Mapping[str, Any]
_SEVERITY = {"critical": "$text-error", "major": "$text-warning", "minor": "$text-secondary", "stop": "$text-success"}


def headline(report: Report) -> Content:
    """Status and verdict with what they rest on."""
    status, verdict = str(report.get("status") or ""), str(report.get("verdict") or "")
    parts: list[Content | tuple[str, str]] = [
        (status.replace("_", " ").upper(), "bold " + COLOURS.get(status, "$text-error"))
    ]
    if status == "verified" and verdict:
        parts.append((f" {verdict.upper()}", "bold " + COLOURS.get(verdict, "$text-error")))
    speedup = report.get("speedup")
    if speedup:
        parts.append((" " + speedup_text(speedup, report), ""))
    words = f" on {report.get('target') or 'an unknown target'}, {effort(report)}"
    words += f", {report['precision_class']}" if report.get("precision_class") else ""
    return Content.assemble(*parts, plain(" " + one_line(words, 400)))


def speedup_text(speedup: Mapping[str, Any], report: Report) -> str:
    """`1.53x over compile_default (95 % interval 1.51 to 1.55, noise 0.4 %, confirmed)`."""
    low, high = speedup["ci95"]
    confirmed = "confirmed" if report.get("confirmed") else "provisional"
    return (
        f"{speedup['ratio']:.2f}x over {one_line(str(speedup['vs']))} (95 % interval {low:.2f} to {high:.2f},"
        f" noise {speedup['noise'] * 100:.1f} %, {confirmed})"
    )


def effort(report: Report) -> str:
    """`plan standard (18 of 20 cases; it refuses 2)`."""
    results = report.get("cases") or ()
    dropped = int(report.get("dropped") or 0)
    planned = max(int(report.get("asked") or 0), len(results) + dropped)
    failing = any(not case.get("passed", True) for case in results)
    verified = report.get("status") == "verified"
    return effort_text(str(report.get("plan") or "unknown"), len(results), planned, dropped, failing, verified)


def error_text(report: Report) -> str:
    """The error beside its bound, "" where none was measured."""
    error = report.get("error")
    if not error:
        return ""
    ratio = "exact baseline" if error.get("ratio") is None else f"{error['ratio']:.3g}x the baseline's"
    allowed = f" of {error['allowed']:.3g}x allowed" if error.get("allowed") is not None else ""
    where = f" ({one_line(str(error['where']), 80)})" if error.get("where") else ""
    return f"error {error['candidate_rms']:.3g} RMS, {ratio}{allowed}{where}"


def not_tested(report: Report, most: int = 8) -> list[str]:
    """What was not tested, in words; detectors that did not run are gathered under their reason."""
    others: list[str] = []
    why: dict[str, list[str]] = {}
    for text in report.get("not_tested") or ():
        if text.startswith("detector "):
            name, _, reason = text.removeprefix("detector ").partition(": ")
            why.setdefault(reason, []).append(name)
        else:
            others.append(one_line(_counted(text), 300))
    found = others[:most]
    found += [f"{len(others) - most} more (kforge verify --json names them)"] if len(others) > most else []
    return found + [f"detectors that did not run ({one_line(r, 120)}): {', '.join(n)}" for r, n in why.items()]


_CASES = re.compile(r"variant \d+, [^;:]+(?:; variant \d+, [^;:]+?)+(?: and (\d+) more)?(?=: |$)")


def _counted(text: str) -> str:
    """`30 cases` where a sentence names several: there may be dozens of them under one reason."""
    return _CASES.sub(lambda found: f"{found[0].count('; ') + 1 + int(found[1] or 0)} cases", text)


def table(rows: Sequence[Sequence[tuple[str, str]]], gap: int = 2) -> list[Content]:
    """Rows of (text, style) in columns; the last one keeps its length."""
    cells = [[(one_line(text, 400), style) for text, style in row] for row in rows]
    count = max((len(row) for row in cells), default=0)
    widths = [max((len(row[i][0]) for row in cells if i < len(row) - 1), default=0) for i in range(count)]
    found = []
    for row in cells:
        parts: list[Content] = []
        for i, (text, style) in enumerate(row):
            parts.append(plain(text if i == len(row) - 1 else text.ljust(widths[i] + gap), style))
        found.append(Content.assemble(*parts))
    return found


def gates(report: Report, signs: Glyphs) -> list[Content]:
    """One row a gate, then the detectors: those that fired, how many ran."""
    rows = []
    for gate in report.get("gates") or ():
        passed = gate.get("passed")
        mark = signs.skipped if passed is None else signs.passed if passed else signs.failed
        word = "not run" if passed is None else "passed" if passed else "FAILED"
        style = MUTED if passed is None else "$text-success" if passed else "$text-error"
        seconds = f"{gate['seconds']:.2f} s" if gate.get("seconds") else ""
        detail = str(gate.get("detail") or "").strip().split("\n")[0]
        rows.append([(f"{mark} {gate['name']}", style), (word, style), (seconds, MUTED), (detail, "")])
    detectors = report.get("detectors") or ()
    fired = [d for d in detectors if d.get("fired")]
    for found in fired:
        detail = str(found.get("detail") or "")
        rows.append(
            [(f"{signs.failed} {found['name']}", "$text-error"), ("fired", "$text-error"), ("", ""), (detail, "")]
        )
    lines = table(rows)
    if detectors:
        style = MUTED if not fired else "$text-error"
        lines.append(Content.styled(f"{len(detectors)} detectors ran, {len(fired)} fired", style))
    return lines


def times(report: Report, baselines: Mapping[str, float]) -> list[Content]:
    """Candidate and baselines with the interval of their samples, then the floor and the variants' verdicts."""
    rows = [[("", ""), ("median", MUTED), ("80 % of samples", MUTED), ("as", MUTED)]]
    variants = list(report.get("variants") or ())
    timed: set[str] = set()
    for sample in variants[0].get("samples") or () if variants else ():
        ordered = sorted(float(ms) for ms in sample["ms"])
        if not ordered:
            continue
        low, high = _at(ordered, 0.1), _at(ordered, 0.9)
        name = str(sample["name"])
        timed.add(name)
        style = "bold $text-success" if name == "candidate" else ""
        spread = f"{milliseconds(low)} to {milliseconds(high)}"
        rows.append(
            [
                (name, style),
                (milliseconds(_at(ordered, 0.5)), style),
                (spread, ""),
                (str(sample.get("wrapper") or ""), MUTED),
            ]
        )
    for name, ms in {**baselines, **(report.get("times_ms") or {})}.items():
        if name not in timed:
            rows.append([(str(name), ""), (milliseconds(float(ms)), ""), ("", ""), ("", "")])
    roof = report.get("roofline")
    if roof:
        reached = f"reached {roof['achieved']:.0%}" if roof.get("achieved") is not None else ""
        rows.append([("floor", "$text-secondary"), (milliseconds(float(roof["floor_ms"])), ""), (reached, ""),
                     (f"{roof['bound']} bound, {roof.get('source') or ''}", MUTED)])  # fmt: skip
    lines = table(rows) if len(rows) > 1 else []
    for variant in variants if len(variants) > 1 else ():
        speedup = variant.get("speedup")
        ratio = f" {speedup['ratio']:.2f}x ({speedup['ci95'][0]:.2f} to {speedup['ci95'][1]:.2f})" if speedup else ""
        verdict = str(variant.get("verdict") or "")
        lines.append(Content.assemble(plain(one_line(str(variant["label"])) + " ", MUTED),
                                      (verdict, COLOURS.get(verdict, "$text-error")), ratio))  # fmt: skip
    return lines


def _at(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def costs(report: Report) -> list[Content]:
    """Memory, energy, host time and the rest that stands beside the time of a call."""
    rows = []
    if report.get("memory_ratio") is not None:
        rows.append([("peak memory", ""), (f"{report['memory_ratio']:.2f}x", "bold"), ("of the baseline's", MUTED)])
    found = report.get("costs") or {}
    for name, mj in (found.get("energy_mj") or {}).items():
        rows.append([(f"energy {name}", ""), (f"{mj:.3g} mJ", "bold"), ("a call", MUTED)])
    if found.get("amortised_ms") is not None:
        text = milliseconds(float(found["amortised_ms"]))
        rows.append([("amortised", ""), (text, "bold"), ("finds its derived weights", MUTED)])
    for name, ms in (found.get("warm_ms") or {}).items():
        rows.append([(f"warm L2 {name}", ""), (milliseconds(float(ms)), "bold"), ("", "")])
    for name, us in (found.get("call_us") or {}).items():
        rows.append([(f"host {name}", ""), (f"{us:.0f} us", "bold"), ("until a call returns", MUTED)])
    if found.get("first_call_s"):
        built = f"after {found.get('build_s') or 0:.2f} s of building"
        rows.append([("first call", ""), (f"{found['first_call_s'] * 1e3:.0f} ms", "bold"), (built, MUTED)])
    return table(rows)


def task(facts: Mapping[str, Any]) -> Iterator[Content]:
    """What is known of op.py before anything is proposed."""
    for what in ("inputs", "outputs"):
        if facts.get(what):
            yield plain(f"{what} {one_line(', '.join(map(str, facts[what])), 300)}")
    moved = [f"{what}s {size(facts[f'{what}_bytes'])}" for what in ("read", "write") if facts.get(f"{what}_bytes")]
    work = [f"{count:.3g} {one_line(str(kind))} operations" for kind, count in (facts.get("flops") or {}).items()]
    if moved or work:
        yield plain(f"at least {', '.join([*moved, *work])}")
    if facts.get("operators"):
        yield plain(f"{facts['operators']} PyTorch operators", MUTED)
    for note in list(facts.get("notes") or ())[:4]:
        yield plain(one_line(str(note), 300), "$text-warning")


def size(count: float) -> str:
    """Bytes as a person writes them."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} bytes"


def findings(profile: Mapping[str, Any], most: int = 3) -> Iterator[Content]:
    """At most three, best first, each with what to do."""
    rows = list(profile.get("findings") or ())
    for number, finding in enumerate(rows[:most], 1):
        severity = str(finding.get("severity") or "")
        where = f" in {one_line(str(finding['kernel']), 60)}" if finding.get("kernel") else ""
        gain = list(finding.get("gain") or ())
        words = f"  expected {gain[0]:.2f}x to {gain[1]:.2f}x" if len(gain) == 2 and severity != "stop" else ""
        yield Content.assemble(
            (f"{number}. ", "bold"), plain(one_line(f"{finding.get('title')}{where}", 300), "bold"),
            plain(f" [{one_line(severity)}]", _SEVERITY.get(severity, "")), (words, "$text-success"),
        )  # fmt: skip
        places = ", ".join(f"{file}:{line}" for file, line in finding.get("places") or ())
        for fact in finding.get("evidence") or ():
            yield plain(f"   {one_line(str(fact), 600)}")
        if places:
            yield plain(f"   at {one_line(places, 200)}", "$text-secondary")
        if finding.get("cause"):
            yield plain(f"   because {one_line(str(finding['cause']), 600)}", MUTED)
        for advice in list(finding.get("advice") or ())[:2]:
            yield plain(f"   do: {one_line(str(advice), 600)}")
    left = int(profile.get("left_out") or 0)
    if left:
        yield Content.styled(f"{left} more of less weight", MUTED)
    if not rows:
        yield Content.styled("no tool found a fault", MUTED)


def missing(profile: Mapping[str, Any], signs: Glyphs) -> list[Content]:
    """What could not be looked at, why, and what would help."""
    found = []
    for item in profile.get("missing") or ():
        words = f"{item.get('source')}: {'; '.join(filter(None, (item.get('reason'), item.get('remedy'))))}"
        found.append(plain(f"{signs.skipped} {one_line(words, 400)}", "$text-warning"))
    return found


def kernels(source: Mapping[str, Any]) -> list[Content]:
    """Resources of each kernel, of a profile (`kernels`) or a report (`builds`)."""
    rows = [[(n, MUTED) for n in ("kernel", "registers", "spilled", "shared", "occupancy")]]
    for k in source.get("kernels") or source.get("builds") or ():
        occupancy = "" if k.get("occupancy") is None else f"{k['occupancy']:.0%}"
        occupancy += f" ({k['occupancy_limit']})" if k.get("occupancy_limit") and occupancy else ""
        idle = " (never launched)" if k.get("launches") == 0 else ""
        numbers = ["" if k.get(n) is None else str(k[n]) for n in ("registers", "spill_bytes", "shared")]
        rows.append([(f"{k['name']}{idle}", ""), *((n, "") for n in numbers), (occupancy, "")])
    return table(rows) if len(rows) > 1 else []
