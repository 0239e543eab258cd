"""How much of a plan's time is left: work is counted, not waiting, so a busy machine judges as much as an idle one.

On the emulator that is processor time of this thread and of the candidate's processes. A GPU's work is none of the
processor's, and nobody shares it while it is judged: there the clock counts. Who has a budget on the clock gives the
moment at which it ends: then what is not required is over as well.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kforge.worker import Child

PATIENCE = 12.0  # seconds on the clock for each second of work, from which on a plan ends unfinished, and says so


class Allowance:
    """`seconds` of work from now on, for one process of a candidate. until: the end on the clock (time.monotonic)."""

    def __init__(self, device: str, seconds: float, child: Child, until: float = math.inf) -> None:
        self.seconds, self.until, self._child, self._counts = seconds, until, child, device == "cpu"
        self._clock, self._work = time.monotonic(), self._worked()

    def _worked(self) -> float:
        return time.thread_time() + self._child.processor_s() if self._counts else time.monotonic()

    @property
    def late(self) -> bool:
        """Whether the clock, not the work, has ended it: the machine is busy with other things, or somebody sleeps."""
        return self._counts and time.monotonic() - self._clock > PATIENCE * self.seconds

    def over(self, more_s: float = 0.0) -> bool:
        """Whether nothing is left, even with so many seconds more."""
        return self.late or time.monotonic() > self.until or self._worked() - self._work > self.seconds + more_s

    def why(self, plan: str) -> str:
        """In words, what has ended it."""
        if time.monotonic() > self.until:
            return f"no time left in the budget for more of plan {plan}"
        busy = f" (the machine is busy: {PATIENCE * self.seconds:.0f} s have passed)" if self.late else ""
        return f"no time left in plan {plan}{busy}"
