"""Puts a Report together from what the gates of one evaluation left behind."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kforge.environment import backward
from kforge.environment.allowlist import operator_category
from kforge.environment.asked import count
from kforge.environment.directed import declared_names, never_launched
from kforge.environment.honesty import keeping
from kforge.environment.report import KernelBuild, Report, Status, Verdict
from kforge.environment.span import judged_sizes
from kforge.environment.target import target_name, versions

if TYPE_CHECKING:
    from kforge.environment.evaluation import Evaluation


def vendor_calls(evaluation: Evaluation) -> tuple[str, ...]:
    """Library calls, as seen while running and as named in the source."""
    result, static = evaluation.result, evaluation.static
    seen = {name for name in (*result.first_ops, *result.ops) if operator_category(name) == "vendor"}
    return tuple(sorted(seen | set(static.vendor_calls if static else ())))


def _launched(evaluation: Evaluation) -> tuple[KernelBuild, ...]:
    """The builds with their launches, where these were counted."""
    counts = evaluation.result.launches
    if not counts:
        return evaluation.builds
    return tuple(
        replace(build, launches=0 if never_launched([build.name], counts) else counts.get(build.name))
        for build in evaluation.builds
    )


def _idle(evaluation: Evaluation) -> list[str]:
    """In words, which kernels no case launched: of these nothing is known, or only that they compile."""
    if not evaluation.result.launches:
        return []
    made = (*evaluation.result.made, *declared_names(evaluation.candidate), *(b.name for b in evaluation.builds))
    idle = never_launched(made, evaluation.result.launches)
    built = {name for name in idle if name not in never_launched([name], [b.name for b in evaluation.builds])}
    unbuilt = [name for name in idle if name not in built]
    lines = [f"never launched: {', '.join(sorted(built))}"] if built else []
    return lines + ([f"never launched and not compiled: {', '.join(unbuilt)}"] if unbuilt else [])


def _counts(evaluation: Evaluation) -> tuple[int, int]:
    """Cases that the plan asks for on this task, and those for which no time was left."""
    left = (*evaluation.unbuilt, *evaluation.result.dropped)
    judged = next((gate for gate in evaluation.gates if gate.name == "correctness"), None)
    if judged is None:  # nothing was run, and the report names no number
        return 0, 0
    if evaluation.plan.name == "quick":
        return len(evaluation.asked) - evaluation.result.inapplicable, len(left)
    inapplicable = evaluation.result.inapplicable
    return count(evaluation.prepared, evaluation.asked, left, inapplicable, judged.passed is True)


def assemble(evaluation: Evaluation, status: Status, seconds: float) -> Report:
    """Everything found, as data."""
    prepared, result, performance = evaluation.prepared, evaluation.result, evaluation.performance
    task, facts, static = prepared.task, prepared.facts, evaluation.static
    not_tested = [
        *result.not_tested,
        *evaluation.notes,
        *evaluation.processes.notes,
        *prepared.notes,
        *evaluation.watch.missing(),
    ]
    not_tested += _idle(evaluation)
    differs = f"from run to run answers differ by up to {result.run_to_run:.3g}"
    warnings_of_runs: tuple[str, ...] = (differs,) if result.run_to_run else ()
    warnings_of_runs += (result.biased,) if result.biased else ()
    warnings_of_runs += (keeping(result.kept),) if result.kept else ()
    if facts is not None and facts.run_to_run:
        warnings_of_runs += (f"the reference itself differs from run to run by up to {facts.run_to_run:.3g}",)
    if facts is not None:
        cases = Counter(case.variant for case in evaluation.asked)
        left = [str(v) for v in facts.variants if v and cases[v] == 1 and not task.gradients]
        plural = "s" if len(left) > 1 else ""
        words = f"more than one case of input variant{plural} {', '.join(left)} (plan {evaluation.plan.name})"
        not_tested += [words] if left else []
        not_tested += facts.skipped
    asked, dropped = _counts(evaluation)
    warnings = (static.warnings if static else ()) + tuple(evaluation.warnings)
    return Report(
        task=task.name,
        candidate=evaluation.candidate.digest,
        status=status,
        verdict=performance.get("verdict", Verdict.UNTIMED),
        plan=evaluation.plan.name,
        target=target_name(prepared.device),
        precision_class=f"fp32 matmul precision {task.precision.value}, {task.tolerance.label}",
        rules=tuple(map(str, task.constraints)),
        gates=tuple(evaluation.gates),
        detectors=tuple(sorted(evaluation.watch.detectors, key=lambda d: not d.fired)),
        builds=_launched(evaluation),
        cases=tuple(result.cases),
        dropped=dropped,
        asked=asked,
        sizes=judged_sizes(prepared.shapes, evaluation.asked, {c.label for c in result.cases if c.passed}),
        error=result.error,
        vendor_calls=vendor_calls(evaluation),
        warnings=warnings + warnings_of_runs + performance.get("timing_warnings", ()),
        not_tested=tuple(dict.fromkeys(not_tested)),
        degenerate=bool(facts and facts.degenerate),
        backward=backward.found(task, result.cases),
        repro=evaluation.repro,
        environment=evaluation.environment | versions() | {"seed": str(prepared.entropy), "arch": evaluation.arch},
        seconds=seconds,
        stages=evaluation.processes.stages | performance.get("stages", {}),
        **{k: v for k, v in performance.items() if k not in ("verdict", "timing_warnings", "stages")},
    )
