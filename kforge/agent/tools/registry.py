"""The registry of tools: `@tool` reads name, description and JSON schema from a function's signature and docstring.

A tool is `function(box: Toolbox, ...) -> str | ToolResult`. The docstring's lines `name: text` describe the arguments,
the rest describes the tool.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, Union

from kforge.agent.tools.toolbox import Toolbox, ToolResult

_PLAIN: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}


@dataclass(frozen=True)
class Tool:
    """parameters: the JSON schema of its arguments. available: whether this toolbox has what it needs."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    run: Callable[..., str | ToolResult]
    available: Callable[[Toolbox], bool] = field(default=lambda box: True)

    def schema(self) -> dict[str, Any]:
        """In the form of OpenAI's `tools`."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


TOOLS: dict[str, Tool] = {}

F = TypeVar("F", bound=Callable[..., str | ToolResult])


def tool(function: F) -> F:
    """Register a function under its own name."""
    return available(lambda box: True)(function)


def available(condition: Callable[[Toolbox], bool]) -> Callable[[F], F]:
    """As `tool`, for one that only some toolboxes have."""

    def register(run: F) -> F:
        name = run.__name__
        if name in TOOLS:
            raise ValueError(f"two tools are named {name}")
        TOOLS[name] = derive(run, condition)
        return run

    return register


def derive(run: Callable[..., str | ToolResult], condition: Callable[[Toolbox], bool] = lambda box: True) -> Tool:
    """The tool that a function makes. TypeError for a type that has no schema, or an argument without a description."""
    signature = inspect.signature(run)
    hints = typing.get_type_hints(run)
    names = list(signature.parameters)[1:]
    about, described = _read(inspect.getdoc(run) or "", names)
    properties: dict[str, Any] = {}
    required = []
    for name in names:
        if name not in described:
            raise TypeError(f"{run.__name__}: the docstring says nothing of {name!r}")
        schema = schema_of(hints[name]) | {"description": described[name]}
        default = signature.parameters[name].default
        if default is inspect.Parameter.empty:
            required.append(name)
        else:
            schema["default"] = default if not isinstance(default, tuple) else list(default)
        properties[name] = schema
    parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(run.__name__, about, parameters, run, condition)


def schema_of(hint: Any) -> dict[str, Any]:
    """str, int, float, bool, list[T], dict[str, T], Literal, and unions of them with None, as JSON schema."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is Literal:
        return {"type": "string", "enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if origin in (Union, types.UnionType):
        kinds = [schema_of(a) if a is not type(None) else {"type": "null"} for a in arguments]
        if all(set(kind) == {"type"} for kind in kinds):
            return {"type": [kind["type"] for kind in kinds]}
        return {"anyOf": kinds}
    raise TypeError(f"{hint!r} has no JSON schema here")


def _read(doc: str, names: list[str]) -> tuple[str, dict[str, str]]:
    """(the tool's description, the arguments' by name). An argument's text goes on in indented lines."""
    about: list[str] = []
    described: dict[str, str] = {}
    current = ""
    for line in doc.splitlines():
        found = re.match(r"(\w+): (.+)", line)
        if found and found[1] in names:
            current = found[1]
            described[current] = found[2].strip()
        elif current and line.startswith(" ") and line.strip():
            described[current] += " " + line.strip()
        else:
            current = ""
            about.append(line)
    return re.sub(r"\s*\n\s*", " ", "\n".join(about).strip()), described
