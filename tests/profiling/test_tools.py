"""The analysis tools: each fires on recorded profiles that have its fault and is silent on their twins."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kforge.kernel.candidate import Candidate
from kforge.profiling.analysis import MODULES, Affinity, Finding, Severity, analyse, matches, tools
from kforge.profiling.builds import library_products
from kforge.profiling.evidence import (
    Evidence,
    KernelEvidence,
    KernelSass,
    Kind,
    Power,
    Sampled,
    StageOne,
    Timeline,
    as_json,
    from_json,
)

FIXTURES = Path(__file__).parent / "fixtures"  # of the emulator; in h200 with what CUPTI and ncu gave on one
RECORDED = sorted(FIXTURES.rglob("*_fault.json"))
NAMES = [str(path.relative_to(FIXTURES)).removesuffix("_fault.json") for path in RECORDED]


def _read(path: Path) -> Evidence:
    return from_json(Evidence, json.loads(path.read_text()))


def _asked(name: str, evidence: Evidence) -> Finding | None:
    tool = next(t for t in tools() if t.name == name)
    if tool.whole is not None:
        return tool.whole(evidence)
    assert tool.kernel is not None
    return next((f for k in evidence.launched if (f := tool.kernel(evidence, k)) is not None), None)


def test_the_registry_lists_every_tool_once() -> None:
    """23 tools, each under its module's name, with a trigger in words and one way to be asked."""
    found = tools()
    assert [t.name for t in found] == list(MODULES)
    assert len(set(MODULES)) == 23
    for tool in found:
        assert tool.trigger and tool.needs
        assert (tool.kernel is None) != (tool.whole is None), tool.name


@pytest.mark.parametrize("path", RECORDED, ids=NAMES)
def test_a_tool_fires_on_its_fault(path: Path) -> None:
    """The recorded profile of the kernel with the fault gives a finding with evidence, cause, advice and a range."""
    finding = _asked(path.stem.removesuffix("_fault"), _read(path))
    assert finding is not None
    assert finding.evidence and finding.cause and finding.advice and finding.sources
    low, high = finding.gain
    assert 1.0 <= low <= high
    for file, line in finding.places:
        assert file.endswith(".cu") and line > 0


@pytest.mark.parametrize("path", RECORDED, ids=NAMES)
def test_a_tool_is_silent_on_the_twin(path: Path) -> None:
    """The recorded profile of the twin without the fault gives no finding of that tool."""
    twin = path.with_name(path.name.replace("_fault", "_good"))
    assert _asked(path.stem.removesuffix("_fault"), _read(twin)) is None


def test_a_dram_at_its_peak_is_told_from_one_that_has_room() -> None:
    """Recorded on an H200: needed bytes at 94 % of DRAM's peak are the end; bytes read three times at 93 % are not."""
    stop = _asked("dram_ceiling", _read(FIXTURES / "h200" / "memory_parallelism_good.json"))
    assert stop is not None and stop.severity is Severity.STOP
    assert _asked("dram_ceiling", _read(FIXTURES / "h200" / "l2_reuse_fault.json")) is None
    assert _asked("dram_ceiling", _read(FIXTURES / "h200" / "wave_quantisation_good.json")) is None


def test_places_name_the_line_of_the_fault() -> None:
    """The conflict is in the line that reads the tile's columns, the uncoalesced access in the line of the copy."""
    conflicts = _asked("bank_conflicts", _read(FIXTURES / "bank_conflicts_fault.json"))
    assert conflicts is not None and conflicts.places == (("bank_conflicts.cu", 9),)
    assert conflicts.values["excess"] > 8
    apart = _asked("uncoalesced", _read(FIXTURES / "uncoalesced_fault.json"))
    assert apart is not None and apart.values["excess"] == pytest.approx(8.0)  # 4 of 32 bytes are used


@pytest.mark.parametrize("path", RECORDED, ids=NAMES)
def test_profiles_round_trip_through_json(path: Path) -> None:
    """What is recorded is what is read."""
    evidence = _read(path)
    assert from_json(Evidence, json.loads(json.dumps(as_json(evidence)))) == evidence


# Triggers that need counters of a GPU: values on both sides of each threshold.

SASS = KernelSass(100, {"fp32": 60, "global load": 40}, {"fp32": 600, "global load": 400}, loop=True)
STAGE = StageOne(Kind.MEMORY, 100.0, 100.0, 10.0, 2.0, 0.25, "round", "calibrated")


def _kernel(**counters: float) -> KernelEvidence:
    return KernelEvidence("k", symbol="k", sass=SASS, us=100.0, counters=counters)


def _evidence(kernel: KernelEvidence, **fields: object) -> Evidence:
    base = Evidence(
        "task", "digest", "round", "sm_90a", 132, stage=STAGE, kernels=(kernel,),
        counted={"read_bytes": 1e9, "write_bytes": 1e9, "fp32": 5e8}, rates={"read": 4e12}, l2_bytes=60_000_000,
    )  # fmt: skip
    return replace(base, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(("share", "expected"), [(0.39, None), (0.45, Severity.MAJOR), (0.7, Severity.CRITICAL)])
def test_warp_stall_by_share(share: float, expected: Severity | None) -> None:
    """One reason counts from 40 % of the waiting on, as critical from 60 %, with the line that waits most."""
    rows = (Sampled("k.cu", 7, 16, "LDG", 9, {"long_scoreboard": 9}), Sampled("k.cu", 8, 32, "FADD", 1, {"wait": 1}))
    kernel = replace(_kernel(stall_total=10.0, stall_long_scoreboard=10 * share), sampled=rows)
    finding = _asked("warp_stall", _evidence(kernel))
    assert (finding.severity if finding else None) == expected
    if finding:
        assert finding.places == (("k.cu", 7),)


def test_waiting_for_a_saturated_dram_is_no_stall_to_cure() -> None:
    """Where DRAM is at its peak, waiting for it is what must happen."""
    kernel = _kernel(stall_total=10.0, stall_long_scoreboard=9.0, dram_percent=92.0)
    assert _asked("warp_stall", _evidence(kernel)) is None


@pytest.mark.parametrize("name", ["warp_stall", "barrier_stall"])
def test_waiting_costs_nothing_where_the_schedulers_issue(name: str) -> None:
    """At 80 % of the issue slots and more both tools are silent, whatever the shares are."""
    waits = {"stall_total": 10.0, "stall_barrier": 9.0, "stall_long_scoreboard": 9.0}
    busy, idle = (_evidence(_kernel(issue_percent=percent, **waits)) for percent in (81.0, 79.0))
    assert _asked(name, busy) is None and _asked(name, idle) is not None


def test_a_kernel_of_which_no_block_fits() -> None:
    """Occupancy 0: a finding with a bounded gain."""
    found = _asked("occupancy", _evidence(replace(_kernel(), occupancy=0.0, occupancy_limit="registers")))
    assert found is not None and found.gain == (1.0, 2.0)


@pytest.mark.parametrize(("hit", "read", "fires"), [(20.0, 3e9, True), (80.0, 3e9, False), (20.0, 1.1e9, False)])
def test_l2_reuse(hit: float, read: float, fires: bool) -> None:
    """Few hits and DRAM reads well over the inputs, both."""
    found = _asked("l2_reuse", _evidence(_kernel(l2_hit_percent=hit, dram_read_bytes=read)))
    assert (found is not None) is fires


def test_dram_ceiling_says_stop_unless_bytes_are_wasted() -> None:
    """Busy with needed bytes is the end; busy with three times the bytes is not."""
    busy = {"dram_percent": 91.0, "dram_write_bytes": 1e9}
    stop = _asked("dram_ceiling", _evidence(_kernel(**busy, dram_read_bytes=1e9)))
    assert stop is not None and stop.severity is Severity.STOP
    assert _asked("dram_ceiling", _evidence(_kernel(**busy, dram_read_bytes=5e9))) is None
    assert _asked("dram_ceiling", _evidence(_kernel(dram_percent=60.0))) is None


def test_dram_ceiling_by_the_floor_alone() -> None:
    """Without counters a candidate at 95 % of a calibrated floor is at the end; a data sheet's floor proves nothing."""
    done = replace(STAGE, candidate_us=105.0)
    assert _asked("dram_ceiling", _evidence(_kernel(), stage=done)) is not None
    assert _asked("dram_ceiling", _evidence(_kernel(), stage=replace(done, source="data sheet"))) is None
    assert _asked("dram_ceiling", _evidence(_kernel(), stage=replace(STAGE, candidate_us=150.0))) is None


@pytest.mark.parametrize(("wall", "fires"), [(300.0, True), (110.0, False)])
def test_launch_overhead(wall: float, fires: bool) -> None:
    """From a fifth of the wall time idle on."""
    line = Timeline(wall, (("k", 100.0, 1),))
    assert (_asked("launch_overhead", _evidence(_kernel(), timeline=line)) is not None) is fires


@pytest.mark.parametrize(("name", "fires"), [("ampere_sgemm_128x64", True), ("k(float const*)", False)])
def test_library_bound(name: str, fires: bool) -> None:
    """Foreign kernels with over 70 % of the device time say stop; the candidate's own do not."""
    line = Timeline(100.0, ((name, 90.0, 1), ("k", 10.0, 1)))
    found = _asked("library_bound", _evidence(_kernel(), timeline=line))
    assert (found is not None) is fires


@pytest.mark.parametrize(("active", "fires"), [(5.0, True), (31.0, False)])
def test_divergence(active: float, fires: bool) -> None:
    """Under 24 of 32 threads in an instruction."""
    assert (_asked("divergence", _evidence(_kernel(threads_per_instruction=active))) is not None) is fires


@pytest.mark.parametrize(
    ("power", "fires"),
    [
        (Power(10.0, 650.0, 1500, 1980, ("software power cap",), 10.0), True),
        (Power(12.0, 500.0, 1980, 1980, (), 10.0), True),
        (Power(9.0, 500.0, 1980, 1980, (), 10.0), False),
        (None, False),
    ],
)
def test_energy(power: Power | None, fires: bool) -> None:
    """A power cap, or more energy than the baseline."""
    assert (_asked("energy", _evidence(_kernel(), power=power)) is not None) is fires


# What all findings go through.


def test_a_gain_counts_for_the_kernels_share_of_the_time() -> None:
    """Twice the speed in a tenth of the time is 5 % of the whole."""
    slow = replace(_kernel(threads_per_instruction=8.0), name="slow", symbol="slow", us=10.0)
    other = replace(_kernel(), name="other", symbol="other", us=90.0)
    evidence = _evidence(slow, kernels=(slow, other), stage=None)
    (finding,) = [f for f in analyse(evidence) if f.tool == "divergence"]
    assert finding.gain[1] == pytest.approx(1 / (0.9 + 0.1 / 4), abs=1e-3)


def test_no_gain_goes_beyond_the_calibrated_floor() -> None:
    """A candidate at 80 % of the floor can become 1.25 times as fast, whatever a tool hopes for."""
    evidence = _evidence(_kernel(threads_per_instruction=4.0), stage=replace(STAGE, candidate_us=125.0))
    (finding,) = [f for f in analyse(evidence) if f.tool == "divergence"]
    assert finding.gain[1] == pytest.approx(1.25, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "measured", "asked"),
    [
        (Kind.MEMORY, "", {"memory"}),
        (Kind.COMPUTE, "memory", {"memory", "compute"}),
        (Kind.MIXED, "", {"memory", "compute"}),
    ],
)
def test_tools_are_asked_by_the_class_of_the_task(kind: Kind, measured: str, asked: set[str]) -> None:
    """By analysis or by counters; those for all classes always; in a mixed task every tool."""
    evidence = _evidence(_kernel(), stage=replace(STAGE, kind=kind, measured=measured))
    names = {t.affinity.value for t in tools() if matches(t, evidence)}
    assert names == asked | {Affinity.ALL.value}


def test_small_inputs_hide_no_access_that_is_apart() -> None:
    """What the emulator can hold is shorter than a launch: there, too, scattered access is told, as worth little."""
    recorded = _read(FIXTURES / "uncoalesced_fault.json")
    small = replace(recorded, stage=replace(STAGE, kind=Kind.LATENCY))
    (found,) = [f for f in analyse(small) if f.tool == "uncoalesced"]
    assert found.severity is Severity.MINOR and found.gain[1] == 1.3
    assert any("larger ones do not" in fact for fact in found.evidence)
    large = replace(recorded, stage=replace(STAGE, kind=Kind.MEMORY))
    (found,) = [f for f in analyse(large) if f.tool == "uncoalesced"]
    assert found.severity is Severity.CRITICAL and found.gain[1] > 2
    assert not any("larger ones do not" in fact for fact in found.evidence)
    fused = replace(recorded, stage=replace(STAGE, kind=Kind.COMPUTE))
    assert not [f for f in analyse(fused) if f.tool == "uncoalesced"]


def test_kernels_that_were_not_launched_are_left_out() -> None:
    """A variant of the kernel for other shapes costs nothing in this call."""
    spilled = replace(_kernel(), name="b", spill_bytes=64, launches=0)
    assert not [f for f in analyse(_evidence(_kernel(), kernels=(_kernel(), spilled))) if f.tool == "register_spill"]
    launched = replace(spilled, launches=1)
    assert [f for f in analyse(_evidence(_kernel(), kernels=(_kernel(), launched))) if f.tool == "register_spill"]


BESIDE = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x, w):
        y = {product}
        own(y, self.conv.bias, y.numel())
        return y
"""


@pytest.mark.parametrize(
    ("product", "found"),
    [
        ("self.conv(x)", ("conv",)),
        ("torch.nn.functional.conv2d(x, self.conv.weight)", ("conv2d",)),
        ("x @ w", ("@",)),
        ("torch.addmm(x, x @ w, w)", ("@", "addmm")),
        ("torch.empty_like(x)", ()),
    ],
)
def test_products_that_a_text_leaves_to_a_library(product: str, found: tuple[str, ...]) -> None:
    """Functions, operators and modules, one for each place."""
    text = BESIDE.format(product=product)
    assert library_products(Candidate("c_kforge.py", {"c_kforge.py": text})) == found


@pytest.mark.parametrize(
    ("name", "products", "library", "fires"),
    [
        ("precision_headroom", ("float32",), (), True),
        ("precision_headroom", ("float32",), ("conv2d",), False),
        ("precision_headroom", ("float32", "float32"), ("conv2d",), True),
        ("tensor_cores", ("bfloat16",), (), True),
        ("tensor_cores", ("bfloat16",), ("mm",), False),
    ],
)
def test_a_kernel_beside_a_librarys_product_is_not_blamed_for_it(
    name: str, products: tuple[str, ...], library: tuple[str, ...], fires: bool
) -> None:
    """What computes on the ordinary units is the product only where that is not left to a library."""
    kernel = replace(_kernel(), sass=replace(SASS, mix={"fp32": 40}, loop=True, matrix=()))
    bound = replace(STAGE, compute_us=2 * STAGE.memory_us + 1)
    evidence = _evidence(kernel, products=products, library=library, stage=bound)
    assert (_asked(name, evidence) is not None) is fires


def test_a_float32_kernel_without_a_loop_is_no_product() -> None:
    """A product sums, in a loop."""
    kernel = replace(_kernel(), sass=replace(SASS, mix={"fp32": 40}, loop=False, matrix=()))
    bound = replace(STAGE, compute_us=2 * STAGE.memory_us + 1)
    assert _asked("precision_headroom", _evidence(kernel, products=("float32",), stage=bound)) is None
