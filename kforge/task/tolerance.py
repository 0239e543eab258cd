"""The acceptance bounds of a task: the rule's factors (CONTRACTS 4) and what TOLERANCE in op.py widens in the open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kforge.errors import TaskError

if TYPE_CHECKING:
    import torch

RMS_FULL = 2.0  # float32 and float64 outputs: RMS error over the baseline's
RMS_HALF = 1.25  # float16 and bfloat16 outputs
MAX = 4.0  # every element, over the baseline's maximum error


@dataclass(frozen=True)
class Tolerance:
    """User factors, or None where the rule's hold. Factors only widen: each is at least the rule's."""

    rms: float | None = None
    max: float | None = None

    @property
    def label(self) -> str:
        """The class printed beside every verdict."""
        if self.rms is None and self.max is None:
            return "tolerance by rule"
        given = [f"{name} {value:g}x" for name, value in (("rms", self.rms), ("max", self.max)) if value is not None]
        return f"user tolerance ({', '.join(given)})"

    def rms_factor(self, dtype: torch.dtype) -> float:
        """Bound (a) of CONTRACTS 4 for an output of this dtype."""
        return max(RMS_HALF if dtype.itemsize <= 2 else RMS_FULL, self.rms or 0.0)

    def max_factor(self) -> float:
        """Bound (b) of CONTRACTS 4."""
        return max(MAX, self.max or 0.0)


def parse_tolerance(value: object) -> Tolerance:
    """`{"rms": factor, "max": factor}`, each optional; raises TaskError for other keys or factors under the rule's."""
    if not isinstance(value, dict):
        raise TaskError(f'TOLERANCE must be a dict {{"rms": factor, "max": factor}} (got {type(value).__name__})')
    unknown = [key for key in value if key not in ("rms", "max")]
    if unknown:
        raise TaskError(f"unknown key {unknown[0]!r} in TOLERANCE; available: rms, max")
    least = {"rms": RMS_HALF, "max": MAX}
    factors: dict[str, float] = {}
    for key, factor in value.items():
        if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not math.isfinite(factor):
            raise TaskError(f"TOLERANCE[{key!r}] must be a number (got {factor!r})")
        if factor < least[key]:
            raise TaskError(f"TOLERANCE[{key!r}] must be at least the rule's {least[key]:g} (got {factor:g})")
        factors[key] = float(factor)
    return Tolerance(**factors)
