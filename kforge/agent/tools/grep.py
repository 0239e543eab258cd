"""A program of its own: search files for a regular expression. stdin: one JSON request; stdout: one JSON answer.

Only the standard library, so that it starts at once; whoever starts it ends it when an expression runs away. Links are
not followed, binary and very large files are left out.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from fnmatch import fnmatch

MOST_BYTES = 2 << 20  # of a file
SKIPPED = {".git", ".hg", ".svn", "__pycache__", "node_modules"}


def files(root: str, patterns: list[str]) -> Iterator[tuple[str, str]]:
    """(path below the root, path) of the plain files whose name or path fits one of the patterns."""
    for folder, inner, names in os.walk(root):  # follows no links to folders
        inner[:] = sorted(name for name in inner if name not in SKIPPED)
        for name in sorted(names):
            path = os.path.join(folder, name)
            below = os.path.relpath(path, root)
            if not patterns or any(fnmatch(name, p) or fnmatch(below, p) for p in patterns):
                yield below, path


def read(path: str) -> str | None:
    """The text of a plain file; None for what is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            return None
        data = file.read(MOST_BYTES)
    return None if b"\0" in data[:8192] else data.decode("utf-8", "replace")


def search(request: dict[str, object]) -> Iterator[dict[str, object]]:
    """One object a matching line, with the lines around it; then one with what was looked at."""
    expression = re.compile(str(request["pattern"]), re.IGNORECASE if request["ignore_case"] else 0)
    most, around = int(str(request["most"])), int(str(request["context"]))
    looked = found = 0
    for root in request["roots"]:  # type: ignore[attr-defined]
        for below, path in files(root, request["files"]):  # type: ignore[arg-type]
            text = read(path)
            if text is None:
                continue
            looked += 1
            if looked % 256 == 0:
                yield {"looked": looked}
            lines = text.split("\n")
            for number, line in enumerate(lines):
                if expression.search(line[:4000]):
                    found += 1
                    if found > most:
                        yield {"looked": looked, "more": True}
                        return
                    begin = max(0, number - around)
                    shown = [row[:300] for row in lines[begin : number + around + 1]]
                    yield {"root": root, "file": below, "line": number + 1, "first": begin + 1, "lines": shown}
    yield {"looked": looked, "done": True}


if __name__ == "__main__":
    for row in search(json.load(sys.stdin)):
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
