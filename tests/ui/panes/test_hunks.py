"""Hunks: applied whole, in part, split, in any order; what does not fit changes nothing; what a model is told."""

from __future__ import annotations

import random

import pytest

from kforge.agent.hunks import (
    Hunk,
    apply,
    comment,
    find,
    hunks,
    matching,
    partial,
    refusal,
    rejection,
    related,
    split,
    split_lines,
)  # fmt: skip
from kforge.errors import UsageError
from kforge.kernel.candidate import Candidate

LINES = (
    "a\n",
    "b\n",
    "\n",
    "}\n",
    "x\r\n",
    "\ty[/] = v[i];\n",
    "é e\u0301 漢字\n",
    "\x0c \x1b[31m\u2028z\n",
    "l" * 3000 + "\n",
)


def _text(rng: random.Random) -> str:
    text = "".join(rng.choice(LINES) for _ in range(rng.randrange(14)))
    return text + rng.choice(["", "no newline at its end", "a"])


def _versions(seed: int) -> tuple[random.Random, dict[str, str], dict[str, str]]:
    rng = random.Random(seed)
    old = {name: _text(rng) for name in ("k.cu", "m.py") if rng.random() < 0.9}
    new = {name: rng.choice([_text(rng), old.get(name, "")]) for name in ("k.cu", "m.py") if rng.random() < 0.9}
    return rng, old, new


def _leaves(hunk: Hunk, rng: random.Random) -> list[Hunk]:
    parts = [hunk]
    for _ in range(rng.randrange(6)):
        place = rng.randrange(len(parts))
        parts[place : place + 1] = split(parts[place]) or (parts[place],)
    return parts


@pytest.mark.parametrize("seeds", [range(k, 600, 4) for k in range(4)])
def test_all_none_and_any_part(seeds: range) -> None:
    """All hunks give the new version, none the old; of any split, any part and then the rest in any order the new."""
    for seed in seeds:
        rng, old, new = _versions(seed)
        known = hunks(old, new)
        assert apply(old, known, [h.id for h in known]) == new, seed
        assert apply(old, known, []) == old
        parts = [part.id for hunk in known for part in _leaves(hunk, rng)]
        assert len(set(parts)) == len(parts)
        rng.shuffle(parts)
        assert apply(old, known, parts) == new, seed
        cut = rng.randrange(len(parts) + 1)
        middle = apply(old, known, parts[:cut])
        assert apply(old, known, [*parts[cut:], *parts[:cut]]) == new
        rest = hunks(middle, new)
        assert apply(middle, rest, [h.id for h in rest]) == new, seed


def test_parts_cover_their_hunk_and_end() -> None:
    """Splitting again and again ends with single lines, and no line is in two parts."""
    (hunk,) = hunks({"k.cu": "1\n2\n3\n\n4\n"}, {"k.cu": "a\nb\n\nc\n"})
    todo, leaves = [hunk], []
    while todo:
        part = todo.pop()
        inside = split(part)
        todo += inside
        leaves += [] if inside else [part]
    assert all(len(part.old) <= 1 and len(part.new) <= 1 for part in leaves)
    old_lines = sorted(part.old_start for part in leaves if part.old)
    new_lines = sorted(part.new_start for part in leaves if part.new)
    assert len(set(old_lines)) == len(old_lines) and len(set(new_lines)) == len(new_lines)


def test_split_goes_by_unchanged_lines_then_blank_ones() -> None:
    """A hunk with unchanged lines inside splits there; an added block at its blank line."""
    (hunk,) = hunks({"k.cu": "a\nkeep\nb\n"}, {"k.cu": "A\nkeep\nB\n"})
    assert [(part.old, part.new) for part in split(hunk)] == [(("a\n",), ("A\n",)), (("b\n",), ("B\n",))]
    (added,) = hunks({"k.cu": "a\n"}, {"k.cu": "a\nf\n\ng\nh\ni\n"})
    assert [part.new for part in split(added)] == [("f\n", "\n"), ("g\n", "h\n", "i\n")]


def test_identifiers_follow_the_content() -> None:
    """The same change has the same id after another hunk moved its line; equal changes in one file have their own."""
    old = "".join(f"line {i}\n" for i in range(30))
    new = old.replace("line 20\n", "changed\n")
    moved = hunks({"k.cu": "first\nsecond\n" + old}, {"k.cu": "first\nsecond\n" + new})
    assert [h.id for h in moved] == [h.id for h in hunks({"k.cu": old}, {"k.cu": new})]
    twice = hunks({"k.cu": "x\n" + old + "x\n"}, {"k.cu": "y\n" + old + "y\n"})
    assert len({h.id for h in twice}) == 2


def test_a_file_of_one_version_only() -> None:
    """A new file comes with any accepted part of it and not otherwise; a removed one goes with all of it only."""
    known = hunks({"old.cu": "1\n2\n"}, {"new.cu": "a\n\nb\n", "empty.h": ""})
    by_file = {h.file: h for h in known}
    assert by_file["new.cu"].adds and by_file["old.cu"].removes
    assert apply({"old.cu": "1\n2\n"}, known, [f"{by_file['new.cu'].id}.1"]) == {"old.cu": "1\n2\n", "new.cu": "b\n"}
    assert apply({"old.cu": "1\n2\n"}, known, [f"{by_file['old.cu'].id}.0"]) == {"old.cu": "2\n"}
    assert apply({"old.cu": "1\n2\n"}, known, [h.id for h in known]) == {"new.cu": "a\n\nb\n", "empty.h": ""}


def test_a_part_that_lost_its_newline_gets_one() -> None:
    """Where the part that adds the last line's newline is left out, lines are not glued together."""
    old, new = {"k.cu": "a\nlast"}, {"k.cu": "a\nlast\nmore\n"}
    (hunk,) = hunks(old, new)
    second = split(hunk)[1]
    assert second.new == ("more\n",)
    assert apply(old, [hunk], [second.id]) == {"k.cu": "a\nlast\nmore\n"}


def test_what_does_not_fit_changes_nothing() -> None:
    """One hunk that does not fit fails all of them; an unknown id and an impossible part are named."""
    known = hunks({"k.cu": "a\nb\nc\nd\ne\n"}, {"k.cu": "A\nb\nc\nd\nE\n"})
    edited = {"k.cu": "a\nb\nc\nd\nsomething else\n"}
    with pytest.raises(UsageError, match=r"does not fit k\.cu at line 5: nothing was applied"):
        apply(edited, known, [h.id for h in known])
    assert edited == {"k.cu": "a\nb\nc\nd\nsomething else\n"}
    for wrong in ("nonsense", f"{known[0].id}.7", f"{known[0].id}.x"):
        with pytest.raises(UsageError, match="there is no change"):
            apply({"k.cu": "a\nb\nc\nd\ne\n"}, known, [wrong])
    with pytest.raises(UsageError, match="is not there"):
        apply({}, known, [known[0].id])


def test_partial_is_a_new_candidate() -> None:
    """Part of a candidate is another candidate with its own digest; all or nothing are the two that exist."""
    old = Candidate("op_kforge.py", {"op_kforge.py": "m\n", "op_kforge.cu": "a\nb\nc\nd\ne\n"})
    new = Candidate("op_kforge.py", {"op_kforge.py": "m\n", "op_kforge.cu": "A\nb\nc\nd\nE\n"}, "model", old.digest)
    first, second = hunks(old.files, new.files)
    part = partial(new, old, [first.id])
    assert part.files["op_kforge.cu"] == "A\nb\nc\nd\ne\n"
    assert part.parent == old.digest and part.digest not in (old.digest, new.digest)
    assert partial(new, old, [first.id, second.id]) is new
    assert partial(new, old, []) is old


def test_a_part_without_a_module_is_refused() -> None:
    """The module cannot be accepted away."""
    old = Candidate("a_kforge.py", {"a_kforge.py": "1\n", "k.cu": "x\n"})
    new = Candidate("b_kforge.py", {"b_kforge.py": "2\n", "k.cu": "y\n"})
    removal = next(h for h in hunks(old.files, new.files) if h.removes)
    with pytest.raises(UsageError, match=r"leave no b_kforge\.py"):
        partial(new, old, [removal.id])


def test_related() -> None:
    """Versions of one kernel are related, a rewrite is not; blank lines prove nothing."""
    kernel = {"k.cu": "".join(f"line {i};\n" for i in range(20))}
    assert related(kernel, {"k.cu": kernel["k.cu"].replace("line 3;", "line three;")})
    other = {"k.cu": "".join(f"other {i};\n\n" for i in range(20))}
    assert not related({"k.cu": kernel["k.cu"].replace("\n", "\n\n")}, other)
    assert matching({}, {}) == 1.0


def test_what_the_model_is_told() -> None:
    """Rejected hunks, their reasons and a comment name file, lines and the change itself."""
    known = hunks({"k.cu": "a\nb\n"}, {"k.cu": "a\nfast(b)\nc\n"})
    said = rejection(known, [{"id": known[0].id, "reason": "  keep\nprecision "}])
    assert said.startswith("The developer rejected these changes")
    assert "k.cu:2-3 rejected: keep precision\n-b\n+fast(b)\n+c" in said
    assert rejection(known, []) == ""
    assert refusal(known[0], "").startswith("k.cu:2-3 rejected without a reason")
    assert comment(known[0], "why?").startswith("k.cu:2-3 the developer says: why?")
    assert find(known, known[0].id) is known[0]


def test_lines_end_at_newlines_only() -> None:
    """Form feeds, vertical tabs and U+2028 do not cut a line; CRLF and a missing last newline stay as they are."""
    text = "a\x0cb\x0bc\u2028d\r\ne"
    assert split_lines(text) == ("a\x0cb\x0bc\u2028d\r\n", "e")
    assert split_lines("") == () and split_lines("\n") == ("\n",)
