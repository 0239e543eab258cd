"""The registry: schemas from signatures and docstrings, arguments checked strictly, errors that can be acted on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from kforge.agent.budget import BudgetSpent
from kforge.agent.tools import TOOLS, Toolbox, ToolError, ToolResult, call, clip, schemas
from kforge.agent.tools.arguments import parse
from kforge.agent.tools.registry import derive
from kforge.errors import BuildError, Interrupted, StoreError
from tests.agent.tools.conftest import Use


def scale(
    box: Toolbox,
    name: str,
    factor: float,
    mode: Literal["fast", "exact"] = "fast",
    times: int | None = None,
    values: list[dict[str, int | str]] = [],  # noqa: B006
) -> str:
    """Scale a thing. It takes
    two lines to say so.

    name: what to scale.
    factor: by how much; the text of an argument
        may go on.
    mode: how.
    times: how often.
    values: settings.
    """
    return f"{name} {factor} {mode} {times} {values}"


PARAMETERS = derive(scale).parameters


def test_schema_comes_from_signature_and_docstring() -> None:
    """Types, enums, defaults, optionals, required names and each argument's text are those of the function."""
    tool = derive(scale)
    assert tool.description == "Scale a thing. It takes two lines to say so."
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "what to scale."},
            "factor": {"type": "number", "description": "by how much; the text of an argument may go on."},
            "mode": {"type": "string", "enum": ["fast", "exact"], "description": "how.", "default": "fast"},
            "times": {"type": ["integer", "null"], "description": "how often.", "default": None},
            "values": {
                "type": "array",
                "items": {"type": "object", "additionalProperties": {"type": ["integer", "string"]}},
                "description": "settings.",
                "default": [],
            },
        },
        "required": ["name", "factor"],
        "additionalProperties": False,
    }


def test_an_argument_without_a_description_is_refused() -> None:
    """A tool cannot be registered with an argument that the model is told nothing about."""

    def silent(box: Toolbox, name: str) -> str:
        """Do it."""
        return name

    with pytest.raises(TypeError, match="says nothing of 'name'"):
        derive(silent)


def test_every_tool_can_be_offered(box: Toolbox) -> None:
    """All tools have a description and a schema that JSON holds; those on code need a checkout."""
    offered = {s["function"]["name"]: s["function"] for s in schemas(box)}
    assert set(TOOLS) - set(offered) == {"search_code", "read_code"}
    for function in offered.values():
        assert len(function["description"]) > 30
        assert json.loads(json.dumps(function["parameters"]))["type"] == "object"
        assert all(p["description"] for p in function["parameters"]["properties"].values())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"name": "x", "factor": 2', "not valid JSON"),
        ("[1, 2]", "one JSON object, not a list"),
        ('"name"', "one JSON object, not a text"),
        ('{"name": "x", "factor": NaN}', "NaN is no JSON number"),
        ("[" * 5000, "nested too deeply"),
        ({"name": "x"}, "missing argument: factor"),
        ({}, "missing arguments: name, factor"),
        ({"name": "x", "factor": 1, "speed": 2}, "unknown argument: speed"),
        ({"name": 3, "factor": 1}, "name must be a text, not a whole number"),
        ({"name": "x", "factor": "3"}, "factor must be a number, not a text ('3')"),
        ({"name": "x", "factor": True}, "factor must be a number, not true or false"),
        ('{"name": "x", "factor": 1e999}', "factor is out of range"),
        ({"name": "x", "factor": 10**400}, "factor is out of range"),
        ({"name": "x", "factor": 1, "times": 10**400}, "times is out of range"),
        ('{"name": "x", "factor": ' + "1" * 5000 + "}", "not valid JSON"),
        ({"name": "x", "factor": 1, "mode": "slow"}, "mode must be one of fast, exact, not 'slow'"),
        ({"name": "x", "factor": 1, "mode": None}, "mode must be a text, not null"),
        ({"name": "x", "factor": 1, "times": 1.5}, "times must be a whole number or null"),
        ({"name": "x", "factor": 1, "values": [{"a": []}]}, "values[0].a must be a whole number or a text, not a list"),
        (r'{"name": "ab\udc00", "factor": 1}', r"name is no Unicode text: '\udc00' at character 2 is half of a pair"),
        (r'{"name": "x", "factor": 1, "values": [{"\ud800": 1}]}', "values[0] is no Unicode text"),
        (r'{"name": "x", "factor": 1, "values": [{"a": "\ud800"}]}', "values[0].a is no Unicode text"),
    ],
)
def test_wrong_arguments_are_named(arguments: str | dict[str, Any], said: str) -> None:
    """Malformed JSON, unknown, missing and wrongly typed arguments each give a text that says which and why."""
    with pytest.raises(ToolError) as error:
        parse(arguments, PARAMETERS)
    assert said in error.value.message


def test_right_arguments_arrive_as_the_function_wants_them() -> None:
    """Whole floats become ints, ints floats where these are asked for; text of JSON and an empty text are read."""
    given = '{"name": "x", "factor": 2, "times": 3.0, "values": [{"a": 1, "b": "two"}]}'
    found = parse(given, PARAMETERS)
    assert found == {"name": "x", "factor": 2.0, "times": 3, "values": [{"a": 1, "b": "two"}]}
    assert type(found["factor"]) is float and type(found["times"]) is int
    assert parse("", TOOLS["list_files"].parameters) == {}


def test_clip_keeps_head_and_tail() -> None:
    """What is cut is the middle, and how much is said."""
    text = clip("a" * 500 + "b" * 500, 300)
    assert text.startswith("a" * 200) and text.endswith("b" * 100)
    assert "[... 700 characters left out here ...]" in text
    assert clip("short", 300) == "short"


def test_a_call_is_recorded_once(box: Toolbox, use: Use) -> None:
    """One event `tool_call` a call, with what was asked and what was answered, errors included."""
    before = len(list(box.bench.session.log.replay()))
    result = call("write_file", '{"name": "a.cu", "text": "x"}', box, model_call=7)
    refused = use("read_file", name="nothing.cu")
    events = list(box.bench.session.log.replay())[before:]
    assert [event.kind for event in events] == ["tool_call", "tool_call"]
    first, second = (event.data for event in events)
    assert (first["call"], first["tool"], first["error"]) == (7, "write_file", False)
    assert (first["arguments"], first["result"]) == ('{"name": "a.cu", "text": "x"}', result.text)
    assert (
        second["error"] is True and second["result"] == refused.text and "there is no file nothing.cu" in refused.text
    )


HOSTILE: list[Any] = [
    {}, [], None, 7, "", "null", "[]", "{", "{}", '{"name": "a.cu", "name": 3}', {"name": None}, {"name": []},
    {"x": "y"}, {"python": 1}, {"a": "\0", "b": "/etc/passwd"}, {"pattern": "("}, {"candidate": "../x"}, {"idea": {}},
    {"text": 3},
]  # fmt: skip


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_no_arguments_raise(box: Toolbox, tmp_path: Path, name: str) -> None:
    """Whatever stands in the place of arguments, every tool answers with a text."""
    box.code = (tmp_path,)
    for arguments in HOSTILE:
        result = call(name, arguments, box)
        assert isinstance(result, ToolResult) and result.text.strip()
        assert not result.is_error or result.text.startswith(("error: ", "refused: ", "failed: "))


def test_an_unknown_tool_is_a_text(use: Use) -> None:
    """A name that no tool has is answered with those that exist."""
    result = use("rm_rf")
    assert result.is_error and "there is no tool 'rm_rf'" in result.text and "evaluate" in result.text


@pytest.mark.parametrize("error", [Interrupted("stopped"), BudgetSpent("the budget is spent"), StoreError("disk full")])
def test_what_ends_a_run_passes_through(box: Toolbox, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """A stop, a spent budget and a full disk are not answers of a tool: they end the conversation."""

    def end(*_: object) -> None:
        raise error

    monkeypatch.setattr(type(box.bench), "evaluate", end)
    call("write_file", {"name": box.module, "text": "x = 1"}, box)
    with pytest.raises(type(error)):
        call("evaluate", {}, box)


def test_a_compilers_log_is_part_of_the_answer(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that holds a log is told with it, and with its hint."""

    def end(*_: object) -> None:
        raise BuildError("a.cu does not compile", "mend line 3", log="a.cu(3): error: expected a ;")

    monkeypatch.setattr(type(box.bench), "profile", end)
    call("write_file", {"name": box.module, "text": "x = 1"}, box)
    result = call("profile", {}, box)
    assert result.is_error
    assert result.text == "error: a.cu does not compile\nmend line 3\na.cu(3): error: expected a ;"
