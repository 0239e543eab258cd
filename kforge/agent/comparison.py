"""Two versions side by side as data: hunks with the profile's figures and findings on their lines, or op.py's lines
beside the kernel lines that compute them.

`comparison` is what the core answers to `hunks`; the diff pane shows it as it is. No torch, no UI.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kforge.agent.hunks import RELATED, Hunk, hunks, matching, split_lines
from kforge.kernel.candidate import Candidate
from kforge.profiling.annotate.lines import METRICS

_ORIGIN = re.compile(r"(?P<file>[\w.-]+\.py):(?P<first>\d+)(?:-(?P<last>\d+))?")
_PLACE = re.compile(r"[\w.-]+:\d+ ")
_NEARBY = 3  # lines around a hunk whose findings are said at it

Profile = Mapping[str, Any]  # the object of `kforge profile --json`


@dataclass(frozen=True)
class Pair:
    """Lines first to last of the reference (0 to 0: of none of its lines) and ranges (file, first, last) of kernels."""

    first: int
    last: int
    kernels: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class Note:
    """A finding at a line of one side ("old" or "new"), in one sentence."""

    file: str
    line: int
    side: str
    text: str
    severity: str = ""


def comparison(
    candidate: Candidate,
    against: Candidate | None,
    reference: tuple[str, str],
    before: Profile | None = None,
    after: Profile | None = None,
    origins: Iterable[int] = (),
) -> dict[str, Any]:
    """Everything that a diff shows, JSON-able. against None: the reference, whose (name, text) is `reference`.

    before, after: profiles of the two versions where there are any. origins: lines of op.py that the graph holds.
    Keys: candidate, against, module, related, matching, metrics [names], files [{file, old, new, hunks, figures,
    notes}], reference {name, text}, pairs [{first, last, kernels}].
    """
    old: Mapping[str, str] = against.files if against is not None else {}
    share = matching(old, candidate.files) if against is not None else 0.0
    joined = share >= RELATED
    known = hunks(old, candidate.files) if joined else []
    sides = {"old": before or {}, "new": after or {}}
    notes = [note for side, profile in sides.items() for note in _notes(profile, side)]
    names = sorted({*old, *candidate.files}) if joined else sorted(candidate.files)
    files = []
    for name in names:
        texts = {"old": old.get(name) if joined else None, "new": candidate.files.get(name)}
        if joined and texts["old"] == texts["new"] and not _figures(sides, name):
            continue
        mine = [h for h in known if h.file == name]
        files.append(
            {
                "file": name,
                **texts,
                "hunks": [_hunk(h, [n for n in notes if n.file == name]) for h in mine],
                "figures": _figures(sides, name),
                "notes": [_note(n) for n in notes if n.file == name and texts[n.side] is not None],
            }
        )
    pairs = [] if joined else correspondence(*reference, candidate.files, origins)
    return {
        "candidate": candidate.digest,
        "against": against.digest if against is not None else "",
        "module": candidate.module,
        "related": joined,
        "matching": round(share, 3),
        "metrics": _metrics(sides),
        "files": files,
        "reference": {"name": reference[0], "text": reference[1]},
        "pairs": [{"first": p.first, "last": p.last, "kernels": [list(k) for k in p.kernels]} for p in pairs],
    }


def correspondence(name: str, text: str, files: Mapping[str, str], origins: Iterable[int] = ()) -> list[Pair]:
    """Which kernel lines compute which line of the reference `name`, by the sources' origin comments (`op.py:9`).

    A comment behind code speaks of its line; one on a line of its own of what follows, to the next blank line, origin
    comment of that kind, or end of the enclosing block. Lines in `origins`, or computed by some kernel, have a pair
    each, in order; the rest of the reference has none.
    """
    last = len(split_lines(text))
    found: dict[tuple[int, int], list[tuple[str, int, int]]] = {(n, n): [] for n in origins if 1 <= n <= last}
    for file, source in sorted(files.items()):
        lines = [line.rstrip("\r\n") for line in split_lines(source)]
        for number, line in enumerate(lines, 1):
            _, mark, words = line.partition("//" if not file.endswith(".py") else "#")
            for said in _ORIGIN.finditer(words) if mark else ():
                first = int(said["first"])
                end = int(said["last"] or first)
                if said["file"] == name and 1 <= first <= end <= last:
                    alone = not line.strip().removeprefix(mark).removesuffix(words).strip()
                    until = _block(lines, number, mark) if alone else number
                    found.setdefault((first, end), []).append((file, number, until))
    return [Pair(first, end, tuple(ranges)) for (first, end), ranges in sorted(found.items())]


def _block(lines: Sequence[str], number: int, mark: str) -> int:
    """The last line that a comment on line `number` speaks of."""
    indent = len(lines[number - 1]) - len(lines[number - 1].lstrip())
    until = number
    for following in range(number + 1, len(lines) + 1):
        line = lines[following - 1]
        depth = len(line) - len(line.lstrip())
        if not line.strip() or depth < indent or (line.lstrip().startswith(mark) and _ORIGIN.search(line)):
            break
        until = following
    return until


def _notes(profile: Profile, side: str) -> list[Note]:
    found = []
    for finding in profile.get("findings") or ():
        for file, line in finding.get("places") or ():
            fact = _fact([str(text) for text in finding.get("evidence") or ()], f"{file}:{line}")
            words = str(finding.get("title", "")) + (f": {fact}" if fact else "")
            found.append(Note(str(file), int(line), side, words, str(finding.get("severity", ""))))
    return found


def _fact(evidence: Sequence[str], place: str) -> str:
    """The fact about this line, else the first about none; one is enough beside a line."""
    mine = [text.removeprefix(f"{place} ") for text in evidence if text.startswith(f"{place} ")]
    others = [text for text in evidence if not _PLACE.match(text)]
    return next(iter([*mine, *others]), "")


def _note(note: Note) -> dict[str, Any]:
    return {"line": note.line, "side": note.side, "text": note.text, "severity": note.severity}


def _hunk(hunk: Hunk, notes: Sequence[Note]) -> dict[str, Any]:
    """Where it is and what is said of it; its lines are those of the file's texts."""
    near = [
        _note(n)
        for n in notes
        if _start(hunk, n.side) - _NEARBY <= n.line < _start(hunk, n.side) + _length(hunk, n.side) + _NEARBY
    ]
    return {
        "id": hunk.id, "old_start": hunk.old_start, "old_lines": len(hunk.old), "new_start": hunk.new_start,
        "new_lines": len(hunk.new), "adds": hunk.adds, "removes": hunk.removes, "splittable": hunk.splittable,
        "notes": near,
    }  # fmt: skip


def _start(hunk: Hunk, side: str) -> int:
    return hunk.old_start if side == "old" else hunk.new_start


def _length(hunk: Hunk, side: str) -> int:
    return len(hunk.old if side == "old" else hunk.new)


def _lines(profile: Profile, file: str) -> Mapping[str, Any]:
    return ((profile.get("lines") or {}).get(file) or {}).get("lines") or {}


def _metrics(sides: Mapping[str, Profile]) -> list[str]:
    """Those of both sides first: only they can be compared."""
    present = []
    for profile in sides.values():
        rows = (profile.get("lines") or {}).values()
        present.append({name for row in rows for name in row.get("metrics") or ()})
    both, either = present[0] & present[1], present[0] | present[1]
    known = [name for name in METRICS if name in either]
    return sorted(known, key=lambda name: name not in both)


def _figures(sides: Mapping[str, Profile], file: str) -> dict[str, dict[str, dict[str, float]]]:
    """{metric: {"old": {line: value}, "new": {line: value}}} of one file."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for side, profile in sides.items():
        for line, facts in _lines(profile, file).items():
            for metric, value in (facts.get("values") or {}).items():
                if metric in METRICS:
                    found.setdefault(metric, {"old": {}, "new": {}})[side][str(line)] = float(value)
    return found
