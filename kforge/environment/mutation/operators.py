"""The registry of mutation operators: each plants one kind of mistake that people and models make in kernels.

An operator on CUDA is a generator of changes over a parsed source; one on the module works on the Python text. To add
one, write a function below a `@cuda(...)` or `@module(...)` line in one of the files beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from kforge.environment.mutation.source import Change, Cuda, Module

FILES = ("control", "values", "indexing", "modules")


@dataclass(frozen=True)
class Operator:
    """One kind of mistake. language: "cuda" or "module". equivalent: why its mutants change nothing on small inputs."""

    name: str
    description: str
    language: str
    run: Callable[[Any], Iterator[Change]]
    equivalent: str = ""


OPERATORS: dict[str, Operator] = {}


def cuda(name: str, description: str, equivalent: str = "") -> Callable[..., Callable[[Cuda], Iterator[Change]]]:
    """Registers an operator on CUDA sources."""
    return _register(name, description, "cuda", equivalent)


def module(name: str, description: str) -> Callable[..., Callable[[Module], Iterator[Change]]]:
    """Registers an operator on the Python module."""
    return _register(name, description, "module", "")


def _register(name: str, description: str, language: str, equivalent: str) -> Callable[..., Any]:
    def register(function: Callable[[Any], Iterator[Change]]) -> Callable[[Any], Iterator[Change]]:
        assert name not in OPERATORS, f"two operators are named {name}"
        OPERATORS[name] = Operator(name, description, language, function, equivalent)
        return function

    return register


def load() -> dict[str, Operator]:
    """All operators, by name, in order of the files."""
    for file in FILES:
        import_module(f"kforge.environment.mutation.{file}")
    return OPERATORS
