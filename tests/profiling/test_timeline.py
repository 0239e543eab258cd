"""The timeline's gaps, and what nsys says of them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from kforge.profiling.analysis import tools
from kforge.profiling.evidence import Evidence, Timeline, as_json, from_json
from kforge.profiling.sources.timeline import gaps
from kforge.worker import nsys
from kforge.worker.replies import DeviceEvent
from kforge.worker.sanitizer import Job

CSV = """Processing [timeline.sqlite] with [cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,BlkX,Device,Strm,Name
2000,"1,500",7,1,32,NVIDIA H200,7,"void scale<float, 4>(const float *)"
1000,500,6,,,NVIDIA H200,7,[CUDA memset]
n/a,1,1,,,,,broken
"""


def test_gaps_are_the_longest_first_and_name_both_sides() -> None:
    """a ends at 10, b starts at 15; c runs beside b and ends earlier: the next gap begins where b ends."""
    events = [
        DeviceEvent("a", 0.0, 10.0), DeviceEvent("b", 15.0, 20.0), DeviceEvent("c", 16.0, 1.0),
        DeviceEvent("d", 35.5, 1.0), DeviceEvent("e", 46.5, 1.0),
    ]  # fmt: skip
    assert gaps(events) == (("d", "e", 10.0), ("a", "b", 5.0))
    assert gaps(events[:1]) == () and gaps([]) == ()


def test_the_trace_of_nsys_is_read_in_order_of_time() -> None:
    """Names with commas, numbers with separators; what is not a row is left out."""
    assert nsys.parse(CSV) == [
        {"name": "[CUDA memset]", "start": 1.0, "us": 0.5},
        {"name": "void scale<float, 4>(const float *)", "start": 2.0, "us": 1.5},
    ]
    assert nsys.parse("nothing\n") == []


def _stub(folder: Path, words: str, monkeypatch: pytest.MonkeyPatch) -> Job:
    path = folder / "nsys"
    path.write_text(f"#!/bin/sh\n{words}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return Job(folder, folder / "naming.so")


def test_nsys_is_asked_for_the_marked_call_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing begins where the program says; the report's rows come back."""
    (tmp_path / "out.csv").write_text(CSV)
    words = f"""
if [ "$1" = profile ]; then echo "$@" > {tmp_path}/asked; touch {tmp_path}/timeline.nsys-rep; exit 0; fi
cat {tmp_path}/out.csv"""
    found = nsys.run(_stub(tmp_path, words, monkeypatch), 20.0)
    assert [e["us"] for e in found["events"]] == [0.5, 1.5] and found["skipped"] == ""
    asked = (tmp_path / "asked").read_text()
    assert "--capture-range=cudaProfilerApi" in asked and asked.strip().endswith("marked")


def test_nsys_without_a_report_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last words."""
    found = nsys.run(_stub(tmp_path, "echo 'no CUDA here' >&2; exit 1", monkeypatch), 20.0)
    assert found == {"events": [], "skipped": "no CUDA here"}


def test_the_longest_gap_is_evidence_of_launch_overhead() -> None:
    """Beside the idle share; a timeline with gaps round-trips through JSON."""
    line = Timeline(100.0, (("k", 20.0, 4),), (("void a<int>()", "b", 12.5),), "torch.profiler")
    tool = next(t for t in tools() if t.name == "launch_overhead")
    assert tool.whole is not None
    finding = tool.whole(Evidence("t", "d", "gpu", "sm_90a", 132, timeline=line))
    assert finding is not None and "12.5 us: a to b" in finding.evidence[1]
    assert from_json(Timeline, as_json(line)) == line
