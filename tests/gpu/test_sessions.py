"""On a GPU: a stop ends a hanging evaluation, limits hold at launches, a tuned winner survives a resumed run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kforge.environment.report import Status
from kforge.errors import Interrupted
from tests.agent.small import ENDLESS, RIGHT, TASK, Opened, candidate

pytestmark = pytest.mark.gpu

SOFTMAX = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn(4096, 1024)]
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """The small task on the GPU."""
    from kforge.agent.opening import SuggestOptions, opened

    folder = tmp_path_factory.mktemp("small")
    (folder / "small.py").write_text(TASK)
    events: list[tuple[str, dict[str, object]]] = []
    options = SuggestOptions(folder / "out", 3600.0, device="cuda:0", state=folder / ".kforge", here=folder)
    with opened(folder / "small.py", options, lambda kind, data: events.append((kind, data))) as bench:
        yield Opened(bench, events)


@pytest.mark.alone
def test_stop_ends_a_hanging_evaluation_within_a_second(small: Opened) -> None:
    """Spare processes included; the next evaluation is right and timed."""
    bench = small.bench
    assert bench.evaluate(RIGHT).verified
    stopped_at: list[float] = []

    def stop() -> None:
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline and ENDLESS.digest not in {d.get("candidate") for d in small.of("building")}:
            time.sleep(0.02)
        time.sleep(0.5)
        stopped_at.append(time.monotonic())
        bench.control.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Interrupted):
        bench.evaluate(ENDLESS)
    took = time.monotonic() - stopped_at[0]
    thread.join()
    assert took < 1.0
    bench.control.reset()
    attempt = bench.evaluate(candidate("x[i] * factor + 1.0f + 0.0f"))
    assert attempt.verified and attempt.ms < float("inf")


def test_max_shared_is_held_at_the_launch(small: Opened) -> None:
    """Dynamic bytes that depend on the call count, and a rule that came later reaches spare processes."""
    bench = small.bench
    bad = candidate(shared="n * 4")
    assert bench.evaluate(bad).verified
    bench.constrain("max_shared=1024", "test")
    try:
        attempt = bench.evaluate(bad)
        assert attempt.report.status is not Status.VERIFIED and "max_shared is 1024" in attempt.report.failure
        assert bench.evaluate(RIGHT).verified
    finally:
        bench.release("max_shared")


def test_a_killed_run_goes_on_and_ends_timed(tmp_path: Path) -> None:
    """After kill -9 within the search no candidate is judged again on the same plan, and the verdict is timed."""
    (tmp_path / "soft.py").write_text(SOFTMAX)
    command = [sys.executable, "-m", "kforge"]
    arguments = [*command, "suggest", "soft.py", "--budget", "90s", "--plan", "quick", "--events"]
    with subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("event") == "evaluated":
                os.killpg(process.pid, signal.SIGKILL)
                break
    done = subprocess.run([*command, "resume", "--json"], cwd=tmp_path, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["status"] == "verified" and result["verdict"] != "untimed"
    (run,) = (tmp_path / ".kforge" / "runs").iterdir()
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    judged = [(e["data"]["candidate"], e["data"]["plan"]) for e in events if e["kind"] == "evaluated"]
    assert len(judged) == len(set(judged)) > 1
