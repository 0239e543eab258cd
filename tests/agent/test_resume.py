"""Runs that end anywhere go on: nothing judged is judged again, nothing recorded is lost, op.py must be the same."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kforge.agent.opening import SuggestOptions
from kforge.agent.resume import find_run, read_past
from kforge.agent.search.tree import Tree
from kforge.agent.session import Session, spent_seconds
from kforge.agent.workbench import Workbench
from kforge.errors import KforgeError, UsageError
from kforge.store.events import LOG_NAME, Event, RunLog, replay
from kforge.store.index import Index
from tests.agent.scripted_model import ScriptedModel, load
from tests.agent.small import ENDLESS, RIGHT, TASK, WRONG, Opened, candidate
from tests.patience import PATIENCE_S

SOFTMAX = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)


def get_inputs():
    return [torch.randn(8, 64)]
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "kforge", *arguments]


OPTIONS = ("soft.py", "--search", "greedy", "--evaluations", "3", "--plan", "quick", "--budget", "10m")


def kill_at(folder: Path, kind: str, number: int, *options: str) -> Path:
    """Start a search and end it with SIGKILL at an event; the run's folder."""
    arguments = command("suggest", *options, "--events")
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(arguments, cwd=folder, start_new_session=True, **pipes) as process:
        assert process.stdout is not None and process.stderr is not None
        seen: Counter[str] = Counter()
        for line in process.stdout:
            event = json.loads(line)
            seen[event.get("event", "")] += 1
            if seen[kind] == number:
                os.killpg(process.pid, signal.SIGKILL)
                break
        else:
            pytest.fail(f"it ended before: {process.stderr.read()[-2000:]}")
    (run,) = (folder / ".kforge" / "runs").iterdir()
    return run


def test_a_killed_search_goes_on_without_judging_anything_again(tmp_path: Path) -> None:
    """After kill -9, `kforge resume` ends with three evaluations of three candidates in all, in one log."""
    (tmp_path / "soft.py").write_text(SOFTMAX)
    run = kill_at(tmp_path, "gate", 8, *OPTIONS)  # within the second evaluation
    before = [event for event in replay(run / LOG_NAME) if event.kind == "evaluated"]
    done = subprocess.run(command("resume", "--json"), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert len(before) == 1
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["status"] == "verified" and result["evaluations"] == 3 and result["run"] == run.name
    events = list(replay(run / LOG_NAME))
    judged = [(e.data["candidate"], e.data["plan"]) for e in events if e.kind == "evaluated"]
    assert judged[: len(before)] == [(e.data["candidate"], e.data["plan"]) for e in before]
    assert len(judged) == len(set(judged)) == 3
    assert [e.seq for e in events] == list(range(len(events)))
    proposed = [e.data["candidate"] for e in events if e.kind == "proposed"]
    assert len(proposed) == len(set(proposed))
    with Index(tmp_path / ".kforge" / "index.sqlite") as index:
        (row,) = index.runs()
    assert (row.status, row.evaluations, row.exit_code) == ("verified", 3, 0)
    again = subprocess.run(command("resume"), cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
    assert again.returncode == 2 and "was cut off" in again.stderr


def test_a_killed_conversation_goes_on_without_paying_anything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before its third answer was used: every request is made once, and the submitted candidate is written."""
    scenarios = Path(__file__).parent / "scenarios"
    shutil.copy(scenarios / "softmax_cdf.py", tmp_path)
    monkeypatch.setenv("KFORGE_API_KEY", "scripted")
    with ScriptedModel(load(scenarios / "softmax_cdf.json")) as model:
        at = ("--base-url", model.base_url)
        run = kill_at(tmp_path, "model_call", 3, "softmax_cdf.py", "--model", "scripted", "--plan", "quick", *at)
        resumed = command("resume", *at, "--json")
        done = subprocess.run(resumed, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)
        requests = [request.body["messages"] for request in model.requests if not request.is_probe]
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert (result["status"], result["proposer"], result["evaluations"]) == ("verified", "scripted", 1)
    calls = [event.data for event in replay(run / LOG_NAME) if event.kind == "model_call"]
    assert len(calls) == len(requests) == result["model_calls"]
    assert result["tokens"]["in"] == sum(call["tokens_in"] for call in calls)
    assert all(requests.count(messages) == 1 for messages in requests[:4])


@pytest.fixture(scope="module")
def recorded(small: Opened) -> Opened:
    """The small task's run with attempts, a rule that came and went, one that stands, and steers."""
    bench = small.bench
    bench.evaluate(RIGHT, direction="plain")
    bench.evaluate(WRONG)
    bench.constrain("no_fast_math", "command line")
    bench.evaluate(RIGHT)
    bench.release("no_fast_math")
    bench.control.steer("use float4")
    bench.control.steer("and must be deterministic", "queued")
    bench.control.take()
    return small


def cut(recorded: Opened, folder: Path, keep: int, torn: bytes = b"") -> Path:
    """The run's folder as a process that was killed after so many events has left it."""
    source = recorded.bench.session.folder
    shutil.copytree(source / "candidates", folder / source.name / "candidates")
    lines = (source / LOG_NAME).read_bytes().splitlines(keepends=True)
    (folder / source.name / LOG_NAME).write_bytes(b"".join(lines[:keep]) + torn)
    return folder / source.name


def restored(recorded: Opened, run: Path, state: Path) -> Workbench:
    """A workbench that goes on with this run; nobody judges anything for it."""
    past = read_past(run)
    session = Session.reopen(state, run, {}, lambda kind, data: None)
    bench = Workbench(recorded.bench.prepared, session, arch="sm_90a", state=state)
    past.restore(bench)
    return bench


def test_wherever_a_log_ends_the_workbench_is_as_the_events_say(recorded: Opened, tmp_path: Path) -> None:
    """For every cut: tree, evaluations, rules and meter are those of the events that were written."""
    events = list(replay(recorded.bench.session.log.path))
    for keep in range(1, len(events) + 1):
        state = tmp_path / str(keep)
        run = cut(recorded, state / "runs", keep, b'{"schema":1,"seq":9' if keep % 2 else b"")
        bench = restored(recorded, run, state)
        kept = events[:keep]
        tree, evaluated = Tree(), [e.data for e in kept if e.kind == "evaluated"]
        for event in kept:
            tree.apply(event.kind, event.data)
        assert bench.tree == tree
        assert bench.meter.evaluations == len(evaluated) == len(bench.attempts)
        for data in evaluated:
            rules = tuple(data["constraints"])
            found = [a for a in bench.attempts if (a.candidate.digest, a.constraints) == (data["candidate"], rules)]
            assert found and found[0].report.status.value == data["status"]
        changes = Counter[str]()
        for event in kept:
            if event.kind == "constraint":
                changes[event.data["name"]] += 1 if event.data["action"] == "added" else -1
        assert sorted(map(str, bench.constraints)) == sorted(name for name, count in changes.items() if count)
        assert [e.seq for e in replay(run / LOG_NAME)] == list(range(keep + 1))
        bench.session.close()


def test_what_the_log_holds_is_not_judged_again(
    recorded: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal evaluations come from the log, under other rules they do not; steers that waited still wait."""
    run = cut(recorded, tmp_path / "runs", 10_000)
    bench = restored(recorded, run, tmp_path)
    asked: list[tuple[str, str]] = []

    def judge(candidate: Any, plan: str, *given: Any) -> Any:
        asked.append((candidate.digest, plan))
        return recorded.bench.evaluate(candidate).report

    monkeypatch.setattr(bench, "_judge", judge)
    assert bench.evaluate(RIGHT).verified and bench.best is not None
    assert not bench.evaluate(WRONG).verified
    assert asked == []
    assert [steer.text for steer in bench.control.take(queued=True)] == ["and must be deterministic"]
    assert [str(rule) for rule in bench.constraints] == ["deterministic"]
    bench.evaluate(RIGHT)
    assert asked == [(RIGHT.digest, "quick")]
    assert bench.control.steer("next").id == 3
    bench.session.close()


def test_a_run_of_another_op_py_is_refused(recorded: Opened, tmp_path: Path) -> None:
    """Verdicts about another text do not carry over."""
    from kforge.agent.suggest import resume

    run = cut(recorded, tmp_path / ".kforge" / "runs", 10_000)
    (tmp_path / "small.py").write_text(TASK.replace("+ 1.0", "+ 2.0"))
    past = read_past(run)
    options = SuggestOptions(out=tmp_path / "out", device="cpu", state=tmp_path / ".kernel", here=tmp_path)
    from dataclasses import replace

    with pytest.raises(UsageError, match="has changed"):
        resume(replace(past, task=tmp_path / "small.py"), options, lambda kind, data: None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"options":{', b'"options":null,"was":{'),
        (b'"out":"', b'"out":5,"was":"'),
        (b'"report":{', b'"report":{},"was":{'),
        (b'"status":"verified"', b'"status":"wonderful"'),
        (b'"action":"added"', b'"was":"added"'),
    ],
)
def test_an_event_that_is_json_and_no_longer_itself_is_told(
    recorded: Opened, tmp_path: Path, before: bytes, after: bytes
) -> None:
    """A log that was written over ends in one error that names the run, not in a fault of the program."""
    run = cut(recorded, tmp_path / ".kforge" / "runs", 10_000)
    text = (run / LOG_NAME).read_bytes()
    assert before in text
    (run / LOG_NAME).write_bytes(text.replace(before, after))
    with pytest.raises(KforgeError, match=f"run {run.name} cannot go on") as caught:
        restored(recorded, run, tmp_path / ".kforge")
    assert caught.value.hint


def test_a_run_that_is_being_written_cannot_go_on(recorded: Opened) -> None:
    """The lock of the log keeps a second process out."""
    session = recorded.bench.session
    with pytest.raises(UsageError, match="being written"):
        Session.reopen(session.folder.parents[1], session.folder, {}, lambda kind, data: None)


def test_a_run_that_went_on_elsewhere_is_read_again(recorded: Opened, tmp_path: Path) -> None:
    """Two resumptions at once: what the second has read of the log is old when the first has ended; a note is not."""
    run, state = cut(recorded, tmp_path / ".kforge" / "runs", 10_000), tmp_path / ".kforge"
    known = len(read_past(run).events)
    with RunLog(run) as log:
        log.append("message", text="said between two runs", level="info")
    Session.reopen(state, run, {}, lambda kind, data: None, known).close()
    with pytest.raises(UsageError, match="went on meanwhile"):
        Session.reopen(state, run, {}, lambda kind, data: None, known)
    Session.reopen(state, run, {}, lambda kind, data: None, len(read_past(run).events)).close()


def test_the_newest_run_that_was_cut_off_is_meant(tmp_path: Path) -> None:
    """Without a name: not one that came to its end, and none of another command."""
    for name, command_, ended in (("a", "suggest", False), ("b", "suggest", True), ("c", "verify", False)):
        with RunLog.create(tmp_path / name, "op") as log:
            log.append("run_started", task="op.py", options={"out": "out"}, command=command_)
            if ended:
                log.append("run_finished", status="verified")
        os.rename(log.folder, tmp_path / f"2026-{name}")
        (tmp_path / name).rmdir()
    assert find_run(tmp_path, None) == tmp_path / "2026-a"
    assert find_run(tmp_path, "2026-b") == tmp_path / "2026-b"
    with pytest.raises(UsageError, match="3 runs begin with"):
        find_run(tmp_path, "2026")
    with pytest.raises(UsageError, match="verify"):
        read_past(tmp_path / "2026-c")
    shutil.rmtree(tmp_path / "2026-a")
    with pytest.raises(UsageError, match="cut off"):
        find_run(tmp_path, None)


def test_seconds_between_two_lives_of_a_run_do_not_count() -> None:
    """Ten seconds, a pause, and five more are fifteen."""
    times = [("run_started", 100.0), ("best", 110.0), ("resumed", 5000.0), ("best", 5005.0)]
    assert spent_seconds([Event(n, when, kind, {}) for n, (kind, when) in enumerate(times)]) == 15.0


def test_a_recorded_run_is_replayed_without_a_model(recorded: Opened, tmp_path: Path) -> None:
    """`suggest` with the run to replay proposes its candidates in order and judges each anew."""
    from kforge.agent.suggest import suggest

    run = cut(recorded, tmp_path / "old", 10_000)
    (tmp_path / "small.py").write_text(TASK)
    events: list[tuple[str, Any]] = []
    options = SuggestOptions(
        out=tmp_path / "out",
        budget=600.0,
        plan="quick",
        device="cpu",
        state=tmp_path / ".kforge",
        here=tmp_path,
        replay=run,
    )
    result = suggest(tmp_path / "small.py", options, lambda kind, data: events.append((kind, data)))
    proposed = [data for kind, data in events if kind == "proposed"]
    was = [e.data for e in replay(run / LOG_NAME) if e.kind == "proposed"]
    assert [d["candidate"] for d in proposed] == [d["candidate"] for d in was if d["candidate"] != ENDLESS.digest]
    assert [d["direction"] for d in proposed] == [d["direction"] for d in was]
    assert result.exit_code == 0 and result.candidate is not None and result.candidate.digest == RIGHT.digest
    assert not [kind for kind, _ in events if kind.startswith("model")]
    assert sorted(result.summary["files"]) == ["out/small_kforge.cu", "out/small_kforge.py"]


def test_a_replay_of_nothing_is_refused(tmp_path: Path) -> None:
    """A folder without a log, or a log without candidates, is a usage error."""
    from kforge.agent.proposers import ReplayProposer

    with pytest.raises(UsageError, match="no run"):
        ReplayProposer(tmp_path)
    with RunLog.create(tmp_path, "op") as log:
        log.append("run_started", task="op.py")
    with pytest.raises(UsageError, match="no candidates"):
        ReplayProposer(log.folder)
    assert candidate().digest == RIGHT.digest
