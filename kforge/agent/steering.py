"""Free text of the developer read for standing rules: "no fast-math please", "at most 48 KB of shared memory".

Only what is clearly asked for becomes a rule; the text itself goes to the model as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kforge.task.constraints import DIGITS, FLAGS, VALUES, Constraint

_NO = r"(?:no|without|avoid|avoiding|never|forbid|disable|don'?t use|do not use|don'?t call|do not call|must not use)"
_NOT_ALLOWED = r"(?:is|are) (?:not allowed|not permitted|forbidden|off[ -]limits|banned)"
_KEEP = r"(?:keep|keeps|preserve|preserves|maintain|retain|respect|honou?r|same|propagate|propagates)"
_WORDS = r"(?:[\w/'-]+ ){0,3}?"
_NANS = r"(?:nans?|infs?|infinit(?:y|ies)|non-?finites?)\b"
_FAST = r"(?:fast[ _-]?math|(?:approximate|fast) intrinsics?)\b"
_VENDOR = r"(?:vendor(?: librar(?:y|ies)|[ _]?calls?)?|cublas(?:lt)?|cudnn|library calls?)\b"
_SHARED = r"(?:of )?(?:shared(?: memory)?|smem)\b"
_MOST = r"(?:max(?:imum)?(?: of)?|at most|no more than|not more than|under|below|less than|up to|limit(?:ed)? to|<=?)"
_AMOUNT = r"(?P<number>\d+(?:\.\d+)?) ?(?P<unit>bytes?|kib|kb|k|mib|mb|b)?\b"

# Asked for by what stands in the text; a negation before it takes it back.
_WANTED = (
    ("keep_nan", rf"\b{_KEEP} {_WORDS}{_NANS}"),
    ("keep_nan", rf"\b{_NANS} (?:must |should |have to |has to )?(?:propagate|be (?:kept|preserved|propagated))"),
    ("keep_nan", r"\bnan[ -]safe\b"),
    ("deterministic", r"\b(?:deterministic|determinism|(?:bit(?:wise)?[ -]?)?reproducib(?:le|ly|ility))\b"),
    ("deterministic", r"\b(?:same|equal|identical) bits\b"),
    ("keep_signature", rf"\b{_KEEP} {_WORDS}signature\b"),
)
# Asked for by a negation.
_UNWANTED = (
    ("no_fast_math", rf"\b{_NO} {_WORDS}{_FAST}"),
    ("no_fast_math", rf"\b{_FAST} {_NOT_ALLOWED}"),
    ("no_vendor_calls", rf"\b{_NO} {_WORDS}{_VENDOR}"),
    ("no_vendor_calls", rf"\b{_VENDOR} {_NOT_ALLOWED}"),
    ("deterministic", r"\bno (?:non-?determinism|atomics? on floats?)\b"),
    ("keep_signature", rf"\b(?:don'?t|do not|never|must not) (?:change|alter|touch) {_WORDS}signature\b"),
)
_LIMITS = (
    rf"{_MOST} {_AMOUNT} {_SHARED}",
    rf"{_SHARED}[\w ]{{0,24}}? {_MOST} {_AMOUNT}",
    rf"\blimit {_SHARED} to {_AMOUNT}",
)
_TAKEN_BACK = re.compile(
    r"\b(?:not|no need|needn'?t|\w+n't|never|without|drop|ignore|release|forget|no longer|stop|may|can|could)\b"
)
_NAMES = [name for name in (*FLAGS, *VALUES) if "_" in name]  # the others are words of English
_NAMED = re.compile(rf"\b(?P<name>{'|'.join(_NAMES)})\b(?: ?= ?(?P<value>\d+))?")
_UNITS = {"b": 1, "byte": 1, "bytes": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "mb": 1 << 20, "mib": 1 << 20}
_NO_LIMIT = 10**DIGITS  # bytes that nobody means
_BARE = 1024  # a limit without a unit is in bytes, and a smaller one is not meant


# A hunk as kforge.agent.hunks quotes it to the model: its lines are a model's, not the developer's.
_QUOTED = re.compile(r"^(.+?:\d+(?:-\d+)? (?:rejected|the developer says)[^\n]*)(?:\n[-+ ][^\n]*)*", re.MULTILINE)


def rules(text: str) -> tuple[Constraint, ...]:
    """The standing rules that a steer asks for, in order, each name once (of two limits the last); often none.

    Quoted hunks are left out: what a model has written into a kernel is no rule of the developer's.
    Names of CONSTRAINTS ("keep_nan", "max_shared=49152") are understood as they are.
    """
    found: dict[str, Constraint] = {}
    text = _QUOTED.sub(r"\1", text)
    for clause in re.split(r"[.;!?\n]+(?:\s|$)|[;\n]+|, (?:and|but) |,| but ", text.lower().replace("’", "'")):
        for rule in _rules(" ".join(clause.split())):
            found[rule.name] = rule
    return tuple(found.values())


def _rules(clause: str) -> Iterator[Constraint]:
    for match in _NAMED.finditer(clause):
        taken_back = _TAKEN_BACK.search(clause[: match.start()])
        value = match["value"]
        if not taken_back and (value is None) == (match["name"] in FLAGS) and len(value or "") <= DIGITS:
            yield Constraint(match["name"], None if value is None else int(value))
    for name, pattern in _WANTED:
        wanted = re.search(pattern, clause)
        if wanted and not _TAKEN_BACK.search(clause[: wanted.start()]) and not _refused(clause, wanted):
            yield Constraint(name)
    for name, pattern in _UNWANTED:
        if re.search(pattern, clause):
            yield Constraint(name)
    for pattern in _LIMITS:
        limit = re.search(pattern, clause)
        if limit is not None and (limit["unit"] or float(limit["number"]) >= _BARE):
            size = float(limit["number"]) * _UNITS[limit["unit"] or "b"]
            if size < _NO_LIMIT:
                yield Constraint("max_shared", int(size))
            break


def _refused(clause: str, wanted: re.Match[str]) -> bool:
    """As in "non-deterministic", or "a deterministic order is not needed"."""
    before, after = clause[: wanted.start()], clause[wanted.end() :]
    if before.endswith(("non-", "non ")):
        return True
    return re.search(r"\b(?:not|isn't|optional|unnecessary)\b", after) is not None
