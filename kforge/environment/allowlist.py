"""Reads allowlist.toml: what a candidate may import and call, as sets with a category for every name."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class AllowList:
    """names by category; `forbidden` maps a module to the reason for which its import is rejected."""

    imports: frozenset[str]
    closed: tuple[str, ...]
    forbidden: dict[str, str]
    torch: dict[str, str]  # name in the source -> category
    aten: dict[str, str]  # operator at run time -> category
    makers: frozenset[str]
    fast_math: tuple[str, ...]
    float_atomics: tuple[str, ...]


@cache
def allowlist() -> AllowList:
    """The list that ships with the package; read once."""
    data = tomllib.loads(resources.files("kforge.environment").joinpath("allowlist.toml").read_text())
    return AllowList(
        imports=frozenset(data["imports"]["allowed"]),
        closed=tuple(data["imports"]["closed"]),
        forbidden=dict(data["forbidden_imports"]),
        torch={name: category for category, names in data["torch"].items() for name in names},
        aten={name: category for category, names in data["aten"].items() for name in names},
        makers=frozenset(data["kernels"]["makers"]),
        fast_math=tuple(data["cuda"]["fast_math"]),
        float_atomics=tuple(data["cuda"]["float_atomics"]),
    )


def operator_category(name: str) -> str | None:
    """Category of a run-time operator, written "aten::mm", "aten.mm.default" or "mm"; None: not allowed."""
    bare = name.removeprefix("aten::").removeprefix("aten.").split(".")[0]
    return allowlist().aten.get(bare)
