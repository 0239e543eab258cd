"""Whole profiles without a GPU: every static source of one candidate, in the sandbox, with what is missing named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.profiling.analysis import analyse
from kforge.profiling.ceilings import sheet_for_arch
from kforge.profiling.evidence import Evidence, Kind
from kforge.profiling.profiler import Profiler
from kforge.profiling.sources import Unavailable, sass

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
    with pytest.raises(ChildFailed, match="malformed"):
        profiler._take([inside | {"registers": "many"}])
