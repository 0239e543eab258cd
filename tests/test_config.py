"""Settings: precedence, types, and one clear line for what is wrong."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kforge.config import Config, Prices, load, parse_arch, parse_device, parse_plan, parse_seconds
from kforge.errors import UsageError


def test_defaults_without_file_and_environment(tmp_path: Path) -> None:
    """With nothing set the defaults hold."""
    config = load(tmp_path, {})
    assert config == Config()
    assert (config.device, config.plan, config.budget, config.out) == ("auto", "standard", 60.0, "kforge_out")
    assert config.runs == Path(".kforge/runs")


def test_file_upwards_and_environment_over_it(tmp_path: Path) -> None:
    """The nearest kforge.toml above the folder is read; a variable wins over it."""
    (tmp_path / "kforge.toml").write_text('device = "cpu"\nbudget = 90\narch = "sm_80"\n')
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    config = load(deep, {"KFORGE_BUDGET": "2m", "KFORGE_CACHE": "/tmp/c", "KFORGE_EMULATOR": "checked"})
    assert (config.device, config.budget, config.arch, config.cache) == ("cpu", 120.0, "sm_80", Path("/tmp/c"))
    (tmp_path / "a" / "kforge.toml").write_text("")
    assert load(deep, {}).device == "auto"


def test_unknown_key_lists_what_exists(tmp_path: Path) -> None:
    """A misspelt setting is an error that names the file, guesses, and lists the settings."""
    (tmp_path / "kforge.toml").write_text('devise = "cpu"\n')
    with pytest.raises(UsageError) as error:
        load(tmp_path, {})
    assert "kforge.toml: unknown setting 'devise'" in error.value.message
    assert "did you mean device?" in error.value.hint and "budget" in error.value.hint


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("device = 3", "device must be text"),
        ('device = "gpu"', "'gpu' is not a device"),
        ("budget = true", "budget must be text"),
        ('budget = "soon"', "'soon' is not a duration"),
        ('plan = "thorough"', "is not a plan"),
        ("device = ", "not valid TOML"),
        ('search = "random"', "'random' is not a search"),
        ('base_url = "localhost:8000"', "is not an endpoint"),
        ('reward = "fame"', "'fame' is not a reward"),
        ("prices = 3", "prices must be a table"),
        ("[prices]\nm = 3", "m must be a table"),
        ("[prices.m]\ninput = 1.0", "m lacks output"),
        ("[prices.m]\ninput = 1.0\noutput = -2.0", "output must be a number of USD"),
        ("[prices.m]\ninput = 1.0\noutput = 2.0\nrequest = 1.0", "unknown price 'request'"),
        ("[window]\nm = 1.5", "m must be a number of tokens"),
        ('state = "a\\u0000b"', "state: 'a\\x00b' is no path"),
        ("a = " + "[" * 3000 + "]" * 3000, "nested too deeply"),
        ("[window]\nm = 4096\n[models.m]\nwindow = 8192", "both give window of m"),
    ],
)
def test_bad_values_name_the_file_and_the_fault(tmp_path: Path, text: str, part: str) -> None:
    """Each bad value is one line with its origin."""
    (tmp_path / "kforge.toml").write_text(text + "\n")
    with pytest.raises(UsageError, match=r"kforge\.toml") as error:
        load(tmp_path, {})
    assert part in error.value.message


def test_models_have_prices_and_windows(tmp_path: Path) -> None:
    """[prices] and [window] are part of what is known of a model; variables name model, endpoint and search."""
    text = (
        '[prices."a/b"]\ninput = 1.25\noutput = 10\ncached = 0.125\n[window]\n"a/b" = 8192\n[models.c]\ntools = false\n'
    )
    (tmp_path / "kforge.toml").write_text(text)
    environment = {"KFORGE_MODEL": "a/b", "KFORGE_BASE_URL": "http://[::1]:8000/v1/", "KFORGE_SEARCH": "mcts"}
    config = load(tmp_path, environment | {"KFORGE_PRICES": "x"})
    assert config.prices == {"a/b": Prices(1.25, 10.0, 0.125)} and config.window == {"a/b": 8192}
    assert config.models == {
        "a/b": {"usd_in": 1.25, "usd_out": 10.0, "usd_cached": 0.125, "window": 8192},
        "c": {"tools": False},
    }
    assert (config.model, config.base_url, config.search) == ("a/b", "http://[::1]:8000/v1", "mcts")


def test_bad_variable_is_named() -> None:
    """A bad value from the environment names its variable."""
    with pytest.raises(UsageError, match="KFORGE_PLAN: plan: 'x' is not a plan"):
        load(Path("/"), {"KFORGE_PLAN": "x"})


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("1.5m", 90), ("2h", 7200), ("30", 30), (45, 45), (".5s", 0.5)]
)
def test_durations(text: str | int, seconds: float) -> None:
    """Seconds, minutes and hours; a bare number is seconds."""
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "0.0m", "-5s", "5d", "s", "1e3", "nan"])
def test_what_is_no_duration(text: str) -> None:
    """Zero, negative and unknown units are refused, with what is accepted; zero is told as such."""
    with pytest.raises(UsageError) as error:
        parse_seconds(text)
    assert "60s, 1.5m or 2h" in error.value.hint
    assert ("no time at all" in error.value.message) == (text in ("0", "0s", "0.0m"))


def test_spelling_of_device_plan_and_arch() -> None:
    """Names are checked by spelling; existence is checked where they are used."""
    assert [parse_device(text) for text in ("auto", "cpu", "cuda", "cuda:7")] == ["auto", "cpu", "cuda", "cuda:7"]
    assert [parse_arch(text) for text in ("sm_80", "sm_90a", "sm_100f")] == ["sm_80", "sm_90a", "sm_100f"]
    assert parse_plan("quick") == "quick"
    for parse, text in ((parse_device, "cuda:x"), (parse_arch, "90"), (parse_plan, "Quick")):
        with pytest.raises(UsageError):
            parse(text)


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without HOME and without an entry for the user builds are kept beside the runs; `~` is refused in words."""

    def nowhere(self: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", nowhere)
    monkeypatch.chdir(tmp_path)
    assert load(tmp_path, {}).cache == tmp_path / ".kforge" / "cache"
    with pytest.raises(UsageError, match="KFORGE_STATE: state: '~/x': there is no such home folder"):
        load(tmp_path, {"KFORGE_STATE": "~/x"})


def test_a_working_folder_that_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Started in a folder that was removed, a command says so."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UsageError, match="the working folder is gone"):
        load()
    monkeypatch.chdir(tmp_path)


def test_a_settings_file_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kforge.toml without permission is named."""
    (tmp_path / "kforge.toml").write_text("")

    def refuse(self: Path) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(UsageError, match=r"kforge\.toml cannot be read: Permission denied"):
        load(tmp_path)
