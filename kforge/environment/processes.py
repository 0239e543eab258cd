"""The processes that one evaluation forks: to build, to judge answers, to time, to look at memory accesses.

On a GPU, where a context takes 0.2 to 0.4 s and the driver makes one after another, they are forked before they are
needed, and a warm judge has those of the next evaluation ready: they start with the evaluation before theirs, while the
compiler works, never while one is timed, in a folder of their own, and hold no candidate code before theirs. What only
reads and compiles a candidate's text has no context.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.environment.standing import limits
from kforge.environment.target import plain_mode, share_emulator
from kforge.errors import ChildFailed, MissingError
from kforge.worker.sandbox import own_folder

if TYPE_CHECKING:
    from kforge.environment.preparation import Prepared
    from kforge.kernel.candidate import Candidate
    from kforge.worker import Child, Zygote

BUILD_S, CALL_S = 120.0, 20.0  # seconds for one request: compiling, one call on the emulator
FRESH_S = 240.0  # older spares are not taken: a process is ended some time after its fork (Limits.life_s)
# A context with one queue for launches instead of eight is there in two thirds of the time (0.15 s on an H200) and gone
# in half of it; where kernels are built and not launched nobody misses the others.
ONE_QUEUE = {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
ROOM_BYTES = 8 << 30  # free GPU memory below which there are no spares: a context takes about half a gigabyte


class Processes:
    """Forks of one candidate. Use as a context manager: what was forked ahead of its use ends with it.

    notes: what could not be had, in words.
    """

    def __init__(self, zygote: Zygote, folder: Path, device: str, rules: Mapping[str, str] | None = None) -> None:
        self.zygote, self.folder, self.device = zygote, folder, device
        self.rules = dict(rules or {})  # of their environment (standing.limits)
        self.notes: list[str] = []
        self.limits, self.born = (BUILD_S, CALL_S), time.monotonic()
        self.ready = False  # whether they were forked before their evaluation began
        self.built = False  # whether somebody has built ahead in their folder
        self.stages: dict[str, float] = {}  # seconds by what was waited for, and by what a process itself took
        self._ahead: dict[str, Child] = {}
        self._stopped: list[Child] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that nobody took, and wait for the end of those that were stopped."""
        collect(self._stopped)
        while self._ahead:
            self._ahead.popitem()[1].close()

    def fork_ahead(self, timing: bool = True, from_text: bool = False) -> None:
        """On a GPU: the processes of build and run gates that are not there yet; returns before they are ready.

        from_text: that of the build gate only compiles.
        """
        if self.device == "cpu":
            return
        forks: dict[str, Callable[[], Child]] = {
            "compile" if from_text else "build": self.compiler if from_text else lambda: self.fork("build"),
            "judged": self.guarded,
            "timed": lambda: self.fork("run", timer=True),
        }
        for purpose, fork in forks.items():
            if purpose not in self._ahead and (timing or purpose != "timed"):
                self._ahead[purpose] = fork()

    def settle(self) -> None:
        """Return when every process forked ahead has its context, or is gone: what comes next wants a quiet GPU."""
        for purpose, child in list(self._ahead.items()):
            try:
                child.in_force()
            except ChildFailed:
                del self._ahead[purpose]
                child.close()

    def afresh(self, folder: Path) -> None:
        """From here on processes in another folder: nothing of those that were there reaches them."""
        self.close()
        self.folder = folder

    def compiling(self) -> AbstractContextManager[Child]:
        """The process of the build gate where it only compiles."""
        return self._used("compile", self.compiler)

    def building(self) -> AbstractContextManager[Child]:
        """The process of the build gate."""
        return self._used("build", lambda: self.fork("build"))

    def judged(self) -> AbstractContextManager[Child]:
        """The process of the correctness gate."""
        return self._used("judged", self.guarded)

    @contextmanager
    def _used(self, purpose: str, fork: Callable[[], Child]) -> Iterator[Child]:
        """Nothing of it runs any more when the block is left; that its context is gone is only waited for before
        something is timed."""
        child = self._ahead.pop(purpose, None) or fork()
        try:
            self.await_start(purpose, child)
            yield child
        finally:
            if self.device == "cpu":
                child.close()
            else:
                child.stop()
                self._stopped.append(child)

    @contextmanager
    def timed(self, ending: list[Child] | None = None) -> Iterator[Child]:
        """The process of the performance gate.

        ending: takes the process after it was told to end, so that nobody waits for the end of its context; `collect`
        it before the next one is timed. None: it has ended when the block is left.
        """
        begin = time.perf_counter()
        collect(self._stopped)
        self.note("wait: ended processes", begin)
        child = self._ahead.pop("timed", None) or self.fork("run")
        done = False
        try:
            self.await_start("timed", child)
            yield child
            done = True
        finally:
            if done and ending is not None:
                child.kill()
                ending.append(child)
            else:
                child.close()

    def await_start(self, purpose: str, child: Child) -> None:
        """Wait until the process is there, and note how long that was and what its context took. ChildFailed passes."""
        begin = time.perf_counter()
        started = child.hello
        self.note(f"wait: {purpose}", begin)
        self.stages[f"context: {purpose}"] = float(started["context_s"])

    def note(self, stage: str, begin: float) -> None:
        """Add the seconds since `begin` on the clock of time.perf_counter to a stage."""
        self.stages[stage] = self.stages.get(stage, 0.0) + time.perf_counter() - begin

    def compiler(self) -> Child:
        """In phase build, without a GPU: where text is compiled and nothing of a candidate's runs."""
        from kforge.worker import Limits

        return self.zygote.fork(self.folder, "cpu", "build", Limits(call_s=BUILD_S), self.rules)

    def fork(self, phase: str, guard: Path | None = None, timer: bool = False) -> Child:
        """One process in this phase. guard: the allocator's library, on a GPU. timer: made before it is asked for."""
        from kforge.worker import Limits

        limits = Limits(call_s=BUILD_S if phase == "build" else CALL_S)
        if self.device != "cpu":
            env = self.rules | (ONE_QUEUE if phase == "build" else {})
            return self.zygote.fork(self.folder, self.device, phase, limits, env, guard=guard, timer=timer)
        mode = {"KFORGE_EMULATOR": plain_mode().text, **self.rules}
        return self.zygote.fork(self.folder, "cpu", phase, limits, mode, share_emulator(self.folder))

    def guarded(self) -> Child:
        """In phase run; on a GPU each allocation stands between guard bands, on the CPU fresh memory has a pattern."""
        from kforge.worker import guard

        library = None
        if self.device != "cpu":
            try:
                library = guard.library()
            except MissingError as missing:
                self.notes.append(f"guard bands: {missing.message}; {missing.hint}")
        return self.fork("run", library)

    def instrumented(self) -> Child:
        """In phase build on the CPU, with what the emulator's instrumented modes need; calls themselves run plain."""
        from kforge.kernel.emulator.mode import Kind
        from kforge.worker import Limits

        readable = share_emulator(self.folder, (Kind.CHECKED, Kind.TRACED))
        mode = {"KFORGE_EMULATOR": "fast"}
        return self.zygote.fork(self.folder, "cpu", "build", Limits(call_s=CALL_S), mode, readable)


def processes_for(prepared: Prepared, zygote: Zygote, key: str) -> Processes:
    """Those of the candidate `key`: the spare ones where they fit, else none yet, in the candidate's own folder.

    A candidate that was here before works in its old folder, where its builds are; what was built ahead of its first
    evaluation moves with it.
    """
    own, rules = prepared.folder / "candidates" / key, limits(prepared.task.constraints)
    if key in prepared.rooms:
        return Processes(zygote, prepared.rooms[key], prepared.device, rules)
    built = (own / "cache").is_dir() and not (own / "cache").is_symlink()
    spare, prepared.spare = prepared.spare, None
    if spare is not None:
        young = time.monotonic() - spare.born < FRESH_S
        fits = spare.limits == (BUILD_S, CALL_S) and spare.rules == rules
        if spare.zygote is zygote and fits and young and (not built or _take_builds(own, spare)):
            spare.built = built
            prepared.rooms[key] = spare.folder
            spare.ready = True
            return spare
        spare.close()
    prepared.rooms[key] = own
    made = Processes(zygote, own, prepared.device, rules)
    made.built = built
    return made


def _take_builds(own: Path, spare: Processes) -> bool:
    """Whether the builds in the candidate's own folder are now in that of the spare processes; else it works where they
    are: a full disk, or whatever a *build* left there (folders too deep, files that nobody may read), costs time only.
    """
    try:
        _copy_builds(own / "cache", own_folder(spare.folder, "cache"))
    except (OSError, RecursionError):
        return False
    except BaseException:
        spare.close()
        raise
    return True


def _copy_builds(source: Path, to: Path) -> None:
    """Folders and files, and nothing else that whoever built there may have left: what a link names is not theirs."""
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _copy_builds(Path(entry.path), own_folder(to, entry.name))
            elif entry.is_file(follow_symlinks=False):
                shutil.copyfile(entry.path, to / entry.name, follow_symlinks=False)


def folder_name(candidate: Candidate, overrides: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Under which a candidate with these constants works: {kernel: {constant: value}}."""
    if not overrides:
        return candidate.digest
    chosen = json.dumps({kernel: dict(values) for kernel, values in overrides.items()}, sort_keys=True, default=str)
    return f"{candidate.digest}-{hashlib.sha256(chosen.encode()).hexdigest()[:8]}"


def collect(ending: list[Child]) -> None:
    """Wait for the end of processes that were told to end, and free what they held."""
    while ending:
        ending.pop().close()


def keep_spare(prepared: Prepared, zygote: Zygote, from_text: bool) -> None:
    """Start the processes of the next evaluation, unless they are there or the GPU's memory is short.

    from_text: as this one, it is likely to need no more built than was built ahead.
    """
    import torch

    if prepared.device == "cpu" or prepared.spare is not None:
        return
    if torch.cuda.mem_get_info(torch.device(prepared.device))[0] < ROOM_BYTES:
        return
    folder = prepared.folder / "candidates" / f"spare-{len(prepared.rooms)}"
    prepared.spare = Processes(zygote, folder, prepared.device, limits(prepared.task.constraints))
    prepared.spare.fork_ahead(from_text=from_text)
