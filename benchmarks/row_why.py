"""Why a row is slow: its best configuration under the profiler, as the findings and counters that go into the row.

On a GPU from the build, the SASS and ncu's counters of one call (the row's own time is not taken again); on the
emulator from the build, the SASS and the trace. A profile takes seconds, most of them the start of processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import ChildFailed, KforgeError
from kforge.profiling.evidence import KernelEvidence
from kforge.profiling.sources.ncu_metrics import READY

if TYPE_CHECKING:
    from benchmarks.row_search import Try
    from kforge.task import Capture, Task
    from kforge.worker import Zygote

LEAST = 0.85  # of the floor: rows below it are to say why
SECONDS = 5.0  # a row that the profiles of a run may take on average
MOST = 3  # findings, and reasons to wait
COUNTERS = {
    "us": "duration_ns",
    "dram": "dram_percent",
    "l2": "l2_percent",
    "l2_hits": "l2_hit_percent",
    "issue": "issue_percent",
    "warps": "warps_active_percent",
    "special": "special_percent",
}
"""name in a row -> ncu's counter; `us` is in microseconds, all others are per cent."""


def why(
    task: Task,
    variant: int,
    captured: Capture,
    best: Try,
    zygote: Zygote,
    folder: Path,
    device: str,
    ms: float | None = None,
    counters: bool = True,
) -> dict[str, Any]:
    """What the profiler makes of a configuration: findings (title and facts), kernels, missing sources, seconds.

    ms: the row's time, None where nothing was timed. A candidate that cannot be profiled gives `failed`.
    """
    from kforge.environment.target import share_emulator, target_arch, target_name
    from kforge.kernel.emulator.mode import Kind
    from kforge.profiling import ceilings
    from kforge.profiling.feedback import feedback
    from kforge.profiling.profiler import Profiler
    from kforge.task import count

    begin = time.perf_counter()
    arch = target_arch(device)
    limits = ceilings.for_device(device) if device != "cpu" else ceilings.sheet_for_arch(arch)
    profiler = Profiler(
        task, best.candidate, device, arch, target_name(device), limits, count(captured), zygote, folder,
        lambda place: share_emulator(place, (Kind.TRACED,)), variant, counters, timed=False, overrides=best.overrides,
    )  # fmt: skip
    profiler.candidate_us = ms * 1e3 if ms is not None else None
    try:
        profiler.collect()
    except (ChildFailed, KforgeError) as error:
        return {"failed": str(error)[:300], "seconds": time.perf_counter() - begin}
    evidence = profiler.evidence()
    found = feedback(evidence, most=MOST)
    return {
        "findings": [[r.finding.title, r.finding.kernel, list(r.finding.evidence)] for r in found.findings],
        "kernels": [figures(kernel) for kernel in evidence.launched],
        "missing": [[gap.source, gap.reason] for gap in evidence.missing],
        "notes": list(evidence.stage.notes) if evidence.stage else [],
        "seconds": time.perf_counter() - begin,
    }


def figures(kernel: KernelEvidence) -> dict[str, Any]:
    """The figures of one kernel that say what it waits for; what no source told is left out."""
    found: dict[str, Any] = {"name": kernel.name, "registers": kernel.registers, "occupancy": kernel.occupancy}
    if kernel.sass is not None:
        found["loads_in_flight"] = kernel.sass.loads_in_flight
    for name, counter in COUNTERS.items():
        value = kernel.counters.get(counter)
        if value is not None:
            found[name] = value / 1e3 if name == "us" else value
    if stalls := waits(kernel.counters):
        found["stalls"] = stalls
    return {name: value for name, value in found.items() if value is not None}


def waits(counters: Mapping[str, float]) -> dict[str, float]:
    """The most frequent reasons that warps wait for, as shares of all waiting."""
    reasons = {name: v for name, v in counters.items() if name.startswith("stall_") and name not in READY}
    total = reasons.pop("stall_total", 0.0)
    worst = sorted(reasons, key=lambda name: -reasons[name])[:MOST]
    return {name.removeprefix("stall_"): reasons[name] / total for name in worst} if total else {}


def lines(profile: Mapping[str, Any]) -> list[str]:
    """A profile for a table: a line for each kernel, one for each finding."""
    if "failed" in profile:
        return [f"no profile: {profile['failed']}"]
    found = []
    for kernel in profile["kernels"]:
        text = f"{kernel['name'][:40]}: {kernel.get('registers', '?')} registers"
        text += f", occupancy {kernel['occupancy']:.2f}" if "occupancy" in kernel else ""
        text += f", {kernel['loads_in_flight']} bytes of loads a thread" if kernel.get("loads_in_flight") else ""
        text += f", {kernel['us']:.1f} us" if "us" in kernel else ""
        shares = [f"{name} {kernel[name]:.0f} %" for name in COUNTERS if name != "us" and name in kernel]
        shares += [f"waits for {name} {share:.0%}" for name, share in kernel.get("stalls", {}).items()]
        found.append(", ".join([text, *shares]))
    for title, kernel, facts in profile["findings"]:
        found.append(f"{title}{f' in {kernel}' if kernel else ''}: {'; '.join(facts)}")
    if not any("dram" in kernel for kernel in profile["kernels"]):
        found += [f"no counters: {reason}" for source, reason in profile["missing"] if source == "ncu"]
    return found


@dataclass
class Budget:
    """Whether the next profile may begin: all of a run's take `seconds` a measured row at most, on average.

    The first is always taken and not counted, for it fills the caches; the last one's time stands for the next.
    """

    seconds: float = SECONDS
    spent: float = 0.0
    last: float = 0.0
    rows: int = 0
    profiles: int = 0

    def allows(self) -> bool:
        return self.profiles < 2 or self.spent + self.last <= self.seconds * self.rows

    def took(self, seconds: float) -> None:
        self.profiles += 1
        if self.profiles > 1:
            self.spent, self.last = self.spent + seconds, seconds
