"""The performance gate: candidate against baselines on a GPU, confirmation, noise floor, floor; fields of the report.

Measuring is profiling/timing.py's, baselines are ladder.py's, words are verdict.py's. What is fast beyond physics, or
whose clocks disagree, fires a detector instead of a verdict.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kforge.environment.backward import timed_variants
from kforge.environment.detectors import Watch
from kforge.environment.inputs import Case, Plan
from kforge.environment.ladder import (
    QUICK,
    RANKED,
    Tell,
    baseline_no_room,
    baseline_times,
    baselines,
    ranking,
    silent,
    timing_call,
    user_baseline,
)
from kforge.environment.loading import load_candidate
from kforge.environment.preparation import Prepared
from kforge.environment.report import Costs, Roofline, Samples, Speedup, VariantResult, Verdict
from kforge.environment.verdict import confirmed, final, headline, verdict_of
from kforge.errors import MissingError

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.profiling.timing import Effort, Timing
    from kforge.worker import Child, Zygote

__all__ = ["Extras", "Measurement", "baseline_no_room", "baseline_times", "memory_ratio", "noise"]

CONFIRMED = (Verdict.FASTER, Verdict.SLOWER, Verdict.UNCLEAR)  # these are timed again in a fresh process
LADDER_S = 12.0  # to compile and rank the ladder of baselines
_LONGEST_AA_MS = 2.0  # the noise of longer calls is no larger
_NOISE: dict[tuple[str, int], float] = {}  # by device and magnitude of the call: a fact of the machine, not of a task


@dataclass(frozen=True)
class Extras:
    """What the user asks for beside the plan's timing.

    baseline: "package:function" or "file.py:function", called with the task's inputs. context: "script.py:model", see
    context.py. energy: measure energy per call (several seconds).
    """

    baseline: str | None = None
    context: str | None = None
    energy: bool = False


@dataclass
class Measurement:
    """One candidate while it is timed. fork: makes a fresh process in phase build or run, to confirm in. tell: is told
    what takes long. until: a budget's end on the clock, beyond which no baseline is compiled."""

    prepared: Prepared
    candidate: Candidate
    zygote: Zygote
    plan: Plan
    overrides: Mapping[str, Mapping[str, Any]] | None
    watch: Watch
    fork: Callable[[str], Child]
    extras: Extras = Extras()
    tell: Tell = silent
    until: float = math.inf
    provisional: bool = False  # whether the verdict rests on fewer baselines than the plan wants
    warnings: list[str] = field(default_factory=list)
    stages: dict[str, float] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)

    @property
    def quick(self) -> bool:
        return self.plan.name == "quick"

    @property
    def effort(self) -> Effort:
        from kforge.profiling import timing

        efforts = {"quick": timing.QUICK, "full": replace(timing.STANDARD, rounds=20, budget_s=3.0)}
        return efforts.get(self.plan.name, timing.STANDARD)

    def run(self, child: Child) -> dict[str, Any]:
        """Fields of Report: verdict, confirmed, speedup, times_ms, roofline, variants, no_room, costs, context, stages;
        what the GPU was doing under environment, and words under timing_warnings."""
        from kforge.worker import gpu_lock

        with gpu_lock(self.prepared.device):
            self.load(child)
        numbers = timed_variants(self.prepared.task, self.plan)
        results: dict[int, VariantResult] = {}
        rivals: dict[int, tuple[str, ...]] = {}
        for number in numbers:
            found = self.variant(child, number, self.functions(number), main=True)
            if found is not None:
                results[number], rivals[number] = found
        again = {} if self.quick else self.confirm(results, rivals)
        if self.extras.context is not None:
            self.fields["context"] = self.step(self.extras.context)
        variants = tuple((results | again).values())
        self.watch.clear("patched_clock", "below_floor")
        verdict, total = headline(variants)
        degenerate = bool(self.prepared.facts and self.prepared.facts.degenerate)
        return self.fields | {
            "verdict": final(verdict, degenerate),
            "confirmed": not (self.quick or self.provisional) and verdict not in (Verdict.UNTIMED, Verdict.UNCLEAR),
            "speedup": total,
            "variants": variants,
            "stages": self.stages,
            "timing_warnings": tuple(dict.fromkeys(self.warnings)),
        }

    def load(self, child: Child) -> None:
        """The candidate into a fresh process, whose timer is made and calibrated before that. ChildFailed passes."""
        begin = time.perf_counter()
        child.in_force()  # waits for the process to be there
        self.note({"fork": time.perf_counter() - begin})
        begin = time.perf_counter()
        load_candidate(self.prepared, child, self.candidate, self.overrides, timer=True)
        self.note({"calibration": child.calibration_s, "load": time.perf_counter() - begin - child.calibration_s})

    def note(self, stages: Mapping[str, float]) -> None:
        """Add seconds to the stages of the report."""
        for name, seconds in stages.items():
            self.stages[name] = self.stages.get(name, 0.0) + seconds

    def functions(self, variant: int) -> dict[str, Callable[..., Any]]:
        """The baselines to time: eager and compile-default, the fastest of the ladder, the user's."""
        begin = time.perf_counter()
        names: tuple[str, ...] = QUICK
        if not self.quick and time.monotonic() + LADDER_S > self.until:
            names = tuple(dict.fromkeys((*QUICK, *(n for n, fn in self.prepared.baselines.items() if fn is not None))))
            self.provisional = True
            self.warnings.append(f"no time left in the budget for baselines beyond {', '.join(names)}")
        elif not self.quick:
            names = tuple(dict.fromkeys((*ranking(self.prepared, variant, self.tell)[:RANKED], *QUICK)))
        found = baselines(self.prepared, names, self.tell)
        if self.extras.baseline is not None:
            found |= dict([user_baseline(self.prepared, self.extras.baseline)])
        self.note({"ladder": time.perf_counter() - begin})
        return found

    def variant(
        self, child: Child, number: int, functions: Mapping[str, Callable[..., Any]], main: bool
    ) -> tuple[VariantResult, tuple[str, ...]] | None:
        """The result of one input variant and the two fastest baselines; None where it could not be timed."""
        timing = self.time(child, number, functions, main)
        if timing.lying or not (timing.believed or self.quick):  # a busy host disturbs one measurement, not two
            timing = self.time(child, number, functions, main)
        ours = timing.best("candidate")
        label = f"variant {number}"
        if ours is None:
            self.warnings.append(f"{label}: the candidate could not be timed: {timing.skipped}")
            return None
        self.warnings += [f"{label}: {words}" for words in timing.gpu.warnings]
        self.warnings += [f"{label}: {name} not timed: {why}" for name, why in timing.skipped.items()]
        best = {name: s.median for name in timing.names if (s := timing.best(name)) is not None}
        rivals = tuple(sorted(best.keys() - {"candidate"}, key=best.__getitem__)[:RANKED])
        speedup = self.speedup(timing, rivals, ours.median)
        verdict = self.bounded(child, number, timing, label, verdict_of(speedup))
        samples = tuple(Samples(s.name, s.wrapper, s.ms) for s in timing.samples)
        basis = "graph replay, warm L2" if timing.basis == "replay" else "events, cold L2"
        if main and "times_ms" not in self.fields:
            self.first(child, timing, number, functions)
        return VariantResult(label, verdict, speedup, samples, basis), rivals

    def time(self, child: Child, number: int, functions: Mapping[str, Callable[..., Any]], main: bool) -> Timing:
        from kforge.profiling.timing import time_against
        from kforge.worker import gpu_lock

        begin = time.perf_counter()
        expected = self.prepared.expected(Case(variant=number))
        call = timing_call(self.prepared, number)
        self.note({"inputs": time.perf_counter() - begin})
        with gpu_lock(self.prepared.device):
            timing = time_against(
                child,
                call,
                functions,
                effort=self.effort,
                wrappers=("plain",) if self.quick else ("plain", "graph"),
                mutated=[expected.input_paths.index(path) for path in expected.effects.mutated],
                precision=self.prepared.task.precision.value,
                warm=main and not self.quick,
                captured=self.prepared.replays.setdefault(number, {}) if self.quick else None,
            )
        self.note(timing.stages)
        return timing

    def bounded(self, child: Child, number: int, timing: Timing, label: str, verdict: Verdict) -> Verdict:
        """The verdict that is left where the judge's clock does not bear the candidate's times out."""
        self.watch.clear("side_stream")
        if timing.believed:
            return verdict
        if timing.unseen and timing.basis == "events":
            launched = child.call(timing_call(self.prepared, number)).launches
            words = f"nothing runs on the stream that is timed (two events {timing.empty_ms * 1e3:.2f} us apart)"
            if launched:
                self.watch.fire("side_stream", f"{words}, and yet launched: {', '.join(sorted(launched))}")
            self.warnings.append(f"{label}: {words}")
            return Verdict.UNCLEAR
        detail = "; ".join(map(str, timing.bounds.values()))
        detail += f"; {timing.disturbed}" if timing.disturbed else ""
        if timing.lying:
            self.watch.fire("patched_clock", detail)
        self.warnings.append(f"{label}: the candidate's times disagree with the judge's clock ({detail})")
        return Verdict.UNCLEAR

    def speedup(self, timing: Timing, rivals: tuple[str, ...], ours_ms: float) -> Speedup | None:
        """Against the fastest baseline, best wrapper over best wrapper."""
        ratio = timing.ratio(rivals[0]) if rivals else None
        if ratio is None:
            return None
        begin = time.perf_counter()
        floor = noise(self.prepared, self.zygote, ours_ms, nearest=self.quick)
        self.note({"noise": time.perf_counter() - begin})
        return Speedup(rivals[0], ratio.ratio, ratio.ci95, floor)

    def confirm(
        self, results: Mapping[int, VariantResult], rivals: Mapping[int, tuple[str, ...]]
    ) -> dict[int, VariantResult]:
        """Time what is not SAME again in a fresh process, against the two fastest baselines, before anyone is told."""
        from kforge.worker import gpu_lock

        again: dict[int, VariantResult] = {}
        doubtful = {number: result for number, result in results.items() if result.verdict in CONFIRMED}
        if not doubtful:
            return again
        with self.fork("run") as child:
            with gpu_lock(self.prepared.device):
                self.load(child)
            for number, result in doubtful.items():
                functions = {n: fn for n, fn in self.functions(number).items() if n in rivals[number]}
                found = self.variant(child, number, functions, main=False)
                if found is None:
                    again[number] = replace(result, verdict=Verdict.UNCLEAR)
                else:
                    second = found[0]
                    verdict = confirmed(result.verdict, second.verdict)
                    again[number] = replace(second, verdict=verdict, samples=result.samples + second.samples)
        return again

    def step(self, spec: str) -> Speedup | None:
        """The user's whole step with the reference's module over the same with the candidate's."""
        from kforge.environment.context import time_step
        from kforge.worker import gpu_lock

        begin = time.perf_counter()
        with gpu_lock(self.prepared.device):
            timing, words = time_step(self.prepared, self.candidate, spec, self.fork, self.overrides, self.effort)
        self.warnings += [f"context: {line}" for line in words]
        ours, ratio = timing.best("candidate"), timing.ratio("reference")
        self.note({"context": time.perf_counter() - begin})
        if ours is None or ratio is None:
            return None
        floor = noise(self.prepared, self.zygote, ours.median, nearest=self.quick)
        return Speedup("reference", ratio.ratio, ratio.ci95, floor)

    def first(self, child: Child, timing: Timing, variant: int, functions: Mapping[str, Callable[..., Any]]) -> None:
        """What the report says of the first variant: times, roofline, no room, costs."""
        from kforge.profiling import roofline

        times = {name: side.median for name in timing.names if (side := timing.best(name)) is not None}
        self.fields |= {"times_ms": times, "environment": timing.gpu.as_dict()}
        floor = self.prepared.floor(variant)
        ours = times["candidate"]
        if floor is not None:
            reached = roofline.achieved(ours, floor) if ours > 0 else None
            self.fields["roofline"] = Roofline(floor.bound.value, floor.ms, reached, floor.source)
            if "eager" in times and timing.basis == "events":
                self.fields["no_room"] = roofline.no_room(times["eager"], times.get("compile_default"), floor)
        threshold = _threshold(self.prepared, variant)
        if threshold is not None and ours < threshold and timing.basis == "events":
            words = f"{ours:.4g} ms is under 0.9 of the data sheet's floor ({threshold:.4g} ms)"
            self.watch.fire("below_floor", words)
        amortised = timing.of("candidate", "amortised")
        self.fields["costs"] = Costs(
            amortised_ms=amortised.median if amortised is not None else None,
            first_call_s=timing.first_s,
            call_us=timing.call_us,
            warm_ms={name: s.median for name in timing.names if (s := timing.of(name, "warm")) is not None},
            energy_mj=self.energy(child, timing, variant, functions, times) if self.extras.energy else {},
        )

    def energy(
        self,
        child: Child,
        timing: Timing,
        variant: int,
        functions: Mapping[str, Callable[..., Any]],
        times: Mapping[str, float],
    ) -> dict[str, float]:
        """Millijoules per plain call, candidate and fastest baseline, each over a long steady run."""
        import torch

        from kforge.profiling.energy import counter, energy_per_call
        from kforge.task import matmul_precision
        from kforge.worker import gpu_lock

        read = counter(self.prepared.device)
        if isinstance(read, str):
            self.warnings.append(f"energy: {read}")
            return {}
        rival = min(functions.keys() & times.keys(), key=times.__getitem__)
        call = timing_call(self.prepared, variant)

        def of_judge(calls: int) -> None:
            for _ in range(calls):
                functions[rival](*call.args, **call.kwargs)
            torch.cuda.synchronize(self.prepared.device)

        runs = {"candidate": lambda calls: child.replay(calls, "plain"), rival: of_judge}
        found: dict[str, float] = {}
        with gpu_lock(self.prepared.device), torch.no_grad(), matmul_precision(self.prepared.task.precision):
            for name, run in runs.items():
                plain = timing.of(name)
                energy = energy_per_call(run, max(plain.median if plain else 0.0, 0.005) * 1e-3, read)
                if energy is None:
                    self.warnings.append(f"energy of {name}: the counter did not move")
                else:
                    found[name] = energy.mj
        return found


def noise(prepared: Prepared, zygote: Zygote, call_ms: float, nearest: bool = False) -> float:
    """The A/A noise floor for calls of about this length (to a factor of 4), measured once in this process.

    nearest: take that of the nearest length that was measured, which a provisional verdict can do with.
    """
    from kforge.profiling.timing import measure_noise
    from kforge.worker import gpu_lock

    bucket = round(math.log(max(call_ms, 1e-3), 4))
    known = {length: value for (device, length), value in _NOISE.items() if device == prepared.device}
    if nearest and known:
        return known[min(known, key=lambda length: abs(length - bucket))]
    if bucket not in known:
        folder = prepared.folder / "noise"
        folder.mkdir(parents=True, exist_ok=True)
        with gpu_lock(prepared.device):
            known[bucket] = measure_noise(zygote, folder, prepared.device, call_ms=min(4.0**bucket, _LONGEST_AA_MS))
        _NOISE[prepared.device, bucket] = known[bucket]
    return known[bucket]


def _threshold(prepared: Prepared, variant: int) -> float | None:
    """The time under which physics forbids the work; None where bytes or data sheet are unknown."""
    from kforge.environment.target import target_name
    from kforge.profiling import ceilings, roofline

    cost = prepared.cost(variant)
    if cost is None:
        return None
    try:
        sheet = ceilings.data_sheet(target_name(prepared.device))
    except MissingError:
        return None
    return roofline.hack_threshold(cost, sheet)


def memory_ratio(prepared: Prepared, peak_bytes: int) -> float | None:
    """Peak of torch's allocations in the candidate's call over the eager reference's, on the first variant."""
    import torch

    from kforge.task import clone_call

    if not peak_bytes:
        return None
    call = clone_call(timing_call(prepared, 0))
    module = copy.deepcopy(prepared.reference(0))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    prepared.task.run(module, call, seed=0)
    torch.cuda.synchronize()
    own = torch.cuda.max_memory_allocated() - before
    return peak_bytes / own if own else None
