"""Which chat model is meant: its endpoint, key, prices and window, from options, kforge.toml and the environment.

Nothing is asked over the network here (see `kforge.agent.chat.ready`), and no other model or endpoint is ever put in
the place of one that is missing.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import urlsplit

from kforge.errors import MissingError, UsageError

OPENAI = "https://api.openai.com/v1"
SERVICE = "kforge"  # of the keyring; the user name there is the endpoint's host
WINDOW = 128_000  # tokens, where kforge.toml says nothing; CUDA Agent's (arXiv 2602.24286)
MOST_OUTPUT = 16_384  # tokens of one answer; ours
TAKEN = ("engine", "replay", "user")  # proposers' names in trees and logs
_NO_KEY = "none"  # the openai package insists on a key


class Settings(Protocol):
    """What is read of kforge.config.Config. models: tables by name, as `Model` describes them."""

    @property
    def base_url(self) -> str | None: ...

    @property
    def models(self) -> Mapping[str, Mapping[str, Any]]: ...


class Key:
    """A secret that no repr, log or pickle shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself, for the endpoint alone."""
        return self._value

    def redact(self, text: str) -> str:
        """A foreign text without the key, whole or abbreviated as endpoints quote it ("sk-ab***yz")."""
        if self._value and self._value != _NO_KEY:
            text = text.replace(self._value, "[key]")
        return re.sub(r"\bsk-[A-Za-z0-9_-]*[*.…]+[A-Za-z0-9_-]*|\bsk-[A-Za-z0-9_-]{12,}", "[key]", text)

    def __bool__(self) -> bool:
        return bool(self._value) and self._value != _NO_KEY

    def __repr__(self) -> str:
        return "Key(set)" if self else "Key(none)"

    def __reduce__(self) -> Any:
        raise TypeError("a key is not written anywhere")


@dataclass(frozen=True)
class Prices:
    """USD per million tokens. cached: of input tokens that the endpoint had cached."""

    input: float
    output: float
    cached: float

    def usd(self, tokens_in: int, tokens_out: int, tokens_cached: int = 0) -> float:
        """What a call costs; the cached tokens are among those that went in."""
        fresh = tokens_in - tokens_cached
        return (fresh * self.input + tokens_cached * self.cached + tokens_out * self.output) / 1e6


@dataclass(frozen=True)
class Model:
    """A chat model. prices None: unknown. window and output in tokens. tools: whether it can call tools.

    temperature None: the endpoint's own. origin: where the address came from, in words.
    """

    name: str
    base_url: str
    key: Key = field(default=Key(_NO_KEY), repr=False, compare=False)
    prices: Prices | None = None
    window: int = WINDOW
    output: int = MOST_OUTPUT
    tools: bool = True
    temperature: float | None = None
    origin: str = "default"

    @property
    def host(self) -> str:
        """For messages: the address without path or credentials."""
        parts = urlsplit(self.base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    @property
    def is_local(self) -> bool:
        """An address of this machine, which may need no key."""
        return is_local(self.base_url)


def resolve_model(
    name: str,
    config: Settings,
    *,
    base_url: str | None = None,
    environ: Mapping[str, str] | None = None,
    stored: Callable[[str], str] | None = None,
) -> Model:
    """The model of this name. base_url: the command line's. stored: looks a host up in the keyring.

    UsageError for a name, address or table that is wrong; MissingError where a key is needed and there is none.
    """
    env = os.environ if environ is None else environ
    if not name.strip():
        raise UsageError("a model needs a name", "--model NAME, as the endpoint calls it")
    if name in TAKEN:
        raise UsageError(f"{name!r} names another proposer of kforge", "give the model an alias at its endpoint")
    table = dict(config.models.get(name, {}))
    url, origin = _address(base_url, table.pop("base_url", None), config, env)
    spec = _table(name, table)
    key = _key(url, origin, env, stored or _keyring)
    if not key and not is_local(url):
        host = urlsplit(url).hostname
        if origin == "kforge.toml" and (env.get("KFORGE_API_KEY") or env.get("OPENAI_API_KEY")):
            raise MissingError(
                f"no key is sent to {host}, which only kforge.toml names",
                f"if you trust it: --base-url {url}, or KFORGE_BASE_URL, or a key of its own in the keyring: "
                f"keyring set {SERVICE} {host}",
            )
        raise MissingError(
            f"no key for model {name} at {host}",
            "set KFORGE_API_KEY (or OPENAI_API_KEY for OpenAI's own address), or store one with the extra keyring: "
            f"keyring set {SERVICE} {host}",
        )
    return Model(name.strip(), url, key, origin=origin, **spec)


def is_local(url: str) -> bool:
    """Whether an address is this machine's."""
    host = (urlsplit(url).hostname or "").lower()
    return host == "localhost" or host == "::1" or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))


def _address(option: str | None, of_model: str | None, config: Settings, env: Mapping[str, str]) -> tuple[str, str]:
    """(address, where it was said), the nearest to the user first."""
    said = [
        (option, "command line"),
        (env.get("KFORGE_BASE_URL"), "environment"),
        (of_model, "kforge.toml"),
        (config.base_url, "kforge.toml"),
        (env.get("OPENAI_BASE_URL"), "environment"),
        (OPENAI, "default"),
    ]
    url, origin = next((url.strip(), origin) for url, origin in said if url and url.strip())
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(f"{url!r} ({origin}) is no address of an endpoint", "for example http://127.0.0.1:8080/v1")
    if parts.username or parts.password:
        raise UsageError("the address of an endpoint holds no name or password", "put the key into KFORGE_API_KEY")
    return url.rstrip("/"), origin


def _key(url: str, origin: str, env: Mapping[str, str], stored: Callable[[str], str]) -> Key:
    """KFORGE_API_KEY, else the keyring's for this host, else OPENAI_API_KEY.

    The variables go to OpenAI and to an address that the user gave with them: a kforge.toml that came with somebody's
    repository must not be able to call them to another host. KFORGE_API_KEY also goes to this machine.
    """
    host = urlsplit(url).hostname or ""
    said = url == OPENAI or origin in ("command line", "environment")
    value = env.get("KFORGE_API_KEY", "").strip() if said or is_local(url) else ""
    value = value or stored(host)
    if not value and said:
        value = env.get("OPENAI_API_KEY", "").strip()
    if any(ord(sign) < 33 or ord(sign) > 126 for sign in value):
        raise UsageError(f"the key for {host} holds a blank or a sign that no key has", "copy it again")
    return Key(value or _NO_KEY)


def _keyring(host: str) -> str:
    """The keyring's entry; "" where the package or a keyring of this machine is missing."""
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return ""
    try:
        return (keyring.get_password(SERVICE, host) or "").strip()
    except KeyringError:
        return ""


_NUMBERS = ("window", "output", "usd_in", "usd_cached", "usd_out", "temperature")


def _table(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """`[models."NAME"]` of kforge.toml as fields of Model."""
    where = f'kforge.toml: [models."{name}"]'
    unknown = sorted(set(table) - {*_NUMBERS, "tools"})
    if unknown:
        raise UsageError(
            f"{where}: unknown setting {unknown[0]!r}", f"settings: base_url, tools, {', '.join(_NUMBERS)}"
        )
    for key, value in table.items():
        if key == "tools" and not isinstance(value, bool):
            raise UsageError(f"{where}: tools must be true or false, not {value!r}")
        if key in _NUMBERS and (type(value) not in (int, float) or not math.isfinite(value) or value < 0):
            raise UsageError(f"{where}: {key} must be a number of at least 0, not {value!r}")
    spec: dict[str, Any] = {key: table[key] for key in ("tools",) if key in table}
    for key, least in (("window", 1024), ("output", 64)):
        if key in table:
            spec[key] = int(table[key])
            if spec[key] < least:
                raise UsageError(f"{where}: {key} must be at least {least} tokens, not {table[key]}")
    if "temperature" in table:
        spec["temperature"] = float(table["temperature"])
    window = spec.get("window", WINDOW)
    spec["output"] = min(spec.get("output", MOST_OUTPUT), window // 4)  # the rest is for what is asked
    if "usd_in" in table or "usd_out" in table:
        if not ("usd_in" in table and "usd_out" in table):
            raise UsageError(f"{where}: a price needs usd_in and usd_out", "USD per million tokens")
        cached = table.get("usd_cached", table["usd_in"])
        spec["prices"] = Prices(float(table["usd_in"]), float(table["usd_out"]), float(cached))
    return spec
