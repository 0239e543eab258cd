"""Several workers as one: jobs are dealt out, those of a dead worker are given to another, each ends in one Outcome.

It owns who does what. It reads of a job only its task's digest, so that candidates of one task meet in one judge.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kforge.errors import KforgeError, VersionMismatch, WorkerLost
from kforge.worker import wire
from kforge.worker.manifest import differences, manifest
from kforge.worker.remote import Worker

DEPTH = 6  # requests that a worker holds: one is evaluated, the others are built ahead
ATTEMPTS = 2  # workers that may die of one job
TASKS = 3  # judges that a worker keeps ready (environment/service.py)
RESTARTS = 2  # of one worker, without a finished job in between
START_S = 180.0


@dataclass(frozen=True)
class Job:
    """One evaluation. body: task, candidate, plan ... of a request; task: digest of its sources, for dealing out;
    place: the name of the one worker that may do it, None for any."""

    id: str
    body: dict[str, Any] = field(hash=False)
    task: str = ""
    place: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The end of a job: the worker's report or error message, who sent it, and seconds since it was handed over."""

    job: Job
    message: dict[str, Any] = field(hash=False)
    worker: str = ""
    seconds: float = 0.0

    @property
    def report(self) -> dict[str, Any] | None:
        """The report as JSON; None for an error."""
        return self.message.get("report")

    @property
    def error(self) -> dict[str, Any] | None:
        """kind, message and hint; None for a report."""
        return self.message.get("error")


@dataclass
class _Seat:
    """A worker with what it has in hand: id -> (job, when it was sent, whether it was begun)."""

    worker: Worker
    hand: dict[str, list[Any]] = field(default_factory=dict)
    description: dict[str, Any] | None = None
    tasks: deque[str] = field(default_factory=lambda: deque(maxlen=TASKS))
    deaths: int = 0
    starts: int = 0
    alive: bool = False


class Fleet:
    """Workers that are started together. Use as a context manager; leaving it ends them.

    on_event(worker, job id, kind, data): progress of an evaluation. on_note(text): a worker was lost or started again.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        on_event: Callable[[str, str, str, dict[str, Any]], None] = lambda worker, job, kind, data: None,
        on_note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._seats = {worker.name: _Seat(worker) for worker in workers}
        if len(self._seats) != len(workers):
            raise ValueError("workers need different names")
        self._on_event, self._on_note = on_event, on_note
        self._inbox: queue.SimpleQueue[tuple[_Seat, int, dict[str, Any] | None]] = queue.SimpleQueue()
        self._pending: deque[Job] = deque()
        self._attempts: dict[str, set[str]] = {}  # job -> workers that died of it
        self._died = 0

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, timeout_s: float = START_S) -> dict[str, dict[str, Any]]:
        """Start all and wait for their descriptions, by name. Those that fail are noted and left out.

        WorkerLost when none is left; VersionMismatch when it is versions that none of them shares with this side; the
        error of a single worker's program is raised as it is.
        """
        waiting, reasons, mismatch = set(), [], False
        for seat in self._seats.values():
            if seat.alive:
                continue
            try:
                self._begin(seat)
                waiting.add(seat.worker.name)
            except KforgeError as error:
                reasons.append(error.message)
        deadline = time.monotonic() + timeout_s
        while waiting and (left := deadline - time.monotonic()) > 0:
            try:
                seat, start, message = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            worker = seat.worker
            if start != seat.starts:  # of a process that was left before
                continue
            if message is None:
                seat.alive = False
                reasons.append(f"worker {worker.name} {worker.last_words()}")
            elif message.get("kind") == "description":
                seat.description = message
                if found := differences(message.get("manifest", {}), manifest()):
                    mismatch = True
                    reasons.append(f"worker {worker.name}: {'; '.join(found)}")
                    self._leave(seat)
            elif message.get("kind") == "error":
                reasons.append(f"worker {worker.name}: {message['error']['message']}")
                self._leave(seat)
            waiting.discard(worker.name)
        for name in waiting:
            reasons.append(f"worker {name} did not answer within {timeout_s:.0f} s")
            self._leave(self._seats[name])
        described = {name: seat.description for name, seat in self._seats.items() if seat.alive and seat.description}
        if not described:
            failures = [seat.worker.failure for seat in self._seats.values() if seat.worker.failure]
            if len(self._seats) == 1 and failures:
                raise failures[0]
            kind = VersionMismatch if mismatch else WorkerLost
            raise kind("; ".join(reasons), "no worker is left; `kforge doctor` on its machine says more")
        for reason in reasons:
            self._on_note(reason)
        return described

    def add(self, worker: Worker) -> None:
        """One more worker, for the next `start`."""
        self._seats[worker.name] = _Seat(worker)

    def run(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Each job's end, as it comes. Call after `start`. ids must differ."""
        self._pending = deque(jobs)
        if len({job.id for job in self._pending}) != len(self._pending):
            raise ValueError("jobs need different ids")
        while True:
            yield from self._hopeless()
            self._deal()
            if not self._pending and not any(seat.hand for seat in self._seats.values()):
                return
            if not any(seat.alive for seat in self._seats.values()):
                continue  # the next _hopeless ends every job
            seat, start, message = self._inbox.get()
            if start == seat.starts:
                yield from self._ended(seat) if message is None else self._answered(seat, message)

    def _begin(self, seat: _Seat) -> None:
        seat.starts = number = seat.starts + 1  # what an earlier process of this worker still says is nobody's
        seat.worker.start(lambda _worker, message: self._inbox.put((seat, number, message)))
        seat.alive = True
        seat.worker.send(wire.request("describe", "describe"))

    def _leave(self, seat: _Seat) -> None:
        seat.alive = False
        seat.worker.close(at_once=True)

    def _answered(self, seat: _Seat, message: dict[str, Any]) -> Iterator[Outcome]:
        held = seat.hand.get(str(message.get("id")))
        if held is None:  # a description after a new start, or an answer to something that nobody asked
            if message.get("kind") == "error" and message.get("id") is None:
                self._on_note(f"worker {seat.worker.name}: {message['error']['message']}")
            return
        job, begun, _ = held
        if message["kind"] == "event":
            held[2] = True
            self._on_event(seat.worker.name, job.id, message["event"], message["data"])
        elif message["kind"] in wire.FINAL:
            del seat.hand[job.id]
            seat.deaths = 0
            yield Outcome(job, message, seat.worker.name, round(time.monotonic() - begun, 3))

    def _ended(self, seat: _Seat) -> Iterator[Outcome]:
        """A worker has died: what it had begun counts as an attempt, the rest goes back untouched."""
        if not seat.alive:
            return
        words = seat.worker.last_words()
        self._on_note(f"worker {seat.worker.name} {words}")
        seat.alive = False
        seat.deaths += 1
        hand = list(seat.hand.values())
        seat.hand = {}
        seat.tasks.clear()
        begun = {job.id for job, _, started in hand if started} or {job.id for job, _, _ in hand[:1]}
        for job, sent, _ in reversed(hand):
            if job.id in begun:
                # a number, so that two deaths of the same worker are two attempts
                self._died += 1
                self._attempts.setdefault(job.id, set()).add(f"{seat.worker.name}#{self._died}")
            if len(self._attempts.get(job.id, ())) >= ATTEMPTS:
                lost = WorkerLost(f"{ATTEMPTS} workers died of this job, the last one {words}")
                yield Outcome(job, wire.failure(job.id, lost), seat.worker.name, round(time.monotonic() - sent, 3))
            else:
                self._pending.appendleft(job)
        if seat.deaths <= RESTARTS:
            try:
                self._begin(seat)
            except KforgeError as error:
                self._on_note(error.message)

    def _hopeless(self) -> Iterator[Outcome]:
        """Jobs that no living worker may do."""
        living = {name for name, seat in self._seats.items() if seat.alive}
        lost = [job for job in self._pending if not living or (job.place is not None and job.place not in living)]
        for job in lost:
            self._pending.remove(job)
            who = f"worker {job.place}" if job.place else "every worker"
            yield Outcome(job, wire.failure(job.id, WorkerLost(f"{who} is gone")), job.place or "")

    def _deal(self) -> None:
        """One job a seat in turn, until each has what it may hold."""
        seats = [seat for seat in self._seats.values() if seat.alive]
        dealt = True
        while dealt and self._pending:
            dealt = False
            for seat in sorted(seats, key=lambda seat: len(seat.hand)):
                share = -(-(len(self._pending) + sum(len(s.hand) for s in seats)) // len(seats))
                if len(seat.hand) < min(DEPTH, max(1, share)):
                    job = self._choose(seat, seats)
                    if job is not None:
                        self._hand_over(seat, job)
                        dealt = True

    def _choose(self, seat: _Seat, seats: Sequence[_Seat]) -> Job | None:
        """The next job of a task that this judge has, else of one that no other has, else the first it may do."""
        elsewhere = {task for other in seats if other is not seat for task in other.tasks}
        fallback, free = None, None
        for job in self._pending:
            if job.place not in (None, seat.worker.name) or (len(seats) > 1 and self._died_of(job, seat)):
                continue
            if job.task in seat.tasks:
                return job
            if free is None and job.task not in elsewhere:
                free = job
            fallback = fallback or job
        return free or fallback

    def _died_of(self, job: Job, seat: _Seat) -> bool:
        return job.place is None and any(
            name.rpartition("#")[0] == seat.worker.name for name in self._attempts.get(job.id, ())
        )

    def _hand_over(self, seat: _Seat, job: Job) -> None:
        self._pending.remove(job)
        seat.hand[job.id] = [job, time.monotonic(), False]
        if job.task not in seat.tasks:
            seat.tasks.append(job.task)
        seat.worker.send(wire.request(job.id, "evaluate", **job.body))

    def cancel(self) -> None:
        """Call off every job of a `run` that was left, and wait until the workers have nothing in hand."""
        self._pending.clear()
        self._call_off()
        while any(seat.hand for seat in self._seats.values() if seat.alive):
            seat, start, message = self._inbox.get()
            if start != seat.starts:
                continue
            if message is None:
                seat.alive, seat.hand = False, {}
            elif message.get("kind") in wire.FINAL:
                seat.hand.pop(str(message.get("id")), None)

    def _call_off(self) -> None:
        for seat in self._seats.values():
            for number, name in enumerate(seat.hand if seat.alive else ()):
                seat.worker.send(wire.request(f"cancel {number}", "cancel", job=name))

    def close(self) -> None:
        """End the workers; what they have in hand is called off."""
        self._call_off()
        for seat in self._seats.values():
            alive, seat.alive = seat.alive, False
            if alive:
                seat.worker.close(at_once=bool(seat.hand))
            seat.hand = {}
