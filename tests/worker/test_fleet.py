"""Several workers as one, with small programs that speak the protocol: deaths, versions, places, calling off."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kforge.errors import ProtocolError, UsageError, VersionMismatch, WorkerLost
from kforge.worker import remote, wire
from kforge.worker.fleet import Fleet, Job, Outcome
from kforge.worker.remote import Deliver, RemoteWorker

# Answers each job with its own name. Dies of the jobs named in its arguments; "forever" never answers.
PROGRAM = """
import json, os, sys
name, torch, *deadly = sys.argv[1:]
print("Welcome to", name, flush=True)
def say(id, kind, **fields):
    print(json.dumps({"protocol": 1, "id": id, "kind": kind, **fields}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    id, kind = request["id"], request["kind"]
    if kind == "describe":
        say(id, "description", device="cpu", target=name, gpus=0, timed=False, manifest={"torch": torch or None})
    elif kind == "cancel":
        say(request["job"], "error", error={"kind": "cancelled", "message": "cancelled", "hint": ""}, exit_code=1)
    else:
        say(id, "event", event="gate", data={"name": "static", "passed": True})
        if id in deadly:
            print("the machine burns", file=sys.stderr, flush=True)
            os._exit(7)
        if id != "forever":
            say(id, "report", report={"by": name, "plan": request.get("plan")})
"""


@pytest.fixture
def worker(tmp_path: Path) -> object:
    """worker("a", "job") is one that dies of that job."""
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM)

    def make(name: str, *deadly: str, torch: str = "") -> RemoteWorker:
        return RemoteWorker([sys.executable, str(program), name, torch, *deadly], name)

    return make


def run(workers: list[RemoteWorker], *jobs: Job) -> dict[str, Outcome]:
    with Fleet(workers) as fleet:
        fleet.start()
        return {outcome.job.id: outcome for outcome in fleet.run(jobs)}


def test_every_job_gets_its_report(worker) -> None:  # type: ignore[no-untyped-def]
    """All jobs end, with the body that was sent, and both workers do some of them."""
    jobs = [Job(str(n), {"plan": f"p{n}"}, task=str(n)) for n in range(10)]
    ends = run([worker("a"), worker("b")], *jobs)
    assert {id: end.report["plan"] for id, end in ends.items()} == {str(n): f"p{n}" for n in range(10)}
    assert {end.worker for end in ends.values()} == {"a", "b"}
    assert all(end.report["by"] == end.worker for end in ends.values())


def test_jobs_of_a_dead_worker_go_to_another(worker) -> None:  # type: ignore[no-untyped-def]
    """The job that a worker died of is done by the other one, and nothing that it held is lost."""
    ends = run([worker("frail", *"01234567"), worker("strong")], *(Job(str(n), {}) for n in range(8)))
    assert len(ends) == 8 and all(end.report for end in ends.values())
    assert {end.worker for end in ends.values()} == {"strong"}


def test_a_job_that_kills_is_reported(worker) -> None:  # type: ignore[no-untyped-def]
    """A job of which two workers died is reported with the last one's words; the jobs around it are done."""
    ends = run([worker("a", "bad"), worker("b", "bad")], Job("1", {}), Job("bad", {}), Job("2", {}))
    assert ends["bad"].report is None and ends["bad"].error is not None
    assert ends["bad"].error["kind"] == "worker_lost"
    assert "2 workers died of this job" in ends["bad"].error["message"]
    assert "ended with exit code 7: the machine burns" in ends["bad"].error["message"]
    assert ends["1"].report and ends["2"].report


def test_a_single_worker_is_started_again(worker) -> None:  # type: ignore[no-untyped-def]
    """With one worker only, it is started again after each death until the job is given up; the next job is done."""
    ends = run([worker("a", "bad")], Job("bad", {}), Job("good", {}))
    assert ends["bad"].error and ends["good"].report


def test_a_place_is_kept(worker) -> None:  # type: ignore[no-untyped-def]
    """A job with a place is done there, and is an error once that worker is gone for good."""
    jobs = [Job("1", {}, place="a"), Job("2", {}, place="a"), Job("3", {}, place="nowhere")]
    ends = run([worker("a"), worker("b")], *jobs)
    assert ends["1"].worker == ends["2"].worker == "a"
    assert ends["3"].error and "nowhere is gone" in ends["3"].error["message"]


def test_candidates_of_one_task_meet_in_one_judge(worker) -> None:  # type: ignore[no-untyped-def]
    """With as many tasks as workers, all jobs of a task go to the same one."""
    jobs = [Job(f"{n}{task}", {}, task=task) for n in range(6) for task in "xy"]
    ends = run([worker("a"), worker("b")], *jobs)
    places = {task: {end.worker for id, end in ends.items() if id.endswith(task)} for task in "xy"}
    assert len(places["x"]) == len(places["y"]) == 1 and places["x"] != places["y"]


def test_other_versions_are_refused_by_name(worker) -> None:  # type: ignore[no-untyped-def]
    """A worker with another torch is left out, with both versions named; with no other worker that is the error."""
    notes: list[str] = []
    with Fleet([worker("old", torch="1.0.0"), worker("same")], on_note=notes.append) as fleet:
        assert list(fleet.start()) == ["same"]
    assert any("worker old: torch 1.0.0 here" in note for note in notes)
    with Fleet([worker("old", torch="1.0.0")]) as fleet, pytest.raises(VersionMismatch, match=r"torch 1\.0\.0 here"):
        fleet.start()


def test_no_worker_at_all() -> None:
    """A command that does not exist and one that ends at once are both named in the error."""
    commands = ["no-such-program worker", f"{sys.executable} -c 'raise SystemExit(4)'"]
    with (
        Fleet([RemoteWorker.from_text(text) for text in commands]) as fleet,
        pytest.raises(WorkerLost, match=r"no-such-program: No such file.*ended with exit code 4"),
    ):
        fleet.start()
    with pytest.raises(UsageError, match="No closing quotation"):
        RemoteWorker.from_text("ssh 'box")


def test_a_run_can_be_left(worker) -> None:  # type: ignore[no-untyped-def]
    """After `cancel` the same workers take new jobs, and nothing of the old run comes back."""
    with Fleet([worker("a")]) as fleet:
        fleet.start()
        left = fleet.run([Job("1", {}), Job("forever", {}), Job("2", {})])
        assert next(left).job.id == "1"
        fleet.cancel()
        assert [end.job.id for end in fleet.run([Job("3", {})])] == ["3"]


@pytest.mark.parametrize(
    "said",
    [
        {"kind": "report"},
        {"kind": "report", "report": [1]},
        {"kind": "error"},
        {"kind": "error", "error": "lost"},
        {"kind": "event", "event": 5, "data": {}},
        {"kind": "event", "event": "gate"},
        {"kind": "description", "target": "a", "manifest": {"torch": 2}},
        {"kind": "description", "manifest": {}},
        {"kind": ["report"]},
        {},
    ],
)
def test_an_answer_that_lacks_what_its_kind_has_ends_the_worker(tmp_path: Path, said: dict[str, object]) -> None:
    """A worker of another make, or a broken one: its job is reported as lost with what it said, and nothing raises."""
    program = tmp_path / "worker.py"
    program.write_text(
        PROGRAM.replace(
            'say(id, "event"',
            f"print(json.dumps({{'protocol': 1, 'id': id}} | {said!r}), flush=True); say(id, \"event\"",
        )
    )
    ends = run([RemoteWorker([sys.executable, str(program), "a", ""], "a")], Job("job", {}))
    assert ends["job"].error is not None and ends["job"].error["kind"] == "worker_lost"
    assert "which is no answer" in ends["job"].error["message"]


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_line_without_end_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """It is not kept beyond the limit of a line: the worker is stopped, and what it did is said."""
    monkeypatch.setattr(wire, "LINE_BYTES", 1 << 16)
    program = tmp_path / "worker.py"
    endless = "sys.stdout.write('x' * 100000); sys.stdout.flush(); import time; time.sleep(600)"
    text = PROGRAM.replace('say(id, "event"', f'{endless}; say(id, "event"')
    program.write_text(
        text if when == "later" else text.replace("for line in sys.stdin:", f"{endless}\nfor line in []:")
    )
    workers = [RemoteWorker([sys.executable, str(program), "a", ""], "a")]
    if when == "at once":
        with pytest.raises(ProtocolError, match="worker a sent a line of over 65536 bytes"):
            run(workers, Job("job", {}))
        return
    error = run(workers, Job("job", {}))["job"].error
    assert error is not None and error["kind"] == "worker_lost" and "a line of over 65536 bytes" in error["message"]


def test_a_worker_that_only_closes_its_output_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives on and can answer nothing: nobody waits for its end."""
    monkeypatch.setattr(remote, "_PATIENCE_S", 0.2)
    program = tmp_path / "worker.py"
    program.write_text(PROGRAM.replace('say(id, "event"', 'os.close(1); import time; time.sleep(600); say(id, "event"'))
    ends = run([RemoteWorker([sys.executable, str(program), "a", ""], "a")], Job("job", {}))
    assert ends["job"].error is not None and ends["job"].error["kind"] == "worker_lost"


def test_what_an_earlier_process_said_is_nobodys() -> None:
    """A worker that was left and is started again is not taken for dead when the end of its first process is heard."""

    class Twice:
        name, failure = "a", None

        def __init__(self) -> None:
            self.starts: list[Deliver] = []

        def start(self, deliver: Deliver) -> None:
            self.starts.append(deliver)
            if len(self.starts) == 2:
                self.starts[0](self, None)  # late
            versions = {"torch": "1.0.0"} if len(self.starts) == 1 else {}
            deliver(self, wire.answer("describe", "description", target="a", manifest=versions))

        def send(self, message: Mapping[str, Any]) -> None:
            if message["kind"] == "evaluate":
                self.starts[0](self, wire.answer(message["id"], "report", report={"by": "the first"}))
                self.starts[-1](self, wire.answer(message["id"], "report", report={"by": "the second"}))

        def last_words(self) -> str:
            return "ended"

        def close(self, at_once: bool = False) -> None:
            pass

    with Fleet([Twice()]) as fleet:
        with pytest.raises(VersionMismatch):
            fleet.start()
        assert list(fleet.start()) == ["a"]
        assert [end.report for end in fleet.run([Job("1", {})])] == [{"by": "the second"}]
