"""Profiles a case's twin with every source that the machine has, and asks the case's tool.

On a GPU the launches of all cases are replayed under one ncu: starting it takes longer than what it measures.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kforge.profiling.analysis import Finding, tools
from kforge.profiling.ceilings import Ceilings, for_device, sheet_for_arch
from kforge.profiling.evidence import Evidence, as_json
from kforge.profiling.profiler import Profiler
from kforge.profiling.sources import Unavailable, ncu
from kforge.worker import Zygote
from tests.gpu.faults.cases import CASES, FAULT, GOOD, candidate, write_task

if TYPE_CHECKING:
    from kforge.task import Cost, Task

TIMED = ("launch_overhead", "library_bound", "dram_ceiling", "energy")  # these need the GPU alone
AT_ONCE, TIMED_AT_ONCE = 8, 3
LIMIT_S = 60.0  # of one ncu over several cases


class Runner:
    """One warm parent and one set of ceilings for all cases. denied: why there are no counters, "" where there are.

    say: hears what begins. together: how many cases one ncu counts.
    """

    def __init__(self, folder: Path, device: str | None = None, say: Callable[[str], None] = lambda _: None) -> None:
        import torch

        self.folder = folder
        self.on_gpu = torch.cuda.is_available() if device is None else device != "cpu"
        self.device = "cuda:0" if self.on_gpu else "cpu"
        self.zygote = Zygote().start()
        self.denied = ""
        self.say, self.together = say, 10
        self.failures = 0  # runs of ncu
        self.logs: list[str] = []  # ncu's own
        self._ceilings: Ceilings | None = None
        self._tasks: dict[str, tuple[Task, Cost]] = {}

    def task(self, name: str) -> tuple[Task, Cost]:
        """A case's task and what is counted of it."""
        from kforge.task import capture, count, load_task

        if name not in self._tasks:
            task = load_task(write_task(name, self.folder, self.on_gpu))
            self._tasks[name] = task, count(capture(task, 0, self.device))
        return self._tasks[name]

    def profiler(self, name: str, twin: str) -> Profiler:
        """For one twin of a case, not yet started."""
        from kforge.environment.target import share_emulator, target_arch, target_name
        from kforge.kernel.emulator.mode import Kind

        task, cost = self.task(name)
        arch = target_arch(self.device)
        if self._ceilings is None:
            self._ceilings = for_device(self.device) if self.on_gpu else sheet_for_arch(arch)
        own = self.folder / f"{name}-{twin}"
        return Profiler(
            task, candidate(name, twin), self.device, arch, target_name(self.device), self._ceilings,
            cost, self.zygote, own,
            lambda place: share_emulator(place, (Kind.TRACED,)), counters=False,
            energy=name == "energy" and self.on_gpu, timed=name in TIMED,
        )  # fmt: skip

    def evidence(self, name: str, twin: str) -> Evidence:
        """Everything known about one twin of a case, without counters."""
        profiler = self.profiler(name, twin)
        profiler.collect()
        return profiler.evidence()

    def everything(self, names: Sequence[str]) -> dict[tuple[str, str], Evidence]:
        """Both twins of every case that this machine can run, with counters where they are allowed."""
        return {(name, twin): found for name, twins in self.each(names) for twin, found in twins.items()}

    def each(self, names: Sequence[str]) -> Iterator[tuple[str, dict[str, Evidence]]]:
        """The same a case at a time, counted a few cases together. Where ncu gives nothing, `denied` says why."""
        for group in self.groups(names):
            yield from self.group(group).items()

    def groups(self, names: Sequence[str]) -> list[list[str]]:
        """The cases that this machine can run, as they are collected together: what is timed comes first."""
        wanted = [n for n in names if self.on_gpu or CASES[n].cpu]
        plain = [n for n in wanted if n not in TIMED]
        found = [[n for n in wanted if n in TIMED and n != "energy"], [n for n in wanted if n == "energy"]]
        found += [plain[i : i + self.together] for i in range(0, len(plain), self.together)]
        return [group for group in found if group]

    def group(self, names: Sequence[str]) -> dict[str, dict[str, Evidence]]:
        """Both twins of cases that are collected side by side, and counted together."""
        profilers = {(n, twin): self.profiler(n, twin) for n in names for twin in (FAULT, GOOD)}
        self.say(f"collect {', '.join(names)}")
        with ThreadPoolExecutor(self._at_once(names)) as pool:
            list(pool.map(lambda p: p.collect(), profilers.values()))
        self._power(profilers)
        if self.on_gpu and self.failures < 2 and list(names) != ["energy"]:
            self.say(f"ncu over {len(profilers)} launches")
            self._count(profilers)
        return {name: {twin: profilers[name, twin].evidence() for twin in (FAULT, GOOD)} for name in names}

    def _at_once(self, group: Sequence[str]) -> int:
        """How many are collected side by side: what is timed has the GPU alone for that part, energy for all of it."""
        if not self.on_gpu or group[0] == "energy":
            return 1
        return TIMED_AT_ONCE if group[0] in TIMED else AT_ONCE

    def _power(self, profilers: dict[tuple[str, str], Profiler]) -> None:
        """The baseline's energy beside the candidate's."""
        from kforge.profiling.reference_times import ReferenceTimes

        eager: dict[str, float | None] = {}
        for (name, _), profiler in profilers.items():
            if profiler.power is not None and profiler.power.mj is not None:
                if name not in eager:
                    eager[name] = ReferenceTimes(profiler.task, 0, self.device, ("eager",)).energy()
                profiler.power = replace(profiler.power, baseline_mj=eager[name])

    def _count(self, profilers: dict[tuple[str, str], Profiler]) -> None:
        """All written launches in one folder, one ncu over it, and each launch's figures back to its profiler."""
        own = self.folder / f"all-{next(iter(profilers))[0]}"
        folder = own / "tmp" / "launches"
        folder.mkdir(parents=True)
        book: dict[str, list[Any]] = {"launches": [], "buffers": []}
        owners: list[Profiler] = []
        for number, profiler in enumerate(profilers.values()):
            written = profiler.folder / "tmp" / "launches"
            found = json.loads((written / "launches.json").read_text())
            first = len(book["buffers"])
            for i, buffer in enumerate(found["buffers"]):
                book["buffers"].append(buffer)
                if (written / f"{i}.bin").exists():
                    os.link(written / f"{i}.bin", folder / f"{first + i}.bin")
            for row in found["launches"][:1]:
                cubin = folder / f"{number}.cubin"
                shutil.copyfile(row["cubin"], cubin)
                args = [a if a.get("buffer") is None else {"buffer": first + a["buffer"]} for a in row["args"]]
                book["launches"].append(row | {"cubin": str(cubin), "args": args})
                owners.append(profiler)
        (folder / "launches.json").write_text(json.dumps(book))
        scratch = own.with_name(f"{own.name}-profiler")
        try:
            report = ncu.run(folder, scratch, self.device, "gh100" if "90" in owners[0].arch else "", LIMIT_S)
            if len(report.launches) != len(owners):
                raise Unavailable("ncu", f"{len(report.launches)} of {len(owners)} launches were counted")
        except Unavailable as error:
            self.denied, self.failures = f"{error.reason}. {error.remedy}", self.failures + 1
            self.say(self.denied)
            return
        finally:
            self.logs.append(_text(scratch / "log.txt"))
        for profiler, launch in zip(owners, report.launches, strict=True):
            profiler.add_counters(replace(report, launches=(launch,)))

    def keep(self, evidence: Evidence, path: Path) -> None:
        """Record a profile as a fixture, with the hottest samples and without instructions (all are megabytes)."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = as_json(evidence)
        for kernel in data["kernels"]:
            for line in kernel["sass"]["lines"] if kernel["sass"] else ():
                line["code"] = []
            kernel["sampled"] = sorted(kernel["sampled"], key=lambda row: -row["samples"])[:12]
        path.write_text(json.dumps(data, indent=1) + "\n")

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.zygote.close()


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.is_file() else ""


def fires(name: str, evidence: Evidence) -> Finding | None:
    """What the tool of that name finds, whatever the task's class."""
    tool = next(t for t in tools() if t.name == name)
    if tool.whole is not None:
        return tool.whole(evidence)
    assert tool.kernel is not None
    return next((f for k in evidence.launched if (f := tool.kernel(evidence, k)) is not None), None)
