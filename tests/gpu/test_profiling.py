"""Profiles on a real GPU: each tool fires on a kernel that has its fault and is silent on the twin that has not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge.profiling.evidence import Evidence

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.faults.cases import CASES, FAULT, GOOD
from tests.gpu.faults.running import Runner, fires

pytestmark = pytest.mark.gpu

COUNTED = {
    "uncoalesced", "warp_stall", "bank_conflicts", "tiling", "l2_reuse", "divergence", "atomics", "redundant_traffic",
}  # fmt: skip


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner(tmp_path_factory.mktemp("cases")) as found:
        yield found


@pytest.fixture(scope="module")
def table(runner: Runner) -> dict[tuple[str, str], Evidence]:
    return runner.everything(list(CASES))


@pytest.mark.parametrize("name", list(CASES))
def test_a_tool_fires_on_its_fault_and_not_on_the_twin(
    table: dict[tuple[str, str], Evidence], runner: Runner, name: str
) -> None:
    """With every source that this machine allows; tools that cannot speak without counters say so by a skip."""
    if runner.denied and name in COUNTED:
        pytest.skip(runner.denied)
    assert fires(name, table[name, FAULT]) is not None
    assert fires(name, table[name, GOOD]) is None


def test_counters_agree_with_what_is_known(table: dict[tuple[str, str], Evidence], runner: Runner) -> None:
    """A copy of 1 GiB reads and writes about as many bytes; ncu's registers are the compiler's."""
    if runner.denied:
        pytest.skip(runner.denied)
    (copy,) = table["dram_ceiling", FAULT].kernels
    size = CASES["dram_ceiling"].gpu * 4
    assert 0.98 * size < copy.counters["dram_read_bytes"] < 1.1 * size
    assert 0.8 * size < copy.counters["dram_write_bytes"] < 1.1 * size
    assert copy.counters["registers"] == copy.registers
    apart = {a.line: a for a in table["uncoalesced", FAULT].kernels[0].access if a.space == "global"}
    if apart:  # the official reader is here
        assert {round(a.excess) for a in apart.values()} == {8}


def _profile(*words: str) -> tuple[dict, float]:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kforge", "profile", str(root / "examples" / "softmax.py"), "--json", *words],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), time.perf_counter() - begin


def test_a_profile_of_softmax_has_class_headroom_and_at_most_three_findings(tmp_path: Path) -> None:
    """4,096 rows of 8,192: memory bound, a baseline above the floor, a timeline, figures on lines."""
    data, _ = _profile("--variant", "2", "--svg", str(tmp_path / "roof.svg"))
    assert data["roofline"]["bound"] == "memory" and data["roofline"]["source"] == "calibrated"
    assert 1.0 < data["roofline"]["headroom"] < 10
    assert 0.5 < data["roofline"]["achieved"] < 1.05
    assert len(data["findings"]) <= 3
    assert data["timeline"]["kernels"]
    assert (tmp_path / "roof.svg").stat().st_size > 1000


def test_without_counters_the_static_part_stays(tmp_path: Path) -> None:
    """SASS, occupancy, timeline and class are told, and what is missing is named."""
    data, _ = _profile("--variant", "2", "--no-counters")
    assert [m["source"] for m in data["missing"]] == ["ncu"]
    assert data["roofline"]["headroom"] > 1.0
    launched = [k for k in data["kernels"] if k["launches"]]
    assert launched[0]["occupancy"] and launched[0]["us"]
    assert any("instructions" in f["metrics"] for f in data["lines"].values())


def test_all_ceilings(tmp_path: Path) -> None:
    """The inner ones are faster than the outer ones; special functions and fp8 lie near the data sheet."""
    from kforge.errors import MissingError
    from kforge.profiling.ceilings import data_sheet, for_device

    measured = for_device("cuda:0", tmp_path)
    assert measured.read < measured.l2 < measured.shared
    assert measured.processors > 0 and measured.clocks["sm_mhz"] > 0
    try:
        sheet = data_sheet(measured.gpu)
    except MissingError as error:
        pytest.skip(error.message)
    assert 0.5 * sheet.shared < measured.shared < 1.05 * sheet.shared
    assert 0.5 * sheet.rates["special"] < measured.rates["special"] < 1.05 * sheet.rates["special"]
    if "fp8" in sheet.rates:
        assert 0.3 * sheet.rates["fp8"] < measured.rates["fp8"] < 1.05 * sheet.rates["fp8"]
