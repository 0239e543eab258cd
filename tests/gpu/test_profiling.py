"""Profiles on a real GPU: each tool fires on a kernel that has its fault and is silent on the twin that has not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kforge.profiling.evidence import Evidence

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.faults.cases import CASES, FAULT, GOOD
from tests.gpu.faults.running import TIMED, Runner, fires

pytestmark = pytest.mark.gpu

KEEP = os.environ.get("KFORGE_KEEP_PROFILES", "")  # a folder to record them in, as fixtures
WITH_TIMES = [name for name in CASES if name in TIMED and name != "energy"]
COUNTED = {
    "uncoalesced", "warp_stall", "bank_conflicts", "tiling", "l2_reuse", "divergence", "atomics", "redundant_traffic",
}  # fmt: skip


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    begin = time.perf_counter()

    def say(words: str) -> None:
        print(f"{time.perf_counter() - begin:6.1f} s  {words}", file=sys.stderr, flush=True)

    with Runner(tmp_path_factory.mktemp("cases"), say=say) as found:
        yield found


class Table:
    """Evidence of both twins by case, collected when it is first asked for, with what one ncu counts beside it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._found: dict[str, dict[str, Evidence]] = {}

    def __getitem__(self, key: tuple[str, str]) -> Evidence:
        if key[0] not in self._found:
            group = next(group for group in self._runner.groups(list(CASES)) if key[0] in group)
            self._found |= self._runner.group(group)
            for name in group if KEEP else ():
                for twin, evidence in self._found[name].items():
                    self._runner.keep(evidence, Path(KEEP) / f"{name}_{twin}.json")
        return self._found[key[0]][key[1]]


@pytest.fixture(scope="module")
def table(runner: Runner) -> Table:
    return Table(runner)


@pytest.mark.parametrize("name", WITH_TIMES)
def test_a_tool_that_reads_times_fires_on_its_fault_only(table: Table, name: str) -> None:
    """The timeline and a call's own time tell launches that wait, a library that works, a DRAM at its peak."""
    assert fires(name, table[name, FAULT]) is not None
    assert fires(name, table[name, GOOD]) is None


def _profile(*words: str) -> dict:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    begin = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kforge", "profile", str(root / "examples" / "softmax.py"), "--json", *words],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seconds, last = time.perf_counter() - begin, done.stdout.splitlines()[-1]
    if KEEP:
        Path(KEEP).mkdir(parents=True, exist_ok=True)
        (Path(KEEP) / f"softmax{''.join(words)}.json".replace("/", "_")).write_text(last)
        (Path(KEEP) / f"softmax{''.join(words)}.txt".replace("/", "_")).write_text(f"{done.stderr}\n{seconds:.1f} s\n")
    return json.loads(last)


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """The command over softmax, with counters (and a picture) and without, side by side."""
    picture = tmp_path_factory.mktemp("picture") / "roof.svg"
    words = {"counters": ("--variant", "2", "--svg", str(picture)), "none": ("--variant", "2", "--no-counters")}
    with ThreadPoolExecutor() as pool:
        running = {name: pool.submit(_profile, *arguments) for name, arguments in words.items()}
        found = {name: done.result() for name, done in running.items()}
    assert picture.stat().st_size > 1000
    return found


def test_a_profile_of_softmax_has_class_headroom_and_at_most_three_findings(profiles: dict[str, dict]) -> None:
    """4,096 rows of 8,192: memory bound, a baseline above the floor, a timeline, figures on lines."""
    data = profiles["counters"]
    assert data["roofline"]["bound"] == "memory" and data["roofline"]["source"] == "calibrated"
    assert 1.0 < data["roofline"]["headroom"] < 10
    assert 0.05 < data["roofline"]["achieved"] < 1.05
    assert len(data["findings"]) <= 3
    assert data["timeline"]["kernels"]


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


@pytest.mark.parametrize("name", [name for name in CASES if name not in WITH_TIMES])
def test_a_tool_fires_on_its_fault_and_not_on_the_twin(table: Table, runner: Runner, name: str) -> None:
    """With every source that this machine allows; tools that cannot speak without counters say so by a skip."""
    fault, good = table[name, FAULT], table[name, GOOD]
    if runner.denied and name in COUNTED:
        pytest.skip(runner.denied)
    assert fires(name, fault) is not None
    assert fires(name, good) is None


def test_counters_agree_with_what_is_known(table: Table, runner: Runner) -> None:
    """A copy of 512 MiB reads and writes about as many bytes; ncu's registers are the compiler's, in the
    eights that a GPU gives them out by."""
    (copy,) = table["dram_ceiling", FAULT].kernels
    if runner.denied:
        pytest.skip(runner.denied)
    size = CASES["dram_ceiling"].gpu * 4
    assert 0.98 * size < copy.counters["dram_read_bytes"] < 1.1 * size
    assert 0.8 * size < copy.counters["dram_write_bytes"] < 1.1 * size
    assert copy.counters["registers"] == -(-copy.registers // 8) * 8
    apart = {a.line: a for a in table["uncoalesced", FAULT].kernels[0].access if a.space == "global"}
    if apart:  # the official reader is here
        assert {round(a.excess) for a in apart.values()} == {8}


def test_without_counters_the_static_part_stays(profiles: dict[str, dict]) -> None:
    """SASS, occupancy, timeline and class are told, and what is missing is named."""
    data = profiles["none"]
    assert [m["source"] for m in data["missing"]] == ["ncu"]
    assert data["roofline"]["headroom"] > 1.0
    launched = [k for k in data["kernels"] if k["launches"]]
    assert launched[0]["occupancy"] and launched[0]["us"]
    assert any("instructions" in f["metrics"] for f in data["lines"].values())
