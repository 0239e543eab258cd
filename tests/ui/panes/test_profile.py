"""The profile pane: what was measured with its intervals, what could not be by name, and the roofline as characters."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import pytest
from textual.pilot import Pilot

from kforge.environment.report import (
    CaseResult,
    Costs,
    Detector,
    Gate,
    Report,
    Roofline,
    Samples,
    Speedup,
    Status,
    VariantResult,
    Verdict,
)  # fmt: skip
from kforge.ui.panes.glyphs import ASCII, UNICODE, glyphs
from kforge.ui.panes.plot import Point, Roof, read_roof, roofline
from kforge.ui.panes.profile import ProfilePane
from tests.ui.panes.hosting import HOSTILE, Host, hosted, on_screen, play, profile, recorded, shown

ROOF = Roof(4e12, 6e13, "fp32", "calibrated", (
    Point("floor", 0.5, 2e12, False), Point("eager", 0.5, 1e12, True), Point("candidate", 0.5, 1.8e12, True),
))  # fmt: skip


def _report(digest: str = "c" * 16) -> dict[str, Any]:
    """A report with every part, of invented numbers."""
    speedup = Speedup("compile_default", 1.53, (1.51, 1.55), 0.004)
    samples = (
        Samples("candidate", "graph", tuple(float(n) for n in range(1, 12))),
        Samples("eager", "plain", (20.0, 22.0, 24.0)),
    )
    report = Report(
        "op", digest, Status.VERIFIED, Verdict.FASTER, "full", "a GPU",
        gates=(Gate("static", True), Gate("memory", None, "no tool"), Gate("honesty", False, "lines\nof text")),
        detectors=(Detector("lazy_tensor", False), Detector("side_stream", True, "work on another stream")),
        cases=(CaseResult("x1", True),), asked=4,
        speedup=speedup, confirmed=True,
        variants=(
            VariantResult("variant 0", Verdict.FASTER, speedup, samples),
            VariantResult("variant 1", Verdict.SLOWER, Speedup("eager", 0.9, (0.89, 0.91), 0.004)),
        ),
        costs=Costs(0.2, 0.05, {"candidate": 8.0}, {"eager": 1.5}, {"candidate": 3.2, "eager": 6.4}),
        times_ms={"candidate": 6.0, "eager": 22.0, "compile_default": 9.0}, memory_ratio=0.5,
        roofline=Roofline("memory", 5.5, 0.92),
        not_tested=("variant 0, a; variant 0, b; variant 0, c and 4 more: no time", "detector guard: no GPU"),
    )  # fmt: skip
    return asdict(report)


def _rows(pane: ProfilePane) -> list[str]:
    return [row.strip() for row in shown(pane.view)]


def test_the_recorded_run_on_the_emulator() -> None:
    """Verdict, gates and findings of a real run; what is untimed or missing is said, not guessed."""
    pane = ProfilePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        play(pane, recorded("softmax_run"))
        rows = _rows(pane)
        assert rows[0].startswith("VERIFIED UNTIMED on emulator, plan standard")
        assert any(row.startswith("untimed: emulator has no speed") for row in rows)
        assert any(row.startswith("✓ correctness  passed") for row in rows)
        assert any(row.startswith("– performance  not run") for row in rows)
        assert "Not profiled yet: p profiles it." in rows
        pane.on_core_event("profiled", {"candidate": "48ced85660a12ba7", "profile": profile()})
        rows = _rows(pane)
        assert "Not profiled yet: p profiles it." not in rows
        assert any(row.startswith("1. the grid is smaller than the GPU in softmax_warp [minor]") for row in rows)
        assert "headroom unknown: untimed: there is no GPU" in rows
        assert "– ncu: there is no GPU; profile on a machine with a GPU" in rows
        assert any("9.6 TB/s (data sheet)" in row for row in rows)
        assert "Times" not in rows and "Memory and energy" not in rows
        await pilot.pause()
        assert "candidate 48ced856, 1 of 1 on emulator" in on_screen(host)

    hosted(pane, act, (100, 40))


def test_everything_of_a_timed_report() -> None:
    """Intervals, the speed-up with its confidence, memory, energy, detectors, variants and what was not tested."""
    pane = ProfilePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show("c" * 16, _report())
        rows = [" ".join(row.split()) for row in _rows(pane)]
        for words in (
            "VERIFIED FASTER 1.53x over compile_default (95 % interval 1.51 to 1.55, noise 0.4 %, confirmed) on a GPU,",
            "cases; it refuses 3)",
            "candidate 6 ms 2 ms to 10 ms graph",
            "eager 22 ms 20.4 ms to 23.6 ms plain",
            "compile_default 9 ms",
            "floor 5.5 ms reached 92% memory bound, calibrated",
            "variant 1 slower 0.90x (0.89 to 0.91)",
            "peak memory 0.50x of the baseline's",
            "energy candidate 3.2 mJ a call",
            "host candidate 8 us until a call returns",
            "✗ side_stream fired work on another stream",
            "2 detectors ran, 1 fired",
            "– memory not run no tool",
            "✗ honesty FAILED lines",
            "· 7 cases: no time",
            "· detectors that did not run (no GPU): guard",
        ):
            assert words in "\n".join(rows), words

    hosted(pane, act, (130, 40))


def test_at_most_three_findings() -> None:
    """A profile with five findings shows three, in their order, and says that there are more."""
    pane = ProfilePane()
    finding = {
        "severity": "major",
        "evidence": ["fact"],
        "cause": "cause",
        "advice": ["a", "b", "c"],
        "gain": [1.1, 1.5],
    }
    data = {"findings": [finding | {"title": f"fault {k}"} for k in range(5)], "left_out": 2}

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.on_core_event("profiled", {"candidate": "c", "profile": data})
        text = "\n".join(_rows(pane))
        assert "3. fault 2 [major]  expected 1.10x to 1.50x" in text and "fault 3" not in text
        assert "2 more of less weight" in text and text.count("do: ") == 6

    hosted(pane, act)


def test_which_candidate_is_shown() -> None:
    """A verified one is not pushed away by a failure; left and right go to others; p asks for a profile of that one."""
    pane = ProfilePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        for name, status in (("a", "verified"), ("b", "wrong"), ("c", "verified")):
            report = {**_report(name), "status": status}
            pane.on_core_event("evaluated", {"candidate": name, "status": status, "report": report})
            assert pane.candidate == ("c" if name == "c" else "a")
        await pilot.press("left")
        assert pane.candidate == "b" and "WRONG" in _rows(pane)[0]
        pane.on_core_event("evaluated", {"candidate": "d", "status": "verified", "report": _report("d")})
        assert pane.candidate == "b"  # chosen by the user
        await pilot.press("left", "left", "p", "right", "right", "right", "right")
        assert pane.candidate == "d"
        await pilot.pause()
        pane.clear()
        assert pane.candidate == "" and len(_rows(pane)) == 1

    host = hosted(pane, act)
    assert [message.candidate for message in host.get(ProfilePane.ProfileAsked)] == ["a"]


def test_floor_and_baselines_before_any_candidate() -> None:
    """What the task itself says is there within the first seconds: floor, bound, baselines, no room."""
    pane = ProfilePane()

    async def act(host: Host, pilot: Pilot[None]) -> None:
        assert "F2" in _rows(pane)[0]
        pane.on_core_event("baseline_timed", {"name": "eager", "ms": 0.5})
        pane.on_core_event("floor", {"floor_ms": 0.49, "bound": "memory", "source": "calibrated", "no_room": True})
        rows = [" ".join(row.split()) for row in _rows(pane)]
        assert "memory bound, floor 490 us (calibrated)" in rows
        assert "no room: keep PyTorch" in rows and "eager 500 us" in rows

    hosted(pane, act)


def test_hostile_words() -> None:
    """Foreign names and sentences of report and profile are shown as they are and wrapped to the pane."""
    pane = ProfilePane()
    report = _report()
    report["gates"][0]["detail"] = report["precision_class"] = report["target"] = HOSTILE
    report["detectors"][1]["detail"] = report["variants"][0]["samples"][1]["name"] = HOSTILE
    finding = {"title": HOSTILE, "evidence": [HOSTILE], "cause": HOSTILE, "advice": [HOSTILE], "places": [[HOSTILE, 3]]}
    data = {"findings": [finding],
            "missing": [{"source": HOSTILE, "reason": HOSTILE}], "kernels": [{"name": HOSTILE}]}  # fmt: skip

    async def act(host: Host, pilot: Pilot[None]) -> None:
        pane.show("c" * 16, report)
        pane.on_core_event("profiled", {"candidate": "c" * 16, "profile": data})
        text = "\n".join(_rows(pane))
        await pilot.pause()
        text += on_screen(host)
        assert "tile[threadIdx.x] = v[/]; [b]bold[/b]" in text
        assert not [c for c in text if c in "\x1b\x07\x00\x08\r\u202e\u2028\u200b"]

    hosted(pane, act)


@pytest.mark.parametrize(("signs", "width"), [(UNICODE, 70), (UNICODE, 30), (ASCII, 70)])
def test_roofline(signs: Any, width: int) -> None:
    """The roof rises and then is flat, marks stand at their rates, the legend gives shares; all within the width."""
    rows = [row.plain for row in roofline(ROOF, width, 10, signs)]
    assert rows[0] == "60 Top/s fp32, 4 TB/s (calibrated)"
    plot = rows[1:11]
    dots = {c: [i for i, row in enumerate(plot) if row[12:].ljust(width)[c] not in " oab"] for c in range(width - 12)}
    heights = [min(lines) for c, lines in sorted(dots.items()) if lines]
    assert len(heights) > 0.9 * (width - 12) and heights == sorted(heights, reverse=True)
    assert heights[-1] == heights[-3]
    marks = {mark: next(i for i, row in enumerate(plot) if mark in row[12:]) for mark in ("o", "a")}
    assert marks["o"] <= marks["a"]
    assert rows[-2:] == ["  a eager 1 Top/s, 50% of the floor", "  b candidate 1.8 Top/s, 90% of the floor"]
    assert all(len(row) <= width for row in rows[1:-3])
    assert signs.unicode or all(row.isascii() for row in rows)


def test_what_cannot_be_drawn() -> None:
    """No roof, one without points, and one with zeros or infinities have no plot."""
    good = asdict(ROOF)
    assert read_roof(good) == ROOF
    for bad in (None, {}, good | {"points": []}, good | {"peak": 0.0}, good | {"bandwidth": math.inf}):
        assert read_roof(bad) is None


def test_signs_follow_the_terminal() -> None:
    """ASCII where asked for and on the Linux console; each sign of both sets says the same thing differently."""
    assert glyphs({"KFORGE_ASCII": "1"}) is ASCII and glyphs({"TERM": "linux"}) is ASCII
    assert all(str(value).isascii() for value in asdict(ASCII).values())
    marks = [(s.passed, s.failed, s.skipped, s.running, s.best) for s in (ASCII, UNICODE)]
    assert all(len(set(row)) == 5 for row in marks)
