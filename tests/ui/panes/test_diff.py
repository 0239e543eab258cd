"""The diff pane: every key, what it shows of figures and findings, and that hostile texts stay texts."""

from __future__ import annotations

from typing import Any

from textual.pilot import Pilot
from textual.widgets import Input

from kforge.agent.comparison import comparison
from kforge.agent.hunks import hunks
from kforge.kernel.candidate import Candidate
from kforge.ui.panes.diff import DiffPane
from tests.ui.panes.hosting import HOSTILE, Host, hosted, on_screen, shown

REFERENCE = ("op.py", "import torch\n\ndef reference(x):\n    return torch.exp(x)\n")
OLD = "".join(f"int line{i} = {i};\n" for i in range(1, 61))
NEW = (
    OLD.replace("line10 = 10;", "line10 = 11;")
    .replace("int line30 = 30;\n", "int line30 = 31;\nint more = 1;\n\nint most = 2;\n")
    .replace("int line50 = 50;\n", "")
)


def _candidate(kernel: str, parent: str | None = None) -> Candidate:
    return Candidate("op_kforge.py", {"op_kforge.py": "class ModelNew: ...\n", "op_kforge.cu": kernel}, parent=parent)


def _profile(values: dict[int, float], place: int | None = None) -> dict[str, Any]:
    lines = {str(n): {"values": {"excess": v, "instructions": 3}} for n, v in values.items()}
    places = [["op_kforge.cu", place]] if place else []
    finding = {
        "title": "scattered loads",
        "evidence": ["4 of 32 bytes a sector"],
        "severity": "major",
        "places": places,
    }
    return {
        "findings": [finding] if place else [],
        "lines": {"op_kforge.cu": {"file": "op_kforge.cu", "metrics": ["excess", "instructions"], "lines": lines}},
    }


def _reply(before: dict[str, Any] | None = None, after: dict[str, Any] | None = None) -> dict[str, Any]:
    old = _candidate(OLD)
    return comparison(_candidate(NEW, old.digest), old, REFERENCE, before, after)


def _ids() -> list[str]:
    return [h.id for h in hunks(_candidate(OLD).files, _candidate(NEW).files)]


def _states(pane: DiffPane) -> list[str]:
    assert pane.model is not None
    return [choice.state for choice in pane.model.choices]


def _foot(host: Host) -> str:
    return on_screen(host).splitlines()[-1].strip()


def test_hunks_with_their_surroundings() -> None:
    """Three hunks with three lines around each; the rest is counted, and unchanged files are not listed."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply())
        rows = [row.strip() for row in shown(pane.view)]
        assert rows[0] == "op_kforge.cu" and "op_kforge.py" not in " ".join(rows)
        assert rows[1] == "─── 6 lines unchanged"
        at = rows.index("▌  1/3 @@ -10,1 +10,1 @@")
        assert rows[at - 3] == "7   int line7 = 7;"
        assert rows[at + 1 : at + 3] == ["▌  10 - int line10 = 10;", "▌  10 + int line10 = 11;"]
        assert rows[at + 3] == "11   int line11 = 11;"
        assert sum("unchanged" in row for row in rows) == 4
        await pilot.pause()
        assert "1/3: 0 accepted, 0 rejected, 3 left" in _foot(host)

    hosted(pane, act)


def test_j_and_k_go_from_hunk_to_hunk() -> None:
    """j k stop at the ends; the cursor is on the hunk's header; a cursor moved into a hunk makes it current."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply())
        seen = []
        for key in ("j", "j", "j", "j", "k", "k", "k"):
            await pilot.press(key)
            seen.append(pane.view.current)
            assert f"{pane.view.current + 1}/3" in pane.view.row(pane.view.cursor).plain
        assert seen == [0, 1, 2, 2, 1, 0, 0]
        await pilot.press("end", "up", "up", "up", "up", "up")
        assert pane.view.current == 2

    hosted(pane, act)


def test_accept_reject_undo_and_apply() -> None:
    """a accepts and goes on, r asks why, u takes back, enter says what was decided, by the ids that the core knows."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply())
        await pilot.press("a")
        assert _states(pane) == ["accepted", "pending", "pending"] and pane.view.current == 1
        await pilot.press("r", *"too slow", "enter")
        assert _states(pane) == ["accepted", "rejected", "pending"] and pane.view.current == 2
        assert any("rejected: too slow" in row for row in shown(pane.view))
        await pilot.press("a", "u")
        assert _states(pane) == ["accepted", "rejected", "pending"]
        await pilot.press("enter")
        await pilot.pause()
        await pilot.press("u", "u")
        assert _states(pane) == ["pending"] * 3 and host.get(DiffPane.UndoAsked) == []
        await pilot.press("enter")
        await pilot.pause()
        assert "nothing is accepted yet" in _foot(host)
        await pilot.press("u")
        await pilot.pause()

    host = hosted(pane, act)
    (accepted,) = host.get(DiffPane.Accepted)
    old, new = _candidate(OLD), _candidate(NEW)
    assert (accepted.candidate, accepted.against, accepted.whole) == (new.digest, old.digest, False)
    assert accepted.hunks == (_ids()[0],)
    assert accepted.rejected == ({"id": _ids()[1], "reason": "too slow"},)
    (rejected,) = host.get(DiffPane.Rejected)
    assert (rejected.candidate, rejected.hunk, rejected.reason) == (new.digest, _ids()[1], "too slow")
    assert rejected.text.startswith("op_kforge.cu:30-33 rejected: too slow\n-int line30 = 30;")
    assert len(host.get(DiffPane.UndoAsked)) == 1


def test_escape_leaves_the_question() -> None:
    """Escape while a reason is asked decides nothing and gives the keys back; otherwise escape is the app's."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply())
        assert pane.check_action("cancel", ()) is False
        await pilot.press("r", *"ajk")
        assert host.query_one("#diff-input", Input).value == "ajk" and pane.view.current == 0
        await pilot.press("escape")
        assert host.focused is pane.view and _states(pane) == ["pending"] * 3
        await pilot.press("a")
        assert _states(pane)[0] == "accepted"

    hosted(pane, act)


def test_all_of_it() -> None:
    """A accepts what is left, which is the candidate as a whole; R rejects what is left with one reason each."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply())
        await pilot.press("A", "enter")
        await pilot.pause()
        assert _states(pane) == ["accepted"] * 3
        pane.show(_reply())
        await pilot.press("a", "R", *"no", "enter")
        await pilot.pause()
        assert _states(pane) == ["accepted", "rejected", "rejected"]

        await pilot.press("u", "u", "r", *"no", "enter", "enter")
        await pilot.pause()
        assert "the agent is told" in _foot(host)

    host = hosted(pane, act)
    (accepted,) = host.get(DiffPane.Accepted)
    assert accepted.whole and accepted.hunks == tuple(_ids())
    rejected = host.get(DiffPane.Rejected)
    assert [m.hunk for m in rejected] == [*_ids()[1:], _ids()[1], ""]
    assert rejected[-1].text.startswith("The developer rejected these changes") and "-int line30" in rejected[-1].text


def test_split_gives_parts_with_ids_of_their_own() -> None:
    """s splits the current hunk; a part is accepted alone, u joins them again; what is one line says so."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply())
        await pilot.press("j", "j", "s")
        assert len(_states(pane)) == 4 and pane.view.current == 1
        await pilot.press("a", "enter")
        await pilot.pause()
        await pilot.press("u", "u")
        assert len(_states(pane)) == 3
        await pilot.press("k", "k", "s")
        await pilot.pause()
        assert len(_states(pane)) == 3 and "cannot be split" in _foot(host)

    host = hosted(pane, act)
    (accepted,) = host.get(DiffPane.Accepted)
    assert accepted.hunks == (f"{_ids()[1]}.0",)


def test_comment_and_copy() -> None:
    """c sends words about the hunk, with its lines, to the agent; y copies the hunk."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply())
        await pilot.press("c", *"why 11?", "enter", "y", "c", "enter")
        await pilot.pause()

    host = hosted(pane, act)
    (comment,) = host.get(DiffPane.Commented)
    assert (comment.hunk, comment.words) == (_ids()[0], "why 11?")
    assert comment.text == "op_kforge.cu:10 the developer says: why 11?\n-int line10 = 10;\n+int line10 = 11;"
    assert host.copied == ["-int line10 = 10;\n+int line10 = 11;"]


def test_figures_before_and_after() -> None:
    """Beside the line stand both figures where they differ, a finding below it; m goes on to the next metric."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply(_profile({10: 4.0, 20: 8.0, 25: 1.0}, place=10), _profile({10: 1.0, 20: 2.0, 25: 1.0})))
        rows = [row.strip() for row in shown(pane.view)]
        assert any(row.startswith("▌  1/3 @@ -10,1 +10,1 @@") and row.endswith("excess 4x → 1x") for row in rows)
        at = next(i for i, row in enumerate(rows) if "- int line10" in row)
        assert (
            rows[at].startswith("▌  10    4x -") and "└ major: scattered loads: 4 of 32 bytes a sector" in rows[at + 1]
        )
        assert rows[at + 2].startswith("▌  10    1x +")
        assert any(row == "20 8x→2x   int line20 = 20;" for row in rows)  # only its figure changed
        assert not any("line25" in row for row in rows)
        await pilot.press("m")
        assert pane.view.metric == "instructions"
        await pilot.press("m")
        assert pane.view.metric == "" and not any("→" in row for row in shown(pane.view))

    hosted(pane, act)


def test_brackets_walk_along_hot_lines() -> None:
    """] goes to the hottest line, then the next; [ back; without figures the line below says why nothing happens."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply(None, _profile({9: 2.0, 10: 3.0, 31: 9.0})))
        seen = []
        for key in ("]", "]", "]", "]", "["):
            await pilot.press(key)
            seen.append(pane.view.row(pane.view.cursor).plain.split()[-4:])
        assert [row[1] for row in seen] == ["more", "line10", "line9", "more", "line9"]
        pane.show(_reply())
        await pilot.press("]")
        await pilot.pause()
        assert "no figures" in _foot(host)

    hosted(pane, act)


def test_t_shows_two_columns() -> None:
    """t puts both versions side by side, with figures, within the pane's width; t again is the unified diff."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply(_profile({10: 4.0}), _profile({10: 1.0})))
        unified = shown(pane.view)
        await pilot.press("t")
        rows = shown(pane.view)
        assert any("10     4x - int line10 = 10;" in r and "│   10     1x + int line10 = 11;" in r for r in rows)
        assert any("30        - int line30 = 30;" in r and "30        + int line30 = 31;" in r for r in rows)
        assert all(len(row) <= 100 for row in rows)
        await pilot.press("t")
        assert shown(pane.view) == unified

    hosted(pane, act)


def test_a_rewrite_is_accepted_whole() -> None:
    """Reference and kernel lines that belong together stand in two columns; a takes all, r rejects with a reason."""
    pane = DiffPane()
    kernel = "__global__ void k() {\n    // the result (op.py:4)\n    y = expf(x);\n}\n"

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(comparison(_candidate(kernel), None, REFERENCE))
        rows = shown(pane.view)
        assert any("4 return torch.exp(x)" in row and "│ op_kforge.cu:2-3" in row for row in rows)
        assert any(row.rstrip().endswith("│    3 y = expf(x);") for row in rows)
        await pilot.press("t")
        assert any(row.strip() == "4     return torch.exp(x)" for row in shown(pane.view))
        await pilot.press("s", "j", "a", "r", *"no", "enter")
        await pilot.pause()

    host = hosted(pane, act)
    (accepted,) = host.get(DiffPane.Accepted)
    assert accepted.whole and accepted.against == ""
    (rejected,) = host.get(DiffPane.Rejected)
    assert (rejected.hunk, rejected.reason) == ("", "no")


def test_keys_before_there_is_anything() -> None:
    """Every key is harmless in an empty pane and on equal versions."""
    pane = DiffPane()
    keys = ("j", "k", "a", "r", "u", "s", "A", "R", "enter", "c", "t", "m", "y", "[", "]", "escape")

    async def act(host: Host, pilot: Pilot[None]) -> None:
        await pilot.press(*keys)
        pane.show(comparison(_candidate(OLD), _candidate(OLD), REFERENCE))
        await pilot.pause()
        assert "the versions are equal" in _foot(host)
        pane.focus()
        await pilot.press(*keys)
        pane.clear()
        await pilot.pause()

    host = hosted(pane, act)
    assert host.get(DiffPane.Accepted) == []


def test_hostile_sources() -> None:
    """Markup, escapes, tabs, wide and combining characters, endless lines, CRLF: shown as they are, cut to the pane."""
    pane = DiffPane()
    hostile = HOSTILE.replace("\r", "")
    old = "".join(f"int same{i};\n" for i in range(9)) + "crlf\r\nlast"
    new = f"{hostile}\n" + "".join(f"int same{i};\n" for i in range(9)) + "crlf\nlast\n"
    a, b = _candidate(old), _candidate(new)

    async def act(host: Host, pilot: Pilot[None]) -> None:
        finding = _profile({1: 2.0}, place=1)
        finding["findings"][0]["title"] = HOSTILE
        pane.show(comparison(b, a, ("[/].py", HOSTILE), None, finding))
        for _ in range(2):
            text = "\n".join(shown(pane.view))
            await pilot.pause()
            text += on_screen(host)
            assert "tile[threadIdx.x] = v[/]; [b]bold[/b]" in text
            assert not [c for c in text if c in "\x1b\x07\x00\x08\r\u202e\u2028\u200b\t"]
            await pilot.press("t")
        await pilot.press("right", "right", "y", "A", "enter")
        await pilot.pause()

    host = hosted(pane, act)
    (accepted,) = host.get(DiffPane.Accepted)
    assert accepted.whole
    assert hostile in host.copied[0]


def test_a_narrow_terminal() -> None:
    """At 80x24 both views stay within the pane and the current hunk is in sight."""
    pane = DiffPane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(_reply(_profile({10: 4.0}, place=10), _profile({10: 1.0})))
        for key in ("j", "j", "j", "t", "k"):
            await pilot.press(key)
            await pilot.pause()
            screen = on_screen(host)
            assert f"{pane.view.current + 1}/3 @@" in screen
            assert all(len(line) == 80 for line in screen.splitlines())

    hosted(pane, act, size=(80, 24))


def test_indentation_gives_way_where_it_is_narrow() -> None:
    """In a narrow pane each block of lines moves left together: what its lines have in common is not shown."""
    pane = DiffPane()
    deep = "".join(f"{' ' * 24}int line{i} = {i};\n{' ' * 28}more;\n" for i in range(9))
    old, new = _candidate(deep), _candidate(deep.replace("line4 = 4", "line4 = 5"))

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show(comparison(new, old, REFERENCE))
        rows = shown(pane.view)
        assert "▌   9 - int line4 = 4;" in rows and "   10       more;" in rows
        await pilot.resize_terminal(100, 24)
        assert f"▌   9 - {' ' * 24}int line4 = 4;" in shown(pane.view)

    hosted(pane, act, size=(54, 24))
