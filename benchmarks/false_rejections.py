"""How often is a right kernel called wrong? Judges correct kernels again and again with fresh seeds.

Run: python benchmarks/false_rejections.py [--count 1000] [--plan standard] [--minutes 60] [--device cpu] [--extras 8]
[--only NAME ...] [--out FILE]. The kernels are those of mutation_score.py (written by hand, and the engine's first
proposals for examples/*), the honest fixtures of tests/redteam, and the engine's first proposals at the small sizes of
benchmarks/workloads. Each evaluation has entropy of its own: seeds, inputs, states and expected values are made anew.
What does not follow from the seeds is kept from a kernel's first evaluation on: captures, derived shapes, builds. An
evaluation meets every required case of the plan and so many of its extras at random, and no memory gate, which finds
what no seed changes. Each row is appended to the .jsonl beside the result, so a run that was cut short goes on; a
result without such a log is counted on from. The result names every rejection with its seed. A row with `mended` says
what was wrong with a kernel that was rejected rightly and is mended since: it is named and counts nowhere.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from kforge.engine import propose  # noqa: E402
from kforge.environment.evaluation import Evaluation  # noqa: E402
from kforge.environment.findings import Refusals  # noqa: E402
from kforge.environment.inputs import Plan  # noqa: E402
from kforge.environment.preparation import Prepared, prepare  # noqa: E402
from kforge.environment.report import Report  # noqa: E402
from kforge.environment.target import target_name, versions  # noqa: E402
from kforge.errors import KforgeError, NoCandidate  # noqa: E402
from kforge.kernel import target_arch  # noqa: E402
from kforge.kernel.candidate import Candidate  # noqa: E402
from kforge.task import Task, capture, load_task  # noqa: E402
from kforge.worker import Zygote  # noqa: E402

BUILDS = ROOT / ".kforge" / "false_rejections"  # of earlier runs too: named by their sources
NONE: dict[str, Any] = {"evaluations": 0, "rejected": [], "by_kernel": {}, "cases": 0}
SETTINGS = "required cases and {} extras at random; no memory gate; built once a kernel, for every form of inputs"


@dataclass
class Kernel:
    """A right kernel, made and prepared when it is first judged."""

    name: str
    task: Callable[[], Task]
    source: Callable[[Task, str], Candidate]
    prepared: Prepared | None = None
    candidate: Candidate | None = None
    plan: Plan | None = None  # the cases that were built
    refusals: Refusals = field(default_factory=Refusals)

    def judge(self, plan: str, extras: int, device: str, zygote: Zygote) -> tuple[Report, int]:
        """One evaluation with fresh seeds. NoCandidate where there is nothing of ours to judge."""
        if self.candidate is None or self.prepared is None:
            task = self.task()
            folder = BUILDS / self.name
            folder.mkdir(parents=True, exist_ok=True)
            self.candidate, self.prepared = self.source(task, device), prepare(task, device, folder=folder)
        fresh = self.prepared.again()
        evaluation = Again(fresh, self.candidate, plan, zygote, self.plan, extras)
        evaluation.refusals = self.refusals
        report = evaluation.run(timing=False)
        self.prepared = fresh.again()  # without its inputs and expected values
        if self.plan is None and report.status.value == "verified":
            built = tuple(case for case in evaluation.asked if case not in evaluation.unbuilt)
            self.plan = replace(evaluation.plan, cases=built)
        return report, fresh.entropy


class Again(Evaluation):
    """Required cases and some extras, with what an earlier evaluation of the same candidate has built, if any."""

    def __init__(
        self, prepared: Prepared, candidate: Candidate, plan: str, zygote: Zygote, built: Plan | None, extras: int
    ) -> None:
        super().__init__(prepared, candidate, plan, None, lambda kind, data: None, zygote, None, Path(".kforge/repro"))
        self.built, self.asked = built is not None, (built or self.plan).cases
        found = [case for case in self.asked if case.extra]
        self.drawn = random.Random(prepared.seed("extras")).sample(found, min(extras, len(found)))

    def order(self) -> tuple[tuple[str, Callable[[], None]], ...]:
        """Without those that no seed changes."""
        return tuple(g for g in super().order() if g[0] != "memory" and not (self.built and g[0] == "build"))

    def correctness(self) -> None:
        """With the extras that were drawn and built."""
        drawn = set(self.drawn) - set(self.unbuilt)
        self.plan = replace(self.plan, cases=tuple(c for c in self.asked if not c.extra or c in drawn))
        super().correctness()


def small(path: Path) -> Task:
    """A task with its own inputs and no further, larger ones."""
    task = load_task(path)
    return replace(task, makers=task.makers[:1])


def first_proposal(task: Task, device: str) -> Candidate:
    """The engine's. NoCandidate where it has none."""
    arch = target_arch(None if device == "cpu" else device)
    return next(iter(propose(task, capture(task, 0, device), arch=arch, device=device)))


def kernels() -> Iterator[Kernel]:
    """All of them, by name."""
    from mutation_score import kernels as mutated

    from tests.redteam.support import HONEST, read, task_file

    def known(candidate: Candidate | None) -> Callable[[Task, str], Candidate]:
        return first_proposal if candidate is None else lambda task, device: candidate

    for name, path, candidate in mutated():
        yield Kernel(name, partial(load_task, path), known(candidate))
    for path in HONEST:
        fixture = read(path)
        yield Kernel(f"honest/{path.stem}", partial(load_task, task_file(fixture.task)), known(fixture.candidate))
    for path in sorted((ROOT / "benchmarks" / "workloads").glob("*.py")):
        yield Kernel(f"workload/{path.stem}", partial(small, path), first_proposal)


def main() -> int:
    """0 when no right kernel was rejected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--plan", default="standard")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--extras", type=int, default=8, help="of the plan's extra cases, in each evaluation")
    parser.add_argument("--only", nargs="*", default=[], help="kernels whose names begin with one of these")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "false-rejections.json")
    options = parser.parse_args()

    chosen = [k for k in kernels() if not options.only or k.name.startswith(tuple(options.only))]
    book = options.out.with_suffix(".jsonl")
    if not book.exists() and options.out.exists():
        book.write_text(json.dumps({"earlier": json.loads(options.out.read_text())}) + "\n")
    lines = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
    earlier = next((line["earlier"] for line in lines if "earlier" in line), NONE)
    mended = [line for line in lines if "mended" in line]
    rows = [line for line in lines if "kernel" in line and "mended" not in line]
    end = time.monotonic() + 60 * options.minutes
    with Zygote() as zygote, book.open("a") as log:

        def note(line: dict[str, Any]) -> None:
            log.write(json.dumps(line) + "\n")
            log.flush()

        spent: dict[str, float] = defaultdict(float)  # seconds by kernel: each has its share, cheap ones more turns
        for earlier_row in rows:
            spent[earlier_row["kernel"]] += earlier_row["seconds"]
        while earlier["evaluations"] + len(rows) < options.count and time.monotonic() < end and chosen:
            kernel, begin = min(chosen, key=lambda k: spent[k.name]), time.monotonic()
            try:
                report, entropy = kernel.judge(options.plan, options.extras, options.device, zygote)
            except (NoCandidate, KforgeError) as error:
                note({"without": kernel.name, "why": error.message})
                print(f"{kernel.name}: {error.message}", flush=True)
                chosen.remove(kernel)
                continue
            spent[kernel.name] += time.monotonic() - begin
            row: dict[str, Any] = {
                "kernel": kernel.name, "plan": options.plan, "status": report.status.value, "cases": len(report.cases),
                "seconds": round(time.monotonic() - begin, 2), "entropy": str(entropy),
            }  # fmt: skip
            if report.status.value != "verified":
                row |= {"failure": report.failure[:500], "repro": report.repro}
            rows.append(row)
            note(row)
            done = earlier["evaluations"] + len(rows)
            print(f"{done} of {options.count}: {kernel.name} {row['status']} {row['seconds']} s", flush=True)
    write(options, earlier, rows, mended)
    return 1 if any(row["status"] != "verified" for row in rows) or earlier["rejected"] else 0


def write(
    options: argparse.Namespace, earlier: dict[str, Any], rows: list[dict[str, Any]], mended: list[dict[str, Any]]
) -> None:
    """The result: counts and every rejection."""
    rejected = earlier["rejected"] + [row for row in rows if row["status"] != "verified"]
    count = earlier["evaluations"] + len(rows)
    result = {
        "benchmark": "false_rejections", "plan": options.plan, "target": target_name(options.device),
        "machine": platform.platform(), "versions": versions(), "evaluations": count, "rejected": rejected,
        "mended_kernels": mended,
        "with_the_whole_plan": earlier["evaluations"], "others": SETTINGS.format(options.extras),
        "by_kernel": dict(Counter(earlier["by_kernel"]) + Counter(row["kernel"] for row in rows)),
        "cases": earlier["cases"] + sum(row["cases"] for row in rows),
    }  # fmt: skip
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(rejected)} of {count} evaluations of right kernels were rejected; written to {options.out}")


if __name__ == "__main__":
    sys.exit(main())
