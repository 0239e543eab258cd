"""What the status line says, gathered from the core's events. Data only: no widget, no decision."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kforge.ui.leader import Leader

REPORTS = 2_000  # kept; the log has all
_GATES = {"static": "static gate", "build": "build", "correctness": "correctness", "performance": "timing"}


@dataclass
class Progress:
    """The state of the session as far as events tell it. best: digest of the best candidate, "" none."""

    leader: Leader = field(default_factory=Leader)

    model: str = ""
    tokens: int = 0
    usd: float = 0.0
    left: dict[str, Any] = field(default_factory=dict)
    left_at: float = 0.0
    doing: str = ""  # the evaluation in flight, in words
    candidate: str = ""  # digest of the candidate it is about
    target: str = ""  # "NVIDIA H200" or "emulator"
    status: str = ""
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)  # the latest by candidate, without samples
    running: bool = False
    accepted: str = ""
    exported: str = ""
    lost: bool = False  # no core is there
    refused: bool = False  # op.py is no task as it is

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take one event in."""
        self.lost = self.lost and kind == "log"
        self.leader.apply(kind, data)
        handler = getattr(self, f"_on_{kind}", None)
        if handler is not None:
            handler(data)

    @property
    def best(self) -> str:
        """Digest of the best candidate, "" where there is none."""
        return self.leader.digest

    def text(self, model: str = "") -> str:
        """The status line, most important first: narrow terminals cut its end."""
        parts = []
        if self.doing:
            parts.append(f"▶ {self.doing}")
        best = self.leader.best
        if best is not None:
            time_ = f"{best.ms:.4g} ms" if math.isfinite(best.ms) else ""
            gain = f"{best.speedup:.2f}x" if best.speedup else ""
            parts.append(" ".join(p for p in ("best", best.digest[:8], time_, gain, best.verdict) if p))
        elif self.status:
            parts.append(self.status)
        parts.append("the core ended" if self.lost else "no task" if self.refused else self.target or "starting")
        parts.append(self.model or model or "engine")
        if self.tokens or self.usd:
            parts.append(f"{_short(self.tokens)} tokens ${self.usd:.2f}")
        budget = self._budget()
        if budget:
            parts.append(f"{budget} left")
        return " │ ".join(parts)

    def _budget(self) -> str:
        if not self.running:
            return ""
        words = []
        seconds = self.left.get("seconds")
        if seconds is not None:
            words.append(f"{max(0.0, seconds - (time.monotonic() - self.left_at)):.0f} s")
        if self.left.get("usd") is not None:
            words.append(f"${self.left['usd']:.2f}")
        if self.left.get("tokens") is not None:
            words.append(f"{_short(self.left['tokens'])} tokens")
        return ", ".join(words)

    def _on_run_started(self, data: Mapping[str, Any]) -> None:
        if data.get("command", "suggest") in ("suggest", "resume"):
            self.running, self.tokens, self.usd, self.left, self.status = True, 0, 0.0, {}, ""
            budget = (data.get("options") or {}).get("budget")
            self.left, self.left_at = ({"seconds": budget} if budget else {}), time.monotonic()
        self.doing = "preparing"

    def _on_resumed(self, data: Mapping[str, Any]) -> None:
        self.running, self.doing = True, "resuming"

    def _on_proposed(self, data: Mapping[str, Any]) -> None:
        self.candidate = data["candidate"]
        self.doing = f"{self.candidate[:8]} proposed"

    def _on_building(self, data: Mapping[str, Any]) -> None:
        self.candidate = data.get("candidate") or self.candidate
        self.doing = f"{self.candidate[:8]} building"

    def _on_case(self, data: Mapping[str, Any]) -> None:
        self.doing = f"{(data.get('candidate') or self.candidate)[:8]} checking"

    def _on_gate(self, data: Mapping[str, Any]) -> None:
        passed = {True: "passed", False: "failed", None: "not run"}[data.get("passed")]
        self.doing = (
            f"{(data.get('candidate') or self.candidate)[:8]} {_GATES.get(data['name'], data['name'])} {passed}"
        )

    def _on_evaluated(self, data: Mapping[str, Any]) -> None:
        report = {k: v for k, v in (data.get("report") or {}).items() if k not in ("variants", "builds", "cases")}
        digest = data["candidate"]
        self.reports.pop(digest, None)
        if len(self.reports) >= REPORTS:
            del self.reports[next(name for name in self.reports if name not in (self.best, self.accepted))]
        self.reports[digest] = report | {"status": data["status"], "verdict": data.get("verdict", "")}
        self.target = report.get("target") or self.target
        self.doing = f"{digest[:8]} {data['status']}"

    def _on_model_started(self, data: Mapping[str, Any]) -> None:
        self.model = data.get("model") or self.model
        self.doing = f"{data.get('role') or 'model'} is thinking"

    def _on_tool_call(self, data: Mapping[str, Any]) -> None:
        self.doing = f"used {data['tool']}"

    def _on_meter(self, data: Mapping[str, Any]) -> None:
        self.tokens = int(data.get("tokens_in") or 0) + int(data.get("tokens_out") or 0)
        self.usd = float(data.get("usd") or 0.0)
        self.left, self.left_at = dict(data.get("left") or {}), time.monotonic()

    def _on_accepted(self, data: Mapping[str, Any]) -> None:
        self.accepted = data["candidate"]

    def _on_undone(self, data: Mapping[str, Any]) -> None:
        self.accepted = ""

    def _on_exported(self, data: Mapping[str, Any]) -> None:
        self.exported = data.get("folder", "")

    def _on_stopped(self, data: Mapping[str, Any]) -> None:
        self._end("stopped")

    def _on_run_finished(self, data: Mapping[str, Any]) -> None:
        self._end(str(data.get("status") or ""))

    def _end(self, status: str) -> None:
        self.running, self.doing, self.status = False, "", status


def _short(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count >= 1e6 else f"{count / 1e3:.1f}k" if count >= 1e3 else str(count)
