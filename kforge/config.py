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
UI_TABLES = ("ui", "keys")  # of kforge.toml: read and checked by kforge.ui.settings
SEARCHES = ("greedy", "best_of_n", "beam", "mcts", "contrastive", "hybrid")
REWARDS = ("log", "milestone")


def _default_cache() -> Path:
    try:
        return Path.home() / ".cache" / "kforge"
    except RuntimeError:  # no HOME, and no entry for this user
        return Path(".kforge", "cache").absolute()


@dataclass(frozen=True)
class Prices:
    """What a chat model costs, in USD per million tokens. cached: of input that the endpoint had cached."""

    input: float
    output: float
    cached: float | None = None  # None: as input


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
    model: str | None = None  # chat model that goes on where the engine ends; None: the engine answers alone
    base_url: str | None = None  # of an OpenAI-compatible endpoint; None: the package's own
    search: str | None = None  # a name of SEARCHES; None: hybrid with a model, else the engine's own order
    reward: str = "log"  # how a search values attempts: a name of REWARDS
    prices: Mapping[str, Prices] = field(default_factory=dict, hash=False)  # by model: [prices."name"]
    window: Mapping[str, int] = field(default_factory=dict, hash=False)  # tokens of context by model: [window]
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)  # all of it: [models."name"]
    roles: Mapping[str, str] = field(default_factory=dict, hash=False)  # model by role, "same": the run's: [roles]
    prompts: Path | None = None  # folder of templates in the place of kforge's own

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
    if match and value == 0:
        raise UsageError(f"{str(text)[:40]!r} is no time at all", "write more than 0: 0.5s, 60s, 1.5m or 2h")
    if not 0 < value < float("inf"):
        raise UsageError(f"{str(text)[:40]!r} is not a duration", "write for example 60s, 1.5m or 2h")
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


def parse_search(text: str) -> str:
    """Checks the name of a search strategy."""
    if text not in SEARCHES:
        raise UsageError(f"{text!r} is not a search", "choose " + ", ".join(SEARCHES))
    return text


def parse_reward(text: str) -> str:
    """Checks the name of a reward."""
    if text not in REWARDS:
        raise UsageError(f"{text!r} is not a reward", "choose " + ", ".join(REWARDS))
    return text


def parse_base_url(text: str) -> str:
    """Checks that an endpoint is named by http or https."""
    if not re.fullmatch(r"https?://[^\s/]+(/\S*)?", text):
        raise UsageError(f"{text!r} is not an endpoint", "write for example http://localhost:8000/v1")
    return text.rstrip("/")


def _prices(table: Mapping[str, Any]) -> dict[str, Prices]:
    found = {}
    for model, entry in table.items():
        if not isinstance(entry, Mapping):
            raise UsageError(
                f"{model} must be a table", f'write [prices."{model}"], then input = 1.25 and output = 10.0'
            )
        names = [item.name for item in fields(Prices)]
        unknown = [name for name in entry if name not in names]
        if unknown:
            raise UsageError(f"{model}: unknown price {unknown[0]!r}", "prices: " + ", ".join(names))
        missing = [name for name in ("input", "output") if name not in entry]
        if missing:
            raise UsageError(f"{model} lacks {missing[0]}", "prices are in USD per million tokens")
        for name, value in entry.items():
            if type(value) not in (int, float) or not 0 <= value < float("inf"):
                raise UsageError(f"{model}: {name} must be a number of USD per million tokens, not {value!r}")
        found[model] = Prices(**{name: float(value) for name, value in entry.items()})
    return found


def _models(table: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What may stand there is checked where models are resolved (kforge.agent.chat.model)."""
    for model, entry in table.items():
        if not isinstance(entry, Mapping):
            raise UsageError(f"{model} must be a table", f'write [models."{model}"]')
    return {model: dict(entry) for model, entry in table.items()}


def _merged(config: Config) -> Config:
    """Prices and windows entered into the tables of their models."""
    models = {model: dict(entry) for model, entry in config.models.items()}

    def enter(model: str, table: str, **values: Any) -> None:
        entry = models.setdefault(model, {})
        for key, value in values.items():
            if key in entry:
                words = f'{FILE_NAME}: [{table}] and [models."{model}"] both give {key} of {model}'
                raise UsageError(words, "take one of them out")
            entry[key] = value

    for model, prices in config.prices.items():
        cached = {} if prices.cached is None else {"usd_cached": prices.cached}
        enter(model, "prices", usd_in=prices.input, usd_out=prices.output, **cached)
    for model, tokens in config.window.items():
        enter(model, "window", window=tokens)
    return replace(config, models=models)


def _window(table: Mapping[str, Any]) -> dict[str, int]:
    for model, tokens in table.items():
        if type(tokens) is not int or tokens <= 0:
            raise UsageError(f"{model} must be a number of tokens, not {tokens!r}", f'write "{model}" = 131072')
    return dict(table)


def _roles(table: Mapping[str, Any]) -> dict[str, str]:
    """Which roles there are is checked where they are cast (kforge.agent.roles)."""
    for role, model in table.items():
        if not isinstance(model, str) or not model.strip():
            raise UsageError(f"{role} must be the name of a model, not {model!r}", f'write {role} = "same"')
    return dict(table)


def _path(text: str) -> Path:
    try:
        if "\0" in text:
            raise UsageError(f"{text!r} is no path", "it holds a null character")
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{text!r}: there is no such home folder", "write the path in full") from error


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "device": parse_device,
    "arch": parse_arch,
    "plan": parse_plan,
    "budget": parse_seconds,
    "out": lambda text: str(_path(text)),
    "state": _path,
    "cache": _path,
    "model": str,
    "base_url": parse_base_url,
    "search": parse_search,
    "reward": parse_reward,
    "prompts": _path,
}
_TABLES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "prices": _prices,
    "window": _window,
    "models": _models,
    "roles": _roles,
}


def _apply(config: Config, values: Mapping[str, Any], origin: str) -> Config:
    for key, value in values.items():
        known = [*_PARSERS, *_TABLES, *UI_TABLES]
        if key in UI_TABLES:
            continue
        if key not in known:
            close = get_close_matches(key, known, n=1)
            guess = f"did you mean {close[0]}? " if close else ""
            raise UsageError(f"{origin}: unknown setting {key!r}", f"{guess}settings: {', '.join(known)}")
        if key in _TABLES:
            if not isinstance(value, Mapping):
                raise UsageError(f"{origin}: {key} must be a table, not {value!r}", f"write [{key}] in {FILE_NAME}")
        elif not isinstance(value, str) and not (key == "budget" and type(value) in (int, float)):
            raise UsageError(f"{origin}: {key} must be text, not {value!r}", f'write {key} = "..."')
        try:
            config = replace(config, **{key: {**_PARSERS, **_TABLES}[key](value)})
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
        except RecursionError as error:
            raise UsageError(f"{path}: not valid TOML: nested too deeply", "fix the file or remove it") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{path}: not valid TOML: {error}", "fix the file or remove it") from error
        config = _apply(config, values, str(path))
        if config.prompts is not None:  # beside the file that names it
            config = replace(config, prompts=path.parent / config.prompts)
    env = os.environ if environ is None else environ
    for item in fields(Config):
        variable = f"KFORGE_{item.name.upper()}"
        if item.name not in _TABLES and env.get(variable):
            config = _apply(config, {item.name: env[variable]}, variable)
    return _merged(config)
