"""Actions as fenced blocks, for models that cannot call tools: how they are written, and the strict reading of them.

    ```kforge write_file
    name: softmax_kforge.py
    --- text
    import torch
    ```

Nothing is guessed: a block that does not keep to the form is answered with how to write it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_OPEN = re.compile(r"^ {0,3}(`{3,})[ \t]*kforge\b[ \t]*(.*)$")
_LIKE = re.compile(r"^ {0,3}(`{3,})")
_NAME = re.compile(r"[A-Za-z_]\w*")
MOST_DEPTH = 32
HOW = (
    "an action is written as\n```kforge NAME\nargument: value\n--- long_argument\ntext\n```\n"
    "with the name of the action behind `kforge`, one `argument: value` a line, and long texts behind `--- argument`"
)


@dataclass(frozen=True)
class Block:
    """One action. wrong: what is malformed, "" where it can be done. tool "" where not even the name can be read."""

    tool: str
    arguments: dict[str, Any]
    wrong: str = ""

    @property
    def told(self) -> str:
        """What the model reads about a malformed block."""
        return f"error: {self.wrong}\n{HOW}"


def parse(text: str, schemas: Mapping[str, Mapping[str, Any]]) -> list[Block]:
    """The blocks of an answer in order. schemas: the JSON schema of each action's arguments."""
    lines = text.replace("\r\n", "\n").split("\n")
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        opened = _OPEN.match(lines[at])
        at += 1
        if not opened:
            fence = _LIKE.match(lines[at - 1])
            if fence:  # another block: what it quotes is no action
                at = _end(lines, at, fence[1]) + 1
            continue
        fence_end = _end(lines, at, opened[1])
        body, name = lines[at:fence_end], opened[2].strip()
        at = fence_end + 1
        if fence_end == len(lines):
            blocks.append(
                Block(_plain(name), {}, f"the block {name!r} has no closing {opened[1]}: it may have been cut off")
            )
        else:
            blocks.append(_block(name, body, schemas))
    return blocks


def _end(lines: Sequence[str], at: int, fence: str) -> int:
    """The line that closes a block: as many backticks or more, and nothing else."""
    for number in range(at, len(lines)):
        line = lines[number].strip()
        if len(line) >= len(fence) and set(line) == {"`"}:
            return number
    return len(lines)


def _plain(name: str) -> str:
    return name if _NAME.fullmatch(name) else ""


def _block(name: str, body: Sequence[str], schemas: Mapping[str, Mapping[str, Any]]) -> Block:
    if not _NAME.fullmatch(name):
        return Block("", {}, f"{name!r} is no name of an action" if name else "the name of the action is missing")
    if name not in schemas:
        return Block(name, {}, f"there is no action {name!r}; actions: {', '.join(schemas)}")
    properties: Mapping[str, Any] = schemas[name].get("properties", {})
    arguments: dict[str, Any] = {}
    section: str | None = None
    long: list[str] = []

    def close() -> None:
        if section is not None:
            arguments[section] = "\n".join(long) + ("\n" if long else "")

    for line in body:
        begun = re.fullmatch(r"---[ \t]+([A-Za-z_]\w*)[ \t]*", line)
        if begun and begun[1] in properties:
            close()
            section, long = begun[1], []
            if section in arguments:
                return Block(name, {}, f"{section} is given twice")
        elif section is not None:
            long.append(line)
        elif line.strip():
            wrong = _short(line, properties, arguments)
            if wrong:
                return Block(name, {}, wrong)
    close()
    return Block(name, arguments)


def _short(line: str, properties: Mapping[str, Any], arguments: dict[str, Any]) -> str:
    """Read `name: value` into the arguments; what is wrong with it, "" if nothing."""
    key, colon, value = line.partition(":")
    key, value = key.strip(), value.strip()
    if line.startswith("---"):
        return f"{line.strip()!r} names no argument; arguments: {', '.join(properties) or 'none'}"
    if not colon or not _NAME.fullmatch(key):
        return f"the line {line.strip()[:80]!r} is neither `argument: value` nor `--- argument`"
    if key not in properties:
        return f"there is no argument {key!r}; arguments: {', '.join(properties) or 'none'}"
    if key in arguments:
        return f"{key} is given twice"
    if _takes_text(properties[key]):
        arguments[key] = json.loads(value) if _is_quoted(value) else value
        return ""
    try:
        found = json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return f"{key}: {value[:80]!r} is no number, list, true, false or object as JSON writes it"
    if _is_deep(found):
        return f"{key} is nested more than {MOST_DEPTH} deep"
    arguments[key] = found
    return ""


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _is_deep(value: Any) -> bool:
    """Whether lists and objects stand in each other deeper than any argument needs."""
    layer = [value]
    for _ in range(MOST_DEPTH):
        layer = [
            item
            for inner in layer
            if isinstance(inner, list | dict)
            for item in (inner.values() if isinstance(inner, dict) else inner)
        ]
        if not layer:
            return False
    return True


def _takes_text(schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _is_quoted(value: str) -> bool:
    try:
        return len(value) > 1 and value[0] == '"' and isinstance(json.loads(value), str)
    except ValueError:
        return False


def describe(schemas: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Name, arguments and description of each action, for the prompt. schemas: in the form of OpenAI's `tools`."""
    found = []
    for schema in schemas:
        function = schema["function"]
        parameters = function["parameters"]
        required = set(parameters.get("required", ()))
        words = []
        for name in parameters.get("properties", {}):
            words.append(name if name in required else f"{name}?")
        lines = [function["description"].strip()]
        lines += [f"{name}: {item['description']}" for name, item in parameters.get("properties", {}).items()
                  if item.get("description")]  # fmt: skip
        found.append({"name": function["name"], "arguments": ", ".join(words), "description": "\n".join(lines)})
    return found
