"""The workbench: real evaluations, their record, limits, and a stop in the middle of one."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kforge import config
from kforge.agent.budget import Budget, BudgetSpent
from kforge.agent.opening import SuggestOptions, _kept, opened
from kforge.agent.search import REWARDS, SEARCHES
from kforge.agent.suggest import _Run
from kforge.environment.report import Status
from kforge.errors import Interrupted, MissingError
from kforge.worker.limits import descendants
from tests.agent.small import ENDLESS, RIGHT, TASK, WRONG, Opened, candidate
from tests.patience import until


def alive(pid: int) -> bool:
    """Whether a process works; one that has ended and is not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_an_evaluation_enters_tree_log_index_and_memory(small: Opened) -> None:
    """A right candidate is recorded everywhere, with its node, under its direction, and becomes the best."""
    bench = small.bench
    attempt = bench.evaluate(RIGHT, direction="plain")
    assert attempt.verified and attempt.report.plan == "quick"
    assert bench.tree.find(RIGHT.digest) is attempt.node and attempt.node.parent == 0
    assert bench.best is attempt
    (proposed,) = [d for d in small.of("proposed") if d["candidate"] == RIGHT.digest]
    assert (proposed["node"], proposed["parent_node"], proposed["direction"]) == (attempt.node.id, 0, "plain")
    assert proposed["files"] == ["small_kforge.cu", "small_kforge.py"]
    (evaluated,) = [d for d in small.of("evaluated") if d["candidate"] == RIGHT.digest]
    assert evaluated["node"] == attempt.node.id and evaluated["reward"] == attempt.node.reward
    assert small.of("best")[-1]["candidate"] == RIGHT.digest
    assert bench.candidate(RIGHT.digest[:6]) == RIGHT
    (lesson,) = bench.memory.lessons("pointwise", bench.key.shape_class, "emulator") or [None]
    assert lesson is None or lesson.candidate == RIGHT.digest
    assert [record.direction for record in bench.memory.records()] == ["plain"]


def test_an_equal_evaluation_is_given_again(small: Opened) -> None:
    """The same files, plan and rules are judged once; another plan is another evaluation of the same node."""
    bench = small.bench
    first = bench.evaluate(RIGHT)
    count = bench.meter.evaluations
    assert bench.evaluate(RIGHT) is first
    assert bench.meter.evaluations == count
    again = bench.evaluate(RIGHT, "standard")
    assert bench.meter.evaluations == count + 1 and again.node is first.node
    assert len(small.of("lesson")) == 1  # the larger plan taught the same


def test_a_wrong_candidate_is_a_child_of_what_it_was_made_from(small: Opened) -> None:
    """Its parent is found by digest, its failure is in the tree and in the event, the best stays."""
    bench = small.bench
    best = bench.evaluate(RIGHT)
    wrong = candidate("x[i] * factor", parent=RIGHT.digest, idea="without the 1")
    attempt = bench.evaluate(wrong)
    assert attempt.report.status is Status.WRONG and attempt.node.parent == best.node.id
    assert attempt.node.failure and small.of("evaluated")[-1]["failure"] == attempt.node.failure
    assert bench.best is not None and bench.best.candidate.digest == RIGHT.digest


def test_a_spent_budget_refuses_what_is_new_only(small: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """BudgetSpent names the limit; a known result and a last confirmation are given all the same."""
    bench = small.bench
    bench.evaluate(RIGHT)
    monkeypatch.setattr(bench, "budget", Budget(3600.0, evaluations=bench.meter.evaluations))
    assert bench.evaluate(RIGHT).verified
    with pytest.raises(BudgetSpent, match="evaluations"):
        bench.evaluate(candidate("1.0f + x[i] * factor"))
    assert bench.left()["evaluations"] == 0
    assert bench.evaluate(candidate("1.0f + x[i] * factor"), beyond=True).verified


def test_a_budget_too_small_for_a_confirmation_is_told_before_the_search(
    small: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with what is left and what it takes, and none where there is enough."""
    bench, options = small.bench, SuggestOptions(Path("out"), plan="standard")
    for seconds in (3600.0, bench.session.seconds):
        monkeypatch.setattr(bench, "budget", Budget(seconds))
        _Run(bench, options, None, False)._foretell()
    (line,) = [d["text"] for d in small.of("message") if "take at least" in d["text"]]
    assert line.startswith("0 s of the budget of ") and "on the emulator a candidate and plan standard" in line


@pytest.mark.parametrize(
    ("budget", "plan", "device", "kept"),
    [(600.0, "standard", "cpu", 12.0), (600.0, "standard", "cuda:0", 35.0), (20.0, "standard", "cuda:0", 8.0)],
)
def test_a_search_leaves_what_a_confirmation_takes(budget: float, plan: str, device: str, kept: float) -> None:
    """The plan's seconds and what is around them on that device, and 40 % of the budget at most."""
    assert _kept(SuggestOptions(Path("out"), budget=budget, plan=plan), device) == kept


def test_stop_ends_a_hanging_evaluation_within_a_second(small: Opened) -> None:
    """Its processes die, nobody is blamed, and the next evaluation works with a fresh parent."""
    bench = small.bench
    bench.evaluate(RIGHT)
    evaluations = bench.meter.evaluations
    process = bench.zygote()._process
    assert process is not None
    parent = process.pid  # others of this process may be of other tests
    working: list[int] = []

    def stop() -> None:
        until(lambda: ENDLESS.digest in {d.get("candidate") for d in small.of("building")})
        until(lambda: len(descendants(parent)) >= 2)  # a supervisor and its child
        time.sleep(0.3)  # most likely the call has begun: what is asserted does not depend on it
        working.extend([parent, *descendants(parent)])
        bench.control.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Interrupted):
        bench.evaluate(ENDLESS)
    thread.join()
    assert len(working) >= 3
    until(lambda: not any(map(alive, working)))
    assert bench.meter.evaluations == evaluations
    assert ENDLESS.digest not in {data["candidate"] for data in small.of("evaluated")}
    with pytest.raises(Interrupted):
        bench.evaluate(WRONG)
    bench.control.reset()
    assert bench.evaluate(candidate("x[i] * factor + 1.0f + 0.0f")).verified


def test_a_profile_has_the_object_of_the_command(small: Opened) -> None:
    """The profile of the emulator names target, roofline and findings, and is recorded."""
    found = small.bench.profile(RIGHT)
    assert found["target"] == "emulator" and found["candidate"] == RIGHT.digest
    assert {"roofline", "findings", "kernels", "lines"} <= found.keys()
    assert small.of("profiled")[-1]["candidate"] == RIGHT.digest


def test_the_baselines_source_needs_a_gpu(small: Opened) -> None:
    """Without a GPU the reason is said and nothing is made up."""
    with pytest.raises(MissingError, match="GPU"):
        small.bench.baseline_source()


def test_events_of_many_threads_are_whole_and_in_order(small: Opened) -> None:
    """The log counts without a gap, and listeners hear in the order of the log."""
    bench = small.bench
    before = len(small.events)

    def speak(name: str) -> None:
        for number in range(40):
            bench.event("message", text=f"{name} {number}", level="info")

    threads = [threading.Thread(target=speak, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = list(bench.session.log.replay())
    assert [event.seq for event in written] == list(range(len(written)))
    heard = [data["text"] for _, data in small.events[before:]]
    assert len(heard) == 120 and [event.data["text"] for event in written[-120:]] == heard


def test_tuning_without_a_gpu_gives_the_attempt_back(small: Opened) -> None:
    """No configuration is tried, nothing is counted, and no time is made up."""
    bench = small.bench
    attempt = bench.evaluate(RIGHT)
    count = bench.meter.evaluations
    assert bench.tune(attempt, 5.0) == (attempt, [])
    assert bench.meter.evaluations == count and not small.of("tuned")


def test_a_run_by_milestones(tmp_path: Path) -> None:
    """Right is worth 1 and wrong -1 under CUDA Agent's reward; config and search know the same names."""
    (tmp_path / "small.py").write_text(TASK)
    options = SuggestOptions(tmp_path / "out", device="cpu", state=tmp_path / ".kforge", reward="milestone")
    with opened(tmp_path / "small.py", options, lambda kind, data: None) as bench:
        assert [bench.evaluate(made).node.reward for made in (RIGHT, WRONG)] == [1.0, -1.0]
    assert set(config.REWARDS) == set(REWARDS) and set(config.SEARCHES) == set(SEARCHES)
