"""The command with a chat model, from the shell: a model's kernel is judged and written; a killed run goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kforge.store.events import Event, replay
from tests.agent.scripted_model import ScriptedModel, calls, load, repeat, stall, status, tool
from tests.patience import PATIENCE_S

SCENARIO = Path(__file__).parents[1] / "scenarios"
SECRET = "sk-secret-0123456789"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with the scenario's task and settings."""
    shutil.copy(SCENARIO / "softmax_cdf.py", tmp_path)
    (tmp_path / "kforge.toml").write_text('[prices."scripted"]\ninput = 1.0\noutput = 10.0\n')
    return tmp_path


def command(here: Path, *words: str) -> subprocess.Popen[str]:
    """kforge in that folder, with a key in its environment."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "KFORGE_"))}
    env |= {"KFORGE_API_KEY": SECRET, "KFORGE_CACHE": os.environ["KFORGE_CACHE"]}
    return subprocess.Popen(
        [sys.executable, "-m", "kforge", *words], cwd=here, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finished(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """(exit code, the last line's object, what was said on stderr)."""
    out, said = process.communicate(timeout=PATIENCE_S)
    assert SECRET not in out + said
    lines = out.strip().splitlines()
    return process.returncode, json.loads(lines[-1]) if lines else {}, said


def log(here: Path) -> list[Event]:
    """The only run's events."""
    (path,) = (here / ".kforge" / "runs").glob("*/events.jsonl")
    assert SECRET not in path.read_text()
    return list(replay(path))


def test_a_models_kernel_is_judged_and_written(here: Path) -> None:
    """What the engine cannot do the model writes: verified, written, tokens and money in the summary."""
    with ScriptedModel(load(SCENARIO / "softmax_cdf.json"), key=SECRET) as model:
        code, result, said = finished(command(
            here, "suggest", "softmax_cdf.py", "--model", "scripted", "--base-url", model.base_url,
            "--plan", "quick", "--budget", "1h", "--usd", "1", "--json",
        ))  # fmt: skip
        asked = len(model.requests)
    assert code == 0, said
    assert (result["status"], result["proposer"], result["model"]) == ("verified", "scripted", "scripted")
    written = here / "kforge_out" / "softmax_cdf" / "softmax_cdf_kforge.cu"
    assert written.read_text() == (SCENARIO / "softmax_cdf_kforge.cu").read_text()
    assert result["tokens"]["in"] == 100 * asked
    assert result["usd"] == pytest.approx(asked * (100 * 1.0 + 20 * 10.0) / 1e6)
    events = log(here)
    assert events[-1].kind == "run_finished"
    assert sum(event.kind == "model_call" for event in events) == asked


def test_a_killed_run_goes_on_and_pays_nothing_twice(here: Path) -> None:
    """kill -9 while an answer is under way: the resumed run repeats that call alone, and judges nothing again."""
    script = load(SCENARIO / "softmax_cdf.json")
    reached = threading.Event()

    def silent(body: Any) -> dict[str, Any]:
        reached.set()
        return stall(PATIENCE_S)

    with ScriptedModel([*script[:3], silent], key=SECRET) as model:
        process = command(
            here, "suggest", "softmax_cdf.py", "--model", "scripted", "--base-url", model.base_url,
            "--plan", "quick", "--budget", "1h", "--json",
        )  # fmt: skip
        assert reached.wait(PATIENCE_S), "the fourth call was never made"
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)
        model.script[:] = [script[3], repeat(calls(tool("give_up", reason="done")))]
        code, result, _ = finished(command(here, "resume", "--json"))
        assert (code, len(model.requests)) == (2, 4)  # the key goes to no other address than it went to, unasked
        assert f"--base-url {model.base_url}" in result["error"]["hint"]
        code, result, said = finished(command(here, "resume", "--base-url", model.base_url, "--json"))
        bodies = [json.dumps(request.body["messages"]) for request in model.requests]
    assert code == 0, said
    assert (result["status"], result["proposer"]) == ("verified", "scripted")
    assert bodies[3] == bodies[4]
    assert Counter(bodies[:5])[bodies[3]] == 2 and len(set(bodies[:5])) == 4
    events = log(here)
    first = [event.data["request"] for event in events if event.kind == "model_call"][:4]
    assert len(set(first)) == 4
    judged = Counter((e.data["candidate"], e.data["plan"]) for e in events if e.kind == "evaluated")
    assert set(judged.values()) == {1}
    assert events[-1].kind == "run_finished"


def test_a_model_that_fails_in_the_middle_does_not_take_the_best_along(here: Path) -> None:
    """The engine's verified kernel is written although the account is empty at the first real call; that is said."""
    source = (here / "softmax_cdf.py").read_text()
    sum_of_softmax = "torch.cumsum(torch.softmax(x, dim=-1), dim=-1, dtype=torch.float64).float()"
    (here / "scale.py").write_text(source.replace(sum_of_softmax, "x * 2.0 + 1.0"))
    with ScriptedModel([status(402, "add credit")], key=SECRET) as model:
        code, result, said = finished(command(
            here, "suggest", "scale.py", "--model", "scripted", "--base-url", model.base_url,
            "--plan", "quick", "--budget", "1h", "--json",
        ))  # fmt: skip
    assert code == 0, said
    assert (result["status"], result["proposer"]) == ("verified", "engine")
    assert "nothing is left on this account: add credit" in " ".join(said.split())
    assert (here / "kforge_out" / "scale" / "scale_kforge.cu").is_file()


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (["--model", "other"], "has no model 'other'", 2),
        (
            ["--model", "scripted", "--base-url", "http://127.0.0.1:9/v1"],
            "cannot be reached at http://127.0.0.1:9/v1",
            3,
        ),
        (["--model", "priceless", "--usd", "1"], "the price of priceless is unknown", 2),
        (["--model", "scripted", "--budget", "9" * 400], "is not a duration", 2),
        (["--model", "scripted", "--base-url", ""], "'' is not an endpoint", 2),
        (["--model", "scripted", "--tokens", "9" * 400], "less than or equal to", 2),
    ],
)
def test_what_is_wrong_is_one_line_before_any_work(here: Path, options: list[str], words: str, code: int) -> None:
    """Unknown model, dead endpoint, unknown price under --usd: the exit code and one line, and no run was begun."""
    with ScriptedModel([], key=SECRET, models=["scripted", "priceless"]) as model:
        if "--base-url" not in options:
            options = [*options, "--base-url", model.base_url]
        found, result, _ = finished(command(here, "suggest", "softmax_cdf.py", *options, "--json"))
    assert found == code
    assert words in result["error"]["message"]
    assert not (here / ".kforge").exists()


def test_a_refused_key_is_one_line_before_any_work(here: Path) -> None:
    """The endpoint's refusal is told without the key, and nothing was begun."""
    with ScriptedModel([], key="another") as model:
        found, result, _ = finished(
            command(here, "suggest", "softmax_cdf.py", "--model", "scripted", "--base-url", model.base_url, "--json")
        )
    assert found == 3
    assert "refused the key (401)" in result["error"]["message"]
    assert not (here / ".kforge").exists()
