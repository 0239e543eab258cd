"""The loop that memory_rows.py and compute_rows.py share: rows of workloads, resumed, sharded, searched, tabulated.

A row is a workload of benchmarks/workloads at one input variant. --out is appended to: one JSON line a row; rows that
it holds are skipped, so that a stopped run goes on; `--part 2/3` is the second of three shards; after --seconds no new
row is begun. A row's search takes --row-seconds and --evaluations at most (60 and 60: what a user waits for): the
engine's candidates in its own order, then the tuning values of the best one's kernels. Refused tries count.

Rows are of four kinds, which the tables report apart: `plain` (kernels alone, at the reference's work), `epilogue` (a
library computes the product, kernels the rest), `rewritten` (the reference's products are not computed as such) and
`degenerate` (the output does not depend on the inputs; never a gain). `--dry` needs no GPU: the first, small variant on
the emulator, compared with eager and not timed; the rows it writes have `dry: true`.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    from benchmarks.row_search import COUNTS, FAILURES, Search, Try, difference, model_of, near, tensors
    from benchmarks.row_why import Budget, lines, why
except ImportError:  # beside a script
    from row_search import COUNTS, FAILURES, Search, Try, difference, model_of, near, tensors  # type: ignore[no-redef]
    from row_why import Budget, lines, why  # type: ignore[no-redef]

__all__ = ["Search", "Try", "difference", "model_of", "near", "tensors"]

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.task import Call, Capture, Task
    from kforge.worker import Zygote
    from kforge.worker.timer import GpuTimer

WORKLOADS = Path(__file__).with_name("workloads")
KINDS = ("plain", "epilogue", "rewritten", "degenerate")
PRODUCTS = re.compile(r"aten\.(mm|addmm|bmm|baddbmm|convolution|_scaled_dot_product\w*|linear|matmul)\.")
LIBRARY = re.compile(r"torch\.(mm|addmm|bmm|baddbmm|matmul|conv\w*|_?scaled\w*|ops\.aten)\b|scaled_dot_product|F\.conv")
THIN = 8  # columns or rows of a product that kernels of ours compute


@dataclass
class Bench:
    """What all rows of a run share. Without a timer it is dry."""

    options: argparse.Namespace
    folder: Path
    device: str = "cpu"
    timer: GpuTimer | None = None
    zygote: Zygote | None = None
    judged: int = 0  # rows so far that the environment judged
    profiles: Budget = field(default_factory=Budget)

    @property
    def dry(self) -> bool:
        return self.timer is None

    def samples(self, fn: Callable[[], Any], iterations: int) -> list[float]:
        """Milliseconds of single calls after a flush, two calls of warming left out; fewer of slow ones."""
        assert self.timer is not None
        for _ in range(2):
            fn()
        first = self.timer.batch(fn, 2)
        return self.timer.batch(fn, max(3, min(iterations, int(60 / max(min(first), 1e-3)))))


Measure = Callable[[Bench, "Task", int], dict[str, Any]]
Profile = Callable[[Bench, "Task", int, "Capture", Try, float | None], dict[str, Any]]


def shapes_of(call: Call) -> list[list[Any]]:
    """[[shape, dtype], ...] of the inputs."""
    return [[list(t.shape), str(t.dtype).removeprefix("torch.")] for t in tensors((call.args, call.kwargs))]


def kind_of(task: Task, captured: Capture, candidate: Candidate | None, device: str) -> str:
    """Which of KINDS a row is."""
    from kforge.task import inspect_task

    if inspect_task(task, device).degenerate:
        return "degenerate"
    if candidate is not None and LIBRARY.search(candidate.files[candidate.module]):
        return "epilogue"
    wide = False
    for node in captured.module.graph.nodes:
        value = node.meta.get("val")
        if PRODUCTS.match(f"{node.target}.") and hasattr(value, "shape"):
            wide |= len(value.shape) > 1 and min(int(n) for n in value.shape[-2:]) > THIN
    return "rewritten" if wide and candidate is not None else "plain"


def judged(bench: Bench, task: Task, best: Try) -> str:
    """The environment's status of a candidate on plan quick, on the task's first variant."""
    from kforge.environment import evaluate, prepare

    prepared = prepare(task, bench.device)
    report = evaluate(
        task,
        best.candidate,
        "quick",
        device=bench.device,
        reference=prepared,
        zygote=bench.zygote,
        timing=False,
        overrides=best.overrides or None,
        repro=None,
    )
    if report.status.value != "verified":
        print(f"{task.name}: {report.status.value}: {report.failure[:400]}", file=sys.stderr)
    bench.judged += 1
    return str(report.status.value)


def begun(bench: Bench, task: Task, variant: int) -> tuple[Call, Any, Capture, dict[str, Any]]:
    """A row's inputs, its reference, the graph of that, and what the row is."""
    from kforge.task import capture

    call, reference = task.make_call(variant, 1, bench.device), task.make_reference(0, bench.device)
    captured = capture(task, variant, bench.device)
    return call, reference, captured, {"workload": task.name, "variant": variant, "inputs": shapes_of(call)}


def dry_row(bench: Bench, task: Task, variant: int, profile: Profile | None = None) -> dict[str, Any]:
    """A row without a GPU: the engine's candidates on the emulator, beside eager; and what `profile` adds."""
    begin = time.perf_counter()
    call, reference, captured, found = begun(bench, task, variant)
    with task.conditions(reference, call):
        expected = reference(*call.args, **call.kwargs)
        search = Search(bench, task, variant, call, reference, captured, near(call, expected))
        search.run()
    best = search.best
    found["dry"] = True
    found["kind"] = kind_of(task, captured, best.candidate if best else None, bench.device)
    found |= search.figures()
    if best is None:
        found |= {"status": "no_candidate", "why": search.why or "no candidate gave eager's values"}
    else:
        found |= {"status": "dry", "kernels": best.kernels, "idea": best.candidate.idea, **best.found}
        found |= profile(bench, task, variant, captured, best, None) if profile is not None else {}
    return found | {"seconds": time.perf_counter() - begin}


def environment(device: str) -> dict[str, str]:
    """Machine, versions and commit."""
    import torch

    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "gpu": torch.cuda.get_device_name(0) if device != "cpu" else "",
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "python": platform.python_version(),
        "commit": git.stdout.strip() if git.returncode == 0 else "not a checkout",
    }


def wanted(options: argparse.Namespace) -> list[str]:
    """The workloads of this run, in order."""
    names = list(dict.fromkeys(options.names or options.list.read_text().split()))
    if missing := [name for name in names if not (WORKLOADS / f"{name}.py").is_file()]:
        raise SystemExit(f"no such workload under {WORKLOADS}: {', '.join(missing)}")
    shard, _, shards = options.part.partition("/")
    return names[int(shard) - 1 :: int(shards)]


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The rows of an earlier run; a torn last line is no row. The last of several for one name and variant counts."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "workload" in row:
            rows[row["workload"], row["variant"]] = row
    return list(rows.values())


def by_kind(rows: list[dict[str, Any]], table: Callable[[list[dict[str, Any]]], None]) -> None:
    """A table for each kind of rows; those of runs before there were kinds are under `plain`."""
    for kind in KINDS:
        own = [r for r in rows if r.get("kind", "plain") == kind]
        if own:
            print(f"-- {kind}")
            table(sorted(own, key=lambda r: (r["workload"], r["variant"])))


def best_columns(row: dict[str, Any]) -> str:
    """The best after so many evaluations, how many there were, and the seconds they took; for a table."""
    found = row.get("best", {})
    times = "/".join("-" if found.get(str(n)) is None else f"{found[str(n)]:.4f}" for n in COUNTS)
    return f"best {times} of {row.get('tries', 0)} in {row.get('search_s', 0):.1f} s"


def profiled(bench: Bench, task: Task, variant: int, captured: Capture, best: Try, ms: float | None) -> dict[str, Any]:
    """{"profile": why the row is slow} with --why, as long as the seconds for profiles last."""
    if not bench.options.why or bench.zygote is None:
        return {}
    if not bench.profiles.allows():
        return {"profile": {"failed": "the seconds for profiles were used up"}}
    folder = bench.folder / f"{task.name}_{variant}_profile"
    found = why(task, variant, captured, best, bench.zygote, folder, bench.device, ms)
    bench.profiles.took(found["seconds"])
    return {"profile": found}


def print_profile(row: dict[str, Any]) -> None:
    """Why a row is slow, under its line, where it was profiled."""
    for line in lines(row["profile"]) if "profile" in row else []:
        print(f"    {line}")


def dry_table(rows: list[dict[str, Any]]) -> None:
    """A line for each row that has no times."""
    for row in rows:
        text = f"{row['workload']:28} {row.get('status', 'failed'):12}"
        if "error" in row:
            text += f" error {row['error']:.1e} {','.join(row['kernels'])[:60]} {row['seconds']:.1f} s"
        print(f"{text} {row.get('why', '')[:80]}")
        print_profile(row)


def run(
    options: argparse.Namespace,
    measure: Measure,
    variants: Callable[[Task], list[int]],
    profile: Profile | None = None,
) -> None:
    """The rows that --out lacks. profile: says of a dry row's best what a profiler sees."""
    import torch

    from kforge.task import load_task

    start = time.perf_counter()
    done = {(r["workload"], r["variant"]) for r in rows_in(options.out)}
    head: dict[str, Any] = {}
    with ExitStack() as held:
        bench = Bench(options, Path(held.enter_context(tempfile.TemporaryDirectory())))
        if not options.dry or profile is not None:
            from kforge.worker import Zygote

            bench.zygote = held.enter_context(Zygote())
        if not options.dry:
            from kforge.profiling import ceilings
            from kforge.worker.timer import GpuTimer

            bench.device = "cuda:0"
            bench.timer = GpuTimer(bench.device)
            head = {"ceilings": ceilings.for_device(bench.device).bandwidth}
        out = held.enter_context(options.out.open("a"))
        out.write(json.dumps({"environment": environment(bench.device), **head}) + "\n")
        held.enter_context(torch.no_grad())
        for name in wanted(options):
            task = load_task(WORKLOADS / f"{name}.py")
            for variant in [0] if options.dry else options.variants or variants(task):
                if (name, variant) in done or variant >= task.n_variants:
                    continue
                if time.perf_counter() - start > options.seconds:
                    return
                bench.profiles.rows += 1
                try:
                    row = dry_row(bench, task, variant, profile) if options.dry else measure(bench, task, variant)
                except FAILURES as error:
                    row = {"workload": name, "variant": variant, "status": "failed", "why": str(error)[:500]}
                    print(f"{name}/{variant}: {type(error).__name__}: {str(error)[:500]}", file=sys.stderr)
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(f"{name}/{variant}: {row.get('seconds', 0):.1f} s", file=sys.stderr, flush=True)
                if not options.dry:
                    torch.cuda.empty_cache()


def parser_of(description: str | None, name: str) -> argparse.ArgumentParser:
    """The options that both have; `name` is that of the list of workloads and of the file."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", type=Path, default=WORKLOADS / f"{name}_bound.txt", help="names, one a line")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / f"{name}_rows.jsonl")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the Kth of N shards of the names")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no row after this long")
    parser.add_argument("--row-seconds", type=float, default=60.0, help="a row's search ends after this long")
    parser.add_argument("--candidates", type=int, default=8, help="how many of the engine's are tried")
    parser.add_argument("--evaluations", type=int, default=60, help="tries a row, those of tuning values included")
    parser.add_argument("--variants", type=int, action="append", help="these input variants alone")
    parser.add_argument("--compile", action="store_true", help="time torch.compile as well")
    parser.add_argument("--judge", type=int, default=0, metavar="N", help="judge the best of the first N rows")
    parser.add_argument("--dry", action="store_true", help="on the emulator, small, not timed")
    parser.add_argument("--table", action="store_true", help="print the table of --out and stop")
    return parser


def main(
    options: argparse.Namespace,
    measure: Measure,
    variants: Callable[[Task], list[int]],
    table: Callable[[list[dict[str, Any]]], None],
    profile: Profile | None = None,
) -> None:
    """Run what is missing and print the tables of all rows in the file."""
    if not options.table:
        run(options, measure, variants, profile)
    rows = rows_in(options.out)
    by_kind([r for r in rows if not r.get("dry")], table)
    by_kind([r for r in rows if r.get("dry")], dry_table)
