"""What a candidate may use up, and the end of its processes: limits as data, process-tree readings, the kill.

Nothing here trusts the candidate: readings come from /proc, the kill is repeated until the kernel says none is left.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path

_PF_EXITING = 0x4  # of a thread's flags in /proc: include/linux/sched.h


def _memory() -> int:
    """16 GiB, or three quarters of what the machine has: a hog must meet its limit before the machine meets its own."""
    return min(16 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4)


@dataclass(frozen=True)
class Limits:
    """Bounds for one child and its descendants together.

    call_s: seconds for one request; life_s: seconds from fork to kill. memory_bytes: private and shared-memory pages
    (the buffers of the judge included). processes: threads do not count. reply_bytes: one message; output_bytes: all
    tensors of one answer; log_bytes: the part of its output that is kept.
    """

    call_s: float = 30.0
    life_s: float = 600.0
    memory_bytes: int = field(default_factory=_memory)
    processes: int = 64
    reply_bytes: int = 4 << 20
    output_bytes: int = 8 << 30
    log_bytes: int = 64 << 10

    def __post_init__(self) -> None:
        if min(self.call_s, self.life_s, self.memory_bytes, self.processes, self.reply_bytes, self.log_bytes) <= 0:
            raise ValueError(f"limits must be positive: {self}")


def children_of(pid: int) -> list[int]:
    """Direct children of a process, zombies included; empty when it is gone."""
    found: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return found
    for task in tasks:
        try:
            found += [int(p) for p in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
        except OSError:  # the thread ended meanwhile
            continue
    return found


def descendants(pid: int) -> list[int]:
    """Every process below `pid`, parents before children."""
    found: list[int] = []
    todo = children_of(pid)
    while todo:
        found += todo
        todo = [grandchild for child in todo for grandchild in children_of(child)]
    return found


def resident_bytes(pid: int) -> int:
    """RssAnon + RssShmem of a process in bytes (file-backed pages can be dropped and do not count); 0 when gone."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(("RssAnon:", "RssShmem:")):
                total += int(line.split()[1]) << 10
    except OSError:
        return 0
    return total


def processor_seconds(pid: int) -> float:
    """Processor time that everything below a process has taken, and what ended there and was waited for."""
    ticks = 0
    for below in descendants(pid):
        try:
            text = Path(f"/proc/{below}/stat").read_text()
        except OSError:  # it ended meanwhile
            continue
        ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))  # own and of its children, user and system
    return ticks / os.sysconf("SC_CLK_TCK")


def stop_descendants(timeout_s: float = 10.0) -> bool:
    """SIGKILL everything below the calling process until no thread of it will run a program's instruction again.

    The end itself takes longer (a CUDA context is taken down within it): `kill_descendants` waits for that.
    """
    deadline, still = time.monotonic() + timeout_s, False
    while time.monotonic() < deadline:
        below = descendants(os.getpid())
        before, still = still, all(map(_is_ending, below))
        if before and still:  # twice: what was forked just before shows in the second walk
            return True
        _kill_all(below)
        time.sleep(0.0005)
    return False


def _is_ending(pid: int) -> bool:
    """Whether the kernel has begun to take down every thread of a process: none returns to its program."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            fields = Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()
            if fields[0] not in "ZX" and not int(fields[6]) & _PF_EXITING:
                return False
    except OSError:  # gone meanwhile, or a thread of it: the next look tells
        return not os.path.exists(f"/proc/{pid}")
    return True


def _kill_all(pids: list[int]) -> None:
    own_group = os.getpgrp()
    for pid in pids:
        try:
            group = os.getpgid(pid)
            if group != own_group:
                os.killpg(group, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def kill_descendants(timeout_s: float = 10.0) -> int:
    """SIGKILL and reap everything below the calling process, which must be their subreaper; returns how many.

    Process groups go first: the kernel lets no fork escape a signal to its whole group, so a fork bomb ends here,
    while whoever changed its session is met in the walk and, as an orphan, comes back as a child of the caller.
    """
    reaped = 0
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        _kill_all(descendants(os.getpid()))
        try:
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                reaped += 1
        except ChildProcessError:
            return reaped
        time.sleep(0.002)
    return reaped
