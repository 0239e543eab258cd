"""A profile for a person: class and room, kernels, findings, roofline, what is missing; sources with figures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kforge.cli.text import fill, plain, style, table
from kforge.profiling.evidence import Kind

if TYPE_CHECKING:
    from kforge.profiling.annotate.lines import Annotated, SassRow
    from kforge.profiling.evidence import Evidence, Missing, Power, StageOne
    from kforge.profiling.feedback import Feedback

_SEVERITY = {"stop": "green", "critical": "red", "major": "yellow", "minor": "cyan"}


def report(evidence: Evidence, feedback: Feedback, *, columns: int = 80, colour: bool = False) -> str:
    """Everything of a profile but its lines."""
    from kforge.profiling import pictures
    from kforge.profiling.feedback import Mode

    parts = [headline(evidence, colour)]
    if evidence.stage is not None:
        parts += [fill(line, columns, "  ") for line in stage_lines(evidence.stage)]
    if evidence.power is not None and (words := power_text(evidence.power)):
        parts.append(fill(words, columns, "  "))
    if evidence.kernels:
        parts += ["", kernels(evidence, columns)]
    if feedback.mode is Mode.TOOLS and evidence.kernels:
        parts += ["", *findings(feedback, columns, colour)]
    elif feedback.mode is Mode.RAW:
        rows = [[k, name, f"{value:.6g}"] for k, name, value in feedback.counters]
        parts += ["", table(rows, columns=columns) if rows else "no counters were read"]
    picture = pictures.roof(evidence)
    if picture is not None:
        parts += ["", pictures.text(picture, min(columns, 100))]
    if shares := pictures.breakdown(evidence):
        parts += ["", "where a call's time goes", pictures.bars([(plain(n), s) for n, s in shares], min(columns, 100))]
    if evidence.timeline is not None:
        parts += [
            fill(f"gap of {us:.3g} us: {plain(a)} to {plain(b)}", columns, "  ") for a, b, us in named_gaps(evidence)
        ]
    if evidence.missing:
        parts += ["", *(fill(line, columns, "  ") for line in missing(evidence.missing))]
    seconds = ", ".join(f"{name} {s:.2g} s" for name, s in evidence.seconds.items())
    return "\n".join([*parts, *(["", fill(f"took {seconds}", columns, "  ")] if seconds else [])])


def missing(items: Iterable[Missing]) -> list[str]:
    """What could not be looked at, those of one reason together."""
    sources: dict[tuple[str, str], list[str]] = {}
    for item in items:
        sources.setdefault((item.reason, item.remedy), []).append(item.source)
    return [
        f"missing: {', '.join(names)}: {'; '.join(filter(None, (reason, remedy)))}"
        for (reason, remedy), names in sources.items()
    ]


def headline(evidence: Evidence, colour: bool = False) -> str:
    """Task, target, class and room in one line."""
    words = f"{evidence.task} on {evidence.target}"
    stage = evidence.stage
    if stage is None:
        return style(plain(f"{words}: nothing could be counted"), "bold", colour)
    words += f": {stage.kind.value} bound"
    if stage.kind is Kind.LATENCY:
        words += ", a launch takes longer than the work"
        if stage.over_launch is not None:
            words += f", headroom {stage.over_launch:.2f}x ({stage.fastest} over one launch)"
    elif stage.headroom is not None:
        words += f", headroom {stage.headroom:.2f}x ({stage.fastest} over the floor)"
    if stage.no_room:
        words += ", no room: keep PyTorch"
    return style(plain(words), "bold", colour)


def stage_lines(stage: StageOne) -> list[str]:
    """The numbers behind the class."""
    terms = f"memory {time_text(stage.memory_us)}, arithmetic {time_text(stage.compute_us)} at full rate"
    limits, launch = f"{stage.ceilings}, {stage.source}", time_text(stage.launch_us)
    if stage.kind is Kind.LATENCY:
        lines = [f"one launch takes {launch} at least, the work in it {time_text(stage.floor_us)} ({terms}; {limits})"]
    else:
        lines = [f"floor {time_text(stage.floor_us)}: {terms} ({limits}); one launch takes {launch}"]
    if stage.baselines_us:
        times = ", ".join(f"{name} {time_text(us)}" for name, us in sorted(stage.baselines_us.items()))
        lines.append(f"baselines: {times}")
    elif stage.headroom_reason:
        lines.append(f"headroom unknown: {stage.headroom_reason}")
    if stage.candidate_us and stage.kind is Kind.LATENCY:
        lines.append(f"candidate {time_text(stage.candidate_us)}, {stage.candidate_us / stage.launch_us:.2g} launches")
    elif stage.candidate_us and stage.achieved:
        lines.append(f"candidate {time_text(stage.candidate_us)}, {stage.achieved:.0%} of the floor")
    return lines + [f"note: {note}" for note in stage.notes]


def named_gaps(evidence: Evidence) -> list[tuple[str, str, float]]:
    """The three longest gaps by bare names, where the device waits for over a tenth of a call."""
    from kforge.profiling.evidence import plain_name
    from kforge.profiling.sources.timeline import WAITING

    line = evidence.timeline
    if line is None or line.idle < WAITING:
        return []
    return [(plain_name(a), plain_name(b), us) for a, b, us in line.gaps[:3]]


def power_text(power: Power) -> str:
    """Energy of a call, power, clocks and what holds them down; empty where nothing was read."""
    words = []
    if power.mj is not None:
        beside = f" (eager {power.baseline_mj:.3g} mJ)" if power.baseline_mj else ""
        words.append(f"{power.mj:.3g} mJ a call{beside}")
    if power.watts is not None:
        words.append(f"{power.watts:.0f} W")
    if power.sm_mhz:
        words.append(f"{power.sm_mhz} MHz" + (f" of {power.max_sm_mhz}" if power.max_sm_mhz else ""))
    words += [f"held down by: {', '.join(power.throttle)}"] if power.throttle else []
    return f"power: {', '.join(words)}" if words else ""


def time_text(us: float) -> str:
    """A duration in a unit that reads well."""
    return f"{us / 1e3:.3g} ms" if us >= 1e3 else f"{us:.3g} us"


def kernels(evidence: Evidence, columns: int) -> str:
    """A row a kernel."""
    rows = [["kernel", "time", "grid", "block", "registers", "spilled", "shared", "occupancy"]]
    for k in evidence.kernels:
        occupancy = "" if k.occupancy is None else f"{k.occupancy:.0%} ({k.occupancy_limit})"
        idle = "" if k.launches else " (not launched)"
        time = "" if k.us is None or not k.launches else time_text(k.us)
        time += f" x {k.launches}" if k.launches > 1 else ""
        sizes = ["" if dim is None else " x ".join(str(n) for n in _trimmed(dim)) for dim in (k.grid, k.block)]
        numbers = ["" if n is None else str(n) for n in (k.registers, k.spill_bytes, k.shared)]
        rows.append([k.name + idle, time, *sizes, *numbers, occupancy])
    kept = [i for i in range(len(rows[0])) if any(row[i] for row in rows[1:])]  # the emulator has no times
    return table([[row[i] for i in kept] for row in rows], columns=columns)


def _trimmed(dim: tuple[int, int, int]) -> tuple[int, ...]:
    x, y, z = dim
    return (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)


def findings(feedback: Feedback, columns: int, colour: bool) -> list[str]:
    """At most three, best first."""
    from kforge.profiling.feedback import gain_text

    if not feedback.findings:
        return ["no tool found a fault"]
    lines: list[str] = []
    for number, ranked in enumerate(feedback.findings, 1):
        f = ranked.finding
        where = f" in {plain(f.kernel)}" if f.kernel else ""
        mark = style(f.severity.value, _SEVERITY[f.severity.value], colour)
        lines.append(f"{number}. {f.title}{where} [{mark}] expected {gain_text(f)}")
        lines += [fill(fact, columns, "   ") for fact in f.evidence]
        at = f" (at {', '.join(f'{file}:{line}' for file, line in f.places)})" if f.places else ""
        lines.append(fill(f"cause: {f.cause}{at}", columns, "   "))
        lines += [fill(f"{'do' if i == 0 else 'or'}: {advice}", columns, "   ") for i, advice in enumerate(f.advice)]
    if feedback.left_out:
        lines.append(f"{feedback.left_out} more of less weight")
    return lines


def source(
    annotated: Annotated, text: str, metric: str | None = None, *, colour: bool = False, sass: bool = False
) -> str:
    """A source with one metric beside each line; the hottest three are marked. sass: their instructions below them."""
    from kforge.cli.render import highlight
    from kforge.profiling.annotate.lines import METRICS

    chosen = metric or next(iter(annotated.metrics), None)
    if chosen is None or chosen not in annotated.metrics:
        return f"--- {plain(annotated.file)}: no figures{f' of {metric}' if metric else ''} ---"
    hot = set(annotated.hottest(chosen)[:3])
    title = METRICS[chosen]
    others = ", ".join(name for name in annotated.metrics if name != chosen)
    lines = [f"--- {plain(annotated.file)}: {title.title} ({title.unit}); also: {others} ---"]
    shown = highlight(text, annotated.file, colour=colour).split("\n")
    for number, line in enumerate(shown, 1):
        facts = annotated.lines.get(number)
        stall = facts.stall if facts else ""
        mark = ">" if number in hot else " "
        lines.append(f"{annotated.text(number, chosen):>8} {stall:<16.16} {mark}{number:>4}  {line}".rstrip())
        if sass and facts is not None and number in hot:
            lines += [instruction(row) for row in facts.sass]
    return "\n".join(lines)


def instruction(row: SassRow) -> str:
    """One instruction: samples, why warps waited, how often it ran, sectors each time."""
    samples = f"{row.samples}" if row.samples else ""
    executed = f"x{row.executed}" if row.executed else ""
    sectors = f"{row.sectors:g}/run" if row.sectors else ""
    return f"{samples:>8} {row.stall:<16.16} {executed:>10} {sectors:>8}  {row.address:04x} {plain(row.text)}".rstrip()
