"""DOMAIN of a task: which input values the op is meant for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def check_paths(domain: Domain, inputs: Sequence[str], op: str) -> None:
    """TaskError where a range is of none of these inputs: it would hold for nothing, and nobody would know.

    inputs: paths of the tensors among a call's inputs. op: name of op.py, for the message.
    """
    unknown = [path for path in domain.ranges if path not in inputs]
    if unknown:
        raise TaskError(f"{op}: DOMAIN names {', '.join(unknown)}, which is no input", f"inputs: {', '.join(inputs)}")
