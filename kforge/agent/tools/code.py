"""Tools on local checkouts (--code DIR): search by regular expression, read by line. Confined to those folders."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from kforge.agent.tools import grep
from kforge.agent.tools.confined import inside, is_file
from kforge.agent.tools.files import numbered
from kforge.agent.tools.registry import available
from kforge.agent.tools.toolbox import Toolbox, ToolError, clip
from kforge.errors import UsageError
from kforge.kernel.sources import read_source

_MOST_PATTERN = 500
_MOST_MATCHES = 200


def _has_code(box: Toolbox) -> bool:
    return bool(box.code)


@available(_has_code)
def search_code(
    box: Toolbox, pattern: str, files: str = "", context: int = 1, ignore_case: bool = False, most: int = 30
) -> str:
    """Search the local checkouts (CUTLASS, CuTe or what the developer gave) for a regular expression, line by line.

    pattern: a regular expression of Python's re.
    files: patterns of names or paths, separated by spaces, for example "*.hpp *.cuh" or "include/cute/*".
    context: lines shown before and after each match, 0 to 10.
    ignore_case: whether upper and lower case are the same.
    most: matches shown, 1 to 200.
    """
    if not 0 <= context <= 10 or not 1 <= most <= _MOST_MATCHES:
        raise ToolError(f"context is 0 to 10, most is 1 to {_MOST_MATCHES}")
    if not pattern or len(pattern) > _MOST_PATTERN:
        raise ToolError(f"a pattern has 1 to {_MOST_PATTERN} characters")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ToolError(f"the pattern is no regular expression: {error}", "escape ( [ { . * + ? with a \\") from error
    request = {
        "roots": [str(root.resolve()) for root in box.code], "pattern": pattern, "files": files.split(),
        "context": context, "ignore_case": ignore_case, "most": most,
    }  # fmt: skip
    rows, over = _run(request, box)
    matches = [row for row in rows if "file" in row]
    looked = max((row["looked"] for row in rows if "looked" in row), default=0)
    parts = [_shown(row, box) for row in matches]
    if over:
        parts.append(
            f"[stopped after {box.limits.search_s:g} s and {looked} files: simplify the pattern or name files]"
        )
    elif rows and rows[-1].get("more"):
        parts.append(f"[more than {most} matches: narrow the pattern or the files]")
    elif not matches:
        parts.append(f"no match in {looked} files")
    return clip("\n".join(parts), box.limits.result)


def _run(request: dict[str, Any], box: Toolbox) -> tuple[list[dict[str, Any]], bool]:
    """(rows of grep.py, whether it was ended). A process of its own: an expression that runs away cannot be stopped."""
    program = [sys.executable, "-I", "-S", str(Path(grep.__file__))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        release = box.bench.control.on_stop(process.kill)
        over = False
        try:
            out, _ = process.communicate(json.dumps(request).encode(), timeout=box.limits.search_s)
        except subprocess.TimeoutExpired:
            over = True
            process.kill()
            out, _ = process.communicate()
        finally:
            release()
    box.bench.control.check()
    whole = out[: out.rfind(b"\n") + 1].decode().splitlines()
    return [json.loads(line) for line in whole], over


def _shown(row: dict[str, Any], box: Toolbox) -> str:
    name = str(row["file"]) if len(box.code) == 1 else f"{Path(row['root']).name}/{row['file']}"
    lines = []
    for number, text in enumerate(row["lines"], row["first"]):
        lines.append(f"{'>' if number == row['line'] else ' '}{number:>5}  {text}")
    return "\n".join([f"{name}:{row['line']}", *lines])


@available(_has_code)
def read_code(box: Toolbox, path: str, first_line: int = 1, lines: int = 200) -> str:
    """Read a file of the local checkouts, each line with its number.

    path: as search_code shows it.
    first_line: the line to begin at, from 1.
    lines: how many lines.
    """
    return numbered(read_source(_find(path, box)), path, first_line, lines, box.limits.page)


def _find(path: str, box: Toolbox) -> Path:
    """The plain file below one of the checkouts that the path names; UsageError for everything else."""
    for root in box.code:
        home = root.resolve()
        names = [path]
        if len(box.code) > 1 and path.startswith(f"{home.name}/"):
            names.insert(0, path.removeprefix(f"{home.name}/"))
        for name in names:
            real = inside(home, name)
            if real is None:
                raise UsageError(f"{path[:200]} leads out of the checkout", "paths are relative to it, without ..")
            if real != home / name:
                raise UsageError(f"{path[:200]} goes through a link or ..", f"its own path is {real.relative_to(home)}")
            if is_file(real):
                return real
    raise UsageError(f"there is no file {path[:200]} in the checkouts", "search_code shows the paths that exist")
