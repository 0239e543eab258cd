"""Roles: rules of the strategist, the planner's answer, who is cast, and prompts that a user's folder overrides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kforge.agent.chat.team import ready_team
from kforge.agent.roles import cast
from kforge.agent.roles.planner import Plan, read_plan
from kforge.agent.roles.prompts import Prompts, known
from kforge.agent.roles.strategist import Kind, strategy
from kforge.config import Config, load
from kforge.errors import UsageError
from tests.agent.chat.conftest import Run
from tests.agent.scripted_model import ScriptedModel, calls, text, tool
from tests.agent.small import RIGHT

GIVE_UP = calls(tool("give_up", reason="nothing is left"))


PROFILE: dict[str, Any] = {
    "candidate": RIGHT.digest, "target": "emulator", "arch": "sm_90a", "roofline": {"bound": None}, "kernels": [],
    "for_model": "1. minor: loads are 4 bytes wide", "missing": [],
}  # fmt: skip


def profile(compute: float, memory: float, took: float, bound: str = "memory") -> dict[str, Any]:
    """A profile whose floors are `compute` and `memory` ms, and whose candidate took `took` ms."""
    times = {"candidate": took} if took else {}
    return {"roofline": {"bound": bound, "compute_ms": compute, "memory_ms": memory, "times_ms": times}}


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (profile(0.2, 0.85, 1.0), Kind.NEAR_OPTIMAL),
        (profile(0.81, 0.1, 1.0), Kind.NEAR_OPTIMAL),
        (profile(0.2, 0.80, 1.0), Kind.MEMORY),
        (profile(0.6, 0.5, 1.0), Kind.COMPUTE),
        (profile(0.30, 0.25, 1.0), Kind.UNDERUTILISED),
        (profile(0.05, 0.30, 1.0), Kind.MEMORY),
        (profile(0.01, 0.02, 1.0, "latency"), Kind.LATENCY),
        (profile(0.2, 0.5, 0.0), Kind.MEMORY),
        (profile(0.2, 0.5, 0.0, "compute"), Kind.COMPUTE),
        ({"roofline": {"bound": None}}, Kind.UNKNOWN),
        (None, Kind.UNKNOWN),
    ],
)
def test_strategist_is_rules(given: dict[str, Any] | None, kind: Kind) -> None:
    """Near-optimal above 80 %, else the larger share, underutilised where both are low and equal; untimed the bound."""
    assert strategy(given).kind is kind


def test_strategist_names_its_figures() -> None:
    """The reason carries the shares; without times it says that nothing is timed."""
    assert strategy(profile(0.2, 0.5, 1.0)).reason == "compute 20% and memory 50% of what this GPU can do"
    assert "nothing is timed" in strategy(profile(0.2, 0.5, 0.0)).reason


def test_plan_is_read_from_its_lines() -> None:
    """Direction, idea and gain are read whatever their case and emphasis; an answer without them is the plan itself."""
    answer = "Sure.\n**Direction:** Vectorise\nIDEA: load float4,\nfour rows a warp\nGain: about 1.4x\n"
    assert read_plan(answer) == Plan("load float4, four rows a warp", "vectorise", 1.4)
    assert read_plan("Just fuse it.") == Plan("Just fuse it.")
    assert read_plan("IDEA: x\nGAIN: 999999").gain is None


def test_cast_names_a_model_for_each_role() -> None:
    """The executor is the run's own unless named; "same" is the run's; strangers and the strategist are refused."""
    assert cast("big", {}) == {"executor": "big"}
    assert cast("big", {"planner": "same", "summariser": "small"}) == {
        "executor": "big", "planner": "big", "summariser": "small",
    }  # fmt: skip
    with pytest.raises(UsageError, match="strategist") as caught:
        cast("big", {"strategist": "big"})
    assert "rules" in caught.value.hint
    with pytest.raises(UsageError, match="'director'"):
        cast("big", {"director": "big"})


def test_every_prompt_has_its_template() -> None:
    """The prompts that a user can override are these."""
    assert known() == [
        "compacted", "contrastive", "executor_system", "executor_task", "fenced", "planner", "profiler", "reminder",
        "summariser",
    ]  # fmt: skip


def test_a_users_template_stands_in_the_place_of_ours(tmp_path: Path) -> None:
    """A file of the same name is used; the others stay kforge's; a text marked as data is framed there too."""
    (tmp_path / "summariser.md.j2").write_text("Short: {{ transcript | data('t') }}")
    prompts = Prompts(tmp_path)
    assert prompts.overridden == ["summariser"]
    assert prompts.render("summariser", transcript="x").startswith("Short: <data ")
    assert "Reminder 1 of 2" in prompts.render("reminder", kind="plain", tools=True, count=1, most=2)


@pytest.mark.parametrize(
    ("name", "source", "words"),
    [
        ("planer.md.j2", "x", "planer.md.j2 is no prompt of kforge"),
        ("planner.md.j2", "{% if %}", "planner.md.j2:1"),
        ("planner.md.j2", b"\xff\xfe", "no UTF-8 text"),
        ("planner.md.j2", "{% include '/etc/passwd' %}", "'/etc/passwd' is no prompt"),
        ("planner.md.j2", "{% if arch %}{% include '../../secret' %}{% endif %}", "'../../secret' is no prompt"),
        ("planner.md.j2", "{{ sorce }}", "no prompt is given a value 'sorce'"),
    ],
)
def test_a_template_that_is_wrong_is_found_before_work(tmp_path: Path, name: str, source: Any, words: str) -> None:
    """A wrong name, bad syntax and a file that is no text are told with the file, when prompts are loaded."""
    (tmp_path / name).write_bytes(source if isinstance(source, bytes) else source.encode())
    with pytest.raises(UsageError, match=words):
        Prompts(tmp_path)


def test_a_template_cannot_reach_into_python(tmp_path: Path) -> None:
    """A folder of prompts may come with somebody's repository: attributes of objects are out of its reach."""
    (tmp_path / "summariser.md.j2").write_text("{{ transcript.__class__.__mro__ }}")
    with pytest.raises(UsageError, match=r"summariser\.md\.j2 fails"):
        Prompts(tmp_path).render("summariser", transcript="x")


def test_a_prompt_that_is_a_link_out_of_its_folder_is_not_read(tmp_path: Path) -> None:
    """What a prompt says goes to an endpoint: a link in a folder that came from elsewhere reads no private file."""
    (tmp_path / "secret").write_text("private")
    folder = tmp_path / "prompts"
    folder.mkdir()
    (folder / "summariser.md.j2").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match="leads out of its folder"):
        Prompts(folder)


@pytest.mark.parametrize("source", ["{{ 'x' * 999999999999 }}", "{% include 'summariser.md.j2' %}"])
def test_a_template_without_measure_is_an_error(tmp_path: Path, source: str) -> None:
    """One that wants all memory, or includes itself, ends with its name."""
    (tmp_path / "summariser.md.j2").write_text(source)
    with pytest.raises(UsageError, match=r"summariser\.md\.j2 fails: \w+"):
        Prompts(tmp_path).render("summariser", transcript="x")


def test_absent_folder_of_prompts_is_told(tmp_path: Path) -> None:
    """kforge.toml naming no folder is a usage error."""
    with pytest.raises(UsageError, match="there is no folder"):
        Prompts(tmp_path / "none")


def test_settings_name_roles_and_prompts(tmp_path: Path) -> None:
    """[roles] and `prompts` are read from kforge.toml; the folder lies beside that file."""
    (tmp_path / "kforge.toml").write_text('prompts = "mine"\n[roles]\nplanner = "same"\n')
    (tmp_path / "deeper").mkdir()
    config = load(tmp_path / "deeper", {})
    assert config.prompts == tmp_path / "mine"
    assert config.roles == {"planner": "same"}
    (tmp_path / "kforge.toml").write_text("[roles]\nplanner = 1\n")
    with pytest.raises(UsageError, match="planner must be the name of a model, not 1"):
        load(tmp_path, {})


def test_planner_and_profiler_are_asked_before_the_executor(run: Run) -> None:
    """The profile goes to the profiler, its findings to the planner, the plan to the executor."""
    parent = run.known(RIGHT, "verified")
    script = [
        text("Loads are 4 bytes wide."),
        text("DIRECTION: vectorise\nIDEA: load float4\nGAIN: 1.5"),
        GIVE_UP,
    ]
    with ScriptedModel(script) as served:
        proposer = run.proposer(served, roles={"planner": None, "profiler": None})
        proposer._profiles[RIGHT.digest] = PROFILE  # making one takes seconds, and has tests of its own
        proposer.propose(run.context(parent=parent))
        profiler, planner, executor = (request.body["messages"] for request in served.requests)
        assert all("tools" not in request.body for request in served.requests[:2])
    assert "loads are 4 bytes wide" in profiler[0]["content"]
    assert "Loads are 4 bytes wide." in planner[0]["content"]
    assert "load float4 (expected gain 1.5x)" in executor[1]["content"]
    assert "Wanted kind of change: vectorise." in executor[1]["content"]
    assert [event["role"] for event in run.of("model_call")] == ["profiler", "planner", "executor"]


def test_a_team_is_checked_whole_before_work(tmp_path: Path) -> None:
    """Each model of the roles answers once; one role's wrong model ends it before anything is done."""
    config = Config(roles={"planner": "small"})
    with ScriptedModel([], models=["big", "small"]) as served:
        team = ready_team("big", config, base_url=served.base_url)
        assert (team.name, sorted(team.models)) == ("big", ["executor", "planner"])
        assert [request.body["model"] for request in served.all_requests] == ["big", "small"]
    with ScriptedModel([], models=["big"]) as served, pytest.raises(UsageError, match="has no model 'small'"):
        ready_team("big", config, base_url=served.base_url)


def test_a_roles_own_endpoint_is_kept(tmp_path: Path) -> None:
    """--base-url is the run's model's; another role's model with an address of its own is asked there."""
    with ScriptedModel([], models=["big"]) as one, ScriptedModel([], models=["small"]) as other:
        models = {"small": {"base_url": other.base_url}}
        team = ready_team("big", Config(roles={"planner": "small"}, models=models), base_url=one.base_url)
        assert team.models["planner"].base_url == other.base_url
        assert team.base_url == one.base_url
