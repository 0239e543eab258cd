"""The session picker: runs of this project, newest first; one of them is continued."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kforge.ui.listing import ListScreen
from kforge.ui.text import one_line


class SessionScreen(ListScreen):
    """Returns the id of the run to continue. Runs of other op.py are not offered: they are opened by their file."""

    def __init__(self, runs: Sequence[Mapping[str, Any]], op: Path) -> None:
        own = [run for run in runs if Path(str(run["task"])).name == op.name]
        rows = [(str(run["id"]), describe(run)) for run in own]
        others = len(runs) - len(own)
        note = "enter: continue it   escape: back" if rows else "no run of this task yet: F2 makes the first"
        super().__init__("Runs", rows, note + (f"   {others} of other tasks" if others else ""))


def describe(run: Mapping[str, Any]) -> str:
    """A run in one line: when, how it ended, what it found."""
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(float(run["started"])))
    count = int(run.get("evaluations") or 0)
    return one_line(f"{started}  {outcome(run, '  ')}  {count} evaluation{'s' if count != 1 else ''}", 160)


def outcome(run: Mapping[str, Any], between: str = ", ") -> str:
    """How a run ended and what it found."""
    gain = f"{run['speedup']:.2f}x" if run.get("speedup") else ""
    return between.join(str(p) for p in (run.get("status") or "unfinished", run.get("verdict"), gain) if p)
