"""The emulator's trace: sectors and wavefronts by source line, with no GPU and no permission."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.kernel.emulator.access import Access
from kforge.profiling.builds import MOST_SHARED, described, geometry
from kforge.profiling.sources import Unavailable
from kforge.worker.answers import count

if TYPE_CHECKING:
    from kforge.task.call import Call
    from kforge.worker import Child


@dataclass(frozen=True)
class Traced:
    """One launch: geometry, bytes its threads read and wrote, accesses by line."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    nbytes: tuple[int, int]
    access: tuple[Access, ...]
    count: int = 1


def trace(child: Child, call: Call, budget_s: float) -> list[Traced]:
    """The launches of one call on the CPU, traced within about `budget_s` seconds. Unavailable with the reason.

    child: in phase build, loaded, with the emulator's traced mode readable.
    """
    kept = child.record(call, budget_s)
    if not kept.launches:
        left = f": {', '.join(kept.left_out)} would take too long" if kept.left_out else ""
        raise Unavailable("trace", f"no launch was kept{left}", "profile smaller inputs (--variant)")
    rows, skipped = child.trace(budget_s, 3 * budget_s + 20)
    if skipped:
        raise Unavailable("trace", skipped, "profile smaller inputs (--variant)")
    with described():
        return merged([read_launch(row) for row in rows])


def read_launch(row: Mapping[str, Any]) -> Traced:
    """A row of worker/profiled.py. ValueError where a candidate's process made something else of it."""
    lines = [_access(line) for line in row["lines"]]
    (gx, gy, gz), (bx, by, bz) = geometry(row)
    moved = (count(row["read"]), count(row["written"]))
    shared = count(row["shared"], MOST_SHARED)
    return Traced(str(row["kernel"]), (gx, gy, gz), (bx, by, bz), shared, moved, tuple(lines))


def _access(line: Mapping[str, Any]) -> Access:
    names = ("line", "size", "executions", "nbytes", "requests", "units", "ideal")
    numbers = {name: count(line[name]) for name in names}
    return Access(file=Path(str(line["file"])).name, space=str(line["space"]), access=str(line["access"]), **numbers)


def merged(launches: Sequence[Traced]) -> list[Traced]:
    """The launch of each kernel that moves most: the others of the same kernel differ in their arguments only."""
    best: dict[str, Traced] = {}
    counts = Counter(launch.kernel for launch in launches)
    for launch in launches:
        if launch.kernel not in best or sum(launch.nbytes) > sum(best[launch.kernel].nbytes):
            best[launch.kernel] = launch
    return [replace(launch, count=counts[name]) for name, launch in best.items()]
