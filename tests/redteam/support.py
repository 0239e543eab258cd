"""Red-team fixtures as data: what a file's head says, the candidate it makes, its evaluation, and what came out.

A fixture is a module in candidates/ or honest/ (emulator) or gpu/; its head names the task (tests/redteam/tasks or
tests/environment/tasks), the plan, the status expected (several by |), the detector that must fire (if any), and a change
to the task's CUDA source (`old -> new`, \\n for a line's end). A .cu beside it takes the place of the task's source.
`static: off` sends it past the static gate, to show what stands behind it. `call_s`: the limit of one request, where it
is to be met. On a GPU besides: `never`, a verdict that it must not get; `needs`, a detector without which it cannot be
told; `module`, a package without which it cannot run; `memory`, the least memory ratio reported.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kforge.environment import evaluate, evaluation, processes
from kforge.environment.preparation import Prepared, prepare
from kforge.environment.report import Report
from kforge.kernel.candidate import Candidate
from kforge.task import load_task
from kforge.worker import Zygote
from tests.environment.hand_written import SOURCES

HERE = Path(__file__).parent
TASKS = (HERE / "tasks", HERE.parent / "environment" / "tasks")
CHEATS = sorted((HERE / "candidates").glob("*.py"))
HONEST = sorted((HERE / "honest").glob("*.py"))
ON_GPU = sorted((HERE / "gpu").glob("*.py"))


@dataclass(frozen=True)
class Fixture:
    """One file of candidates/ or honest/. statuses: any of them is right. fires: a detector's name, or empty."""

    name: str
    about: str
    task: str
    plan: str
    statuses: tuple[str, ...]
    fires: str
    gated: bool
    call_s: float | None
    never: str
    needs: str
    module: str
    memory: float | None
    candidate: Candidate
    home: str = ""

    @property
    def timed(self) -> bool:
        """Whether its outcome is seen in times, memory or the device's work only."""
        return bool(self.never or self.memory is not None or self.fires in ("patched_clock", "kernel_share"))

    @property
    def missing(self) -> str:
        """The package that this machine lacks for it, or the empty string."""
        return self.module if self.module and importlib.util.find_spec(self.module) is None else ""

    def complaint(self, report: Report) -> str:
        """What is not as expected, in words; empty where all is.

        What is wrong on the emulator must not be right on a GPU, whichever detector names it there.
        """
        fired = {d.name for d in report.detectors if d.fired}
        elsewhere = report.target != "emulator" and self.home != "gpu"
        statuses = self.statuses
        if elsewhere and {"wrong", "hacked", "crashed"} & set(statuses):
            statuses = (*dict.fromkeys((*statuses, "wrong", "hacked", "crashed")),)
        if report.status.value not in statuses:
            return f"{report.status.value} instead of {'|'.join(statuses)}: {' | '.join(_ending(report.failure))}"
        if self.fires and self.fires not in fired and not elsewhere:
            return f"{self.fires} did not fire ({', '.join(sorted(fired)) or 'nothing did'}): {report.failure}"
        if self.never and report.verdict.value == self.never:
            return f"its verdict is {report.verdict.value}: {report.speedup}"
        if self.memory is not None and (report.memory_ratio or 0.0) < self.memory:
            return f"memory ratio {report.memory_ratio}, at least {self.memory} expected"
        if report.status.value == "verified":
            return f"fired: {', '.join(sorted(fired))}" if fired else ""
        return "" if report.failure else "no words for the one who must act on it"


def _ending(failure: str) -> list[str]:
    """What a failure begins with and, of a traceback, its last lines."""
    lines = [line.strip() for line in failure.splitlines()]
    return lines if len(lines) < 6 else [lines[0], *lines[-4:]]


def read(path: Path) -> Fixture:
    """A fixture from its file."""
    text = path.read_text()
    top = text.partition('"""')[0]
    head = {k.strip(): v.strip() for k, _, v in (line[2:].partition(":") for line in top.splitlines())}
    task = head["task"]
    beside = [p for p in (path.with_suffix(".cu"), HERE / "tasks" / f"{task}.cu") if p.exists()]
    cuda = beside[0].read_text() if beside else SOURCES[task][1]
    if "cuda" in head:
        old, _, new = (part.replace("\\n", "\n") for part in head["cuda"].partition("->"))
        old = old.rstrip(" ")
        assert old in cuda, f"{path.name}: {old!r} is not in the CUDA source"
        cuda = cuda.replace(old, new.strip(" "))
    return Fixture(
        name=path.stem,
        about=text.split('"""')[1],
        task=task,
        plan=head["plan"],
        statuses=tuple(head["status"].split("|")),
        fires=head["fires"],
        gated=head.get("static") != "off",
        call_s=float(head["call_s"]) if "call_s" in head else None,
        never=head.get("never", ""),
        needs=head.get("needs", ""),
        module=head.get("module", ""),
        memory=float(head["memory"]) if "memory" in head else None,
        candidate=Candidate(f"{task}_kforge.py", {f"{task}_kforge.py": text, f"{task}_kforge.cu": cuda}),
        home=path.parent.name,
    )


def task_file(name: str) -> Path:
    """op.py of a task by name."""
    return next(folder / f"{name}.py" for folder in TASKS if (folder / f"{name}.py").exists())


class Bench:
    """A warm parent and the judge's side of each task, made once. Use as a context manager.

    seconds: for the extra cases of one plan, where fewer than the plan's own will do.
    """

    def __init__(self, device: str = "cpu", seconds: float | None = None) -> None:
        self.device, self.seconds = device, seconds
        self._prepared: dict[str, Prepared] = {}

    def __enter__(self) -> Bench:
        self._folder = tempfile.TemporaryDirectory(prefix="kforge-redteam-")
        self.root = Path(self._folder.name)
        self.zygote = Zygote().start()
        return self

    def __exit__(self, *error: object) -> None:
        self.zygote.close()
        self._folder.cleanup()

    def judge(self, fixture: Fixture) -> Report:
        """One evaluation; timed where the outcome asks for it."""
        if fixture.task not in self._prepared:
            folder = self.root / fixture.task
            folder.mkdir()
            self._prepared[fixture.task] = prepare(load_task(task_file(fixture.task)), self.device, folder=folder)
        ready = self._prepared[fixture.task]
        with _as_the_head_says(fixture, self.seconds):
            return evaluate(
                ready.task,
                fixture.candidate,
                fixture.plan,
                device=self.device,
                zygote=self.zygote,
                reference=ready,
                timing=fixture.timed,
                repro=self.root / "repro",
            )


@contextmanager
def _as_the_head_says(fixture: Fixture, seconds: float | None) -> Iterator[None]:
    """The static gate's rejections left out, and shorter limits, where a fixture asks for it."""
    check, plan, call_s, build_s = evaluation.check_static, evaluation.plan_for, processes.CALL_S, processes.BUILD_S

    def shorter(*args: Any, **kwargs: Any) -> Any:
        made = plan(*args, **kwargs)
        return replace(made, cpu_seconds=seconds, gpu_seconds=seconds)

    def only_reading(*args: object, **kwargs: object) -> object:
        return replace(check(*args, **kwargs), findings=())  # type: ignore[arg-type]

    if not fixture.gated:
        evaluation.check_static = only_reading  # type: ignore[assignment]
    if seconds is not None:
        evaluation.plan_for = shorter
    if fixture.call_s is not None:
        processes.CALL_S, processes.BUILD_S = fixture.call_s, max(10.0, fixture.call_s)
    try:
        yield
    finally:
        evaluation.check_static, evaluation.plan_for = check, plan
        processes.CALL_S, processes.BUILD_S = call_s, build_s
