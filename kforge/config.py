"""Settings from kforge.toml, the environment and defaults, typed. The command line overrides them in kforge/cli.

Precedence: command line > environment (`KFORGE_<NAME>`) > the nearest kforge.toml upwards > defaults.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kforge.errors import UsageError

FILE_NAME = "kforge.toml"
PLANS = ("quick", "standard", "full")


def _default_cache() -> Path:
    try:
        return Path.home() / ".cache" / "kforge"
    except RuntimeError:  # no HOME, and no entry for this user
        return Path(".kforge", "cache").absolute()


@dataclass(frozen=True)
class Config:
    """Every setting a user may fix once instead of typing it on each command."""

    device: str = "auto"  # auto | cpu | cuda | cuda:N
    arch: str | None = None  # e.g. "sm_90a"; None: the device's, or sm_90a without one
    plan: str = "standard"  # quick | standard | full
    budget: float = 60.0  # seconds of search
    out: str = "kforge_out"  # suggest writes to <out>/<op>/
    state: Path = Path(".kforge")  # runs/ and the index live here
    cache: Path = field(default_factory=_default_cache)  # builds, ceilings

    @property
    def runs(self) -> Path:
        """The folder with one sub-folder per run."""
        return self.state / "runs"

    @property
    def index(self) -> Path:
        """The SQLite file with the run index."""
        return self.state / "index.sqlite"


def parse_seconds(text: str | float | int) -> float:
    """Seconds from 90, "90", "90s", "1.5m" or "2h"; UsageError for anything else and for values <= 0."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(s|m|h)?\s*", str(text))
    value = float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"] if match else 0.0
    if value <= 0:
        raise UsageError(f"{text!r} is not a duration", "write for example 60s, 1.5m or 2h")
    return value


def parse_device(text: str) -> str:
    """Checks the spelling of a device: auto, cpu, cuda or cuda:N. Whether it exists is not decided here."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", text):
        raise UsageError(f"{text!r} is not a device", "choose auto, cpu, cuda or cuda:N")
    return text


def parse_plan(text: str) -> str:
    """Checks the name of an input plan."""
    if text not in PLANS:
        raise UsageError(f"{text!r} is not a plan", "choose " + ", ".join(PLANS))
    return text


def parse_arch(text: str) -> str:
    """Checks the spelling of an architecture, e.g. sm_80 or sm_90a."""
    if not re.fullmatch(r"sm_\d{2,3}[af]?", text):
        raise UsageError(f"{text!r} is not an architecture", "write for example sm_80, sm_89 or sm_90a")
    return text


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{text!r}: there is no such home folder", "write the path in full") from error


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "device": parse_device,
    "arch": parse_arch,
    "plan": parse_plan,
    "budget": parse_seconds,
    "out": str,
    "state": _path,
    "cache": _path,
}


def _apply(config: Config, values: Mapping[str, Any], origin: str) -> Config:
    for key, value in values.items():
        if key not in _PARSERS:
            close = get_close_matches(key, _PARSERS, n=1)
            guess = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"{origin}: unknown setting {key!r}", f"{guess}settings: {', '.join(_PARSERS)}")
        if not isinstance(value, str) and not (key == "budget" and type(value) in (int, float)):
            raise UsageError(f"{origin}: {key} must be text, not {value!r}", f'write {key} = "..."')
        try:
            config = replace(config, **{key: _PARSERS[key](value)})
        except UsageError as error:
            raise UsageError(f"{origin}: {key}: {error.message}", error.hint) from error
    return config


def find_file(start: Path) -> Path | None:
    """The nearest kforge.toml in `start` or a folder above it."""
    folder = start.resolve()
    return next((path for up in (folder, *folder.parents) if (path := up / FILE_NAME).is_file()), None)


def load(start: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The settings in force for a command started in `start` (default: the working directory).

    UsageError for a file that is not TOML, an unknown key (the message lists what exists) or a bad value.
    Variables KFORGE_* other than the names of settings belong to other parts and are left alone.
    """
    config = Config()
    try:
        path = find_file(start or Path.cwd())
    except FileNotFoundError as error:
        raise UsageError("the working folder is gone", "change to one that exists") from error
    if path is not None:
        try:
            values = tomllib.loads(path.read_text())
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}", "give permission or remove it") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: not valid TOML: {error}", "fix the file or remove it") from error
        config = _apply(config, values, str(path))
    env = os.environ if environ is None else environ
    for item in fields(Config):
        variable = f"KFORGE_{item.name.upper()}"
        if env.get(variable):
            config = _apply(config, {item.name: env[variable]}, variable)
    return config
