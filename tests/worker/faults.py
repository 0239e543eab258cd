"""A storm of candidates of which a third misbehave: what each does, what must come of it, and what may be left behind.

Used by test_faults.py and, for longer runs and on a GPU, by benchmarks/fault_storm.py.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Child, Limits, Zygote, guard
from kforge.worker.limits import descendants
from tests.patience import PATIENCE_S
from tests.worker.sources import body, candidate


@dataclass(frozen=True)
class Fault:
    """lines: the body of forward, or the module's text where phase is build. outcome: kind of failure, or "right"."""

    outcome: str
    lines: tuple[str, ...]
    limits: Limits = field(default_factory=lambda: Limits(call_s=120))
    phase: str = "run"

    def candidate(self, factor: int) -> Candidate:
        if self.phase == "build":
            return candidate("\n".join(self.lines))
        return body(*self.lines, f"return x * {factor}")


FAULTS = {
    "hang": Fault("timed_out", ("while True: pass",), Limits(call_s=0.4)),
    "sleep": Fault("timed_out", ("import time", "time.sleep(100)"), Limits(call_s=0.4)),
    "segfault": Fault("crashed", ("import ctypes", "ctypes.string_at(8)")),
    "abort": Fault("crashed", ("os.abort()",)),
    "exit code 0": Fault("crashed", ("os._exit(0)",)),
    "memory hog": Fault(
        "crashed",
        ("hold = []", "while True: hold.append(torch.ones(1 << 21))"),
        Limits(call_s=120, memory_bytes=600 << 20),
    ),
    "fork bomb": Fault("crashed", ("import os", "while True: os.fork()"), Limits(call_s=120, processes=12), "build"),
    "daemon": Fault(
        "raised",
        (
            "import os, time",
            "if os.fork() == 0:",
            "    os.setsid()",
            "    time.sleep(1000)",
            "raise ValueError('left')",
        ),
        phase="build",
    ),
    "output flood": Fault("right", ("for i in range(20_000): print('spam' * 20)",), Limits(call_s=120, log_bytes=1000)),
    "closed descriptors": Fault("crashed", ("os.closerange(3, 4096)", "import time", "time.sleep(60)")),
    "corrupted protocol": Fault(
        "protocol",
        ("for fd in range(3, 40):", "    try: os.write(fd, b'{\"ok\": true}\\n')", "    except OSError: pass"),
    ),
    "exception storm": Fault("raised", ("raise RuntimeError('x' * 1_000_000)",)),
    "kill of the parent": Fault("raised", ("os.kill(os.getppid(), 9)",)),
    "signal to all": Fault("raised", ("os.kill(-1, 9)",)),
    "descriptors kept": Fault("right", ("self.kept = [os.memfd_create('x') for _ in range(500)]",)),
    "thread left": Fault(
        "right", ("import threading, time", "threading.Thread(target=time.sleep, args=(100,), daemon=True).start()")
    ),
}

ON_GPU = {
    "illegal access": Fault(
        "crashed",
        ("far = torch.full((4,), 1 << 30, device=x.device)", "torch.empty(4, device=x.device).index_select(0, far)"),
    ),
    "kernel without end": Fault("timed_out", ("torch.cuda._sleep(1 << 62)",), Limits(call_s=1.5)),
    "too much device memory": Fault("raised", ("torch.empty(1 << 44, device=x.device)",)),
    "device memory kept": Fault("right", ("self.kept = [torch.ones(1 << 26, device=x.device) for _ in range(8)]",)),
}
POOLS = 3  # of threads in torch and its libraries, each of as many as there are processors
GPU_MEMORY = 2 << 30  # bytes of the host that a child with a CUDA context may hold
AHEAD = 3  # children forked before their turn on a GPU, where a context takes 0.2 to 0.4 s


@dataclass
class Tally:
    """outcomes: (fault or "none", what came of it) -> how often. wrong: what should not have been, in words."""

    seed: int
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.outcomes.values())


@dataclass(frozen=True)
class Traces:
    """What an evaluation could leave behind in the judge, the warm parent and the machine, each by what it is.

    Not by number: what other tests of this process have left may end meanwhile, and of torch's pools one more thread
    may start whenever an operator first needs it. native: threads that Python has not started; an evaluation that left
    one would leave as many as there were evaluations.
    """

    descriptors: frozenset[tuple[int, int]]  # device and inode behind each
    mappings: frozenset[str]
    threads: frozenset[int | None]
    native: frozenset[int]
    processes: frozenset[int]
    parent: tuple[int, int, tuple[int, ...]]
    folders: frozenset[str]

    @staticmethod
    def of(zygote: Zygote, patience_s: float = PATIENCE_S) -> Traces:
        """What is there now, once processes that are ending have ended, or after `patience_s`."""
        gc.collect()
        facts = zygote.facts()
        deadline = time.monotonic() + patience_s
        while descendants(facts["pid"]) and time.monotonic() < deadline:
            time.sleep(0.02)
        maps = [line for line in Path("/proc/self/maps").read_text().splitlines() if "/memfd:kforge" in line]
        own = frozenset(thread.native_id for thread in threading.enumerate())
        return Traces(
            frozenset(_open_files()),
            frozenset(line.split()[4] for line in maps),
            own,
            frozenset(map(int, os.listdir("/proc/self/task"))) - own,
            frozenset(descendants(facts["pid"])),
            (facts["pid"], facts["threads"], tuple(facts["descriptors"])),
            frozenset(n for n in os.listdir(tempfile.gettempdir()) if n.startswith("kforge-fault")),
        )

    def since(self, before: Traces) -> list[str]:
        """In words, what is there that was not there before."""
        found = {
            name: getattr(self, name) - getattr(before, name)
            for name in ("descriptors", "mappings", "threads", "processes", "folders")
        }
        if len(new := self.native - before.native) > POOLS * (os.cpu_count() or 1):
            found["native threads"] = new
        words = [f"{name}: {sorted(new, key=str)}" for name, new in found.items() if new]
        return words + ([f"the parent: {self.parent}, was {before.parent}"] if self.parent != before.parent else [])


def _open_files() -> Iterator[tuple[int, int]]:
    """What is behind each descriptor of this process."""
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed meanwhile, as that of this very look
            found = os.stat(f"/proc/self/fd/{name}")
            yield found.st_dev, found.st_ino


def faults(device: str) -> dict[str, Fault]:
    """What can go wrong on this device."""
    return FAULTS if device == "cpu" else FAULTS | ON_GPU


@dataclass(frozen=True)
class Turn:
    """One evaluation of a storm, its process forked. fault: a name, or empty for a right candidate."""

    number: int
    fault: str
    factor: int
    child: Child
    box: Path


def storm(
    zygote: Zygote,
    count: int,
    seed: int,
    folder: Path,
    device: str = "cpu",
    tell: Callable[[Tally], object] = lambda tally: None,
) -> Tally:
    """`count` evaluations in random order, a third of them faults; each in a folder of its own below `folder`.

    tell: called after each one.
    """
    rng = random.Random(seed)
    known = faults(device)
    names = [*known] * (count // 3 // len(known) + 1)
    order = [*names[: count // 3], *([""] * (count - count // 3))]
    rng.shuffle(order)
    tally = Tally(seed)
    begin = time.monotonic()
    waiting: deque[Turn] = deque()
    with ExitStack() as stack:
        for number in range(count):
            while len(waiting) < (1 if device == "cpu" else AHEAD) and number + len(waiting) < count:
                at = number + len(waiting)
                turn = _fork(zygote, at, order[at], rng.randrange(2, 100), folder / f"box{at}", device)
                stack.callback(turn.child.close)
                waiting.append(turn)
            turn = waiting.popleft()
            fault = known.get(turn.fault) or Fault("right", ())
            outcome = _judge(turn.child, fault.candidate(turn.factor), turn.factor, turn.box, device)
            tally.outcomes[turn.fault or "none", outcome.partition(":")[0]] += 1
            if outcome != fault.outcome:
                tally.wrong.append(
                    f"evaluation {number} ({turn.fault or 'right'}): {outcome} instead of {fault.outcome}"
                )
            tally.seconds = time.monotonic() - begin
            tell(tally)
    return tally


def _fork(zygote: Zygote, number: int, name: str, factor: int, box: Path, device: str) -> Turn:
    fault = faults(device).get(name) or Fault("right", ())
    limits, library = fault.limits, None
    if device != "cpu":
        limits, library = replace(limits, memory_bytes=max(GPU_MEMORY, limits.memory_bytes)), guard.library()
    return Turn(number, name, factor, zygote.fork(box, device, fault.phase, limits, guard=library), box)


def _one(zygote: Zygote, fault: Fault, factor: int, box: Path) -> str:
    """On the CPU: right, wrong: why, or the kind of failure."""
    child = zygote.fork(box, "cpu", fault.phase, fault.limits)
    return _judge(child, fault.candidate(factor), factor, box, "cpu")


def _judge(child: Child, what: Candidate, factor: int, box: Path, device: str) -> str:
    x = torch.randn(257, device=device)
    try:
        with child:
            child.load(what, Call(), {})
            for _ in range(2):
                outputs = child.call(Call((x,))).outputs
        same = isinstance(outputs, torch.Tensor) and torch.equal(outputs, x * factor)
        return "right" if same else f"wrong: {outputs}"
    except ChildFailed as failure:
        return failure.kind
    finally:
        shutil.rmtree(box)
