"""Which planted mistakes does a plan catch? Mutates verified kernels and judges the mutants on the emulator.

Run: python benchmarks/mutation_score.py [--cap 3] [--minutes 20] [--plan standard] [--only softmax ...]. The kernels
are those of benchmarks/mutation_kernels, of tests/environment and the engine's first proposals for examples/*. The log
(JSON lines, one a mutant, one file a kernel) lets an interrupted run go on; trials of another state of the judge's
sources are not taken from it without --keep. Several processes may share it, each with kernels of its own (--only,
--part 1/2). --survivors tries again only what a results file says survived, and counts the rest as that file does.
Writes benchmarks/results/mutation-score.json after each kernel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from kforge.engine import propose
from kforge.environment.mutation import Mutant, MutationReport, Trial, score, table
from kforge.environment.mutation.results import Outcome, rows
from kforge.environment.preparation import prepare
from kforge.environment.target import versions
from kforge.errors import KforgeError
from kforge.kernel import target_arch
from kforge.kernel.candidate import Candidate
from kforge.task import Task, capture, load_task
from kforge.worker import Zygote

ROOT = Path(__file__).resolve().parent.parent
RESULT = ROOT / "benchmarks" / "results" / "mutation-score.json"


def kernels() -> Iterator[tuple[str, Path, Candidate | None]]:
    """(name, op.py, candidate); None where the engine is to propose one."""
    folder = ROOT / "benchmarks" / "mutation_kernels"
    for module in sorted(folder.glob("*_kforge.py")):
        source = module.with_suffix(".cu")
        files = {module.name: module.read_text(), source.name: source.read_text()}
        name = module.stem.removesuffix("_kforge")
        yield name, folder / f"{name}.py", Candidate(module.name, files)
    tests = ROOT / "tests" / "environment"
    spec = importlib.util.spec_from_file_location("hand_written", tests / "hand_written.py")
    assert spec is not None and spec.loader is not None
    hand_written = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hand_written)
    for name in hand_written.SOURCES:
        yield f"tests/{name}", tests / "tasks" / f"{name}.py", hand_written.candidate(name)
    for path in sorted((ROOT / "examples").glob("*.py")):
        yield f"engine/{path.stem}", path, None


def proposed(task: Task) -> Candidate:
    """The engine's first proposal."""
    return next(iter(propose(task, capture(task), arch=target_arch(None), device="cpu")))


def run(options: argparse.Namespace) -> tuple[dict[str, MutationReport], dict[str, str]]:
    """Reports by kernel, and the kernels that have none with the reason."""
    reports: dict[str, MutationReport] = {}
    without: dict[str, str] = {}
    end = time.monotonic() + 60 * options.minutes
    part, parts = map(int, options.part.split("/"))
    chosen = [k for k in kernels() if not options.only or k[0] in options.only][part - 1 :: parts]
    again = survivors_of(options.survivors) if options.survivors else None
    with Zygote() as zygote:
        for number, (name, path, candidate) in enumerate(chosen):
            left = end - time.monotonic()
            if left <= 0:
                without[name] = "no time left"
                continue
            try:
                task = load_task(path)
                reports[name] = score(
                    task,
                    candidate or proposed(task),
                    options.plan,
                    prefilter=None if options.no_prefilter else "quick",
                    cap=None if again is not None else options.cap,
                    log=options.log.with_name(f"{options.log.stem}-{name.replace('/', '-')}.jsonl"),
                    reference=prepare(task),
                    zygote=zygote,
                    seconds=1.4 * left / (len(chosen) - number),
                    only=lambda mutant, task=task.name: again is None or change(task, mutant) in again,
                    same_judge=not options.keep,
                    on_trial=show,
                )
            except KforgeError as error:
                without[name] = error.message
                continue
            report = reports[name]
            print(f"== {name}: {share(report.score)} of {len(report.trials)} in {report.seconds:.0f} s", flush=True)
            save(options, reports, without, options.out)
    return reports, without


def change(task: str, mutant: Mutant | Trial) -> tuple[str, ...]:
    """What a mutant is known by from one run to the next, whatever else changes in the candidate."""
    return (task, mutant.operator, mutant.before, mutant.after)


def survivors_of(path: Path) -> set[tuple[str, ...]]:
    """The survivors of a results file."""
    return {(t["task"], t["operator"], t["before"], t["after"]) for t in json.loads(path.read_text())["survivors"]}


def show(trial: Trial) -> None:
    """One line for each trial, and a survivor's change, as soon as it is known."""
    print(f"{trial.task}: {trial.operator}, line {trial.line}: {trial.outcome} in {trial.seconds:.1f} s", flush=True)
    if trial.outcome is Outcome.SURVIVED:
        where = f"{trial.task}: {trial.operator}, line {trial.line}"
        reached = "" if trial.reached is not False else " (line not reached)"
        print(f"{where}, survived{reached}\n  - {trial.before}\n  + {trial.after}", flush=True)


def share(value: float | None) -> str:
    """A score as text."""
    return "nothing counted" if value is None else f"{value:.1%} caught"


def save(options: argparse.Namespace, reports: dict[str, MutationReport], without: dict[str, str], path: Path) -> None:
    """One object: machine, versions, tables, every survivor."""
    trials = [trial for report in reports.values() for trial in report.trials]
    result = {
        "machine": {"host": platform.machine(), "system": platform.system(), "cpus": os.cpu_count()},
        "versions": versions(),
        "plan": options.plan,
        "target": "emulator",
        "cap": options.cap,
        "by_operator": rows(trials, "operator"),
        "by_kernel": [
            rows(r.trials, "task")[-1]
            | {"task": name, "candidate": r.candidate, "made": sum(r.made.values())}
            | {"unlaunched": r.unlaunched, "seconds": r.seconds}
            for name, r in reports.items()
        ],
        "without": without,
        "caught_by": {
            plan: sum(t.by == plan and t.outcome is Outcome.CAUGHT for t in trials) for plan in ("quick", options.plan)
        },
        "survivors": [asdict(t) for t in trials if t.outcome is Outcome.SURVIVED],
        "equivalent": [asdict(t) for t in trials if t.outcome is Outcome.EQUIVALENT],
    }
    if options.survivors:
        result = tried_again(json.loads(options.survivors.read_text()), reports)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")


def tried_again(base: dict[str, Any], reports: dict[str, MutationReport]) -> dict[str, Any]:
    """The results of an earlier run with its survivors as they come out now. Those of a candidate that has changed, and
    does not hold their lines any more, are counted nowhere and named under `gone`."""
    trials = [trial for report in reports.values() for trial in report.trials]
    trials.sort(key=lambda trial: trial.outcome is Outcome.SURVIVED)  # of equal lines the one that survives counts
    now = {change(trial.task, trial): trial for trial in trials}
    home = {report.task: name for name, report in reports.items()}
    result = json.loads(json.dumps(base)) | {"survivors": [], "gone": [], "versions": versions()}
    for old in base["survivors"]:
        trial = now.get((old["task"], old["operator"], old["before"], old["after"]))
        if old["task"] not in home:  # its kernel was not asked for, or has no time: as it was
            result["survivors"].append(old)
            continue
        named = [(row, row["operator"] in (old["operator"], "all")) for row in result["by_operator"]]
        named += [(row, row["task"] == home[old["task"]]) for row in result["by_kernel"]]
        for row in (row for row, its in named if its):
            row["survived"] -= 1
            if trial is not None:
                row[trial.outcome.value] += 1
            counted = row["caught"] + row["survived"]
            row["score"] = row["caught"] / counted if counted else None
        if trial is None:
            result["gone"].append(old)
        elif trial.outcome in (Outcome.SURVIVED, Outcome.EQUIVALENT):
            result["survivors" if trial.outcome is Outcome.SURVIVED else "equivalent"].append(asdict(trial))
        elif trial.outcome is Outcome.CAUGHT:
            result["caught_by"][trial.by] += 1
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", default="standard")
    parser.add_argument("--cap", type=int, default=3, help="mutants per operator and kernel")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--no-prefilter", action="store_true", help="judge every mutant by the full plan")
    parser.add_argument("--only", nargs="*", default=[], help="kernels by name")
    parser.add_argument("--log", type=Path, default=ROOT / ".kforge" / "mutation.jsonl")
    parser.add_argument("--out", type=Path, default=RESULT)
    parser.add_argument("--part", default="1/1", help="of the kernels, such as 2/3: for several processes")
    parser.add_argument("--survivors", type=Path, help="only the mutants that this results file says survived")
    parser.add_argument("--keep", action="store_true", help="take trials from the log whatever judge made them")
    options = parser.parse_args()
    reports, without = run(options)
    trials = [replace(trial, task=name) for name, report in reports.items() for trial in report.trials]
    for field in ("operator", "task"):
        print(f"\nplan {options.plan}, by {field}\n{table(trials, field)}")
    for name, why in without.items():
        print(f"{name}: {why}")
    save(options, reports, without, options.out)


if __name__ == "__main__":
    main()
