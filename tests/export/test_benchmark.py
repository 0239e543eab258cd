"""The benchmark that a package ships times what the judge timed: inputs, gradients, what is put back, and ratios."""

from __future__ import annotations

import importlib.util
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import MODULE, candidate, unverified, write_project
from test_pairs import PAIR

from kforge.environment.json import to_json
from kforge.environment.report import Backward, CaseResult, Report, Samples, Speedup, Status, VariantResult, Verdict
from kforge.export.evidence import Evidence
from kforge.export.package import Export, Options, prepare_export
from kforge.kernel.candidate import Candidate
from kforge.profiling.statistics import ratio_of_rounds
from kforge.task import load_task
from kforge.task.backward import gradient_task

SPEEDUP = {"vs": "eager", "ratio": 1.5, "ci95": [1.48, 1.52], "noise": 0.01}


_SAMPLES = (Samples("candidate", "graph", (1.0,)), Samples("eager", "plain", (2.0,)), Samples("eager", "warm", (2.0,)))


def _evidence(task: Path, made: Candidate, gradients: tuple[str, ...] = ()) -> Evidence:
    """A report of one variant on some GPU."""
    speedup = Speedup("eager", 1.5, (1.48, 1.52), 0.01)
    report = Report(
        *("shift", made.digest, Status.VERIFIED, Verdict.FASTER, "quick", "a GPU"),
        cases=(CaseResult("variant 0, seed 0", True),),
        variants=(VariantResult("variant 0", Verdict.FASTER, speedup, _SAMPLES, "events, cold L2"),),
        backward=Backward(gradients) if gradients else None,
    )
    return Evidence(made, task, to_json(report), verified=True)


@pytest.fixture
def benchmark_of(loaded: Any, tmp_path: Path) -> Iterator[Any]:
    """benchmark_of(export): benchmarks/benchmark.py of its package, imported."""
    known = dict(sys.modules)

    def load(export: Export) -> Any:
        loaded(export)
        path = tmp_path / "to" / export.package / "benchmarks" / "benchmark.py"
        found = importlib.util.spec_from_file_location(f"benchmark_{export.package}", path)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        return module

    before = list(sys.path)
    yield load
    sys.path[:] = before
    for name in [n for n in sys.modules if n not in known and n.startswith(("benchmark_", "test_package"))]:
        del sys.modules[name]


def test_inputs_and_ratios_are_the_judges(tmp_path: Path, benchmark_of: Any) -> None:
    """Every variant as the task draws it; the ratio of rounds is the one that verdicts are made of."""
    export = unverified(tmp_path, options=Options(name="timed_plain"))
    benchmark = benchmark_of(export)
    found = dict(benchmark.variants())
    assert list(found) == ["variant 0", "variant 1"]
    for number, inputs in enumerate(found.values()):
        assert torch.equal(inputs["x"], export.task.make_call(number, 0).args[0])
    draw = random.Random(3)
    for rounds in (1, 3, 8, 13):
        sides = [[[draw.lognormvariate(mu, 0.1) for _ in range(9)] for _ in range(rounds)] for mu in (0.5, 0.0)]
        assert benchmark.ratio(*sides) == pytest.approx(ratio_of_rounds(*sides).ratio)
    assert benchmark.GRADIENTS == []
    assert benchmark.accepted("variant 0") is None  # there is no report
    for now, same in ((1.5, True), (1.452, True), (1.549, True), (1.44, False), (1.56, False)):
        assert benchmark.repeats(SPEEDUP, now) is same


def test_a_pair_is_timed_with_its_gradients(tmp_path: Path, benchmark_of: Any) -> None:
    """What was judged forward and backward together is called so; a package without these kernels claims nothing."""
    task, _ = write_project(tmp_path)
    names = list(gradient_task(load_task(task)).gradients.names)  # type: ignore[union-attr]
    evidence = _evidence(task, candidate(PAIR), tuple(names))
    export = prepare_export(load_task(task), evidence, Options(name="timed_pair"))
    benchmark = benchmark_of(export)
    assert names == benchmark.GRADIENTS == ["x", "bias"]
    assert benchmark.accepted("variant 0")["speedup"] == SPEEDUP
    x = torch.randn(3, 24)
    outputs, gradients = benchmark.called(benchmark.plain(), {"x": x})()
    assert outputs[0].requires_grad and not x.requires_grad
    assert [g.shape for g in gradients] == [x.shape, (24,)]
    torch.testing.assert_close(gradients[0] / 1.5, gradients[1] / gradients[1] * gradients[0] / 1.5)
    recomputed = prepare_export(load_task(task), evidence, Options(name="timed_recomputed", backward="recompute"))
    other = benchmark_of(recomputed)
    assert (other.GRADIENTS, other.accepted("variant 0")) == ([], None)


class HostClock:
    """Calls and answers with the processor's own seconds: the rounds' logic needs no GPU."""

    name = "a host"

    def batch(self, call: Any, count: int, cold: bool = True, restore: Any = None) -> list[float]:
        for _ in range(count):
            if restore is not None:
                restore()
            call()
        return [1.0] * count


def test_what_changes_in_place_is_put_back(tmp_path: Path, benchmark_of: Any, capsys: Any) -> None:
    """Every call finds the inputs that the first one found; the verdict on the accepted speed is printed."""
    task, _ = write_project(tmp_path)
    text = task.read_text().replace("return x * self.scale + self.bias", "return x.mul_(self.scale).add_(self.bias)")
    task.write_text(text)
    made = candidate(MODULE.replace("y = like(y, given)\n        return y", "given.copy_(y)\n        return given"))
    evidence = _evidence(task, made)
    benchmark = benchmark_of(prepare_export(load_task(task), evidence, Options(name="timed_in_place")))
    assert benchmark.MUTATED == ["x"]
    seen = []

    def side(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.clone())
        return x.mul_(2)

    given = torch.ones(5, 24)
    benchmark.graphed = lambda side, inputs: (_ for _ in ()).throw(RuntimeError("no GPU"))
    said = benchmark.time_variant(HostClock(), "variant 0", {"x": given}, {"exported": side, "eager": side}, 2)
    assert said is None
    out = capsys.readouterr().out
    assert "1.000x over eager" in out
    assert "accepted: 1.500x over eager, 95 % interval 1.480 to 1.520, on a GPU: not compared" in out
    assert all(torch.equal(x, torch.ones(5, 24)) for x in seen[3:])
    assert len(seen) > 50
    accepted = json.loads((tmp_path / "to/timed_in_place/manifest.json").read_text())["variants"][0]
    assert (accepted["speedup"], accepted["wrappers"]) == (SPEEDUP, ["graph", "plain"])
