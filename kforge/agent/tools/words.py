"""A report, a table of attempts in words for a model: what failed first, with which input, and the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kforge.agent.tools.toolbox import clip
from kforge.environment.report import CaseResult, Report, Status

if TYPE_CHECKING:
    from kforge.agent.attempts import Attempt

_DETAIL = 5000
_CASES = 3


def attempt_text(attempt: Attempt) -> str:
    """Everything of one evaluation that helps with the next: status, first failing gate, error, times, resources."""
    report = attempt.report
    parts = [headline(attempt), gates_line(report), *failure_lines(report)]
    parts += [*error_lines(report), *time_lines(report), *kernel_lines(report)]
    parts += [f"detector {d.name} fired: {d.detail}" for d in report.detectors if d.fired]
    if report.vendor_calls:
        parts.append(f"vendor calls: {', '.join(report.vendor_calls)}")
    parts += [f"warning: {warning}" for warning in report.warnings]
    if report.no_room:
        parts.append("no room: the faster baseline runs within 5 % of the hardware's floor")
    if report.degenerate:
        parts.append("the task's output is constant: a speed-up never counts here")
    return "\n".join(part for part in parts if part)


def headline(attempt: Attempt) -> str:
    """Status and verdict in one line."""
    report, node = attempt.report, attempt.node
    words = f"attempt {node.id} ({attempt.candidate.digest}): {report.status.value}"
    if report.status is Status.VERIFIED:
        words += f", {report.verdict.value}" + (f" {ratio_text(report)}" if report.speedup else "")
    elif report.status is Status.BUILT:
        words += ", and cannot run here"
    return f"{words} [plan {report.plan}, {report.target}]"


def ratio_text(report: Report) -> str:
    """The speed-up with its interval; "untimed" without one."""
    s = report.speedup
    if s is None:
        return "untimed"
    sure = "" if report.confirmed else ", provisional"
    return f"{s.ratio:.3f}x over {s.vs} (95 % {s.ci95[0]:.3f} to {s.ci95[1]:.3f}, noise {s.noise:.3f}{sure})"


def gates_line(report: Report) -> str:
    """Each gate with ok, FAILED, or not run and why."""
    words = []
    for gate in report.gates:
        state = "ok" if gate.passed else "FAILED" if gate.passed is False else f"not run ({gate.detail})"
        words.append(f"{gate.name} {state}")
    return "gates: " + ", ".join(words) if words else ""


def failure_lines(report: Report) -> list[str]:
    """The first failing gate in full, compiler lines included, and the inputs that it failed on."""
    gate = next((gate for gate in report.gates if gate.passed is False), None)
    if gate is None:
        return []
    failing = [case for case in report.cases if not case.passed]
    lines = [f"gate {gate.name}: {clip(gate.detail.strip(), _DETAIL)}"]
    lines += [case_text(case, gate.detail) for case in failing[:_CASES]]
    if failing:
        passed = sum(case.passed for case in report.cases)
        lines.append(f"{passed} cases passed before it, of {report.planned} planned; the rest did not run")
    return lines


def case_text(case: CaseResult, told: str = "") -> str:
    """One failing input: its label, the output, both errors, the reason unless it was told."""
    words = f"failing input: {case.label}" + (f"; output {case.output}" if case.output else "")
    if case.candidate_rms is not None:
        words += f"; RMS error {case.candidate_rms:.3g}"
        words += f" (baseline {case.baseline_rms:.3g})" if case.baseline_rms is not None else ""
    if case.candidate_max is not None:
        words += f"; largest {case.candidate_max:.3g}"
        words += f" (baseline {case.baseline_max:.3g})" if case.baseline_max is not None else ""
    return words + (f": {clip(case.detail, 1000)}" if case.detail and case.detail not in told else "")


def error_lines(report: Report) -> list[str]:
    """The error against fp64 beside the baseline's, where it was measured."""
    e = report.error
    if e is None:
        return []
    ratio = "baseline exact" if e.ratio is None else f"ratio {e.ratio:.3g}"
    bound = "" if e.allowed is None else f", allowed {e.allowed:.3g}"
    where = f" at {e.where}" if e.where else ""
    kind = f" [{report.precision_class}]" if report.precision_class else ""
    return [f"error: RMS {e.candidate_rms:.3g}, baseline {e.baseline_rms:.3g}: {ratio}{bound}{where}{kind}"]


def time_lines(report: Report) -> list[str]:
    """Times in ms, the variants' verdicts, the roofline; that there are none where nothing was timed."""
    if report.status is Status.VERIFIED and not report.times_ms:
        return ["times: untimed; only a GPU can tell speed"]
    lines = []
    if report.times_ms:
        lines.append("times: " + ", ".join(f"{name} {ms:.4g} ms" for name, ms in report.times_ms.items()))
    if len(report.variants) > 1:
        for variant in report.variants:
            ratio = f" {variant.speedup.ratio:.3f}x over {variant.speedup.vs}" if variant.speedup else ""
            lines.append(f"  {variant.label}: {variant.verdict.value}{ratio}")
    if report.roofline is not None:
        r = report.roofline
        share = "" if r.achieved is None else f", {r.achieved:.0%} of it achieved"
        lines.append(f"roofline: {r.bound} bound, floor {r.floor_ms:.4g} ms ({r.source}){share}")
    if report.memory_ratio is not None:
        lines.append(f"memory: {report.memory_ratio:.2f} times the baseline's peak")
    return lines


def kernel_lines(report: Report) -> list[str]:
    """What the compiler says of each kernel."""
    lines = []
    for b in report.builds:
        words = f"kernel {b.name}: {b.registers} registers, {b.shared} B shared, {b.spill_bytes} B spilled"
        words += f", {b.stack} B stack" if b.stack else ""
        words += f", occupancy {b.occupancy:.0%}" if b.occupancy is not None else ""
        words += f" [{', '.join(f'{k}={v}' for k, v in b.constants.items())}]" if b.constants else ""
        words += ", never launched" if b.launches == 0 else ""
        lines.append(words)
    return lines


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def side_by_side(named: Iterable[tuple[str, Attempt]]) -> str:
    """A row an attempt: status, time, speed-up, error ratio, resources, what failed."""
    rows = [["variant", "attempt", "status", "ms", "speed-up", "error", "registers", "spilled", "shared", "failure"]]
    for name, attempt in named:
        report = attempt.report
        ms = report.times_ms.get("candidate")
        builds = report.builds
        rows.append(
            [
                name,
                str(attempt.node.id),
                report.status.value + (f" {report.verdict.value}" if attempt.verified else ""),
                "untimed" if ms is None else f"{ms:.4g}",
                f"{report.speedup.ratio:.3f}" if report.speedup else "",
                f"{report.error.ratio:.3g}" if report.error and report.error.ratio is not None else "",
                "/".join(str(b.registers) for b in builds[:4]),
                "/".join(str(b.spill_bytes) for b in builds[:4]),
                "/".join(str(b.shared) for b in builds[:4]),
                report.failure.strip().partition("\n")[0][:160] if not attempt.verified else "",
            ]
        )
    return table(rows)
