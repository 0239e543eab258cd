"""Tensor maps on their way to a launch: a tensor, and how a kernel copies its boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class TensorMap:
    """A view of `x` whose boxes a kernel copies; two arguments of a launch, the tensor and its options."""

    def __init__(
        self,
        x: torch.Tensor,
        box: Sequence[int],
        swizzle: int = 0,
        l2: int = 128,
        oob: str = "zero",
        tf32: bool = False,
    ) -> None:
        if oob not in ("zero", "nan"):
            raise ValueError(f"oob = {oob!r} is none of zero, nan")
        self.x, self.box, self.swizzle, self.l2, self.oob, self.tf32 = x, box, swizzle, l2, oob, tf32

    @property
    def options(self) -> list[int]:
        """The box, swizzle and l2 in bytes, 1 for NaN outside of x, 1 for float32 that is rounded to TF32."""
        return [*self.box, self.swizzle, self.l2, int(self.oob == "nan"), int(self.tf32)]


def taking_maps(launch: Callable[..., None]) -> Callable[..., None]:
    """A launch whose arguments may be TensorMaps."""

    def call(*args: Any) -> None:
        given: list[Any] = []
        for value in args:
            given += (value.x, value.options) if isinstance(value, TensorMap) else (value,)
        launch(*given)

    return call
