"""`kforge bench`: many evaluations. Candidates of one task side by side, a suite of pairs, or a file of jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kforge.cli import options, output, workers
from kforge.cli.bench_batch import Batch, appended, batched
from kforge.cli.bench_suite import parse_part, suite_lines
from kforge.cli.bench_table import Gate, compared, tabled
from kforge.errors import UsageError

Paths = Annotated[list[Path], typer.Argument(metavar="OP.PY CANDIDATE.PY... | DIR | JOBS.JSONL", help="What to judge.")]


@output.command
def bench(
    out: output.Output,
    paths: Paths,
    plan: options.Plan = None,
    device: options.Device = None,
    arch: options.Arch = None,
    worker: workers.Commands = None,
    workers_: workers.Count = None,
    ray: workers.Ray = None,
    each: Annotated[bool, typer.Option("--each", help="Every job on every worker, side by side.")] = False,
    against: Annotated[Path | None, typer.Option("--against", help="Exit 1 if worse than this saved run.")] = None,
    save: Annotated[Path | None, typer.Option("--save", help="Save this run for a later --against.")] = None,
    energy: Annotated[bool, typer.Option("--energy", help="Measure energy per call (seconds more each).")] = False,
    objective: Annotated[str, typer.Option("--objective", help="What is best: speed or energy.")] = "speed",
    results: Annotated[Path | None, typer.Option("--out", help="Append a row a task there (DIR, JOBS.JSONL).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Skip what --out already holds.")] = False,
    part: Annotated[str, typer.Option("--part", help="With DIR --out: one shard of its tasks, as in 2/3.")] = "1/1",
    order: Annotated[str, typer.Option("--order", help="A batch's reports: done (as they come) or job.")] = "done",
    json: options.Json = False,
    events: options.Events = False,
) -> int:
    """Judge many: candidates of one task side by side, a folder of pairs (a suite), or a file of jobs (a batch)."""
    from kforge import config

    settings = options.settings()
    chosen_plan = config.parse_plan(plan) if plan else settings.plan
    chosen_device = config.parse_device(device) if device else settings.device
    chosen_arch = options.parse_arch(arch, settings)
    where = workers.Where(chosen_device, chosen_arch, tuple(worker or ()), workers_, ray)
    gate = Gate(against, save, each, chosen_plan, objective)
    if len(paths) == 1 and paths[0].suffix == ".jsonl":
        if each or against or save:
            raise UsageError("--each, --against and --save are for suites and comparisons", "leave them out")
        if energy or objective != "speed" or part != "1/1":
            words = "--energy, --objective and --part are not for a file of jobs"
            raise UsageError(words, 'a job says "energy": true; split the file for shards')
        return batched(out, paths[0], where, Batch(results, resume, order, chosen_plan, chosen_arch))
    if len(paths) == 1 and paths[0].is_dir() and results:
        if each or against or save:
            raise UsageError("--each, --against and --save go without --out", "leave them out")
        batch = Batch(results, resume, order, chosen_plan, chosen_arch)
        shard = parse_part(part)
        lines = suite_lines(
            paths[0],
            shard,
            chosen_device,
            plan=chosen_plan,
            arch=chosen_arch,
            energy=energy or objective == "energy" or None,
        )
        return appended(out, paths[0], list(lines), where, batch)
    if results or resume or order != "done" or part != "1/1":
        words = "--out, --resume, --order and --part are for a file of jobs, or a folder with --out"
        raise UsageError(words, "give a .jsonl file, or a folder and --out")
    title, items = compared(paths, plan=chosen_plan, arch=chosen_arch, energy=energy or objective == "energy" or None)
    return tabled(out, title, items, where, gate)
