"""GPU tests: shorter plans, parts of a file for several processes, and tests that want the GPU to themselves.

The plans have all required cases, and two seconds of extras where a user waits for 20. `--part 2/4` takes every fourth
test from the second on. Marked `alone` is what times or reads the GPU's free memory: run.sh runs that after the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

EXTRA_S = 2.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", default="1/1", help="k/n: every n-th test from the k-th on")
    parser.addoption("--resume", type=Path, help="what passed is appended to this file; tests that it has are left out")
    parser.addoption("--told", type=Path, help="a line a test as soon as it is over; failures go to this file as well")


def pytest_configure(config: pytest.Config) -> None:
    if (failures := config.getoption("--told", default=None)) is not None:
        config.pluginmanager.register(Teller(failures), "teller")
    if (results := config.getoption("--resume", default=None)) is not None:
        config.pluginmanager.register(Recorder(results), "recorder")
    config.addinivalue_line("markers", "alone: times, or reads the GPU's free memory: nothing else may run on it")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The part asked for, of what other options have left, without what passed before."""
    part, parts = map(int, config.getoption("--part", default="1/1").split("/"))
    if parts > 1:
        config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i % parts != part - 1])
        items[:] = items[part - 1 :: parts]
    recorder = config.pluginmanager.getplugin("recorder")
    if recorder is not None and (before := [item for item in items if item.nodeid in recorder.passed]):
        config.hook.pytest_deselected(items=before)
        items[:] = [item for item in items if item.nodeid not in recorder.passed]


class Recorder:
    """Remembers from run to run what passed: a line `pass NODEID` a test, written when it is over."""

    def __init__(self, results: Path) -> None:
        self.results = results
        lines = results.read_text().splitlines() if results.is_file() else []
        self.passed = {line.removeprefix("pass ") for line in lines if line.startswith("pass ")}
        self.failed: set[str] = set()
        self.called: set[str] = set()  # passed so far; their teardown may fail yet

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)
        if report.when == "teardown" and report.nodeid not in self.failed and report.nodeid in self.called:
            with self.results.open("a") as file:
                file.write(f"pass {report.nodeid}\n")
        elif report.when == "call" and report.passed:
            self.called.add(report.nodeid)


class Teller:
    """A run that is cut short has told what it found so far."""

    def __init__(self, failures: Path) -> None:
        self.failures = failures

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("/")[2]
        if report.failed:
            words = [line[:300] for line in report.longreprtext.splitlines() if line.startswith("E  ")][:8]
            text = "\n  ".join((f"FAILED {report.duration:.1f}s {name} ({report.when})", *words))
            print(f"\n{text}", flush=True)
            with self.failures.open("a") as file:
                file.write(f"{text}\n")
        elif report.skipped:
            print(f"\nskip {report.duration:.1f}s {name}", flush=True)
        elif report.when == "call":
            print(f"\npass {report.duration:.1f}s {name}", flush=True)


@pytest.fixture(autouse=True)
def short_plans(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`evaluate` with the same plans and less time for their extra cases."""
    from kforge.environment import evaluation

    whole = evaluation.plan_for

    def shorter(*args: Any, **kwargs: Any) -> Any:
        return replace(whole(*args, **kwargs), gpu_seconds=EXTRA_S)

    monkeypatch.setattr(evaluation, "plan_for", shorter)
    yield
