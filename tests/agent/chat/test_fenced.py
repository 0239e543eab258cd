"""Actions as fenced blocks: the documented form is read exactly, everything else is answered with how to write it."""

from __future__ import annotations

from typing import Any

import pytest

from kforge.agent.chat.fenced import HOW, Block, describe, parse

SCHEMAS: dict[str, dict[str, Any]] = {
    "write_file": {"properties": {"name": {"type": "string"}, "text": {"type": "string"}}},
    "edit_file": {"properties": {"name": {"type": "string"}, "old": {"type": "string"}, "new": {"type": "string"}}},
    "sweep": {
        "properties": {"seconds": {"type": "number"}, "names": {"type": "array"}, "gain": {"type": ["number", "null"]}}
    },
    "list_files": {"properties": {}},
}  # fmt: skip


def one(text: str) -> Block:
    """The only block of a text."""
    (block,) = parse(text, SCHEMAS)
    return block


def test_long_and_short_arguments() -> None:
    """A header line is a short argument, a section is a text kept line by line, blank and indented lines included."""
    block = one("I write it.\n```kforge write_file\nname: a.cu\n--- text\nint a;\n\n  int b;\n```\nDone.")
    assert block == Block("write_file", {"name": "a.cu", "text": "int a;\n\n  int b;\n"})


def test_several_sections_and_blocks() -> None:
    """Blocks are done in order; a block may have several texts, an empty one included."""
    text = "```kforge edit_file\nname: a.cu\n--- old\nfor: x\n--- new\n```\n```kforge list_files\n```"
    assert parse(text, SCHEMAS) == [
        Block("edit_file", {"name": "a.cu", "old": "for: x\n", "new": ""}),
        Block("list_files", {}),
    ]


def test_values_have_the_type_of_the_schema() -> None:
    """Numbers, lists and null are JSON; a text is taken as it stands, or unquoted where it is a JSON string."""
    block = one('```kforge sweep\nseconds: 12.5\nnames: ["a", "b"]\ngain: null\n```')
    assert block.arguments == {"seconds": 12.5, "names": ["a", "b"], "gain": None}
    assert one('```kforge write_file\nname: "b.cu"\n--- text\n```').arguments["name"] == "b.cu"
    assert one("```kforge write_file\nname: 12\n--- text\n```").arguments["name"] == "12"


def test_longer_fence_holds_three_backticks() -> None:
    """A block opened with four backticks ends with four; what it holds is text, not another block."""
    block = one("````kforge write_file\nname: a.py\n--- text\n```kforge list_files\n```\n````")
    assert block.arguments["text"] == "```kforge list_files\n```\n"


def test_other_blocks_do_nothing() -> None:
    """Code that is only shown is no action, even where it quotes an action inside of its own fence."""
    assert parse("```cuda\nint a;\n```\nkforge list_files\n", SCHEMAS) == []
    assert parse("````text\n```kforge list_files\n```\n````\n", SCHEMAS) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```kforge\n```", "the name of the action is missing"),
        ("```kforge 12\n```", "'12' is no name of an action"),
        ("```kforge destroy\n```", "there is no action 'destroy'; actions: write_file, edit_file, sweep, list_files"),
        ("```kforge write_file\nname: a.cu\n--- text\nint a;", "has no closing ```"),
        ("```kforge write_file\nname a.cu\n```", "neither `argument: value` nor `--- argument`"),
        ("```kforge write_file\npath: a.cu\n```", "there is no argument 'path'; arguments: name, text"),
        ("```kforge write_file\nname: a\nname: b\n```", "name is given twice"),
        ("```kforge write_file\n--- text\na\n--- text\nb\n```", "text is given twice"),
        ("```kforge write_file\n--- body\na\n```", "'--- body' names no argument"),
        ("```kforge sweep\nseconds: soon\n```", "seconds: 'soon' is no number"),
        ("```kforge list_files\nname: a\n```", "there is no argument 'name'; arguments: none"),
    ],
)
def test_malformed_blocks_are_told(text: str, words: str) -> None:
    """Each mistake is named, nothing is done, and the model is shown the form."""
    block = one(text)
    assert words in block.wrong
    assert block.told == f"error: {block.wrong}\n{HOW}"


def test_a_section_line_of_the_text_stays_text() -> None:
    """A line that only looks like a section (a diff's, a rule) belongs to the text unless it names an argument."""
    block = one("```kforge write_file\nname: a.cu\n--- text\n--- a/file\n---\nx\n```")
    assert block.arguments["text"] == "--- a/file\n---\nx\n"


def test_description_lists_what_is_optional() -> None:
    """The prompt shows each action's arguments, optional ones with a question mark, and what they mean."""
    parameters = {
        "properties": {"name": {"type": "string", "description": "the file"}, "lines": {"type": "integer"}},
        "required": ["name"],
    }
    schema = {"type": "function", "function": {"name": "read", "description": "Read a file.", "parameters": parameters}}
    assert describe([schema]) == [
        {"name": "read", "arguments": "name, lines?", "description": "Read a file.\nname: the file"}
    ]


@pytest.mark.parametrize("value", ["[" * 40 + "]" * 40, "[" * 900 + "1e999" + "]" * 900, "[NaN]", "9" * 5000])
def test_values_that_nobody_can_record_are_refused(value: str) -> None:
    """Lists in lists beyond reason, and numbers that are none, are told to the model."""
    block = one(f"```kforge sweep\nnames: {value}\n```")
    assert block.wrong and not block.arguments
