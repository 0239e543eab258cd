"""Where evaluations run, as options of the command line: this machine's GPUs, commands, or a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kforge.cli import output
from kforge.errors import UsageError

if TYPE_CHECKING:
    from kforge.worker.fleet import Fleet
    from kforge.worker.remote import Worker

Commands = Annotated[
    list[str] | None,
    typer.Option("--worker", metavar="COMMAND", help='A worker\'s command, e.g. "ssh box kforge worker". Repeatable.'),
]
Count = Annotated[
    int | None, typer.Option("--workers", min=1, help="At most this many here. [default: each GPU, or half the CPUs]")
]
Ray = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Workers of a Ray cluster: auto, local or host:port.")
]


@dataclass(frozen=True)
class Where:
    """What the command line said of workers."""

    device: str
    arch: str | None = None
    commands: Sequence[str] = ()
    count: int | None = None
    ray: str | None = None

    def __post_init__(self) -> None:
        if self.ray and self.commands:
            raise UsageError("--ray and --worker exclude each other", "start `kforge worker` by one of them")


@contextmanager
def fleet(
    where: Where, jobs: int, on_event: Callable[[str, str, str, dict[str, Any]], None]
) -> Iterator[tuple[Fleet, dict[str, dict[str, Any]]]]:
    """A started fleet for so many jobs, and its workers' descriptions by name."""
    from kforge.worker.fleet import Fleet

    with Fleet(_first(where, jobs), on_event, lambda text: output.narrate(f"note: {text}")) as workers:
        described = workers.start()
        more = [] if where.commands or where.ray else _more(where, jobs, next(iter(described.values())))
        if more:
            for worker in more:
                workers.add(worker)
            described = workers.start()
        for name, description in described.items():
            output.narrate(f"worker {name}: {description['target']}, {description['device']}")
        if not any(description["timed"] for description in described.values()):
            output.narrate("no GPU: candidates are checked on the emulator and not timed")
        yield workers, described


def _first(where: Where, jobs: int) -> Sequence[Worker]:
    """The workers that are named; without any, the one here that says how many GPUs there are."""
    from kforge.worker.remote import RemoteWorker

    if where.ray:
        from kforge.worker.cluster import connect

        return connect(where.ray, where.count, where.arch)
    if where.commands:
        counts: dict[str, int] = {}
        workers = []
        for text in where.commands:
            worker = RemoteWorker.from_text(text)
            counts[text] = counts.get(text, 0) + 1
            worker.name = text if counts[text] == 1 else f"{text} #{counts[text]}"
            workers.append(worker)
        return workers
    return [RemoteWorker.local(where.device, "local", where.arch)]


def _more(where: Where, jobs: int, first: dict[str, Any]) -> list[Worker]:
    """Workers for the other GPUs, where the device was left open; on the emulator for other CPUs."""
    from kforge.worker.remote import RemoteWorker

    if not first["timed"]:
        count = where.count or max(1, (os.cpu_count() or 1) // 2)
        devices = ["cpu"] * count
    elif where.device in ("auto", "cuda"):
        devices = [f"cuda:{index}" for index in range(first["gpus"])]
    else:
        devices = [where.device]
    wanted = min(len(devices), where.count or len(devices), jobs)
    return [RemoteWorker.local(device, f"local {n}", where.arch) for n, device in enumerate(devices[1:wanted], start=2)]
