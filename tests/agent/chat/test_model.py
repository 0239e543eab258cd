"""Which model is meant: names, addresses, keys, prices, and that a key is never shown or sent where it must not go."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kforge.agent.chat.model import OPENAI, Key, Model, Prices, resolve_model
from kforge.config import Config
from kforge.errors import MissingError, UsageError

SECRET = "sk-test-0123456789abcdef"
ELSEWHERE = "https://models.example.org/v1"


def resolve(config: Config, env: dict[str, str] | None = None, stored: str = "", **options: Any) -> Model:
    """The model m, with these variables and this entry in the keyring alone."""
    return resolve_model("m", config, environ=env or {}, stored=lambda host: stored, **options)


def test_address_comes_from_the_nearest_place() -> None:
    """Command line before KFORGE_BASE_URL before the model's table before kforge.toml before OPENAI_BASE_URL."""
    env = {"KFORGE_API_KEY": "k", "OPENAI_BASE_URL": "http://e/v1/"}
    config = Config(base_url="http://d/v1", models={"m": {"base_url": "http://c/v1"}})
    both = env | {"KFORGE_BASE_URL": "http://b/v1"}
    assert resolve(config, both, base_url="http://a/v1").base_url == "http://a/v1"
    assert resolve(config, both).base_url == "http://b/v1"
    assert resolve(config, env, stored="k").base_url == "http://c/v1"
    assert resolve(Config(base_url="http://d/v1"), env, stored="k").base_url == "http://d/v1"
    assert resolve(Config(), env).base_url == "http://e/v1"
    assert resolve(Config(), {"KFORGE_API_KEY": "k"}).base_url == OPENAI


def test_key_missing_is_said_with_what_to_set() -> None:
    """Without a key a foreign endpoint is refused before anything is sent, with the variable and the keyring named."""
    with pytest.raises(MissingError) as caught:
        resolve(Config(base_url=ELSEWHERE))
    assert caught.value.message == "no key for model m at models.example.org"
    assert "KFORGE_API_KEY" in caught.value.hint
    assert "keyring set kforge models.example.org" in caught.value.hint
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "http://127.0.0.1:1/v1", "http://[::1]:9/v1"])
def test_local_endpoint_needs_no_key(url: str) -> None:
    """An address of this machine is used without a key; one that merely begins like it is not."""
    assert not resolve(Config(), base_url=url).key
    with pytest.raises(MissingError):
        resolve(Config(), base_url="http://127.0.0.1.example.org/v1")


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "KFORGE_API_KEY"])
def test_no_key_of_a_variable_goes_to_an_address_of_a_file(variable: str) -> None:
    """A key is sent to OpenAI and to an address that the user typed, never to one that only a kforge.toml names."""
    env = {variable: SECRET}
    assert resolve(Config(), env).key.reveal() == SECRET
    assert resolve(Config(), env, base_url=ELSEWHERE).key.reveal() == SECRET
    assert resolve(Config(), env | {"OPENAI_BASE_URL": ELSEWHERE}).key.reveal() == SECRET
    with pytest.raises(MissingError, match=r"no key is sent to models\.example\.org, which only kforge\.toml names"):
        resolve(Config(base_url=ELSEWHERE), env)
    assert resolve(Config(base_url=ELSEWHERE), env, stored="own").key.reveal() == "own"
    with pytest.raises(MissingError):
        resolve(Config(models={"m": {"base_url": ELSEWHERE}}), env)


def test_own_key_and_keyring_come_first() -> None:
    """KFORGE_API_KEY before the keyring before OPENAI_API_KEY."""
    env = {"OPENAI_API_KEY": "third", "KFORGE_API_KEY": "first"}
    assert resolve(Config(), env, stored="second").key.reveal() == "first"
    assert resolve(Config(), {"OPENAI_API_KEY": "third"}, stored="second").key.reveal() == "second"


def test_key_is_never_shown() -> None:
    """No repr holds the key, it cannot be pickled, and it is taken out of foreign text, abbreviated as endpoints do."""
    model = resolve(Config(), {"KFORGE_API_KEY": SECRET})
    assert SECRET not in repr(model) + str(model) + repr(model.key) + f"{model.key}"
    with pytest.raises(TypeError):
        pickle.dumps(model.key)
    assert model.key.redact(f"bad key {SECRET}!") == "bad key [key]!"
    assert model.key.redact("bad key sk-te***ef") == "bad key [key]"


@pytest.mark.parametrize("value", ["sk-line\nbreak", "sk with blank", "ключ"])
def test_key_that_cannot_be_one_is_refused(value: str) -> None:
    """A pasted line break or foreign sign is said, and the message does not repeat the key."""
    with pytest.raises(UsageError) as caught:
        resolve(Config(), {"KFORGE_API_KEY": value})
    assert value not in caught.value.message


@pytest.mark.parametrize(
    "url", ["models.example.org/v1", "ftp://h/v1", "http://", "http://name:pass@h/v1", "http://h:x/v1"]
)
def test_bad_address_is_refused(url: str) -> None:
    """What is no http address, or carries credentials, is a usage error that does not repeat a password."""
    with pytest.raises(UsageError) as caught:
        resolve(Config(), {"KFORGE_API_KEY": "k"}, base_url=url)
    assert "pass@" not in caught.value.message


def test_table_of_a_model() -> None:
    """Window, output, tools, temperature and prices of [models."m"] are the model's; an answer leaves room to ask."""
    table = {"window": 8192, "output": 4096, "tools": False, "temperature": 0.2}
    table |= {"usd_in": 2, "usd_out": 8, "usd_cached": 0.5}
    model = resolve(Config(models={"m": table}), {"KFORGE_API_KEY": "k"})
    assert (model.window, model.output, model.tools, model.temperature) == (8192, 2048, False, 0.2)
    assert model.prices == Prices(2.0, 8.0, 0.5)
    assert resolve(Config(), {"KFORGE_API_KEY": "k"}).prices is None


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"windows": 1}, "unknown setting 'windows'"),
        ({"window": "large"}, "window must be a number"),
        ({"window": 100}, "at least 1024"),
        ({"tools": "no"}, "tools must be true or false"),
        ({"usd_in": 1.0}, "needs usd_in and usd_out"),
        ({"usd_in": -1.0, "usd_out": 1.0}, "at least 0"),
        ({"temperature": float("nan")}, "temperature must be a number"),
    ],
)
def test_table_that_is_wrong_is_said(table: dict[str, Any], words: str) -> None:
    """Each mistake in a model's table is one clear line that names it."""
    with pytest.raises(UsageError, match=words):
        resolve(Config(models={"m": table}), {"KFORGE_API_KEY": "k"})


def test_price_of_a_call() -> None:
    """Cached tokens are among those that went in, and cost their own price."""
    assert Prices(2.0, 8.0, 0.5).usd(1_000_000, 100_000, 400_000) == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 8)


@pytest.mark.parametrize("name", ["", "  ", "engine"])
def test_a_model_needs_a_name_of_its_own(name: str) -> None:
    """No name, and the name of another proposer, are refused: the log would tell them apart no more."""
    with pytest.raises(UsageError):
        resolve_model(name, Config(), base_url="http://127.0.0.1:1/v1", environ={}, stored=lambda host: "")


def test_a_machine_without_a_keyring_has_no_entry() -> None:
    """Where no keyring can be opened, the next place is looked at; nothing is raised."""
    import keyring
    from keyring.backends.fail import Keyring

    before = keyring.get_keyring()
    keyring.set_keyring(Keyring())
    try:
        with pytest.raises(MissingError):
            resolve_model("m", Config(base_url=ELSEWHERE), environ={})
    finally:
        keyring.set_keyring(before)


def test_empty_key_counts_as_none() -> None:
    """The placeholder that stands for "no key" is no key."""
    assert not Key("none")
    assert Key("x")
