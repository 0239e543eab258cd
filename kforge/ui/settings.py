"""The tables [ui] and [keys] of kforge.toml: what the IDE looks like and which key does what."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kforge import config
from kforge.errors import StoreError, UsageError
from kforge.ui import files

# alt and b or f: a terminal sends the same for a word to the left or right
_SENT = re.compile(r"(shift\+|ctrl\+)?f([1-9]|1\d|2[0-4])|alt\+[ac-eg-z0-9]|ctrl\+[a-gk-ln-z]")
THEMES = ("dark", "light", "contrast")


@dataclass(frozen=True)
class Settings:
    """theme: dark, light or contrast; vim: modal keys in the editor; reverify: judge again what changed on disk.

    keys: key by action's id. path: the kforge.toml that was read, None where there is none.
    """

    theme: str = "dark"
    vim: bool = False
    reverify: bool = True
    keys: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None


_CHOICES: dict[str, tuple[type, tuple[Any, ...]]] = {
    "theme": (str, THEMES),
    "vim": (bool, (True, False)),
    "reverify": (bool, (True, False)),
}


def load(start: Path | None = None) -> Settings:
    """The settings in force in a folder. UsageError for an unknown name, a bad value, or a key that is used twice."""
    path = config.find_file(start or Path.cwd())
    if path is None:
        return Settings()
    try:
        data = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not valid TOML: {error}", "fix the file or remove it") from error
    return parse(data, path)


def parse(data: Mapping[str, Any], path: Path | None = None) -> Settings:
    """The settings in the tables of a kforge.toml."""
    place = str(path or "kforge.toml")
    values: dict[str, Any] = {}
    for name, value in _table(data, "ui", place).items():
        if name not in _CHOICES:
            raise UsageError(f"{place}: unknown setting ui.{name}", _guess(name, list(_CHOICES)))
        kind, choices = _CHOICES[name]
        if type(value) is not kind or value not in choices:
            words = ", ".join(json.dumps(c) for c in choices)
            raise UsageError(f"{place}: ui.{name} cannot be {value!r}", f"choose {words}")
        values[name] = value
    return Settings(**values, keys=_keys(_table(data, "keys", place), place), path=path)


def _keys(table: Mapping[str, Any], place: str) -> dict[str, str]:
    from kforge.ui.actions import ACTIONS

    keys = {}
    for name, key in table.items():
        if name not in ACTIONS:
            raise UsageError(f"{place}: no action is named {name!r} (keys.{name})", _guess(name, list(ACTIONS)))
        if not isinstance(key, str) or not re.fullmatch(r"[a-z0-9_+,]*", key):
            raise UsageError(f"{place}: keys.{name} is no key: {key!r}", 'write for example "f5", "ctrl+g", or ""')
        for one in filter(None, key.split(",")):
            if not _SENT.fullmatch(one):
                raise UsageError(
                    f"{place}: keys.{name}: {one!r} does not arrive from every terminal, or is needed to type",
                    "F-keys, alt and a letter but b and f, or a digit, ctrl and a letter but h, i, j, m work",
                )
        keys[name] = key
    used: dict[str, str] = {}
    for action in ACTIONS.values():
        for key in filter(None, keys.get(action.id, action.key).split(",")):
            if key in used:
                raise UsageError(f"{place}: {key} is the key of {used[key]} and of {action.id}", "give one another key")
            used[key] = action.id
    return keys


def _table(data: Mapping[str, Any], name: str, place: str) -> Mapping[str, Any]:
    table = data.get(name, {})
    if not isinstance(table, Mapping):
        raise UsageError(f"{place}: {name} must be a table", f"write [{name}] and its settings below")
    return table


def _guess(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"{f'did you mean {close[0]}? ' if close else ''}known: {', '.join(known)}"


def store(path: Path, table: str, name: str, value: str | bool | None) -> None:
    """Set one value in a kforge.toml, the rest of which stays as it is; None takes it out. UsageError: not writable."""
    try:
        text = path.read_text() if path.is_file() else ""
        changed = edited(text, table, name, value)
        parse(tomllib.loads(changed), path)
        files.write(path, changed)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be changed without harm: {error}", "edit it by hand") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "give permission") from error
    except StoreError as error:
        raise UsageError(error.message, error.hint or "give permission") from error


def edited(text: str, table: str, name: str, value: str | bool | None) -> str:
    """`text` of a TOML file with `name` in `[table]` set to `value`, or taken out for None."""
    lines = text.splitlines()
    head = next((n for n, line in enumerate(lines) if line.split("#")[0].strip() == f"[{table}]"), None)
    new = [] if value is None else [f"{name} = {json.dumps(value)}"]
    if head is None:
        if not new:
            return text
        return "\n".join([*lines, *([""] if lines else []), f"[{table}]", *new]) + "\n"
    end = next((n for n in range(head + 1, len(lines)) if lines[n].lstrip().startswith("[")), len(lines))
    at = next((n for n in range(head + 1, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[n])), None)
    if at is not None:
        lines[at : at + 1] = new
    else:
        while end > head + 1 and not lines[end - 1].strip():
            end -= 1
        lines[end:end] = new
    return "\n".join(lines) + "\n"


def defaults() -> dict[str, Any]:
    """The values of [ui] where nothing is set."""
    return {item.name: item.default for item in fields(Settings) if item.name in _CHOICES}
