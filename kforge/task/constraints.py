"""Standing constraints of a task: the types behind the names that CONSTRAINTS in op.py lists.

Data and parsing only; each constraint is checked by the gate that owns the matter.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kforge.errors import TaskError

FLAGS = {
    "keep_nan": "NaN and inf appear exactly where the reference has them, fast-math shortcuts included",
    "no_fast_math": "no --use_fast_math, no approximate intrinsics (__expf, __fdividef, ...)",
    "deterministic": "two runs on equal inputs give equal bits",
    "no_vendor_calls": "no cuBLAS, cuDNN or other library call through torch",
    "keep_signature": "forward keeps the reference's parameter names, order and defaults",
}
VALUES = {"max_shared": "at most N bytes of shared memory a block"}

DIGITS = 15  # of a value

_PATTERN = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:=\s*(\S+)\s*)?")


@dataclass(frozen=True)
class Constraint:
    """One standing rule. value: the N of `max_shared=N` in bytes; None for flags."""

    name: str
    value: int | None = None

    @property
    def description(self) -> str:
        """What the rule demands, in words for a person and for a model."""
        return {**FLAGS, **VALUES}[self.name].replace(" N ", f" {self.value} ")

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value}"


def available() -> str:
    """The names that exist, for error texts and help."""
    return ", ".join([*FLAGS, *(f"{name}=N" for name in VALUES)])


def parse_constraint(text: object) -> Constraint:
    """`"keep_nan"` or `"max_shared=49152"` as a Constraint; raises TaskError that lists what exists."""
    match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[1] not in {**FLAGS, **VALUES}:
        raise TaskError(f"unknown constraint {text!r}; available: {available()}")
    name, value = match[1], match[2]
    if name in FLAGS:
        if value is not None:
            raise TaskError(f"constraint {name} takes no value (got {text!r})")
        return Constraint(name)
    if value is None or not value.isdecimal() or len(value) > DIGITS:
        raise TaskError(f"constraint {name} needs a whole number of bytes: {name}=N (got {text!r})")
    return Constraint(name, int(value))


def parse_constraints(items: object) -> tuple[Constraint, ...]:
    """The list in op.py as constraints, in order, doubles dropped; a name twice with other values is a TaskError."""
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise TaskError(f"CONSTRAINTS must be a list of names (got {type(items).__name__}); available: {available()}")
    found: dict[str, Constraint] = {}
    for item in items:
        constraint = parse_constraint(item)
        if found.setdefault(constraint.name, constraint) != constraint:
            raise TaskError(f"constraint {constraint.name} is given twice with different values")
    return tuple(found.values())
