"""DOMAIN of a task: which input values the op is meant for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kforge.errors import TaskError


@dataclass(frozen=True)
class Domain:
    """ranges: input path -> (low, high), both included. accepts: called with the inputs of a call, says bool."""

    ranges: dict[str, tuple[float, float]] = field(default_factory=dict, hash=False)
    accepts: Callable[..., bool] | None = None

    @property
    def unrestricted(self) -> bool:
        return not self.ranges and self.accepts is None


def parse_domain(value: Any) -> Domain:
    """`{input path: (low, high)}` or a callable to bool; raises TaskError for anything else."""
    if callable(value):
        return Domain(accepts=value)
    if not isinstance(value, dict):
        raise TaskError(f"DOMAIN must be a dict {{input path: (low, high)}} or a callable (got {type(value).__name__})")
    ranges = {}
    for path, bounds in value.items():
        pair = isinstance(bounds, (tuple, list)) and len(bounds) == 2
        if not pair or not all(isinstance(b, (int, float)) for b in bounds) or not bounds[0] < bounds[1]:
            raise TaskError(f"DOMAIN[{path!r}] must be (low, high) with low < high (got {bounds!r})")
        ranges[str(path)] = (float(bounds[0]), float(bounds[1]))
    return Domain(ranges)
