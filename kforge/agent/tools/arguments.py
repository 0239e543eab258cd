"""Arguments as a model wrote them, checked against a tool's schema; what is wrong is said so that it can be mended."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kforge.agent.tools.toolbox import ToolError

MOST_BYTES = 1 << 20
_LARGEST = 1e300
_WORDS = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "an object", "null": "null",
}  # fmt: skip


def parse(arguments: str | Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the tool's keywords. ToolError: malformed JSON, unknown, missing or wrongly typed ones."""
    value: Any = arguments
    if isinstance(arguments, str):
        value = _decoded(arguments)
    if not isinstance(value, Mapping):
        raise ToolError(f"arguments must be one JSON object, not {_kind(value)}", _usage(schema))
    properties = schema["properties"]
    unknown = [str(name) for name in value if name not in properties]
    if unknown:
        raise ToolError(f"unknown argument{'s' * (len(unknown) > 1)}: {', '.join(unknown)[:200]}", _usage(schema))
    missing = [name for name in schema["required"] if name not in value]
    if missing:
        raise ToolError(f"missing argument{'s' * (len(missing) > 1)}: {', '.join(missing)}", _usage(schema))
    return {name: _checked(item, properties[name], name) for name, item in value.items()}


def _decoded(text: str) -> Any:
    if len(text) > MOST_BYTES:
        raise ToolError(f"the arguments have {len(text)} characters; the limit is {MOST_BYTES}")
    if not text.strip():
        return {}  # how several servers write a call without arguments
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError as error:
        raise ToolError("the arguments are nested too deeply") from error
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 30) : error.pos + 30]
        raise ToolError(
            f"the arguments are not valid JSON: {error.msg} at character {error.pos}, near {near!r}",
            'write one JSON object; in texts a line break is \\n and a quote is \\"',
        ) from error
    except ValueError as error:
        raise ToolError(f"the arguments are not valid JSON: {error}") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _checked(value: Any, schema: Mapping[str, Any], where: str) -> Any:
    kinds = [schema] if "anyOf" not in schema else list(schema["anyOf"])
    kinds = [{**k, "type": t} for k in kinds for t in (k["type"] if isinstance(k["type"], list) else [k["type"]])]
    fitting = [kind for kind in kinds if _fits(value, kind["type"])]
    if not fitting:
        wanted = " or ".join(_WORDS[kind["type"]] for kind in kinds)
        raise ToolError(f"{where} must be {wanted}, not {_kind(value)}")
    if len(fitting) == 1:
        return _inside(value, fitting[0], where)
    for kind in fitting[:-1]:  # several forms of the same JSON type: the first that holds all the way down
        try:
            return _inside(value, kind, where)
        except ToolError:
            continue
    return _inside(value, fitting[-1], where)


def _inside(value: Any, kind: Mapping[str, Any], where: str) -> Any:
    if "enum" in kind and value not in kind["enum"]:
        raise ToolError(f"{where} must be one of {', '.join(kind['enum'])}, not {value[:60]!r}")
    if kind["type"] == "array":
        return [_checked(item, kind["items"], f"{where}[{i}]") for i, item in enumerate(value)]
    if kind["type"] == "object":
        held = {_unicode(name, where): item for name, item in value.items()}
        return {name: _checked(item, kind["additionalProperties"], f"{where}.{name}") for name, item in held.items()}
    if kind["type"] == "string":
        return _unicode(value, where)
    if kind["type"] in ("integer", "number"):
        if not abs(value) < _LARGEST:  # infinity too, which JSON writes as 1e999
            raise ToolError(f"{where} is out of range")
        return int(value) if kind["type"] == "integer" else float(value)
    return value


def _unicode(text: str, where: str) -> str:
    r"""Half of a pair ("\ud800") is JSON and no text: neither a file, nor the index, nor a request can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ascii(text[error.start])
        raise ToolError(f"{where} is no Unicode text: {half} at character {error.start} is half of a pair") from error
    return text


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    types: dict[str, Any] = {
        "string": str, "number": (int, float), "boolean": bool, "array": list, "object": Mapping, "null": type(None),
    }  # fmt: skip
    return isinstance(value, types[kind])


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    for kind in ("boolean", "integer", "number", "string", "array", "object"):
        if _fits(value, kind):
            shown = f" ({str(value)[:40]!r})" if kind == "string" else ""
            return _WORDS[kind] + shown
    return type(value).__name__


def _usage(schema: Mapping[str, Any]) -> str:
    required = set(schema["required"])
    parts = [name if name in required else f"{name} (optional)" for name in schema["properties"]]
    return "arguments: " + (", ".join(parts) or "none")
