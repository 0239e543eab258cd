"""A storm of candidates of which a third misbehave: what each does, what must come of it, and what may be left behind.

Used by test_faults.py and, for longer runs, by benchmarks/fault_storm.py.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

from kforge.errors import ChildFailed
from kforge.kernel.candidate import Candidate
from kforge.task.call import Call
from kforge.worker import Limits, Zygote
from kforge.worker.limits import descendants
from tests.worker.sources import body, candidate


@dataclass(frozen=True)
class Fault:
    """lines: the body of forward, or the module's text where phase is build. outcome: kind of failure, or "right"."""

    outcome: str
    lines: tuple[str, ...]
    limits: Limits = field(default_factory=lambda: Limits(call_s=15))
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
        Limits(call_s=15, memory_bytes=600 << 20),
    ),
    "fork bomb": Fault("crashed", ("import os", "while True: os.fork()"), Limits(call_s=15, processes=12), "build"),
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
    "output flood": Fault("right", ("for i in range(20_000): print('spam' * 20)",), Limits(call_s=15, log_bytes=1000)),
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
    """What an evaluation could leave behind in the judge, the warm parent and the machine."""

    descriptors: int
    mappings: int
    threads: int
    processes: int
    parent: tuple[int, int, tuple[int, ...]]
    folders: frozenset[str]

    @staticmethod
    def of(zygote: Zygote) -> Traces:
        gc.collect()
        facts = zygote.facts()
        deadline = time.monotonic() + 5
        while descendants(facts["pid"]) and time.monotonic() < deadline:
            time.sleep(0.02)
        maps = Path("/proc/self/maps").read_text().count("/memfd:kforge")
        return Traces(
            len(os.listdir("/proc/self/fd")),
            maps,
            len(os.listdir("/proc/self/task")),
            len(descendants(facts["pid"])),
            (facts["pid"], facts["threads"], tuple(facts["descriptors"])),
            frozenset(n for n in os.listdir(tempfile.gettempdir()) if n.startswith("kforge-fault")),
        )


def storm(zygote: Zygote, count: int, seed: int, folder: Path) -> Tally:
    """`count` evaluations in random order, a third of them faults; each in a folder of its own below `folder`."""
    rng = random.Random(seed)
    names = [*FAULTS] * (count // 3 // len(FAULTS) + 1)
    order = [*names[: count // 3], *([""] * (count - count // 3))]
    rng.shuffle(order)
    tally = Tally(seed)
    begin = time.monotonic()
    for number, name in enumerate(order):
        fault = FAULTS.get(name) or Fault("right", ())
        outcome = _one(zygote, fault, rng.randrange(2, 100), folder / f"box{number}")
        tally.outcomes[name or "none", outcome.partition(":")[0]] += 1
        if outcome != fault.outcome:
            tally.wrong.append(f"evaluation {number} ({name or 'right'}): {outcome} instead of {fault.outcome}")
    tally.seconds = time.monotonic() - begin
    return tally


def _one(zygote: Zygote, fault: Fault, factor: int, box: Path) -> str:
    """right, wrong: why, or the kind of failure."""
    what, x = fault.candidate(factor), torch.randn(257)
    try:
        with zygote.fork(box, "cpu", fault.phase, fault.limits) as child:
            child.load(what, Call(), {})
            for _ in range(2):
                outputs = child.call(Call((x,))).outputs
        same = isinstance(outputs, torch.Tensor) and torch.equal(outputs, x * factor)
        return "right" if same else f"wrong: {outputs}"
    except ChildFailed as failure:
        return failure.kind
    finally:
        shutil.rmtree(box)
