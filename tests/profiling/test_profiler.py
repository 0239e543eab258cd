"""Whole profiles without a GPU: every static source of one candidate, in the sandbox, with what is missing named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge.agent.profile import _told
from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.profiling import profiler as profiler_module
from kforge.profiling.analysis import analyse
from kforge.profiling.ceilings import sheet_for_arch
from kforge.profiling.evidence import Evidence, Kind
from kforge.profiling.profiler import Profiler
from kforge.profiling.sources import Unavailable, sass
from kforge.profiling.sources.traced import read_launch
from kforge.worker import answers

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.faults.cases import CASES, FAULT, GOOD, candidate, write_task
from tests.gpu.faults.running import Runner, fires


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner(tmp_path_factory.mktemp("cases"), "cpu") as found:
        yield found


@pytest.fixture(scope="module")
def conflicts(runner: Runner) -> Evidence:
    """A transposition through an unpadded tile, profiled on the emulator."""
    return runner.evidence("bank_conflicts", FAULT)


def test_build_trace_and_disassembly_of_one_kernel(conflicts: Evidence) -> None:
    """Geometry from the launch, registers from the compiler, bytes from the trace, instructions from the cubin."""
    (kernel,) = conflicts.kernels
    assert kernel.grid == (4, 4, 1) and kernel.block == (32, 8, 1)
    assert kernel.registers and kernel.spill_bytes == 0 and kernel.shared == 4096
    assert kernel.occupancy == 1.0 and kernel.blocks_per_sm == 8
    assert kernel.traced_bytes == (128 * 128 * 4, 128 * 128 * 4)
    reads = [a for a in kernel.access if (a.space, a.access) == ("shared", "read")]
    assert [(a.line, a.units / a.requests) for a in reads] == [(9, 32.0)]
    try:
        sass.nvdisasm()
    except Unavailable:
        assert kernel.sass is None and any(m.source == "sass" for m in conflicts.missing)
    else:
        assert kernel.sass is not None and kernel.sass.mix["shared load"] >= 1


def test_the_static_part_says_what_it_lacks(conflicts: Evidence) -> None:
    """No counters and no timeline without a GPU, each with a reason; class and floor by a data sheet, marked so."""
    assert {m.source for m in conflicts.missing} >= {"ncu", "timeline"}
    assert all(m.reason and m.remedy for m in conflicts.missing)
    stage = conflicts.stage
    assert stage is not None and stage.source == "data sheet" and stage.kind is Kind.LATENCY
    assert stage.headroom is None and stage.headroom_reason
    assert conflicts.counted["read_bytes"] == conflicts.counted["write_bytes"] == 128 * 128 * 4
    assert conflicts.processors == 132 and conflicts.target == "emulator"


def test_the_fault_is_found_on_the_emulator_and_not_in_the_twin(runner: Runner, conflicts: Evidence) -> None:
    """The tool names the line in one profile and is silent in the other."""
    assert "bank_conflicts" in [f.tool for f in analyse(conflicts)]
    assert fires("bank_conflicts", runner.evidence("bank_conflicts", GOOD)) is None


def test_every_tool_has_a_kernel_with_its_fault() -> None:
    """No tool without a small kernel that truly has the fault, and a twin in the same source."""
    from kforge.profiling.analysis import MODULES

    assert set(CASES) == set(MODULES)
    for name in CASES:
        source = candidate(name, FAULT).files[f"{name}.cu"]
        assert " fault(" in source and " good(" in source, name


def _profiler(runner: Runner, found: Candidate, name: str) -> Profiler:
    from kforge.task import capture, count, load_task

    task = load_task(write_task("precision_headroom", runner.folder, False))
    cost = count(capture(task, 0, "cpu"))
    sheet = sheet_for_arch("sm_90a")
    return Profiler(task, found, "cpu", "sm_90a", "emulator", sheet, cost, runner.zygote, runner.folder / name)


def test_a_candidate_that_does_not_build_has_no_profile(runner: Runner) -> None:
    """The compiler's words, as the kind of failure they are."""
    broken = candidate("precision_headroom", FAULT)
    broken = broken.with_file("precision_headroom.cu", broken.files["precision_headroom.cu"].replace("0.1", "zero"))
    with pytest.raises(ChildFailed) as error:
        _profiler(runner, broken, "broken").collect()
    assert error.value.error["kind"] == "build" and "zero" in error.value.error["message"]


def test_a_description_from_outside_the_folder_is_refused(runner: Runner, tmp_path: Path) -> None:
    """A candidate's process that names another cubin, or no number, is caught: nothing of the judge's is read."""
    profiler = _profiler(runner, candidate("precision_headroom", GOOD), "forged")
    row = {
        "name": "k",
        "cubin": str(tmp_path / "other.cubin"),
        "registers": 1,
        "spill_bytes": 0,
        "stack": 0,
        "shared": 0,
    }
    with pytest.raises(ChildFailed, match="outside the candidate's folder"):
        profiler._take([row])
    inside = row | {"cubin": str(profiler.folder / "k.cubin"), "kernel": "k", "symbol": "k", "file": "k.cu", "count": 1}
    launch = inside | {"grid": [1, 1, 1], "block": [32, 1, 1], "static_shared": 0}
    for lie in (
        {"registers": "many"},
        {"registers": -1},
        {"registers": 256},
        {"static_shared": 10**12},
        {"stack": -8},
        {"count": -1},
        {"count": True},
        {"block": [2048, 1, 1]},
        {"block": [0, 1, 1]},
        {"grid": [1, 1]},
        {"grid": [-1, 1, 1]},
        {"grid": 7},
        {"shared": float("inf")},
    ):
        with pytest.raises(ChildFailed, match="malformed"):
            profiler._take([launch | lie])
    with pytest.raises(ChildFailed, match="malformed"):
        profiler._take([{"kernel": None}])
    profiler._take([launch])  # of which each was one field away


def test_lies_about_work_and_time_are_refused() -> None:
    """Bytes, counts and times below zero, infinite, no number or beyond the judge's clock are a protocol failure."""
    line = dict.fromkeys(("line", "size", "executions", "nbytes", "requests", "units", "ideal"), 1)
    row = {"kernel": "k", "grid": [1, 1, 1], "block": [1, 1, 1], "shared": 0, "read": 4, "written": 4}
    row["lines"] = [line | {"file": "k.cu", "space": "global", "access": "read"}]
    assert read_launch(row).nbytes == (4, 4)
    for lie in ({"read": -4}, {"written": 1e300}, {"lines": [row["lines"][0] | {"units": -1}]}, {"lines": 3}):
        with pytest.raises((ValueError, TypeError)):
            read_launch(row | lie)
    for us, count in ((-1.0, 1), (float("nan"), 1), (float("inf"), 1), (3e6, 1), (1.0, -1), ("1", 1)):
        told = {"kernels": [{"name": "k", "us": us, "count": count}], "events": [{"name": "k", "start": 0, "us": us}]}
        with pytest.raises(ValueError):
            answers.kernel_times(told, wall_s=1.0)
        if count == 1:
            with pytest.raises(ValueError):
                answers.events(told, wall_s=1.0)
    for ms in ([float("nan")], [float("inf")], [-1.0], [1], [1.0, 1.0]):
        with pytest.raises(ValueError):
            answers.timings({"ms": ms}, 1)
    times = {"seconds": 1.0, "once_s": float("nan"), "first_s": 0.0, "host_us": 0.0, "problems": {}}
    with pytest.raises(ValueError):
        answers.armed(times)
    assert answers.armed(times | {"once_s": 0.5}).once_s == 0.5


def test_a_candidate_without_an_end_has_no_profile(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended after the time of one call, not of a build, and told in one line of words."""
    assert profiler_module.CALL_S <= 20.0
    monkeypatch.setattr(profiler_module, "CALL_S", 0.5)
    own = candidate("precision_headroom", GOOD)
    endless = "forward(self, *_, **__):\n        while True: pass\n\n    def other(self"
    hanging = own.with_file(own.module, own.files[own.module].replace("forward(self", endless))
    with pytest.raises(ChildFailed) as error:
        _profiler(runner, hanging, "hanging").collect()
    told = str(_told(error.value))
    assert told == "the candidate came to no end: no answer within 0.5 s"
