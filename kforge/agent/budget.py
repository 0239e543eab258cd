"""What a run may use and what it has used: seconds, evaluations, tokens, money. Imports nothing heavy."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kforge.errors import KforgeError


class BudgetSpent(KforgeError):
    """A limit is reached: the run ends cleanly, with what it found."""

    kind = "budget"


@dataclass(frozen=True)
class Budget:
    """Limits of one run, over all its resumptions. None: no limit. tokens: in and out together; usd in dollars.

    kept: of the seconds, those that the search leaves for the confirmation of its best.
    """

    seconds: float = 60.0
    evaluations: int | None = None
    tokens: int | None = None
    usd: float | None = None
    kept: float = 0.0

    def spent(self, meter: Meter, seconds: float) -> str:
        """The limit that is reached, in words; "" where none is."""
        if seconds >= self.seconds - self.kept:
            rest = self.seconds - seconds
            left = f" but for {rest:.0f} s to confirm the best" if rest > 0.5 else ""
            return f"the budget of {self.seconds:g} s is spent{left}"
        if self.evaluations is not None and meter.evaluations >= self.evaluations:
            return f"the budget of {self.evaluations} evaluations is spent"
        if self.tokens is not None and meter.tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens is spent"
        if self.usd is not None and meter.usd >= self.usd:
            return f"the budget of {self.usd:g} USD is spent"
        return ""

    def left(self, meter: Meter, seconds: float) -> dict[str, float | int | None]:
        """What is left of each limit for the search, never below 0; None where there is no limit."""
        return {
            "seconds": round(max(0.0, self.seconds - self.kept - seconds), 3),
            "evaluations": None if self.evaluations is None else max(0, self.evaluations - meter.evaluations),
            "tokens": None if self.tokens is None else max(0, self.tokens - meter.tokens),
            "usd": None if self.usd is None else max(0.0, round(self.usd - meter.usd, 6)),
        }


class Meter:
    """What a run has used. Thread-safe: several model calls may end at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.evaluations = 0
        self.calls = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.tokens_cached = 0
        self.usd = 0.0  # of the calls whose price is known
        self.unpriced = 0  # calls whose price is not

    @property
    def tokens(self) -> int:
        """In and out together; cached ones count as in."""
        return self.tokens_in + self.tokens_out

    def add_call(
        self, tokens_in: int = 0, tokens_out: int = 0, tokens_cached: int = 0, usd: float | None = 0.0
    ) -> None:
        """One paid call. tokens_cached: those of tokens_in that the endpoint had cached. usd None: unknown."""
        with self._lock:
            self.calls += 1
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
            self.tokens_cached += tokens_cached
            self.usd += usd or 0.0
            self.unpriced += usd is None

    def add_evaluations(self, count: int = 1) -> None:
        """Evaluations that were made."""
        with self._lock:
            self.evaluations += count

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Count one recorded event again (resume, `kforge runs show`)."""
        if kind == "evaluated":
            self.add_evaluations()
        elif kind == "tuned":
            self.add_evaluations(len(data.get("table") or ()))
        elif kind == "model_call":
            self.add_call(
                int(data.get("tokens_in") or 0),
                int(data.get("tokens_out") or 0),
                int(data.get("tokens_cached") or 0),
                data.get("usd", 0.0),
            )

    def spent(self, budget: Budget, seconds: float) -> str:
        """The exhausted limit in words, "" where none is."""
        return budget.spent(self, seconds)

    def as_dict(self) -> dict[str, float | int | None]:
        """The figures by name, for events and --json. usd None: there were calls of unknown price."""
        with self._lock:
            return {
                "evaluations": self.evaluations,
                "calls": self.calls,
                "tokens_in": self.tokens_in,
                "tokens_out": self.tokens_out,
                "tokens_cached": self.tokens_cached,
                "usd": None if self.unpriced else round(self.usd, 6),
            }
