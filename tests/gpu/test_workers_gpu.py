"""A worker on a GPU: reports with times through the protocol, and a slowdown that the regression gate sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import throughput
from kforge.environment import regression
from kforge.environment.batch import make_job
from kforge.environment.json import from_json
from kforge.environment.report import Report
from kforge.environment.suite import Row, statistics
from kforge.worker.fleet import Fleet, Outcome
from kforge.worker.parcel import pack_task
from kforge.worker.remote import RemoteWorker

pytestmark = [pytest.mark.gpu, pytest.mark.alone]

SLOW = """    if (i >= n) return;
    float extra = 0.f;
    for (int k = 1; k < 4; k++) extra += x[(i + k * (n / 4)) % n];
    if (extra == 12345.678f) y[i] = 0.f;
    y[i]"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Outcome]]:
    """A right candidate, one that reads four times as much, and a wrong one, judged by one worker."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / "silu.py").write_text(throughput.OP.format(rows=4096, columns=4096))
    parcel = pack_task(folder / "silu.py")
    right = throughput.KERNEL.format(number="right")
    kernels = {
        "right": right,
        "slow": right.replace("    if (i < n) y[i]", SLOW),
        "wrong": right.replace("1.5f", "1.51f"),
    }
    jobs = []
    for name, kernel in kernels.items():
        module: Path = folder / name / "silu_kforge.py"
        module.parent.mkdir()
        module.write_text(throughput.MODULE.format(compiler="auto"))
        module.with_suffix(".cu").write_text(kernel)
        jobs.append(make_job(name, parcel, module, plan="quick"))
    with Fleet([RemoteWorker.local("cuda:0", "gpu")]) as fleet:
        fleet.start()
        yield {outcome.job.id: outcome for outcome in fleet.run(jobs)}


def _row(outcome: Outcome, name: str) -> Row:
    assert outcome.report is not None, outcome.error
    return Row(name, "", outcome.worker, from_json(Report, outcome.report))


def test_reports_come_with_times(outcomes: dict[str, Outcome]) -> None:
    """The right candidates are verified and timed against the fastest baseline, the wrong one is wrong and untimed."""
    rows = {name: _row(outcome, name) for name, outcome in outcomes.items()}
    assert {name: row.status for name, row in rows.items()} == {
        "right": "verified",
        "slow": "verified",
        "wrong": "wrong",
    }
    assert rows["wrong"].report and rows["wrong"].report.speedup is None
    times = {name: rows[name].report.times_ms["candidate"] for name in ("right", "slow")}  # type: ignore[union-attr]
    assert times["slow"] > 1.2 * times["right"]
    assert statistics(list(rows.values()))["all"]["timed"] == 2


def test_a_slowdown_is_seen(outcomes: dict[str, Outcome], tmp_path: Path) -> None:
    """The slow candidate in the place of the right one is a slowdown, the right one itself is no change."""
    regression.save(tmp_path / "base.json", [_row(outcomes["right"], "silu")], {})
    before = regression.load(tmp_path / "base.json")
    assert regression.compare(before, [_row(outcomes["right"], "silu")]) == []
    (change,) = regression.compare(before, [_row(outcomes["slow"], "silu")])
    assert change.kind == "slowdown" and change.regression
