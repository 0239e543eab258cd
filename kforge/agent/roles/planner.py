"""The planner's answer: one change to make, as data. One bottleneck and one plan a round (CudaForge)."""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST = 2000  # characters of a plan


@dataclass(frozen=True)
class Plan:
    """direction: the kind of change, short. gain: expected factor over the parent, None where none was said."""

    text: str
    direction: str = ""
    gain: float | None = None


def read_plan(answer: str) -> Plan:
    """The lines DIRECTION, IDEA and GAIN of an answer; without them all of it is the plan."""
    fields = {name.lower(): value.strip() for name, value in _LINE.findall(answer)}
    text = " ".join(fields.get("idea", "").split()) or answer.strip()
    direction = re.sub(r"[^a-z0-9 _+/-]", "", fields.get("direction", "").lower()).strip()[:48]
    number = re.search(r"\d+(?:\.\d+)?", fields.get("gain", ""))
    gain = float(number[0]) if number else None
    return Plan(text[:MOST], direction, gain if gain is None or 0.1 <= gain <= 1000 else None)


_NAME = r"^[ \t*#-]*(?:DIRECTION|IDEA|GAIN)\**[ \t]*:"
_LINE = re.compile(
    rf"^[ \t*#-]*(DIRECTION|IDEA|GAIN)\**[ \t]*:[ \t*]*(.*?)(?={_NAME}|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL
)
