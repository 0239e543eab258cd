"""A profile in words for a person: room and what it is over, power, gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kforge.agent.profile import Profiled, summary
from kforge.agent.tools.profiling import roofline_line
from kforge.cli.profile_text import headline, kernels, missing, power_text, report, stage_lines
from kforge.profiling.evidence import Evidence, KernelEvidence, Kind, Missing, Power, StageOne, Timeline
from kforge.profiling.feedback import Mode, feedback

STAGE = StageOne(
    Kind.MEMORY, 100.0, 100.0, 10.0, 2.0, 0.25, "NVIDIA H200", "calibrated", {"eager": 300.0, "compile_default": 150.0},
    candidate_us=120.0, headroom=1.5,
)  # fmt: skip
EVIDENCE = Evidence("op", "d", "NVIDIA H200", "sm_90a", 132, stage=STAGE, kernels=(KernelEvidence("k"),))


def test_headroom_names_the_baseline_it_is_over() -> None:
    """The fastest of those that were timed; a task without room says what to keep."""
    assert headline(EVIDENCE) == "op on NVIDIA H200: memory bound, headroom 1.50x (compile_default over the floor)"
    full = replace(STAGE, headroom=1.02, no_room=True)
    assert headline(replace(EVIDENCE, stage=full)).endswith("no room: keep PyTorch")


def test_tables_have_no_empty_column() -> None:
    """What no kernel has (times, on the emulator) takes no column; kernels that no call launched are marked."""
    rows = (KernelEvidence("busy", grid=(2, 1, 1), block=(64, 1, 1), registers=32, launches=1),
            KernelEvidence("idle", registers=40, launches=0))  # fmt: skip
    assert kernels(replace(EVIDENCE, kernels=rows), 80).splitlines() == [
        "  kernel               grid  block  registers",
        "  busy                 2     64     32",
        "  idle (not launched)               40",
    ]
    told = report(EVIDENCE, replace(feedback(EVIDENCE), mode=Mode.RAW, counters=()))
    assert "no counters were read" in told


def test_an_ablation_tells_less() -> None:
    """Under `none` nothing is told, to a person, a model or as data; the roofline and the kernels stay."""
    told = summary("op.py", Profiled(EVIDENCE, feedback(EVIDENCE, Mode.NONE), None))
    assert told["findings"] == [] and told["for_model"] == "" and "counters" not in told
    assert told["roofline"]["headroom"] == 1.5 and told["kernels"][0]["name"] == "k"


def test_what_is_missing_is_told_by_reason() -> None:
    """Sources that are missing for one reason stand in one line, with the remedy once."""
    items = [Missing("trace", "too large", "fewer"), *(Missing(name, "no GPU", "find one") for name in ("ncu", "nsys"))]
    assert missing([*items, Missing("sass", "no cubin", "")]) == [
        "missing: trace: too large; fewer",
        "missing: ncu, nsys: no GPU; find one",
        "missing: sass: no cubin",
    ]


def test_a_task_shorter_than_a_launch_is_measured_by_launches() -> None:
    """There the floor of the work is no aim: room and candidate are told in launches, for a person and for a model."""
    stage = replace(
        STAGE, kind=Kind.LATENCY, floor_us=0.11, memory_us=0.11, compute_us=0.03, baselines_us={"eager": 5.0},
        candidate_us=2.9, headroom=45.0,
    )  # fmt: skip
    evidence = replace(EVIDENCE, stage=stage)
    words = (
        "op on NVIDIA H200: latency bound, a launch takes longer than the work, headroom 2.50x (eager over one launch)"
    )
    assert headline(evidence) == words
    lines = stage_lines(stage)
    limits = "(memory 0.11 us, arithmetic 0.03 us at full rate; NVIDIA H200, calibrated)"
    assert lines[0] == f"one launch takes 2 us at least, the work in it 0.11 us {limits}"
    assert lines[-1] == "candidate 2.9 us, 1.4 launches"
    data = summary("op", Profiled(evidence, feedback(evidence), None))["roofline"]
    assert (data["headroom"], data["headroom_over_launch"]) == (45.0, 2.5)
    told = roofline_line(data)
    assert "less than one launch (2 us), headroom 2.50x (the faster baseline over one launch)" in told
    assert "of the floor" not in told
    plain = summary("op", Profiled(EVIDENCE, feedback(EVIDENCE), None))["roofline"]
    assert plain["headroom_over_launch"] is None
    assert "headroom 1.50x over the faster baseline, the candidate achieves 83% of the floor" in roofline_line(plain)
    assert stage_lines(STAGE)[0].endswith("(NVIDIA H200, calibrated); one launch takes 2 us")


@pytest.mark.parametrize(
    ("power", "words"),
    [
        (Power(), ""),
        (Power(None, 310.4, 1980, 1980), "power: 310 W, 1980 MHz of 1980"),
        (
            Power(12.0, 700.0, 1500, 1980, ("software power cap",), 10.0),
            "power: 12 mJ a call (eager 10 mJ), 700 W, 1500 MHz of 1980, held down by: software power cap",
        ),
    ],
)
def test_power_in_one_line(power: Power, words: str) -> None:
    """What was read, beside the baseline's energy and the clocks' maximum; nothing where nothing was."""
    assert power_text(power) == words
    text = report(replace(EVIDENCE, power=power), feedback(EVIDENCE))
    assert (words in " ".join(text.split())) if words else ("power:" not in text)


def test_gaps_are_shown_where_the_device_waits() -> None:
    """Both sides by their bare names, the longest first; a busy device shows none."""
    gaps = (("void ns::a<int>(int)", "b", 12.5), ("b", "a", 3.0))
    idle = Timeline(100.0, (("a", 20.0, 1),), gaps)
    lines = [row.strip() for row in report(replace(EVIDENCE, timeline=idle), feedback(EVIDENCE)).splitlines()]
    assert [row for row in lines if row.startswith("gap")] == ["gap of 12.5 us: a to b", "gap of 3 us: b to a"]
    busy = replace(idle, kernels=(("a", 95.0, 1),))
    assert "gap of" not in report(replace(EVIDENCE, timeline=busy), feedback(EVIDENCE))
