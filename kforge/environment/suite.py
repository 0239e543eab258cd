"""A folder of tasks with their candidates, and figures of many results: geometric mean, median, share outside noise.

Layout, in any depth below the folder: `<op>.py` with `<op>_kforge.py` beside it, or `op.py` with its `*_kforge.py`. The
folders above a pair name its class (norms/softmax.py, norms/softmax_kforge.py: class norms); docs/bench.md shows it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kforge.environment.report import Report, Status, Verdict
from kforge.errors import UsageError
from kforge.profiling.statistics import geometric_mean, median

ENDING = "_kforge.py"


@dataclass(frozen=True)
class Pair:
    """A task and one candidate for it. name: unique in the suite; group: its class, empty at the top."""

    name: str
    group: str
    op: Path
    module: Path


@dataclass(frozen=True)
class Row:
    """One result of a suite or of a comparison: a report, or the words of the error that there is instead."""

    name: str
    group: str = ""
    worker: str = ""
    report: Report | None = None
    error: str = ""

    @property
    def status(self) -> str:
        """The report's status; "error" where there is none."""
        return self.report.status.value if self.report else "error"

    @property
    def target(self) -> str:
        """The device's name, empty for an error."""
        return self.report.target if self.report else ""


def find_pairs(folder: Path) -> list[Pair]:
    """Every pair below `folder`, sorted by name. UsageError when there is none, or a candidate has no task."""
    modules = sorted(
        path
        for path in folder.rglob(f"*{ENDING}")
        if not any(p.startswith(".") for p in path.relative_to(folder).parts)
    )
    if not modules:
        raise UsageError(
            f"{folder} holds no *{ENDING}", f"put <op>.py and <op>{ENDING} side by side, see docs/bench.md"
        )
    pairs = []
    for module in modules:
        stem = module.name.removesuffix(ENDING)
        own, shared = module.with_name(f"{stem}.py"), module.with_name("op.py")
        place = module.parent.relative_to(folder)
        if own.is_file():
            pairs.append(Pair((place / stem).as_posix(), _group(place), own, module))
        elif shared.is_file():
            alone = len(list(module.parent.glob(f"*{ENDING}"))) == 1 and place != Path(".")
            name = place if alone else place / stem
            pairs.append(Pair(name.as_posix(), _group(place.parent), shared, module))
        else:
            raise UsageError(f"{module} has no task", f"put {stem}.py or op.py beside it")
    return sorted(pairs, key=lambda pair: pair.name)


def lone_tasks(folder: Path) -> list[tuple[str, Path]]:
    """Tasks below `folder` that have no candidate beside them, by name: files that define get_inputs."""
    found = []
    for path in sorted(folder.rglob("*.py")):
        place = path.relative_to(folder)
        if path.name.endswith(ENDING) or any(p.startswith(".") for p in place.parts):
            continue
        shared = path.name == "op.py" and any(path.parent.glob(f"*{ENDING}"))
        if shared or path.with_name(f"{path.stem}{ENDING}").is_file():
            continue
        if re.search(r"^def get_inputs\(", path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE):
            found.append((place.with_suffix("").as_posix(), path))
    return found


def _group(place: Path) -> str:
    return "" if place == Path(".") else place.as_posix()


def statistics(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Figures of all rows under "all", and of each class under its name where there is more than one.

    count, verified, statuses, verdicts; for what was timed also timed, geomean and median of the speed-up over the best
    baseline, over eager and over torch.compile, and outside_noise: the share that is faster or slower than noise.
    """
    groups = sorted({row.group for row in rows})
    figures = {"all": _figures(rows)}
    if len(groups) > 1:
        figures |= {group or "(top)": _figures([row for row in rows if row.group == group]) for group in groups}
    return figures


def _figures(rows: Iterable[Row]) -> dict[str, Any]:
    rows = list(rows)
    reports = [row.report for row in rows if row.report is not None and row.report.status is Status.VERIFIED]
    timed = [report for report in reports if report.speedup is not None]
    figures: dict[str, Any] = {
        "count": len(rows),
        "verified": len(reports),
        "statuses": dict(Counter(row.status for row in rows)),
        "verdicts": dict(Counter(report.verdict.value for report in reports)),
        "timed": len(timed),
    }
    if timed:
        ratios = [report.speedup.ratio for report in timed if report.speedup]
        outside = [report.verdict in (Verdict.FASTER, Verdict.SLOWER) for report in timed]
        figures |= {
            "geomean": geometric_mean(ratios),
            "median": median(ratios),
            "outside_noise": sum(outside) / len(outside),
        }
        for name in ("eager", "compile_default"):
            over = [ratio for report in timed if (ratio := ratio_over(report, name)) is not None]
            if over:
                figures[f"geomean_over_{name}"] = geometric_mean(over)
    return figures


def ratio_over(report: Report, name: str) -> float | None:
    """A baseline's median time over the candidate's, on the first variant; None where either is missing."""
    ours, theirs = report.times_ms.get("candidate"), report.times_ms.get(name)
    return theirs / ours if ours and theirs else None
