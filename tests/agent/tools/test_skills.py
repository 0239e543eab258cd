"""Tools on skills: found by words, read by name, nothing else opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from kforge.agent.tools.skills import ranked, skills
from tests.agent.tools.conftest import Use


def write(root: Path, name: str, description: str, body: str) -> None:
    (root / name).mkdir()
    (root / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n")


def test_search_ranks_by_rare_words(tmp_path: Path) -> None:
    """A rare word and one in the title weigh more than common words of the text; what shares none is left out."""
    write(tmp_path, "softmax", "Softmax over rows. Use for attention scores.", "kernel kernel rows")
    write(tmp_path, "layer-norm", "Normalise rows.", "kernel rows softmax")
    write(tmp_path, "histogram", "Atomics in shared memory.", "kernel bins")
    known = skills(tmp_path)
    assert [skill.name for skill in known] == ["histogram", "layer-norm", "softmax"]
    assert [skill.name for skill in ranked("softmax of rows", known)] == ["softmax", "layer-norm"]
    assert [skill.name for skill in ranked("bins", known)] == ["histogram"]
    assert ranked("convolution", known) == []


def test_the_shipped_skills_can_be_found_and_read(use: Use) -> None:
    """Every skill of kforge has a name and a description, is listed, and its page is shown with line numbers."""
    known = skills()
    assert known and all(skill.name and skill.description for skill in known)
    listed = use("search_skills").text
    for skill in known:
        assert f"{skill.name}: " in listed
    page = use("read_skill", name=known[0].name)
    assert not page.is_error and page.text.splitlines()[0].startswith(f"{known[0].name}/SKILL.md, lines 1 to ")
    assert "no skill speaks of" in use("search_skills", query="zzzz").text


@pytest.mark.parametrize("file", ["../../pyproject.toml", "/etc/passwd", "", "absent.cu", ".."])
def test_only_a_skills_own_files_are_read(use: Use, file: str) -> None:
    """A file that does not lie in the skill's folder is refused with those that do."""
    result = use("read_skill", name=skills()[0].name, file=file)
    assert result.is_error and "files: " in result.text and "SKILL.md" in result.text


def test_an_unknown_skill_is_answered_with_near_ones(use: Use) -> None:
    """A wrong name gives the names that are meant."""
    known = skills()[0].name
    near = use("read_skill", name=known + "-page")
    assert near.is_error and known in near.text.partition("skills: ")[2]
    assert use("read_skill", name="../skills").is_error
