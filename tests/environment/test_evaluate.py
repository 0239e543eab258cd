# ruff: noqa: E501 - rows of a table of mistakes
"""The environment end to end on the emulator: right candidates are verified, wrong ones get their status and words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import hand_written as kernels
import pytest
import torch

from kforge.environment import dumps, loads, summary
from kforge.environment.report import Report, Status, Verdict
from kforge.kernel.candidate import Candidate

Judge = Callable[..., Report]


@pytest.mark.parametrize("task", kernels.SOURCES)
def test_a_right_candidate_is_verified_on_standard(judge: Judge, task: str) -> None:
    """Softmax, parameters, indices and booleans, in-place, stateful, small output: every kind of task can be passed."""
    report = judge(task, kernels.candidate(task), "standard")
    assert report.status is Status.VERIFIED, report.failure
    assert [g.passed for g in report.gates] == [True, True, True, True, True, None]
    assert report.verdict is Verdict.UNTIMED and report.target == "emulator"
    assert not [d for d in report.detectors if d.fired]
    required = [c for c in report.cases if c.passed]
    assert len(required) >= 20 and report.failure == ""
    assert loads(dumps(report)) == report
    assert summary(report)["status"] == "verified"
    assert report.repro is None and report.environment["seed"].isdigit()


def test_the_report_says_what_was_not_tested(judge: Judge) -> None:
    """A layout that does not apply and the detectors that need a GPU are listed, not silently dropped."""
    report = judge("softmax", kernels.candidate("softmax"), "standard")
    assert any("channels_last" in line for line in report.not_tested)
    assert any("kernel_share" in line for line in report.not_tested)


def test_beyond_a_budget_only_what_is_required_is_done(judge: Judge) -> None:
    """A budget that is over leaves the plan's required cases and its verdict; what was left out is said."""
    report = judge("softmax", kernels.candidate("softmax"), "quick", until=0.0)
    assert report.status is Status.VERIFIED, report.failure
    assert (len(report.cases), report.dropped, report.asked) == (2, 2, 4)
    assert any(line.startswith("no time left in the budget for more of plan quick") for line in report.not_tested)


WRONG = {
    "off by one": ("softmax", [("c < cols; c += 64) out", "c < cols - 1; c += 64) out")], Status.WRONG, ""),
    "no max subtracted": ("softmax", [("out[c] = expf(in[c] - m) / sum", "out[c] = expf(in[c]) / sum")], Status.WRONG, ""),
    "lower precision": (
        "softmax",
        [("out[c] = expf(in[c] - m) / sum", "out[c] = expf(in[c] - m) / sum * 1.00002f")],
        Status.WRONG,
        "",
    ),
    "strides ignored": ("softmax", [("x = x.contiguous()", "x = x.as_strided(x.shape, (x.size(1), 1))")], Status.WRONG, ""),
    "wrong strides": (
        "softmax",
        [("        return y", "        return torch.empty_like(y.t()).t().copy_(y) if False else y.t().contiguous().t()")],
        Status.WRONG,
        "strides",
    ),
    "wrong dtype": ("softmax", [("        return y", "        return y.double()")], Status.WRONG, "dtype"),
    "tuple instead of tensor": ("softmax", [("        return y", "        return (y,)")], Status.WRONG, "returns (Tensor)"),
    "parameters ignored": ("affine", [("* scale[i % width] + shift[i % width]", "")], Status.WRONG, "default_parameters"),
    "missing state key": ("affine", [("self.shift = nn.Parameter(torch.zeros(width))", "self.b = torch.zeros(width)"), ("affine(x, self.scale, self.shift,", "affine(x, self.scale, self.b,")], Status.WRONG, "state_dict"),
    "unexpected state key": ("affine", [("super().__init__()", "super().__init__(); self.extra = nn.Parameter(torch.ones(1))")], Status.WRONG, "state_dict"),
    "identity": ("softmax", [("out[c] = expf(in[c] - m) / sum", "out[c] = in[c]")], Status.WRONG, "identity_shortcut"),
    "constant": ("affine", [("y[i] = v < 0.f ? 0.f : v;", "y[i] = v < 0.f ? 0.5f : 0.5f;")], Status.WRONG, "constant_output"),
    "NaN as a wildcard": ("affine", [("y[i] = v < 0.f ? 0.f : v;", "y[i] = 0.f / (v - v);")], Status.WRONG, "nan_wildcard"),
    "last of ties": ("argmax", [("v > top ||", "v >= top ||")], Status.WRONG, ""),
    "index off by one": ("argmax", [("index[row] = best", "index[row] = best + (row == 7)")], Status.WRONG, ""),
    "boolean flipped": ("argmax", [("= v > 0.5f", "= v > 0.6f")], Status.WRONG, ""),
    "input not mutated": ("accumulate", [("        accumulate(\n            total,", "        total = total.clone()\n        accumulate(\n            total,")], Status.WRONG, ""),
    "input mutated": ("softmax", [("        x = x.contiguous()", "        given, x = x, x.contiguous()"), ("        return y", "        given.zero_()\n        return y")], Status.WRONG, "inputs_mutated"),
    "state not updated": ("running", [("    mean[c] = m;", "")], Status.WRONG, "running_mean"),
    "state updated twice": ("running", [("    mean[c] = m;", "    mean[c] = m * 0.9f + 0.1f * (sum / rows);")], Status.WRONG, "running_mean"),
    "torch operators": ("softmax", [("        return y", "        return y + 0 * x")], Status.HACKED, "torch_compute"),
    "kernel never launched": ("softmax", [("softmax_rows(x, y, x.size(0), x.size(1))", "y = y.copy_(x)")], Status.WRONG, "identity_shortcut"),
    "torch fallback by name": ("softmax", [("        return y", "        return torch.softmax(x, -1)")], Status.REJECTED, "torch_compute"),
    "raises": ("softmax", [("        return y", "        raise RuntimeError('no such shape')")], Status.CRASHED, "no such shape"),
    "does not compile": ("softmax", [("float sum = 0.f;", "float sum = 0.f")], Status.BUILD_FAILED, ""),
    "constructor raises": ("affine", [("super().__init__()", "super().__init__(); raise ValueError('not yet')")], Status.BUILD_FAILED, "not yet"),
    "wild pointer": ("softmax", [("out[c] = expf(in[c] - m) / sum", "out[c + (1ll << 40)] = 1.f")], Status.CRASHED, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_candidate_gets_its_status_and_words(judge: Judge, name: str) -> None:
    """Each kind of mistake ends with the expected status, and the words or the detector name what is wrong."""
    task, changes, status, word = WRONG[name]
    report = judge(task, kernels.candidate(task, *changes), "standard" if name == "last of ties" else "quick")
    assert report.status is status, f"{report.status}: {report.failure}"
    fired = {d.name for d in report.detectors if d.fired}
    assert word in report.failure or word in fired, (report.failure, fired)
    assert report.failure and [g.passed for g in report.gates if g.passed is False] == [False]
    if status is Status.WRONG and "state_dict" not in report.failure:
        assert report.repro is not None and Path(report.repro).is_file()


def test_a_hang_is_timed_out_and_the_next_candidate_is_right(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """An endless loop ends that candidate only, within the limit."""
    from kforge.environment import processes

    monkeypatch.setattr(processes, "BUILD_S", 4.0)
    hang = kernels.candidate(
        "affine", ("        return y if", "        while True:\n            pass\n        return y if")
    )
    assert judge("affine", hang).status is Status.TIMED_OUT
    assert judge("affine", kernels.candidate("affine")).status is Status.VERIFIED


def test_a_candidate_of_library_calls_alone_is_no_candidate(judge: Judge) -> None:
    """Allowed calls without a kernel of its own: a setting, not a kernel."""
    text = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.clone()\n"
    report = judge("softmax", Candidate("softmax_kforge.py", {"softmax_kforge.py": text}))
    assert report.status is Status.NO_CANDIDATE and "no kernel" in report.failure


def test_a_triton_candidate_is_built_where_there_is_no_gpu(judge: Judge) -> None:
    """Triton's kernels have no emulator: the candidate is neither right nor wrong, and one line says what it needs."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("Triton finds a driver here")
    text = (
        "import torch\nimport triton\nimport triton.language as tl\n\n\n@triton.jit\ndef copy(x, y, B: tl.constexpr):\n"
        "    at = tl.arange(0, B)\n    tl.store(y + at, tl.load(x + at))\n\n\nclass ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n        y = torch.empty_like(x)\n        copy[(1,)](x, y, B=32)\n        return y\n"
    )
    report = judge("softmax", Candidate("softmax_kforge.py", {"softmax_kforge.py": text}))
    assert (report.status, report.gates[-1].passed) == (Status.BUILT, None)
    assert report.gates[-1].detail.endswith("GPU only: Triton's kernels run on a GPU alone")


def test_a_cached_result_is_recognised(judge: Judge) -> None:
    """The answer to the first call given again for the same address and shape: hacked, by name."""
    cached = kernels.candidate(
        "softmax",
        ("        x = x.contiguous()", "        key = x.shape\n        if key in CACHE:\n            return CACHE[key].clone()\n        x = x.contiguous()"),
        ("class ModelNew", "CACHE = {}\n\n\nclass ModelNew"),
        ("        return y", "        CACHE[key] = y\n        return y"),
    )  # fmt: skip
    report = judge("softmax", cached)
    assert report.status is Status.HACKED
    assert "cached_result" in {d.name for d in report.detectors if d.fired}


def test_repro_shows_the_mismatch_without_the_judge(judge: Judge, tmp_path: Path) -> None:
    """repro.py runs as it is, prints the worst element with all three values, and its inputs load with weights_only."""
    import torch

    report = judge("affine", kernels.candidate("affine", ("v < 0.f ? 0.f : v", "v < 0.f ? 0.f : v * 1.5f")))
    assert report.repro is not None
    out = subprocess.run([sys.executable, report.repro], capture_output=True, text=True, timeout=60, check=False)
    assert out.returncode == 0, out.stderr
    assert "elements differ from the reference; worst at" in out.stdout and "fp64" in out.stdout
    saved = torch.load(Path(report.repro).parent / "inputs.pt", weights_only=True)
    assert saved["args"][0].shape == (40, 96) and set(saved["state"]) == {"scale", "shift"}
    assert "kforge.environment" not in Path(report.repro).read_text()


def test_what_is_kept_of_weights_beside_prepared_is_rejected(judge: Judge) -> None:
    """Weights that a candidate derives once and keeps itself cost no timed call anything; those of `prepared` do.

    Kept without a look at the weights it is wrong; what has nothing to do with them is a warning.
    """
    ways = {
        "own": "self.of == w._version or setattr(self, 'of', w._version) or setattr(self, 'kept', w.double().float())",
        "stale": "self.of or setattr(self, 'of', 1) or setattr(self, 'kept', w.double().float())",
        "constant": "self.of is not None or setattr(self, 'of', x.new_ones(3).double()); self.kept = w.detach()",
        "prepared": "setattr(self, 'kept', prepared(w, lambda w: w.double().float()))",
    }
    right = {"own": Status.REJECTED, "stale": Status.WRONG}
    told = {}
    for way, text in ways.items():
        changes = [
            ("import Kernel", "import Kernel, prepared"),
            (
                "        y = torch.empty_like(x)",
                f"        w = self.scale\n        {text}\n        y = torch.empty_like(x)",
            ),
            ("super().__init__()", "super().__init__()\n        self.of = None"),
            ("affine(x, self.scale,", "affine(x, self.kept,"),
        ]
        report = judge("affine", kernels.candidate("affine", *changes), "quick")
        assert report.status is right.get(way, Status.VERIFIED), f"{way}: {report.failure}"
        warnings = [line for line in report.warnings if "kept from call to call" in line]
        told[way] = report.failure if way in right else " ".join(warnings)
    assert told["prepared"] == "" and "aten._to_copy.default" in told["constant"]
    assert "keeps what aten._to_copy.default derive from parameters" in told["own"] and "[kept_weights]" in told["own"]
    assert "weights loaded into a module that was called before" in told["stale"]


def test_events_tell_each_gate_and_case(judge: Judge) -> None:
    """A listener hears every gate in order and every case, as JSON values."""
    heard: list[tuple[str, dict[str, object]]] = []
    judge("affine", kernels.candidate("affine"), on_event=lambda kind, data: heard.append((kind, data)))
    gates = [data["name"] for kind, data in heard if kind == "gate"]
    assert gates == ["static", "build", "correctness", "honesty", "memory", "performance"]
    assert sum(kind == "case" for kind, _ in heard) == 4
    json.dumps(heard)


def test_seeds_and_expected_values_do_not_reach_the_candidate(judge: Judge, prepared: Callable[..., object]) -> None:
    """The judge's entropy is in the report only; the files of the candidate's folder hold nothing of it."""
    ready = prepared("affine")
    report = judge("affine", kernels.candidate("affine"))
    seed = report.environment["seed"]
    for path in (ready.folder / "candidates").rglob("*"):  # type: ignore[attr-defined]
        if path.is_file() and path.stat().st_size < 1 << 20:
            assert seed.encode() not in path.read_bytes()


def test_the_resource_report_and_max_shared(judge: Judge, prepared: Callable[..., object]) -> None:
    """Registers and shared memory come from the real compiler, without a GPU."""
    report = judge("softmax", kernels.candidate("softmax"))
    (build,) = report.builds
    assert build.name == "softmax_rows" and build.arch == "sm_90a" and build.registers > 8 and build.shared == 256


PAST = (
    "    if (row >= rows) return;",
    "    if (row > rows) return;\n"
    "    if (row == rows) for (long long k = 1; k < (1ll << 44); k *= 2) above[(long long)rows * cols + k] = true;",
)


def test_a_crash_on_the_emulator_names_its_line(judge: Judge) -> None:
    """A guard that lets one row too many through ends the process: the access is named, and repro.py names it again."""
    report = judge("argmax", kernels.candidate("argmax", PAST))
    named = "argmax_kforge.cu:5: argmax_rows: write of 1 bytes out of bounds"
    assert report.status is Status.WRONG, report.failure
    assert "died of SIG" in report.failure and named in report.failure
    assert "out_of_bounds" in {d.name for d in report.detectors if d.fired}
    assert report.repro is not None
    out = subprocess.run([sys.executable, report.repro], capture_output=True, text=True, timeout=90, check=False)
    assert out.returncode == 0, out.stderr
    assert f"run_checked, launch 0: {named}" in out.stdout


ASTRAY = (
    "        float v =",
    "        if (i == 0 && scale[width] != 12345.678f) __syncwarp(2);  // a mask gone wrong after a read past the end\n"
    "        float v =",
)


def test_an_access_behind_an_error_of_the_emulator_is_named(judge: Judge) -> None:
    """What an invalid access did to the emulator may be what it stumbles over: the access is looked for, and named."""
    report = judge("affine", kernels.candidate("affine", ASTRAY))
    assert report.status is Status.WRONG, report.failure
    assert "lane 0 is not in its own mask" in report.failure
    assert "affine_kforge.cu:5: affine: read of 4 bytes out of bounds at byte 384 of scale" in report.failure
    alone = judge("affine", kernels.candidate("affine", (ASTRAY[0], ASTRAY[1].replace("scale[width]", "scale[0]"))))
    assert alone.status is Status.CRASHED and "checked" not in alone.failure


def test_a_wrong_candidate_is_told_after_the_first_form(judge: Judge) -> None:
    """One case is judged before the rest is built; what the plan asks for is said all the same."""
    report = judge("affine", kernels.candidate("affine", ("v < 0.f ? 0.f : v", "v < 0.f ? 0.f : v * 2")), "standard")
    assert report.status is Status.WRONG and [(g.name, g.passed) for g in report.gates] == [
        ("static", True),
        ("build", True),
        ("correctness", False),
    ]
    assert "for the task's own inputs" in report.gates[1].detail
    cases = summary(report)["cases"]
    assert cases["run"] == 1 and cases["planned"] > 60 and cases["dropped"] == 0


def test_cases_without_time_to_build_are_dropped_and_planned(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms that nobody built count: run and dropped together are what was planned."""
    from kforge.environment import building

    monkeypatch.setattr(building, "SHARE", 0.0)
    report = judge("affine", kernels.candidate("affine"), "standard")
    cases = summary(report)["cases"]
    assert report.status is Status.VERIFIED, report.failure
    assert cases["dropped"] > 0 and cases["run"] + cases["dropped"] == cases["planned"]
    assert report.error is not None and report.error.allowed is not None and report.error.where


def test_a_missing_source_is_named_beside_the_module(judge: Judge) -> None:
    """No folder of the judge's own is shown for a .cu that is not there."""
    right = kernels.candidate("affine")
    report = judge("affine", Candidate(right.module, {right.module: right.files[right.module]}))
    assert report.status is Status.BUILD_FAILED
    assert "no source file 'affine_kforge.cu' beside the candidate's module" in report.failure


def test_a_finding_without_a_line_names_the_file_alone(judge: Judge) -> None:
    """A class that is missing stands on no line."""
    text = kernels.AFFINE_PY.replace("class ModelNew", "class Other")
    report = judge("affine", Candidate("a_kforge.py", {"a_kforge.py": text, "affine_kforge.cu": kernels.AFFINE_CU}))
    assert report.status is Status.REJECTED and report.failure.startswith("a_kforge.py: defines no class ModelNew")
