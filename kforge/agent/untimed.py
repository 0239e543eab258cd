"""Which of several right candidates is kept where nothing can be timed: by an estimate, which is told as one.

The estimate adds up launches and the bytes that the kernels' threads move in an emulated call, at a data sheet's rates.
Operators of libraries have no such figures, so a candidate that calls one has no estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kforge.agent.attempts import Attempt
from kforge.errors import MissingError

if TYPE_CHECKING:
    from kforge.agent.workbench import Workbench
    from kforge.profiling.ceilings import Ceilings

MOST = 4  # candidates that are estimated, seconds each
CLEARLY = 1.1  # by how much an earlier one must be undercut: less is within what bytes do not tell


def by_estimate(bench: Workbench, verified: Sequence[Attempt]) -> list[Attempt]:
    """The untimed candidates, what is kept first: the earliest, or a later one whose estimate is clearly lower.

    The engine's own are in the order of its predictions, so of them the first alone is compared with a model's latest.
    """
    first = next((a for a in verified if a.candidate.proposer == "engine"), None)
    others = [a for a in verified if a.candidate.proposer != "engine"]
    rivals = sorted({a.node.id: a for a in (first, *others[-MOST:]) if a is not None}.values(), key=_place)[:MOST]
    if len(rivals) < 2:
        return list(verified)
    times = {a.node.id: us for a in rivals if (us := _estimate(bench, a)) is not None}
    best = rivals[0]
    for rival in rivals[1:]:
        if rival.node.id in times and times.get(best.node.id, 0.0) > CLEARLY * times[rival.node.id]:
            best = rival
    if times:
        told = ", ".join(f"{a.candidate.digest[:8]} {_words(times.get(a.node.id))}" for a in rivals)
        words = f"{best.candidate.digest[:8]} is kept, by its launches and traffic: {told}; only a GPU can tell"
        bench.event("message", text=f"untimed: {words}", level="info")
    return [best, *(a for a in verified if a is not best)]


def estimate_us(profile: Mapping[str, Any], ceilings: Ceilings) -> float | None:
    """Microseconds of one call by its profile (`kforge profile --json`); None where a launch was not traced."""
    total = 0.0
    for kernel in profile["kernels"]:
        if not kernel["launches"]:
            continue
        if kernel["traced_bytes"] is None:
            return None
        read, written = kernel["traced_bytes"]
        moved = (read + written) / ceilings.mixed(written / max(1, read + written))
        total += kernel["launches"] * (ceilings.launch_s + moved) * 1e6
    return total or None


def _estimate(bench: Workbench, attempt: Attempt) -> float | None:
    from kforge.agent.chat.briefing import profiled
    from kforge.profiling.ceilings import sheet_for_arch

    if attempt.report.vendor_calls:
        return None
    try:
        ceilings = sheet_for_arch(bench.arch)
    except MissingError:
        return None
    profile = profiled(bench, attempt.candidate.digest)
    return None if profile is None else estimate_us(profile, ceilings)


def _place(attempt: Attempt) -> int:
    return attempt.node.id


def _words(us: float | None) -> str:
    return "no estimate" if us is None else f"about {us:.3g} us"
