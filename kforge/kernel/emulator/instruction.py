"""One PTX instruction as the emulator reads it, and the registry of what instructions become in C++."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

NS = "::kforge_emulator::"
PTX = NS + "ptx::"


@dataclass(frozen=True)
class Instruction:
    """opcode: `ld.global.v4.f32`. operands: C++ text; a {vector} is a list; an [address] is ("address", text)."""

    opcode: str
    operands: tuple[str | list[str] | tuple[str, str], ...]

    @property
    def parts(self) -> list[str]:
        return self.opcode.split(".")

    def text(self, i: int) -> str:
        value = self.operands[i]
        if not isinstance(value, str):
            raise Unknown
        return value

    def vector(self, i: int) -> list[str]:
        value = self.operands[i]
        return value if isinstance(value, list) else [self.text(i)]

    def address(self, i: int) -> str:
        value = self.operands[i]
        if not isinstance(value, tuple):
            raise Unknown
        space = "shared" if any(p.startswith("shared") for p in self.parts) else "global"
        return f"{PTX}{space}({value[1]})"


class Unknown(Exception):
    """This instruction is not in the whitelist."""


Rule = Callable[[Instruction], str]
RULES: list[tuple[re.Pattern[str], Rule]] = []


def rule(pattern: str) -> Callable[[Rule], Rule]:
    """Registers the C++ of opcodes that match `pattern` whole."""

    def add(function: Rule) -> Rule:
        RULES.append((re.compile(pattern), function))
        return function

    return add


def site_of(i: Instruction) -> str:
    return f'{NS}Site{{"{i.parts[0]}", __FILE__, __LINE__}}'
