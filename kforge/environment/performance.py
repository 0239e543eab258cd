"""The performance gate: candidate against baselines on a GPU, noise floor, memory, floor; fields of the report.

Measuring is profiling/timing.py's, words are verdict.py's. What is fast beyond physics, or whose clocks disagree, fires
a detector instead of a verdict.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kforge.environment.detectors import Watch
from kforge.environment.inputs import Case, Plan
from kforge.environment.preparation import Prepared
from kforge.environment.report import Roofline, Samples, Speedup, VariantResult, Verdict
from kforge.environment.verdict import final, headline, verdict_of
from kforge.errors import MissingError

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.profiling.timing import Timing
    from kforge.task import Call
    from kforge.worker import Child, Zygote

QUICK = ("eager", "compile_default")
LADDER = (*QUICK, "compile_reduce_overhead", "compile_max_autotune")
BUDGET_S = {"quick": 0.3, "standard": 1.0, "full": 2.0}  # of interleaved rounds, per variant


def measure(
    prepared: Prepared,
    candidate: Candidate,
    child: Child,
    zygote: Zygote,
    plan: Plan,
    overrides: Mapping[str, Mapping[str, Any]] | None,
    watch: Watch,
) -> dict[str, Any]:
    """Fields of Report: verdict, speedup, times_ms, memory_ratio, roofline, variants, no_room, and words in warnings.

    child: a fresh process in phase run; the timer is made before the candidate's code loads. ChildFailed passes.
    """
    state = prepared.state(0)
    child.load(
        candidate,
        prepared.task.init_call(),
        state.tensors,
        prepared.reference(0).training,
        overrides,
        nonpersistent=[name for name in state.tensors if name not in state.persistent],
        precision=prepared.task.precision,
        timer=True,
    )
    variants: list[VariantResult] = []
    fields: dict[str, Any] = {}
    warnings: list[str] = []
    for variant in sorted({case.variant for case in plan.cases}):
        timing = _time(prepared, child, plan, variant)
        if not timing.believed:  # a busy host disturbs one measurement, not two
            timing = _time(prepared, child, plan, variant)
        ours = timing.best("candidate")
        if ours is None:
            warnings.append(f"variant {variant}: the candidate could not be timed: {timing.skipped}")
            continue
        speedup = _speedup(prepared, zygote, timing, ours.median)
        verdict = verdict_of(speedup)
        if not timing.believed:
            detail = "; ".join(map(str, timing.bounds.values()))
            if timing.lying:
                watch.fire("patched_clock", detail)
            warnings.append(f"variant {variant}: the candidate's times disagree with the judge's clock ({detail})")
            if timing.basis != "replay":  # a replay's times are the judge's own
                verdict = Verdict.UNCLEAR
        samples = tuple(Samples(s.name, s.wrapper, s.ms) for s in timing.samples)
        variants.append(VariantResult(f"variant {variant}", verdict, speedup, samples))
        warnings += [f"variant {variant}: {name} not timed: {why}" for name, why in timing.skipped.items()]
        if not fields:
            fields = _first(prepared, child, timing, variant, watch)
    watch.clear("patched_clock", "below_floor")
    verdict, total = headline(variants)
    degenerate = bool(prepared.facts and prepared.facts.degenerate)
    return fields | {
        "verdict": final(verdict, degenerate),
        "speedup": total,
        "variants": tuple(variants),
        "timing_warnings": tuple(warnings),
    }


def baseline_no_room(prepared: Prepared) -> bool:
    """Whether the faster of eager and compile-default lies within 5 % of the floor; the judge alone measures."""
    from kforge.profiling.roofline import no_room

    floor = prepared.floor(0)
    if floor is None:
        return False
    times = baseline_times(prepared)
    return no_room(times["eager"], times.get("compile_default"), floor)


def baseline_times(prepared: Prepared) -> dict[str, float]:
    """Median milliseconds of eager and compile-default, measured once; a baseline that does not compile is absent."""
    import torch

    from kforge.task import matmul_precision
    from kforge.worker.timer import make_timer

    if not prepared.baseline_ms:
        call = _inputs(prepared, 0)
        timer = make_timer(prepared.device)
        with torch.no_grad(), matmul_precision(prepared.task.precision):
            for name, function in baselines(prepared, QUICK).items():
                for _ in range(3):
                    function(*call.args, **call.kwargs)
                samples = sorted(timer.batch(lambda fn=function: fn(*call.args, **call.kwargs), 20))  # type: ignore[misc]
                prepared.baseline_ms[name] = samples[len(samples) // 2]
    return prepared.baseline_ms


def baselines(prepared: Prepared, names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """Callables by name, compiled once a task. What does not compile is left out and noted in `prepared.notes`."""
    import torch

    from kforge.profiling.baselines import make_baseline
    from kforge.task import matmul_precision

    for name in names:
        if name in prepared.baselines:
            continue
        module = copy.deepcopy(prepared.reference(0))
        function = make_baseline(name, module)
        call = _inputs(prepared, 0)
        try:
            with torch.no_grad(), matmul_precision(prepared.task.precision):
                function(*call.args, **call.kwargs)
        except Exception as error:  # a compiler may raise anything; eager is always there
            if name == "eager":
                raise
            prepared.notes.append(f"baseline {name} does not run: {type(error).__name__}")
            prepared.baselines[name] = None
            continue
        prepared.baselines[name] = function
    return {name: fn for name in names if (fn := prepared.baselines[name]) is not None}


def _time(prepared: Prepared, child: Child, plan: Plan, variant: int) -> Timing:
    from kforge.profiling.timing import time_against
    from kforge.worker import gpu_lock

    call = _inputs(prepared, variant)
    effects = prepared.expected(Case(variant=variant)).effects
    paths = prepared.expected(Case(variant=variant)).input_paths
    names = LADDER if plan.name == "full" else QUICK
    with gpu_lock(prepared.device):
        return time_against(
            child,
            call,
            baselines(prepared, names),
            budget_s=BUDGET_S[plan.name],
            wrappers=("plain",) if plan.name == "quick" else ("plain", "graph"),
            mutated=[paths.index(path) for path in effects.mutated],
            precision=prepared.task.precision.value,
        )


def _inputs(prepared: Prepared, variant: int) -> Call:
    """The task's own inputs, never zeros (up to 13 % too fast), never those of the correctness cases."""
    return prepared.task.make_call(variant, prepared.seed("timing", variant), prepared.device)


def _speedup(prepared: Prepared, zygote: Zygote, timing: Timing, ours_ms: float) -> Speedup | None:
    """Against the fastest baseline, best wrapper over best wrapper."""
    names = {s.name for s in timing.samples} - {"candidate"}
    best = {name: side.median for name in names if (side := timing.best(name)) is not None}
    if not best:
        return None
    fastest = min(best, key=best.__getitem__)
    ratio = timing.ratio(fastest)
    if ratio is None:
        return None
    return Speedup(fastest, ratio.ratio, ratio.ci95, noise(prepared, zygote, ours_ms))


def noise(prepared: Prepared, zygote: Zygote, call_ms: float) -> float:
    """The A/A noise floor for calls of about this length (to a factor of 4), measured once."""
    import math

    from kforge.profiling.timing import measure_noise
    from kforge.worker import gpu_lock

    bucket = round(math.log(max(call_ms, 1e-3), 4))
    if bucket not in prepared.noise:
        folder = prepared.folder / "noise"
        folder.mkdir(parents=True, exist_ok=True)
        with gpu_lock(prepared.device):
            prepared.noise[bucket] = measure_noise(zygote, folder, prepared.device, call_ms=min(4.0**bucket, 10.0))
    return prepared.noise[bucket]


def _first(prepared: Prepared, child: Child, timing: Timing, variant: int, watch: Watch) -> dict[str, Any]:
    """What the report says of the first variant: times, roofline, no room, memory."""
    from kforge.profiling import roofline

    names = {s.name for s in timing.samples}
    times = {name: side.median for name in sorted(names) if (side := timing.best(name)) is not None}
    fields: dict[str, Any] = {"times_ms": times}
    floor = prepared.floor(variant)
    ours = times["candidate"]
    if floor is not None:
        fields["roofline"] = Roofline(floor.bound.value, floor.ms, roofline.achieved(ours, floor), floor.source)
        if "eager" in times and timing.basis == "events":
            fields["no_room"] = roofline.no_room(times["eager"], times.get("compile_default"), floor)
    threshold = _threshold(prepared, variant)
    if threshold is not None and ours < threshold and timing.basis == "events":
        watch.fire("below_floor", f"{ours:.4g} ms is under 0.9 of the data sheet's floor ({threshold:.4g} ms)")
    return fields


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
    call = clone_call(_inputs(prepared, 0))
    module = copy.deepcopy(prepared.reference(0))
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    prepared.task.run(module, call, seed=0)
    torch.cuda.synchronize()
    own = torch.cuda.max_memory_allocated() - before
    return peak_bytes / own if own else None
