"""PRECISION of a task: torch's float32 matmul precision, set around every run of the reference and of a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from kforge.errors import TaskError


class Precision(StrEnum):
    """torch.set_float32_matmul_precision's values; a fresh process has HIGHEST."""

    HIGHEST = "highest"
    HIGH = "high"
    MEDIUM = "medium"


def parse_precision(value: object) -> Precision:
    """The value of PRECISION in op.py; raises TaskError that lists what exists."""
    names = [p.value for p in Precision]
    if value not in names:
        raise TaskError(f"unknown PRECISION {value!r}; available: {', '.join(names)}")
    return Precision(value)


@contextmanager
def matmul_precision(precision: Precision) -> Iterator[None]:
    """Run the block at this float32 matmul precision; the setting found before is put back."""
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision.value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
