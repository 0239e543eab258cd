"""What a worker does with a request: unpack the task, prepare it once, evaluate candidates with one warm parent.

It owns a device's judge for the life of a worker process. The transport is kforge/worker/service.py's.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from kforge import scratch
from kforge.config import parse_arch
from kforge.environment.inputs import PLANS
from kforge.environment.json import to_json
from kforge.environment.target import target_arch, target_name
from kforge.errors import ChildFailed, UsageError, VersionMismatch
from kforge.worker.manifest import differences, manifest
from kforge.worker.parcel import Parcel, parse_candidate
from kforge.worker.service import Emit, Unusable

if TYPE_CHECKING:
    from kforge.environment.preparation import Prepared

TASKS = 3  # judges kept ready
TASK_BYTES = 32 << 30  # of GPU memory for each: expected values take up to 16 GiB
FIELDS = {
    "protocol",
    "id",
    "kind",
    "task",
    "candidate",
    "plan",
    "arch",
    "timing",
    "seed",
    "tolerance",
    "energy",
    "repro",
}


class Judge:
    """Handlers of a worker on one device ("auto", "cpu" or "cuda:N"). Use as a context manager."""

    def __init__(self, device: str = "auto", arch: str | None = None, repro: Path | None = None) -> None:
        from kforge.task import resolve_device
        from kforge.worker import Zygote

        self.zygote = Zygote().start()  # it imports torch while this process does
        self.device = resolve_device(device)
        self.arch = arch or target_arch(self.device)
        self.repro = repro
        self.folder = scratch.make("worker").resolve()
        self._tasks: OrderedDict[str, Prepared] = OrderedDict()
        self._guard, self._building = threading.Lock(), dict[str, threading.Lock]()
        self._manifest = manifest()
        self._room = TASKS if self.device == "cpu" else min(TASKS, max(1, _memory(self.device) // TASK_BYTES))

    def describe(self) -> dict[str, Any]:
        """device, target, arch, how many GPUs this machine has, and the manifest of versions."""
        import torch

        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        target = target_name(self.device)
        return {
            "device": self.device,
            "target": target,
            "arch": self.arch,
            "gpus": gpus,
            "timed": self.device != "cpu",
            "manifest": self._manifest,
        }

    def build(self, body: dict[str, Any]) -> None:
        """Compile the candidate's kernels into its cache, in the sandbox and without the GPU, while another is timed.

        A candidate that compiles when it is imported (load_inline) is constructed too. What its text alone rules out
        is neither compiled nor run: the static gate comes first here as well.
        """
        from kforge.environment.static import check_static
        from kforge.environment.target import reference_facts
        from kforge.worker import Limits

        parcel, candidate = Parcel.parse(body.get("task")), parse_candidate(body.get("candidate"))
        known = self._tasks.get(_key(parcel, body))
        facts = {}
        if known is not None and known.given is not None:  # else its inputs would be drawn beside the judge
            facts = reference_facts(known)
        static = check_static(candidate, **facts)
        if static.rejections or not static.has_kernel:
            return
        folder = self._folder(parcel, body) / "candidates" / candidate.digest
        with self._guard:
            alone = self._building.setdefault(str(folder), threading.Lock())
        with alone:  # the same candidate asked for twice is built once
            if folder.exists():
                return
            with self.zygote.fork(folder, "cpu", "build", Limits(call_s=300.0, life_s=600.0)) as child:
                with contextlib.suppress(ChildFailed):  # the build gate meets the same failure, and says it
                    element = known.given.element if known is not None and known.given is not None else "float"
                    child.resources(candidate, self.arch, element)
                if "load_inline" in candidate.files[candidate.module]:
                    from kforge.task import Call

                    with contextlib.suppress(ChildFailed):
                        child.load(candidate, Call((), {}), {})

    def evaluate(self, body: dict[str, Any], emit: Emit) -> dict[str, Any]:
        """One report. TaskError, UsageError, VersionMismatch for what is asked; never raises for a candidate."""
        from kforge.environment.evaluation import evaluate

        parcel, candidate = self._checked(body)
        prepared = self._prepared(parcel, body)
        repro = Path(str(body["repro"])) if body.get("repro") else self.repro
        try:
            report = evaluate(
                prepared.task,
                candidate,
                body.get("plan") or "standard",
                device=self.device,
                arch=body.get("arch") or self.arch,
                on_event=emit,
                zygote=self.zygote,
                reference=prepared,
                timing=body.get("timing") is not False,
                energy=body.get("energy") is True,
                repro=repro,
            )
        except RuntimeError as error:
            self._refuse_dead(error)
            raise
        return {"report": to_json(report)}

    def _checked(self, body: dict[str, Any]) -> tuple[Parcel, Any]:
        task = body.get("task")
        wanted = task.get("manifest") if isinstance(task, dict) else None
        if wanted is not None:
            if not isinstance(wanted, dict) or not all(isinstance(v, str | None) for v in wanted.values()):
                raise UsageError("task.manifest is not a list of versions", "name -> version, as `describe` answers it")
            if found := differences(self._manifest, wanted):
                raise VersionMismatch("; ".join(found), "install the same versions on both sides")
        if unknown := sorted(set(body) - FIELDS):
            raise UsageError(f"unknown field {unknown[0]!r}", f"fields: {', '.join(sorted(FIELDS))}")
        if body.get("plan") not in (None, *PLANS):
            raise UsageError(f"unknown plan {body['plan']!r}", f"available: {', '.join(PLANS)}")
        if type(body.get("seed")) not in (int, NoneType):
            raise UsageError(f"seed {body['seed']!r}: write an integer")
        if body.get("arch") is not None:
            parse_arch(str(body["arch"]))
        return Parcel.parse(task), parse_candidate(body.get("candidate"))

    def _folder(self, parcel: Parcel, body: dict[str, Any]) -> Path:
        """Where the processes of this task's candidates work."""
        return self.folder / _key(parcel, body)

    def _prepared(self, parcel: Parcel, body: dict[str, Any]) -> Prepared:
        """The judge's side of the task, kept for the next candidates."""
        from kforge.environment.preparation import prepare
        from kforge.task import load_task
        from kforge.task.tolerance import parse_tolerance

        key = _key(parcel, body)
        if key in self._tasks:
            self._tasks.move_to_end(key)
            return self._tasks[key]
        while len(self._tasks) >= self._room:
            self._forget()
        source = self.folder / "tasks" / parcel.digest
        path = parcel.write(source)
        _unload(self.folder / "tasks")
        task = load_task(path)
        if body.get("tolerance"):
            task = replace(task, tolerance=parse_tolerance(body["tolerance"]))
        try:
            prepared = prepare(task, self.device, folder=self._folder(parcel, body), entropy=body.get("seed"))
        except RuntimeError as error:
            self._refuse_dead(error)
            raise
        self._tasks[key] = prepared
        return prepared

    def _forget(self) -> None:
        """Drop the task that was not asked for the longest time, and what was compiled for it."""
        import torch

        _, old = self._tasks.popitem(last=False)
        shutil.rmtree(old.folder, ignore_errors=True)
        if "torch._dynamo" in sys.modules:
            sys.modules["torch._dynamo"].reset()
        if self.device != "cpu":
            torch.cuda.empty_cache()

    def _refuse_dead(self, error: RuntimeError) -> None:
        """After a CUDA error that the judge's own context does not survive, this process can judge nothing more."""
        import torch

        if self.device == "cpu":
            return
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError:
            raise Unusable(f"the GPU context of this worker is gone: {error}") from error

    def close(self) -> None:
        """End the warm parent and its children, remove the working folders."""
        self.zygote.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _memory(device: str) -> int:
    import torch

    return int(torch.cuda.get_device_properties(device).total_memory)


def _key(parcel: Parcel, body: dict[str, Any]) -> str:
    """Tasks with one key share a judge: same sources, tolerance and seed."""
    options = [str(body[name]) for name in ("tolerance", "seed") if body.get(name) is not None]
    return "-".join([parcel.digest, *("".join(c if c.isalnum() else "_" for c in text) for text in options)])


def _unload(root: Path) -> None:
    """Forget modules that an earlier task imported from beside its op.py: another task's may have the same name."""
    own = f"{root}/"
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None)
        if path and path.startswith(own) and not name.startswith("kforge_task_"):
            del sys.modules[name]
