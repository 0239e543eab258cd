"""Tools on skills: what is known of op families, techniques and chips, in folders with a SKILL.md each."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from kforge.agent.tools.files import numbered
from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import Toolbox, ToolError
from kforge.kernel.sources import read_source

MAIN = "SKILL.md"
_SHOWN = 6


@dataclass(frozen=True)
class Skill:
    """name and description as the front matter of SKILL.md has them; text: the whole page; folder: where it lies."""

    name: str
    description: str
    text: str
    folder: Path

    @property
    def files(self) -> list[str]:
        """What lies beside the page, as paths below the folder."""
        found = (p for p in sorted(self.folder.rglob("*")) if p.is_file() and not p.is_symlink())
        return [str(p.relative_to(self.folder)) for p in found if "__pycache__" not in p.parts]


def skills(folder: Path | None = None) -> list[Skill]:
    """Every skill of kforge, by name."""
    from kforge.resources import skills_dir

    found = []
    for page in sorted((folder or skills_dir()).glob(f"*/{MAIN}")):
        text = read_source(page)
        front = _front_matter(text)
        found.append(Skill(front.get("name", page.parent.name), front.get("description", ""), text, page.parent))
    return found


def _front_matter(text: str) -> dict[str, str]:
    """The `key: value` lines between the first two lines of dashes; a value goes on in indented lines."""
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    fields: dict[str, str] = {}
    key = ""
    for line in match[1].split("\n") if match else []:
        found = re.match(r"([A-Za-z_-]+):\s*(.*)", line)
        if found:
            key = found[1]
            fields[key] = found[2].strip().strip("\"'").lstrip(">|-").strip()
        elif key and line.startswith(" "):
            fields[key] = f"{fields[key]} {line.strip()}".strip()
    return fields


def ranked(query: str, known: list[Skill]) -> list[Skill]:
    """The skills that share words with the query, best first: rare words and titles weigh more."""
    asked = set(_words(query))
    pages = {skill.name: _words(skill.text) for skill in known}
    scores: dict[str, float] = {}
    for skill in known:
        title = set(_words(f"{skill.name} {skill.description}"))
        score = 0.0
        for word in asked:
            holders = sum(word in words for words in pages.values())
            if holders:
                rarity = math.log(1 + len(known) / holders)
                score += rarity * (3 * (word in title) + math.log1p(pages[skill.name].count(word)))
        scores[skill.name] = score
    hits = [skill for skill in known if scores[skill.name] > 0]
    return sorted(hits, key=lambda skill: (-scores[skill.name], skill.name))


def _words(text: str) -> list[str]:
    return [word.removesuffix("s") for word in re.findall(r"[a-z0-9_]{2,}", text.lower())]


def listed(query: str) -> str:
    """The skills that a query finds, all of them without one, in words."""
    known = skills()
    found = ranked(query, known)[:_SHOWN] if query.strip() else known
    if not found:
        return f"no skill speaks of {query[:100]!r}; there are: " + ", ".join(skill.name for skill in known)
    return "\n".join(f"{skill.name}: {skill.description}" for skill in found) + "\nread_skill shows one."


def page(name: str, file: str, first_line: int, lines: int, limit: int) -> str:
    """A skill's page, or a file beside it, with line numbers. ToolError where there is none."""
    known = skills()
    skill = next((s for s in known if s.name == name), None)
    if skill is None:
        near = [s.name for s in ranked(name, known)[:3]]
        raise ToolError(f"there is no skill {name[:80]!r}", "skills: " + ", ".join(near or [s.name for s in known]))
    if file not in skill.files:  # an exact match with what lies there: nothing else is opened
        raise ToolError(f"{name} has no file {file[:80]!r}", "files: " + ", ".join(skill.files))
    text = numbered(read_source(skill.folder / file), f"{name}/{file}", first_line, lines, limit)
    others = [f for f in skill.files if f != file]
    return text + (f"\nbeside it: {', '.join(others)}" if others and file == MAIN else "")


@tool
def search_skills(box: Toolbox, query: str = "") -> str:
    """Find skills: measured knowledge about op families, techniques and chips. Without a query, list all.

    query: words, for example "softmax long rows" or "bank conflicts".
    """
    return listed(query)


@tool
def read_skill(box: Toolbox, name: str, file: str = MAIN, first_line: int = 1, lines: int = 400) -> str:
    """Read a skill's page, or a file that lies beside it.

    name: the skill's name.
    file: a file of the skill's folder.
    first_line: the line to begin at, from 1.
    lines: how many lines.
    """
    return page(name, file, first_line, lines, box.limits.page)
