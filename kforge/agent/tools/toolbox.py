"""What a tool acts on, and what it answers: the candidate's working folder, the bench, limits; a text for the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kforge.agent.tools.folder import Folder
from kforge.errors import KforgeError

if TYPE_CHECKING:
    from kforge.agent.search.tree import Node
    from kforge.agent.workbench import Workbench
    from kforge.kernel.candidate import Candidate


MOST_WORDS, MOST_GAIN = 500, 1e6


@dataclass(frozen=True)
class Limits:
    """Characters of one result and of one page of a file; bytes of a written file; seconds of a search and a probe."""

    result: int = 12_000
    page: int = 16_000
    file_bytes: int = 256 << 10
    files: int = 40
    search_s: float = 10.0
    probe_s: float = 20.0
    probe_memory: int = 4 << 30
    sweep_s: float = 60.0
    variants: int = 8


@dataclass(frozen=True)
class ToolResult:
    """text: for the model. ends: "submit" or "give_up" where the conversation is over; candidate: the submitted one."""

    text: str
    is_error: bool = False
    ends: str = ""
    candidate: Candidate | None = None


class ToolError(KforgeError):
    """A tool cannot do what was asked; the message is for the model, which can ask otherwise."""

    kind = "tool"


@dataclass
class Toolbox:
    """One conversation's tools.

    folder: where the model's files lie; nothing else of the machine can be written. parent: the node that its
    candidates descend from. code: folders given by --code, readable. proposer: whose candidates they are.
    on_text: told what a long tool is doing.
    """

    bench: Workbench
    folder: Path
    parent: Node
    code: tuple[Path, ...] = ()
    limits: Limits = field(default_factory=Limits)
    proposer: str = "model"
    on_text: Callable[[str], None] = lambda text: None

    @property
    def files(self) -> Folder:
        """The working folder as the model may use it."""
        return Folder(self.folder, self.limits.files, self.limits.file_bytes)

    @property
    def module(self) -> str:
        """The name that a candidate's module has: `<op>_kforge.py`."""
        return f"{self.bench.task.name}_kforge.py"

    def candidate(self, module: str = "", idea: str = "", expected_gain: float | None = None) -> Candidate:
        """The candidate that a module of the folder makes, under the task's own name, with the sources that it names.

        module: another file of the folder that defines ModelNew; the empty string is the usual one. ToolError where
        there is none.
        """
        from kforge.kernel.candidate import Candidate

        files = self.files
        name = module or self.module
        if not name.endswith(".py"):
            raise ToolError(f"{name} is no Python module", "name the .py file that defines ModelNew")
        if expected_gain is not None and not 0 < expected_gain < MOST_GAIN:
            raise ToolError(f"expected_gain is a factor over the parent, not {expected_gain:g}", "for example 1.3")
        text = files.read(name)
        beside = {other: files.read(other) for other in files.names() if not other.endswith(".py")}
        sources = named_sources(text, beside, name.removesuffix(".py"))
        parent = self.parent.candidate or None
        words = " ".join(idea.split())[:MOST_WORDS]
        return Candidate(self.module, {self.module: text, **sources}, self.proposer, parent, words, expected_gain)

    def fill(self, candidate: Candidate) -> None:
        """Start the folder from a candidate's files."""
        for name, text in candidate.files.items():
            self.files.write(self.module if name == candidate.module else name, text)


def named_sources(module: str, beside: dict[str, str], stem: str) -> dict[str, str]:
    """The sources that the module names, and those that these include; where it names none, those of its own stem."""
    found: dict[str, str] = {}
    todo = [module]
    while todo:
        text = todo.pop()
        for name in beside.keys() - found.keys():
            if name in text:
                found[name] = beside[name]
                todo.append(beside[name])
    found = found or {name: text for name, text in beside.items() if name.partition(".")[0] == stem}
    return dict(sorted(found.items()))


def unreadable(module: str, error: Exception) -> ToolError:
    """The error for a module whose syntax tree cannot be had."""
    if isinstance(error, SyntaxError):
        return ToolError(f"{module} is no Python: {error.msg} in line {error.lineno}")
    return ToolError(f"{module} is nested too deeply to be read")


# What Python's parser raises for a text that is none of its own.
UNREADABLE = (SyntaxError, RecursionError, MemoryError)


def clip(text: str, limit: int) -> str:
    """The text, or its head and its tail with how much was left out between them."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    head = limit - tail
    return f"{text[:head]}\n[... {len(text) - limit} characters left out here ...]\n{text[len(text) - tail :]}"


def short(direction: str) -> str:
    """A direction as the tree and the memory keep it: a few words in one line."""
    return " ".join(direction.split())[:40]
