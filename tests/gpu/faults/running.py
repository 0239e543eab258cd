"""Profiles a case's twin with every source that the machine has, and asks the case's tool.

On a GPU the launches of all cases are replayed under one ncu: starting it takes longer than what it measures.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
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
AT_ONCE = 6


class Runner:
    """One warm parent and one set of ceilings for all cases. denied: why there are no counters, "" where there are."""

    def __init__(self, folder: Path, device: str | None = None) -> None:
        import torch

        self.folder = folder
        self.on_gpu = torch.cuda.is_available() if device is None else device != "cpu"
        self.device = "cuda:0" if self.on_gpu else "cpu"
        self.zygote = Zygote().start()
        self.denied = ""
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
        wanted = [n for n in names if self.on_gpu or CASES[n].cpu]
        profilers = {(n, twin): self.profiler(n, twin) for n in wanted for twin in (FAULT, GOOD)}
        together = [key for key in profilers if key[0] not in TIMED]
        with ThreadPoolExecutor(AT_ONCE if self.on_gpu else 1) as pool:
            list(pool.map(lambda key: profilers[key].collect(), together))
        for key, profiler in profilers.items():
            if key not in together:
                profiler.collect()
                if profiler.power is not None:
                    from kforge.profiling.reference_times import ReferenceTimes

                    eager = ReferenceTimes(profiler.task, 0, self.device, ("eager",)).energy()
                    profiler.power = replace(profiler.power, baseline_mj=eager)
        if self.on_gpu:
            self._count(profilers)
        return {key: profiler.evidence() for key, profiler in profilers.items()}

    def _count(self, profilers: dict[tuple[str, str], Profiler]) -> None:
        """All written launches in one folder, one ncu over it, and each launch's figures back to its profiler."""
        folder = self.folder / "all" / "tmp" / "launches"
        folder.mkdir(parents=True)
        book: dict[str, list[Any]] = {"launches": [], "buffers": []}
        owners: list[Profiler] = []
        for number, profiler in enumerate(profilers.values()):
            own = profiler.folder / "tmp" / "launches"
            found = json.loads((own / "launches.json").read_text())
            first = len(book["buffers"])
            for i, buffer in enumerate(found["buffers"]):
                book["buffers"].append(buffer)
                if (own / f"{i}.bin").exists():
                    os.link(own / f"{i}.bin", folder / f"{first + i}.bin")
            for row in found["launches"][:1]:
                cubin = folder / f"{number}.cubin"
                shutil.copyfile(row["cubin"], cubin)
                args = [a if a.get("buffer") is None else {"buffer": first + a["buffer"]} for a in row["args"]]
                book["launches"].append(row | {"cubin": str(cubin), "args": args})
                owners.append(profiler)
        (folder / "launches.json").write_text(json.dumps(book))
        try:
            report = ncu.run(folder, self.device, "gh100" if "90" in next(iter(profilers.values())).arch else "", 240.0)
        except Unavailable as error:
            self.denied = f"{error.reason}. {error.remedy}"
            return
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


def fires(name: str, evidence: Evidence) -> Finding | None:
    """What the tool of that name finds, whatever the task's class."""
    tool = next(t for t in tools() if t.name == name)
    if tool.whole is not None:
        return tool.whole(evidence)
    assert tool.kernel is not None
    return next((f for k in evidence.launched if (f := tool.kernel(evidence, k)) is not None), None)
