"""What gates and compilers say of a line, found in their words: file, line, severity, text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Diagnostic:
    """file: its name without folders; line from 1; severity: error or warning."""

    file: str
    line: int
    text: str
    severity: str = "error"


_NAME = r"(?P<file>[^\s:()]+\.(?:py|cuh?|h|hpp|cpp|cc))"
_FORMS = (
    # nvrtc, nvcc: row.cu(12): error: identifier "x" is undefined
    re.compile(_NAME + r"\((?P<line>\d+)\)\s*:\s*(?P<severity>error|warning|catastrophic error)[^:]*:\s*(?P<text>.+)"),
    # g++: row.cu:12:5: error: 'x' was not declared
    re.compile(_NAME + r":(?P<line>\d+):\d+:\s*(?P<severity>fatal error|error|warning):\s*(?P<text>.+)"),
    # the static gate: row_kforge.py:12: calls eval [dynamic_code]
    re.compile(_NAME + r":(?P<line>\d+):\s*(?P<text>\S.+)"),
)


def find(text: str, severity: str = "error") -> Iterator[Diagnostic]:
    """The diagnostics in a log, one a line at most. severity: of lines that do not name one."""
    for line in text.splitlines():
        for form in _FORMS:
            match = form.search(line)
            if match is not None:
                named = match.groupdict().get("severity") or severity
                kind = "warning" if "warning" in named else "error"
                name = match["file"].rpartition("/")[2]
                yield Diagnostic(name, int(match["line"]), match["text"].strip(), kind)
                break


def of_event(kind: str, data: Mapping[str, Any]) -> list[Diagnostic]:
    """The diagnostics of one event of the core: a failed gate, or a whole report with its warnings."""
    if kind == "gate" and data.get("passed") is False:
        return list(find(str(data.get("detail", ""))))
    if kind != "evaluated":
        return []
    report = data.get("report") or {}
    found = [d for gate in report.get("gates") or () if gate.get("passed") is False for d in find(_detail(gate))]
    found += find(str(data.get("failure") or report.get("failure") or ""))
    for warning in report.get("warnings") or ():
        found += find(str(warning), "warning")
    return list(dict.fromkeys(found))


def by_file(found: Iterable[Diagnostic]) -> dict[str, list[Diagnostic]]:
    """Grouped by file name."""
    files: dict[str, list[Diagnostic]] = {}
    for diagnostic in found:
        files.setdefault(diagnostic.file, []).append(diagnostic)
    return files


def _detail(gate: Mapping[str, Any]) -> str:
    return str(gate.get("detail", ""))
