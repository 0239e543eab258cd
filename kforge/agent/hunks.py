"""Hunks between two versions of a candidate: found, split, applied in part. Texts only: nothing here runs or judges.

A candidate of which a part was taken is a new candidate: whoever calls `partial` has it judged before it is written.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kforge.errors import UsageError
from kforge.kernel.candidate import Candidate

NEAR = 2  # changes with at most this many unchanged lines between them are one hunk
RELATED = 0.3  # share of equal lines from which two versions are compared line by line (CONTRACTS 7)
MOST_TOLD, ALL_TOLD = 4000, 30_000  # characters of one hunk and of all as the model is told of them
MANY = 20_000  # lines of both files together, from which frequent lines are no longer looked for

Files = Mapping[str, str]


@dataclass(frozen=True)
class Hunk:
    """One change of one file: `old` lines, from line `old_start` on, become `new` ones; lines keep their ends.

    id: a hash of the change itself, so it stays the same where other lines move; a part's is its whole's, a dot and
    its place. Line numbers count from 1; with nothing old, new lines come before line `old_start`. adds, removes: the
    file is in one version only.
    """

    id: str
    file: str
    old_start: int
    old: tuple[str, ...]
    new_start: int
    new: tuple[str, ...]
    adds: bool = False
    removes: bool = False

    @property
    def header(self) -> str:
        """As in a unified diff."""
        return f"@@ -{self.old_start},{len(self.old)} +{self.new_start},{len(self.new)} @@"

    @property
    def splittable(self) -> bool:
        """Whether `split` finds parts."""
        return len(self.old) > 1 or len(self.new) > 1

    def text(self) -> str:
        """The change as lines with - and +; unchanged lines in it with a space."""
        rows, i, j = [], 0, 0
        for i1, i2, j1, j2 in opcodes(self.old, self.new):
            rows += [" " + line for line in self.new[j:j1]]
            rows += ["-" + line for line in self.old[i1:i2]] + ["+" + line for line in self.new[j1:j2]]
            i, j = i2, j2
        rows += [" " + line for line in self.old[i:]]
        return "\n".join(row.rstrip("\r\n") for row in rows)


def split_lines(text: str) -> tuple[str, ...]:
    """Lines with their ends, cut at newlines only: a form feed or U+2028 in a source is no line end."""
    *whole, last = text.split("\n")
    return (*(line + "\n" for line in whole), *((last,) if last else ()))


def hunks(old: Files, new: Files) -> list[Hunk]:
    """Every change from one set of files to another, by file and line; empty where they are equal."""
    found: list[Hunk] = []
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            found += _of_file(name, old.get(name), new.get(name))
    return found


def split(hunk: Hunk) -> tuple[Hunk, ...]:
    """The hunk in parts, at its unchanged lines, else at a blank line, else in the middle; empty where it has none.

    All parts accepted are the hunk accepted; each may be split again.
    """
    if not hunk.splittable:
        return ()
    cuts = list(opcodes(hunk.old, hunk.new))
    if len(cuts) < 2:
        m, n = len(hunk.old), len(hunk.new)
        i, j = _middle(hunk.old), _middle(hunk.new)
        cuts = [(0, i, 0, j), (i, m, j, n)]
    return tuple(
        replace(hunk, id=f"{hunk.id}.{k}", old_start=hunk.old_start + i1, old=hunk.old[i1:i2],
                new_start=hunk.new_start + j1, new=hunk.new[j1:j2])
        for k, (i1, i2, j1, j2) in enumerate(cuts)
    )  # fmt: skip


def find(known: Sequence[Hunk], identifier: str) -> Hunk:
    """A hunk, or a part of one, by its id. UsageError where there is none: the versions are no longer those shown."""
    whole, *places = identifier.split(".")
    hunk = next((h for h in known if h.id == whole), None)
    for place in places:
        parts = split(hunk) if hunk is not None else ()
        hunk = parts[int(place)] if place.isdecimal() and int(place) < len(parts) else None
    if hunk is None:
        raise UsageError(
            f"there is no change {identifier}", "the files changed since the diff was shown: open it again"
        )
    return hunk


def apply(files: Files, known: Sequence[Hunk], accepted: Iterable[str]) -> dict[str, str]:
    """`files` with the accepted hunks, or parts of hunks, in them. UsageError where one does not fit: then none is."""
    chosen = _chosen(known, accepted)
    result = dict(files)
    for name in {hunk.file for hunk in chosen}:
        mine = sorted((h for h in chosen if h.file == name), key=lambda h: (h.old_start, h.new_start))
        text = _patched(name, files.get(name), mine)
        if text or not mine[0].removes:
            result[name] = text
        else:
            del result[name]
    return result


def partial(candidate: Candidate, against: Candidate, accepted: Iterable[str]) -> Candidate:
    """The candidate in which only the accepted hunks differ from `against`: a new one, which nobody has judged yet.

    With all hunks it is `candidate` itself, with none `against`. UsageError as `apply`.
    """
    known, ids = hunks(against.files, candidate.files), list(accepted)
    files = apply(against.files, known, ids)
    for same in (candidate, against):
        if files == same.files:
            return same
    module = candidate.module if candidate.module in files else against.module
    if module not in files:
        raise UsageError(f"the accepted changes leave no {candidate.module}", "accept the change that adds it as well")
    words = f"{len(_chosen(known, ids))} accepted changes of {candidate.digest[:8]} over {against.digest[:8]}"
    return Candidate(module, files, proposer="user", parent=against.digest, idea=words)


def matching(old: Files, new: Files) -> float:
    """The share of lines that two sets of files have in common, blank lines not counted: 0 to 1; 1 for equal ones."""
    total = same = 0
    for name in {*old, *new}:
        a, b = split_lines(old.get(name, "")), split_lines(new.get(name, ""))
        total += sum(1 for line in (*a, *b) if line.strip())
        changed = 0
        for i1, i2, j1, j2 in opcodes(a, b):
            changed += sum(1 for line in (*a[i1:i2], *b[j1:j2]) if line.strip())
        same += sum(1 for line in (*a, *b) if line.strip()) - changed
    return same / total if total else 1.0


def related(old: Files, new: Files) -> bool:
    """Whether hunks mean something between these versions; otherwise a candidate is accepted whole or not at all."""
    return matching(old, new) >= RELATED


def rejection(known: Sequence[Hunk], rejected: Iterable[Mapping[str, str]]) -> str:
    """What is told to the model of rejected hunks ({"id", "reason"}): each change and why; "" where there is none."""
    return refusals((find(known, row["id"]), row.get("reason", "")) for row in rejected)


def refusals(rejected: Iterable[tuple[Hunk, str]]) -> str:
    """The same of (hunk, reason)."""
    parts: list[str] = []
    for hunk, reason in rejected:
        told = refusal(hunk, reason)
        parts.append(told if sum(map(len, parts)) < ALL_TOLD else told.partition("\n")[0][:200])
    if not parts:
        return ""
    return "\n\n".join(["The developer rejected these changes; do not make them again:", *parts])


def refusal(hunk: Hunk, reason: str) -> str:
    """What is told to the model of one rejected hunk."""
    words = " ".join(reason.split())
    return _told(hunk, f"rejected: {words}" if words else "rejected without a reason")


def comment(hunk: Hunk, text: str) -> str:
    """What is told to the model of a comment on one hunk."""
    return _told(hunk, "the developer says: " + " ".join(text.split()))


def _told(hunk: Hunk, words: str) -> str:
    first = hunk.new_start if hunk.new else hunk.old_start
    last = first + max(0, len(hunk.new or hunk.old) - 1)
    place = f"{hunk.file}:{first}" + (f"-{last}" if last > first else "")
    text = hunk.text()
    if len(text) > MOST_TOLD:
        text = text[:MOST_TOLD] + "\n [...]"
    return f"{place} {words[:MOST_TOLD]}\n{text}"


def _of_file(name: str, old: str | None, new: str | None) -> Iterator[Hunk]:
    a, b = split_lines(old or ""), split_lines(new or "")
    if old is None or new is None:  # one hunk, even of an empty file
        yield Hunk(_identifier(name, a, b, 0), name, 1, a, 1, b, adds=old is None, removes=new is None)
        return
    seen: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}
    for i1, i2, j1, j2 in _groups(opcodes(a, b)):
        change = a[i1:i2], b[j1:j2]
        seen[change] = seen.get(change, -1) + 1
        yield Hunk(_identifier(name, *change, seen[change]), name, i1 + 1, change[0], j1 + 1, change[1])


def _identifier(name: str, old: Sequence[str], new: Sequence[str], nth: int) -> str:
    h = hashlib.sha256()
    for part in (name, str(nth), str(len(old)), *old, *new):
        data = part.encode(errors="surrogatepass")
        h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()[:12]


Cut = tuple[int, int, int, int]


def opcodes(a: Sequence[str], b: Sequence[str]) -> Iterator[Cut]:
    """Ranges (i1, i2, j1, j2) in which the versions differ, in order."""
    first = 0
    while first < min(len(a), len(b)) and a[first] == b[first]:
        first += 1
    last = 0
    while last < min(len(a), len(b)) - first and a[-1 - last] == b[-1 - last]:
        last += 1
    a, b = a[first : len(a) - last], b[first : len(b) - last]
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=len(a) + len(b) > MANY)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            yield first + i1, first + i2, first + j1, first + j2


def _groups(cuts: Iterable[Cut]) -> Iterator[Cut]:
    group: Cut | None = None
    for cut in cuts:
        if group is not None and cut[0] - group[1] <= NEAR:
            group = group[0], cut[1], group[2], cut[3]
            continue
        if group is not None:
            yield group
        group = cut
    if group is not None:
        yield group


def _middle(lines: Sequence[str]) -> int:
    """Where to cut: after the blank line that is nearest to the middle, else in the middle."""
    half = (len(lines) + 1) // 2
    blank = [i + 1 for i, line in enumerate(lines[:-1]) if not line.strip()]
    return min(blank, key=lambda i: (abs(i - half), i), default=half)


def _chosen(known: Sequence[Hunk], accepted: Iterable[str]) -> list[Hunk]:
    """The hunks behind the ids, each once; a part of an accepted hunk is in it already."""
    ids = set(accepted)
    chosen = []
    for identifier in sorted(ids):
        hunk = find(known, identifier)
        steps = identifier.split(".")
        if not any(".".join(steps[:k]) in ids for k in range(1, len(steps))):
            chosen.append(hunk)
    return chosen


def _patched(name: str, text: str | None, chosen: Sequence[Hunk]) -> str:
    if (text is None) != chosen[0].adds:
        is_there = "is not there" if text is None else "is there already"
        raise UsageError(f"{name} {is_there}: nothing was applied", "open the diff again")
    lines, at = split_lines(text or ""), 0
    pieces: list[str] = []
    for hunk in chosen:
        begin = hunk.old_start - 1
        end = begin + len(hunk.old)
        if begin < at or lines[begin:end] != hunk.old or begin > len(lines):
            raise UsageError(
                f"a change does not fit {name} at line {hunk.old_start}: nothing was applied", "open the diff again"
            )
        pieces += [*lines[at:begin], *hunk.new]
        at = end
    pieces += lines[at:]
    # A last line without its newline may have got a successor: the part that adds its newline was left out.
    end_of_line = "\r\n" if any(piece.endswith("\r\n") for piece in pieces) else "\n"
    inner = [piece if piece.endswith("\n") else piece + end_of_line for piece in pieces[:-1]]
    return "".join([*inner, *pieces[-1:]])
