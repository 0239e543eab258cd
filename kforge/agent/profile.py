"""`kforge profile`: a candidate, or the engine's first proposal, through every source and tool of kforge/profiling."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.agent.session import check_names
from kforge.agent.verify import loaded
from kforge.errors import ChildFailed, KforgeError, NoCandidate, UsageError
from kforge.kernel.candidate import Candidate
from kforge.profiling.evidence import SCHEMA, Evidence, Missing, as_json, from_json
from kforge.profiling.feedback import Feedback, Mode, feedback

if TYPE_CHECKING:
    from kforge.profiling.ceilings import Ceilings
    from kforge.store.index import LedgerRow
    from kforge.task import Capture, Task
    from kforge.worker import Zygote

FOLDER = "profiles"  # in the state folder, one file a candidate and target


@dataclass(frozen=True)
class ProfileOptions:
    """What the command line asked for. gpu: whose data sheet stands for an absent one, and whose architecture is built
    for where `arch` names no other. state: the `.kforge` folder."""

    device: str = "auto"
    arch: str | None = None
    variant: int = 0
    counters: bool = True
    baselines: bool = True
    energy: bool = False
    gpu: str | None = None
    mode: Mode = Mode.TOOLS
    state: Path = Path(".kforge")


@dataclass(frozen=True)
class Profiled:
    """evidence, what the tools make of it, the candidate (None where the engine has none), where it was saved."""

    evidence: Evidence
    feedback: Feedback
    candidate: Candidate | None
    saved: Path | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)


def profile(path: Path, module: Path | None, options: ProfileOptions, tell: Callable[[str], None]) -> Profiled:
    """Profile one candidate of the task in `path`. tell: narration. KforgeError where it does not build or run."""
    from kforge import scratch
    from kforge.profiling.ceilings import arch_of
    from kforge.task import capture, resolve_device
    from kforge.worker import Zygote

    check_names(path.absolute(), options.state.absolute())
    begin = time.perf_counter()

    def stages(source: str) -> None:
        tell(f"{time.perf_counter() - begin:.1f} s: {source}")

    zygote = Zygote().start()  # it imports torch while this process does
    try:
        device = resolve_device(options.device)
        if options.gpu is not None and options.arch is None and device == "cpu":  # built for the GPU that is absent
            options = replace(options, arch=arch_of(options.gpu))
        stages("task")
        task = loaded(path, None)
        if not 0 <= options.variant < task.n_variants:
            raise UsageError(f"{path.name} has no variant {options.variant}", f"it has 0 to {task.n_variants - 1}")

        def captured() -> Capture:
            stages("capture")
            return capture(task, options.variant, device)

        candidate, reason = (Candidate.read(module), "") if module is not None else (None, "")
        if candidate is None:  # the engine writes it from the graph
            graph = captured()
            stages("candidate")
            candidate, reason = _proposed(task, graph, options, device)
            captured = lambda: graph  # noqa: E731
        evidence = _evidence(
            task, captured, candidate, reason, options, device, zygote, scratch.make("profile"), tell, stages
        )
    finally:
        zygote.close()
    return _profiled(evidence, candidate, options, begin)


def profile_candidate(
    task: Task,
    captured: Capture,
    candidate: Candidate,
    options: ProfileOptions,
    zygote: Zygote,
    tell: Callable[[str], None],
) -> Profiled:
    """As `profile`, of a candidate of a task that is loaded and captured. options.device: not "auto"."""
    from kforge import scratch

    begin, folder = time.perf_counter(), scratch.make("profile")
    evidence = _evidence(task, lambda: captured, candidate, "", options, options.device, zygote, folder, tell)
    return _profiled(evidence, candidate, options, begin)


def _profiled(evidence: Evidence, candidate: Candidate | None, options: ProfileOptions, begin: float) -> Profiled:
    evidence = replace(evidence, seconds={**evidence.seconds, "all": round(time.perf_counter() - begin, 3)})
    saved = save(evidence, options.state) if candidate is not None else None
    return Profiled(evidence, feedback(evidence, options.mode, ledger(options.state)), candidate, saved)


def summary(task: str, found: Profiled) -> dict[str, Any]:
    """The object of `kforge profile --json`. task: name of op.py."""
    from kforge.profiling.annotate.lines import annotate
    from kforge.profiling.pictures import roof

    evidence, stage = found.evidence, found.evidence.stage
    roofline: dict[str, Any] = {"bound": None, "headroom": None}
    if stage is not None:
        roofline = {
            "bound": stage.kind.value, "headroom": stage.headroom, "headroom_over": stage.fastest or None,
            "headroom_reason": stage.headroom_reason,
            "launch_ms": stage.launch_us / 1e3, "headroom_over_launch": stage.over_launch,
            "floor_ms": stage.floor_us / 1e3, "memory_ms": stage.memory_us / 1e3,
            "compute_ms": stage.compute_us / 1e3, "achieved": stage.achieved, "no_room": stage.no_room,
            "intensity": stage.intensity, "ceilings": stage.ceilings, "source": stage.source,
            "measured": stage.measured, "notes": list(stage.notes),
            "times_ms": {k: v / 1e3 for k, v in {**stage.baselines_us, "candidate": stage.candidate_us}.items() if v},
        }  # fmt: skip
    kernels = [
        {k: v for k, v in as_json(kernel).items() if k not in ("sampled", "access", "sass", "counters")}
        for kernel in evidence.kernels
    ]
    return {
        "task": task,
        "candidate": evidence.candidate if found.candidate else None,
        "target": evidence.target,
        "arch": evidence.arch,
        "roofline": roofline,
        "roof": as_json(roof(evidence)),
        **found.feedback.as_dict(),
        "for_model": found.feedback.for_model(),
        "kernels": kernels,
        "timeline": as_json(evidence.timeline),
        "power": as_json(evidence.power),
        "lines": as_json(annotate(evidence)),
        "missing": as_json(evidence.missing),
        "seconds": dict(evidence.seconds),
        "saved": str(found.saved) if found.saved else None,
    }


def _proposed(task: Task, captured: Capture, options: ProfileOptions, device: str) -> tuple[Candidate | None, str]:
    """The engine's best guess; None with the reason where it has none."""
    from kforge.engine import propose
    from kforge.kernel import target_arch

    if captured.graph_module is None:
        return None, f"the reference cannot be captured: {captured.failure}"
    arch = options.arch or target_arch(None if device == "cpu" else device)
    try:
        graph = captured if options.variant == 0 else _first(task, device)
        return next(iter(propose(task, graph, arch=arch, device=device))), ""
    except NoCandidate as error:
        return None, error.message


def _first(task: Task, device: str) -> Capture:
    """The graph of variant 0, which the engine writes candidates for."""
    from kforge.task import capture

    return capture(task, 0, device)


def _evidence(
    task: Task, captured: Callable[[], Capture], candidate: Candidate | None, reason: str, options: ProfileOptions,
    device: str, zygote: Zygote, folder: Path, tell: Callable[[str], None],
    stages: Callable[[str], None] = lambda _: None,
) -> Evidence:  # fmt: skip
    """captured: the task's graph, which may be made while the candidate's process builds and runs."""
    from kforge.environment.target import share_emulator, target_arch, target_name
    from kforge.kernel.emulator.mode import Kind
    from kforge.profiling.profiler import Profiler
    from kforge.profiling.reference_times import ReferenceTimes
    from kforge.task import count

    stages("ceilings")
    on_gpu = device != "cpu"
    arch = options.arch or target_arch(device)
    limits = _ceilings(options, device, arch, tell)
    own = folder / "candidate"
    shown = candidate or Candidate(f"{task.name}_kforge.py", {})
    profiler = Profiler(
        task, shown, device, arch, target_name(device), limits, None, zygote, own,
        lambda place: share_emulator(place, (Kind.TRACED,)), options.variant,
        options.counters, options.energy, tell=stages, quiet=(quiet := threading.Event()),
    )  # fmt: skip
    pool = ThreadPoolExecutor(1, "profiler")
    try:
        if candidate is None:
            profiler.missing.append(Missing("candidate", reason, "give one: kforge profile op.py candidate.py"))
            collecting = None
        else:
            tell(f"profiling {candidate.module} on {profiler.target}")
            collecting = pool.submit(profiler.collect)
        graph = captured()
        profiler.cost = count(graph) if graph.graph_module is not None else None
        # from here on it compiles in a thread: the user's own code has run
        times = ReferenceTimes(task, options.variant, device) if on_gpu and options.baselines else None
        quiet.set()
        if collecting is not None:
            collecting.result()
        if times is not None:
            stages("baselines")
            profiler.baselines_us = times.measure()
            if profiler.power is not None and profiler.power.mj is not None:
                profiler.power = replace(profiler.power, baseline_mj=times.energy())
            profiler.notes += times.notes
    except ChildFailed as failure:
        raise _told(failure) from failure
    finally:
        quiet.set()  # nobody waits for what failed
        pool.shutdown(wait=False)
    return profiler.evidence()


def _told(failure: ChildFailed) -> KforgeError:
    """A candidate that cannot be profiled, in one line."""
    words = failure.error.get("message") or (failure.text.strip().splitlines() or [""])[-1]
    return KforgeError(": ".join(filter(None, (f"the candidate {failure.ended}", words))), "kforge verify says more")


def _ceilings(options: ProfileOptions, device: str, arch: str, tell: Callable[[str], None]) -> Ceilings:
    from kforge.profiling import ceilings

    if options.gpu is not None:
        return ceilings.data_sheet(options.gpu)
    if device != "cpu":
        if not ceilings.is_cached(device):
            tell("measuring what this GPU can do, once: about 5 s")
        return ceilings.for_device(device)
    return ceilings.sheet_for_arch(arch)


def ledger(state: Path) -> list[LedgerRow]:
    """How each tool's advice has fared in this project; empty where nothing was recorded."""
    from kforge.store.index import Index

    path = state / "index.sqlite"
    if not path.is_file():
        return []
    with Index(path) as index:
        return index.ledger()


def save(evidence: Evidence, state: Path) -> Path:
    """Keep a profile by candidate and target, for `kforge diff` and the IDE. Whole or not at all. StoreError."""
    from kforge.store.faults import storing

    folder = state / FOLDER
    path = folder / f"{evidence.candidate}-{_slug(evidence.target)}.json"
    fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
    with storing(path):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(json.dumps({"schema": SCHEMA, **as_json(evidence)}))
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    return path


def saved(digest: str, state: Path) -> Evidence | None:
    """The profile of a candidate that was kept, of a GPU before the emulator's; None where there is none.

    KforgeError for one that is damaged.
    """
    found: list[Evidence] = []
    for path in sorted((state / FOLDER).glob(f"{digest}-*.json")):
        try:
            data: dict[str, Any] = json.loads(path.read_text())
            if data.get("schema") == SCHEMA:
                found.append(from_json(Evidence, data))
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise KforgeError(f"{path} is damaged", "remove it; kforge profile makes it again") from error
    return min(found, key=lambda e: e.target == "emulator", default=None)


def static_evidence(modules: Sequence[Path], arch: str | None) -> list[Evidence]:
    """What can be said of candidates' kernels without a task: their builds' SASS. None of their Python runs.

    The compiler reads foreign text, so it works in the sandbox. KforgeError where one does not build.
    """
    from kforge import scratch
    from kforge.kernel.build import DEFAULT_ARCH
    from kforge.profiling.builds import static_kernels
    from kforge.worker import Limits, Zygote

    built_for, folder = arch or DEFAULT_ARCH, scratch.make("builds")
    found = []
    with Zygote() as zygote:
        for number, module in enumerate(modules):
            candidate, own = Candidate.read(module), folder / str(number)
            try:
                with zygote.fork(own, "cpu", "build", Limits(call_s=120.0)) as child:
                    rows = child.resources(candidate, built_for)
                kernels = static_kernels(rows, tuple(candidate.files), own)
            except ChildFailed as failure:
                raise _told(failure) from failure
            found.append(Evidence(module.stem, candidate.digest, "", built_for, 0, kernels=kernels))
    return found


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name).strip("-")
