"""The timeline: entries that grow, open, follow and filter, at a cost that does not grow with their number."""

from __future__ import annotations

from typing import Any

import pytest
from textual.pilot import Pilot

from kforge.ui.panes.entries import FILTERS, KEPT
from kforge.ui.panes.timeline import TimelinePane
from tests.ui.panes.hosting import HOSTILE, Host, hosted, on_screen, play, proposed, recorded, shown


def _titles(pane: TimelinePane) -> list[str]:
    return [text for text in shown(pane.list) if not text.startswith("    ")]


def test_a_recorded_run_is_one_line_an_attempt() -> None:
    """The run of softmax.py on the emulator: one attempt, its larger plan in the same line, its gates as signs."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, recorded("softmax_run"))
        titles = _titles(pane)
        (attempt,) = [title for title in titles if "#1 48ced856" in title]
        assert "★ #1 48ced856 verified untimed ✓✓✓✓✓–" in attempt
        assert attempt.endswith("one warp per row, the row in registers")
        assert "float32[128, 1024] to float32[128, 1024]" in titles[1]
        assert "written: softmax_kforge.cu, softmax_kforge.py" in titles[-2]
        assert "1 attempt" in on_screen(host)
        known = pane.attempt("48ced85660a12ba7")
        assert known is not None and known.plan == "standard"

    hosted(pane, act)


def test_an_attempt_grows_while_it_runs() -> None:
    """Proposed, building, the gates with the cases counted, then the verdict: the same line says each in turn."""
    pane = TimelinePane()
    digest = f"{7:016x}"
    steps: list[tuple[tuple[str, dict[str, Any]], str]] = [
        (proposed(7), "● #1 00000000 proposed"),
        (("building", {"candidate": digest}), "building"),
        (("gate", {"candidate": digest, "name": "static", "passed": True, "seconds": 0.1}), "building ✓ 0.1 s"),
        (("gate", {"candidate": digest, "name": "build", "passed": True, "seconds": 0.4}), "correctness ✓✓ 0.5 s"),
        (("case", {"candidate": digest, "label": "x1", "passed": True}), "correctness 1 "),
        (("case", {"candidate": digest, "label": "x3", "passed": True}), "correctness 2 "),
        (("gate", {"candidate": digest, "name": "correctness", "passed": True}), "honesty ✓✓✓"),
        (
            ("evaluated", {"candidate": digest, "status": "verified", "verdict": "faster", "speedup": 1.53, "ms": 3.1}),
            "★ #1 00000000 verified faster 1.53x 3.1 ms",
        ),
    ]  # fmt: skip

    async def act(host: Host, pilot: Pilot[None]) -> None:
        for (kind, data), words in steps:
            pane.on_core_event(kind, data)
            (title,) = shown(pane.list)
            assert words in title

    hosted(pane, act)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wrong", ["element [101, 810] is", "wrong: variant 0, seed 0, x1, contiguous", "repro.py"]),
        ("broken", ['identifier "INFINITE"', "softmax_kforge.cu(164): error"]),
    ],
)
def test_enter_opens_what_failed(name: str, words: list[str]) -> None:
    """Compiler output and failing input of runs recorded here are below the attempt's line after enter only."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, recorded(name))
        pane.list.settle()
        attempt = pane.list.row_of(next(e for e in pane.list.entries if e.candidate))
        closed = "\n".join(shown(pane.list))
        pane.list.move_cursor(attempt)
        await pilot.press("enter")
        opened = " ".join("\n".join(shown(pane.list)).split())
        for part in words:
            assert part not in closed and part in opened
        assert pane.list.cursor == attempt
        await pilot.press("enter")
        assert "\n".join(shown(pane.list)) == closed

    hosted(pane, act)


def test_keys_move_open_and_close() -> None:
    """j k, arrows, home and end move; space and right open, left closes; a closed line has one row again."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, [proposed(i) for i in range(1, 40)])
        pane.list.settle()
        assert pane.list.cursor == 38 and pane.list.following
        await pilot.press("home")
        assert (pane.list.cursor, pane.list.following) == (0, False)
        await pilot.press("j", "down", "k")
        assert pane.list.cursor == 1
        await pilot.press("right")
        assert pane.list.count > 39 and pane.list.selected is pane.list.entries[1]
        await pilot.press("j", "left")  # from one of its lines
        assert pane.list.count == 39 and pane.list.cursor == 1
        await pilot.press("space")
        assert pane.list.entries[1].expanded
        await pilot.press("end")
        assert pane.list.cursor == pane.list.count - 1 and pane.list.following
        await pilot.press("pageup")
        assert pane.list.cursor < pane.list.count - 10

    hosted(pane, act)


def test_new_entries_do_not_move_a_reader() -> None:
    """Who reads further up stays there while entries come and an open one above grows; at the end one follows."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.on_core_event("model_started", {"call": 1, "model": "m"})
        pane.on_core_event("model_text", {"call": 1, "text": "first line\n"})
        play(pane, [proposed(i) for i in range(1, 60)])
        pane.list.settle()
        await pilot.press("home", "enter", "down", "down", "down")
        here = pane.list.selected
        pane.on_core_event("model_text", {"call": 1, "text": "more\n" * 5})
        pane.on_core_event(*proposed(99))
        pane.list.settle()
        assert pane.list.selected is here and not pane.list.following
        await pilot.press("end")
        pane.on_core_event(*proposed(100))
        pane.list.settle()
        assert pane.list.cursor == pane.list.count - 1

    hosted(pane, act)


def test_filters() -> None:
    """f goes through the filters; each shows its kind only, new entries included, and the head names it."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, recorded("wrong"))
        pane.on_core_event("tool_call", {"tool": "evaluate", "arguments": {"plan": "quick"}, "result": "verified"})
        pane.on_core_event("tool_call", {"tool": "build", "result": "no", "error": True})
        pane.on_core_event("steer", {"id": 1, "text": "keep NaN", "when": "queued", "state": "received"})
        pane.on_core_event("constraint", {"name": "keep_nan", "action": "added", "origin": "steer"})
        counts = {}
        for name in FILTERS:
            assert pane.list.filter == name
            counts[name] = len(_titles(pane))
            if name != "all":
                assert f"filter: {name}" in on_screen(host)
            await pilot.press("f")
        assert counts == {"all": 7, "attempts": 1, "failures": 2, "model": 1, "tools": 2, "steers": 2}
        assert pane.list.filter == "all"
        pane.set_filter("failures")
        pane.on_core_event(*proposed(5))
        assert len(_titles(pane)) == 2
        pane.on_core_event("evaluated", {"candidate": f"{5:016x}", "status": "crashed"})
        assert len(_titles(pane)) == 3

    hosted(pane, act)


def test_streamed_text_steers_and_answers() -> None:
    """Streamed pieces show at once, the whole answer replaces them; a steer changes in place."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.on_core_event("model_started", {"call": 3, "role": "coder", "model": "some/model"})
        for piece in ("The loads ", "are scattered"):
            pane.on_core_event("model_text", {"call": 3, "text": piece})
        assert "● coder some/model The loads are scattered" in shown(pane.list)[0]
        pane.on_core_event(
            "model_call", {"call": 3, "message": {"content": "All of it."}, "tokens_out": 7, "usd": 0.01}
        )
        assert "· coder some/model All of it.  7 out, $0.0100" in shown(pane.list)[0]
        pane.on_core_event("steer", {"id": 4, "text": "use float4", "when": "queued", "state": "received"})
        assert shown(pane.list)[1].endswith("» use float4  queued")
        pane.on_core_event("steer", {"id": 4, "text": "use float2", "when": "queued", "state": "edited"})
        pane.on_core_event("steer", {"id": 4, "text": "use float2", "when": "queued", "state": "taken"})
        assert shown(pane.list)[1:] == ["  » use float2  taken"]

    hosted(pane, act)


def test_findings_prunes_and_the_best() -> None:
    """Findings and the reason of a dead end are below the attempt; the star goes to the best alone."""
    pane = TimelinePane()
    finding = {"title": "scattered loads", "evidence": ["4 of 32 bytes"], "advice": ["use float4"]}

    async def act(host: Host, pilot: Pilot[None]) -> None:
        for number in (1, 2):
            pane.on_core_event(*proposed(number))
            judged = {"candidate": f"{number:016x}", "status": "verified", "verdict": "same", "ms": 3.0 - number}
            pane.on_core_event("evaluated", judged)
        pane.on_core_event("node", {"node": 1, "pruned": "three children were slower"})
        pane.on_core_event("profiled", {"candidate": f"{1:016x}", "profile": {"findings": [finding]}})
        pane.on_core_event(*proposed(3))
        pane.on_core_event("evaluated", {"candidate": f"{3:016x}", "status": "verified", "ms": None})
        pane.on_core_event("best", {"candidate": f"{3:016x}"})  # of a run that knows less
        assert ["★" in row for row in shown(pane.list)] == [False, True, False]
        await pilot.press("home", "enter")
        text = "\n".join(shown(pane.list))
        assert "pruned: three children were slower" in text
        assert "finding 1: scattered loads: 4 of 32 bytes. use float4" in text

    hosted(pane, act)


def test_actions_are_messages() -> None:
    """d and p ask for the attempt's diff and profile, y copies the entry with what is below it."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, recorded("broken"))
        pane.set_filter("attempts")
        await pilot.press("d", "p", "y")
        await pilot.pause()

    host = hosted(pane, act)
    (diff,) = host.get(TimelinePane.DiffAsked)
    (profile,) = host.get(TimelinePane.ProfileAsked)
    assert diff.candidate == profile.candidate == "d6a4bc510e640277"
    assert "build failed" in host.copied[0] and "INFINITE" in host.copied[0]
    assert len(host.get(TimelinePane.Copied)) == 1


def test_hostile_text_shows_as_it_is() -> None:
    """Markup, control characters and endless lines in every field break nothing and lose no bracket."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.on_core_event(*proposed(1, idea=HOSTILE, direction=HOSTILE))
        pane.on_core_event("gate", {"candidate": f"{1:016x}", "name": "build", "passed": False, "detail": HOSTILE})
        pane.on_core_event("evaluated", {"candidate": f"{1:016x}", "status": "build_failed", "failure": HOSTILE})
        pane.on_core_event("message", {"text": HOSTILE})
        pane.on_core_event("tool_call", {"tool": HOSTILE, "arguments": {HOSTILE: HOSTILE}, "result": HOSTILE})
        pane.on_core_event("model_text", {"call": 1, "text": HOSTILE})
        pane.on_core_event("steer", {"id": 1, "text": HOSTILE, "when": "now", "state": "received"})
        pane.on_core_event("error", {"message": HOSTILE, "hint": HOSTILE})
        pane.list.settle()
        for entry in reversed(list(pane.list.entries)):
            pane.list.move_cursor(pane.list.row_of(entry))
            await pilot.press("right")
        text = "\n".join(shown(pane.list))
        assert "tile[threadIdx.x] = v[/]; [b]bold[/b]" in text
        assert "漢字 e\u0301" in text
        assert not [c for c in text + on_screen(host) if c in "\x1b\x07\x00\x08\r\u202e\u2028\u200b"]
        assert all(len(row) <= 100 for row in shown(pane.list))

    hosted(pane, act)


def test_ten_thousand_entries() -> None:
    """A line far down is found without laying out those before it; only what is in sight is drawn."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        drawn = 0
        row = pane.list.row

        def counted(index: int) -> Any:
            nonlocal drawn
            drawn += 1
            return row(index)

        pane.list.row = counted  # type: ignore[method-assign]
        play(pane, [proposed(i) for i in range(1, 10_001)])
        pane.list.settle()
        await pilot.pause()
        assert pane.list.count == 10_000 and drawn < 500
        assert "#10000 " in on_screen(host)
        await pilot.press("home")
        await pilot.press("enter")
        extra = pane.list.count - 10_000
        assert extra > 0
        pane.list.move_cursor(5_000 + extra)
        entry, below = pane.list.at(5_000 + extra)
        assert (entry.candidate, below) == (f"{5_001:016x}", 0)
        assert pane.list.row_of(entry) == 5_000 + extra
        await pilot.pause()
        assert "#5001 " in on_screen(host) and drawn < 800

    hosted(pane, act)


def test_memory_stays_flat() -> None:
    """The oldest entries are dropped beyond a number, and texts are cut: a long session does not grow."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        for i in range(20_500):
            pane.on_core_event("message", {"text": f"sentence {i}"})
        assert len(pane.list.entries) <= 20_000
        assert pane.list.entries[-1].words == "sentence 20499"
        for _ in range(100):
            pane.on_core_event("model_text", {"call": 1, "text": "word " * 400})
        assert len(pane.list.entries[-1].body) < 3 * KEPT
        pane.clear()
        assert pane.list.count == 0 and pane.list.entries == []

    hosted(pane, act)


def test_unknown_and_transient_kinds_change_nothing() -> None:
    """Kinds of a newer core, meter readings and events on unknown candidates add no line."""
    pane = TimelinePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        for kind in ("meter", "of_the_future", "building", "case", "gate", "node", "profiled"):
            pane.on_core_event(kind, {"candidate": "?", "name": "static", "passed": True, "label": "", "node": 5})
        assert shown(pane.list) == []

    hosted(pane, act)
