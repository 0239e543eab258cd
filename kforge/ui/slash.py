"""What the steer input understands beside plain words: slash commands, and files attached with @file#10-40."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from kforge.errors import UsageError

ATTACHED_CHARACTERS = 20_000  # of one file
ATTACHED_BYTES = 8 << 20  # of a file that lines are taken of


@dataclass(frozen=True)
class Slash:
    """One command. argument: in words, "" where it takes none; brackets: may be left out."""

    name: str
    argument: str
    help: str


SLASH = {
    s.name: s
    for s in (
        Slash("run", "[search]", "let the engine, or the model that is set, look for a faster kernel"),
        Slash("stop", "", "stop the work in progress, its processes included"),
        Slash("verify", "[plan]", "judge the candidate by this input plan: quick, standard or full"),
        Slash("profile", "", "say why the candidate is as fast as it is"),
        Slash("diff", "", "show what the candidate changes"),
        Slash("accept", "", "look at the evidence, then put the candidate beside op.py"),
        Slash("reject", "reason", "tell the agent why the candidate will not do"),
        Slash("undo", "", "take the last accept back"),
        Slash("constraint", "rule", "a standing rule, such as keep_nan, no_fast_math, max_shared=49152"),
        Slash("budget", "seconds [dollars]", "limits of the next run, such as 120s 0.50"),
        Slash("model", "[name]", "the chat model of the next run; none: the engine alone"),
        Slash("baseline", "", "show what PyTorch's compiler writes for op.py"),
        Slash("export", "", "make a package of the candidate"),
        Slash("resume", "[run]", "continue a run of this project"),
        Slash("help", "", "what can be typed here, and the keys"),
    )
}


def parse(text: str) -> tuple[str, str] | None:
    """(name, argument) of a slash command, None for plain words. UsageError: an unknown one, or no argument given.

    A path is plain words, if its first folder exists: "/foo/help" is a command that was not cleared away.
    """
    if not re.match(r"/[a-z]", text):  # a comment is no command
        return None
    name, _, argument = text[1:].partition(" ")
    if "/" in name and Path("/", name.partition("/")[0]).exists():
        return None
    if name not in SLASH:
        close = get_close_matches(name, SLASH, n=1)
        raise UsageError(f"/{name} is unknown", f"did you mean /{close[0]}?" if close else "/help lists what exists")
    slash = SLASH[name]
    if slash.argument and not slash.argument.startswith("[") and not argument.strip():
        raise UsageError(f"/{name} needs: {slash.argument}", slash.help)
    return name, argument.strip()


_ATTACHED = re.compile(r"(?<!\S)@(?P<file>[^\s#@]+)(?:#(?P<first>\d{1,9})\d*(?:-(?P<last>\d{1,9})\d*)?)?")


def attach(text: str, read: Callable[[str], str | None]) -> str:
    """`text` with the lines that it names added below it. read: a file's text by the name given, None: no such file.

    UsageError for a file that is not there or lines that it does not have; an @ that names no file stays as it is.
    """
    parts = [text]
    for match in _ATTACHED.finditer(text):
        name = match["file"].rstrip(".,;:)")
        content = read(name)
        if content is None:
            if match["first"] is None and "." not in name:
                continue  # @someone
            raise UsageError(f"there is no file {name} to attach", "paths are relative to the working folder")
        lines = content.splitlines()
        first = int(match["first"] or 1)
        last = int(match["last"] or match["first"] or len(lines))
        if not 1 <= first <= last or first > len(lines):
            raise UsageError(f"{name} has no lines {first}-{last}", f"it has {len(lines)}")
        body = "\n".join(lines[first - 1 : last])
        if len(body) > ATTACHED_CHARACTERS:
            raise UsageError(f"{name} is too long to attach", f"name lines, such as @{name}#1-200")
        parts.append(f"\n{name} lines {first}-{min(last, len(lines))}:\n```\n{body}\n```")
    return "\n".join(parts)


def reader(folder: Path, open_texts: Callable[[], dict[str, str]]) -> Callable[[str], str | None]:
    """Reads open editors first (unsaved edits count), then files under `folder`."""

    def read(name: str) -> str | None:
        found = open_texts().get(name)
        if found is not None:
            return found
        path = folder / name
        try:
            if not path.is_file():
                return None
            if not path.resolve().is_relative_to(folder.resolve()):
                raise UsageError(f"{name} lies outside of this folder", "copy the file here, or paste its lines")
            with path.open("rb") as file:
                data = file.read(ATTACHED_BYTES + 1)
        except (OSError, ValueError):
            return None
        if len(data) > ATTACHED_BYTES or b"\0" in data:
            raise UsageError(f"{name} is no text, or too long to attach", "paste the lines that matter")
        return data.decode(errors="replace")

    return read
