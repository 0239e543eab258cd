"""Which of the four forms an op.py has (DESIGN: Task)."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """The four ways in which an op.py names its reference."""

    MODULE = "module"  # (a) class Model(nn.Module), get_inputs(), get_init_inputs()
    FUNCTION = "function"  # (b) a function reference(...), get_inputs()
    TRITON = "triton"  # (c) a Triton kernel with its launching function
    HELION = "helion"  # (d) a Helion kernel
