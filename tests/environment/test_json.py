"""Reports as JSON: nothing is lost on the way, and the last line of `--json` has the shape that DESIGN fixes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from kforge.environment import dumps, from_json, loads, summary, to_json
from kforge.environment.report import (
    CaseResult,
    Detector,
    Error,
    Gate,
    KernelBuild,
    Report,
    Roofline,
    Samples,
    Speedup,
    Status,
    VariantResult,
    Verdict,
)

SPEEDUP = Speedup("compile_default", 1.53, (1.51, 1.55), 0.004)
FULL = Report(
    task="softmax",
    candidate="0123456789abcdef",
    status=Status.VERIFIED,
    verdict=Verdict.FASTER,
    plan="standard",
    target="NVIDIA H200",
    precision_class="fp32 (matmul precision highest), rule",
    gates=(Gate("static", True, "", 0.01), Gate("performance", None, "no GPU here")),
    detectors=(Detector("pointer_cache", False), Detector("lazy_tensor", True, "out is a Lazy")),
    builds=(
        KernelBuild("softmax_rows", "sm_90a", 32, 1024, 0, 0, {"BLOCK": 256}, 0.75),
        KernelBuild("b", "sm_90a", 1, 2, 3, 4),
    ),
    cases=(CaseResult("variant 0, seed 0, x1, contiguous", True, "out", 1e-7, 1e-7, 3e-7, 4e-7),),
    error=Error(1.1e-7, 1.0e-7, math.inf),
    variants=(VariantResult("variant 0", Verdict.FASTER, SPEEDUP, (Samples("eager", "plain", (6.2, 6.1, 6.3)),)),),
    speedup=SPEEDUP,
    times_ms={"eager": 6.2, "compile_default": 4.76, "candidate": 3.1},
    memory_ratio=1.0,
    roofline=Roofline("memory", 3.0, 0.97),
    vendor_calls=("mm",),
    warnings=("a warning",),
    not_tested=("gpu",),
    repro="repro.py",
    environment={"gpu": "NVIDIA H200"},
    seconds=1.5,
)


def test_a_full_report_survives_the_round_trip() -> None:
    """Every field, enum, nested dataclass, tuple and infinity comes back equal and of the same type."""
    text = dumps(FULL)
    assert "\n" not in text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert loads(text) == FULL
    assert isinstance(loads(text).variants[0].samples[0].ms, tuple)


def test_unknown_keys_are_ignored_and_absent_ones_take_their_default() -> None:
    """A report of a newer minor version or an older one can still be read."""
    data = to_json(FULL) | {"invented_later": 1}
    del data["seconds"]
    assert from_json(Report, data) == replace(FULL, seconds=0.0)


def test_a_newer_schema_is_refused() -> None:
    """A report that this version cannot understand is an error, not half a report."""
    with pytest.raises(ValueError, match="schema 99"):
        loads(json.dumps({"schema": 99, **to_json(FULL)}))


def test_summary_has_the_keys_of_the_design_in_their_form() -> None:
    """The object of `suggest --json`: each key that DESIGN shows, with times where a GPU timed them."""
    out = summary(FULL, files=["softmax_kforge.py"], proposer="engine", evaluations=12, seconds=18.2)
    assert out["task"] == "softmax.py" and out["target"] == "NVIDIA H200"
    assert out["status"] == "verified" and out["verdict"] == "faster"
    assert out["speedup"] == {"vs": "compile_default", "ratio": 1.53, "ci95": [1.51, 1.55], "noise": 0.004}
    assert out["times_ms"]["candidate"] == 3.1
    assert out["roofline"] == {"bound": "memory", "floor_ms": 3.0, "achieved": 0.97}
    assert out["gates"][0] == {"name": "static", "passed": True}
    assert out["detectors"][1] == {"name": "lazy_tensor", "fired": True}
    assert (out["files"], out["proposer"], out["evaluations"], out["seconds"], out["usd"]) == (
        ["softmax_kforge.py"],
        "engine",
        12,
        18.2,
        0.0,
    )
    json.dumps(out, allow_nan=False, default=lambda x: pytest.fail(f"{x!r} is no JSON"))


def test_without_a_gpu_times_are_absent_and_the_verdict_is_untimed() -> None:
    """On the emulator no time and no speed-up is ever shown."""
    out = summary(replace(FULL, target="emulator", verdict=Verdict.UNTIMED, speedup=None, times_ms={}))
    assert out["target"] == "emulator" and out["verdict"] == "untimed"
    assert "times_ms" not in out and "speedup" not in out
