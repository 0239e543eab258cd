"""How close the engine's kernels come to the floor: python benchmarks/memory_rows.py [--out FILE] [names].

A row is a workload of benchmarks/workloads at one input variant: the large ones, or the only one. Without names those
of --list are run (default benchmarks/workloads/memory_bound.txt). For each row the engine's candidates are tried in
its own order, then the tuning values of the best one's kernels; each try is compared with eager and timed in this
process: single calls after an L2 flush. The best is timed again in turn with the fastest baseline, which gives the
interval, and judged by the environment (plan quick) on the task's first, small variant. Needs a GPU; everything runs
in one process.

--out is appended to: one JSON line a row, rows that it holds are skipped, so that a stopped run goes on; `--part 2/3`
is the second of three shards; after --seconds no new row is begun. `share` is the floor of CONTRACTS 5 over our time,
`best` the time after 1, 5, 15 and 60 tries, `no_room_s` when it was known that a baseline lies within 5 % of the
floor. The table at the end is over all rows in the file (`--table` prints it and runs nothing).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kforge.errors import KforgeError, NoCandidate
from kforge.profiling import roofline, statistics

if TYPE_CHECKING:
    import torch

    from kforge.kernel.candidate import Candidate
    from kforge.task import Call, Task
    from kforge.worker import Zygote
    from kforge.worker.timer import GpuTimer

WORKLOADS = Path(__file__).with_name("workloads")
DEVICE = "cuda:0"
COUNTS = (1, 5, 15, 60)
Constants = dict[str, int | float | bool | str]
Overrides = dict[str, Constants]


@dataclass
class Try:
    """One evaluation: a candidate of the engine with some constants, its time and how far it is from eager."""

    candidate: Candidate
    model: Any
    overrides: Overrides
    ms: float
    error: float
    kernels: list[str]


@dataclass
class Row:
    """One workload at one variant, and what is known about it so far. Times in milliseconds."""

    task: Task
    variant: int
    call: Call
    reference: torch.nn.Module
    limit: roofline.Floor
    begin: float = field(default_factory=time.perf_counter)
    tries: list[Try] = field(default_factory=list)
    baselines: dict[str, Callable[[], Any]] = field(default_factory=dict)
    times: dict[str, float] = field(default_factory=dict)
    no_room_s: float | None = None
    why: str = ""

    @property
    def fastest(self) -> str:
        return min(self.times, key=self.times.__getitem__)


def samples_of(timer: GpuTimer, fn: Callable[[], Any], iterations: int) -> list[float]:
    """Milliseconds of single calls after a flush, two calls of warming left out; fewer of slow ones."""
    for _ in range(2):
        fn()
    first = timer.batch(fn, 2)
    return timer.batch(fn, max(3, min(iterations, int(60 / max(min(first), 1e-3)))))


def tensors(tree: Any) -> list[torch.Tensor]:
    import torch

    return [t for t in torch.utils._pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]


def difference(ours: Any, theirs: Any) -> float:
    """Largest difference over the largest value, on the first and last rows; infinite where NaN or shapes differ.

    Of integers and booleans: the share of elements that differ.
    """
    worst = 0.0
    for a, b in zip(tensors(ours), tensors(theirs), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        for part in (slice(None, 8), slice(-8, None)) if a.dim() else (...,):
            u, v = a[part].double(), b[part].double()
            if not u.numel():
                continue
            if not b.is_floating_point():
                worst = max(worst, float((u != v).double().mean()))
            elif bool((u.isnan() != v.isnan()).any()):
                return float("inf")
            else:
                gap, scale = (u - v).nan_to_num(0, 0, 0).abs().max(), v.nan_to_num(0, 0, 0).abs().max()
                worst = max(worst, float(gap / scale.clamp(min=1e-30)))
    return worst


def model_of(candidate: Candidate, reference: torch.nn.Module, task: Task, folder: Path) -> torch.nn.Module:
    """ModelNew of a candidate of our own engine, imported into this process, with the reference's state."""
    candidate.write(folder)
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{candidate.digest}", folder / candidate.module)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    init = task.init_call()
    model: torch.nn.Module = module.ModelNew(*init.args, **init.kwargs).to(DEVICE)
    model.load_state_dict(reference.state_dict(), strict=False)
    return model.train(reference.training)


def baselines(row: Row, timer: GpuTimer, options: argparse.Namespace) -> None:
    """Eager and, with --compile, torch.compile; each is timed at once, and whether room is left is known with it."""
    import torch

    def add(name: str, fn: Callable[[], Any]) -> None:
        row.baselines[name] = fn
        row.times[name] = statistics.median(samples_of(timer, fn, 11))
        if row.no_room_s is None and row.times[name] <= roofline.NO_ROOM * row.limit.ms:
            row.no_room_s = time.perf_counter() - row.begin

    call = row.call
    add("eager", partial(row.reference, *call.args, **call.kwargs))
    if options.compile:
        torch._dynamo.reset()
        add("compile", partial(torch.compile(row.reference, dynamic=False), *call.args, **call.kwargs))


def configurations(best: Try) -> Iterator[Overrides]:
    """One tuning constant of one of its kernels changed at a time."""
    from kforge.kernel import hooks

    for kernel in hooks.kernels():
        if kernel.name in best.kernels:
            for name, values in kernel.definition.tune.items():
                for value in values:
                    yield {**best.overrides, kernel.name: {**best.overrides.get(kernel.name, {}), name: value}}


def attempt(row: Row, timer: GpuTimer, candidate: Candidate, model: Any, overrides: Overrides, expected: Any) -> bool:
    """Run, compare and time one configuration; what differs from eager, or refuses the call, is only reported."""
    from kforge.kernel import hooks

    call = row.call
    with hooks.overrides(overrides):
        hooks.launched.reset()
        try:
            error = difference(model(*call.args, **call.kwargs), expected)
        except (KforgeError, ValueError, TypeError, RuntimeError) as refusal:
            print(f"{row.task.name}/{row.variant} {candidate.idea}: {str(refusal)[:300]}", file=sys.stderr)
            return False
        kernels = sorted(hooks.launched)
        if error > 0.02:
            print(f"{row.task.name}/{row.variant} {kernels} {overrides}: differs by {error:.2g}", file=sys.stderr)
            return False
        ms = statistics.median(samples_of(timer, partial(model, *call.args, **call.kwargs), 9))
    row.tries.append(Try(candidate, model, overrides, ms, error, kernels))
    return True


def search(row: Row, timer: GpuTimer, folder: Path, options: argparse.Namespace) -> None:
    """The engine's candidates, then tuning values of the best, until the tries or the row's seconds are used up."""
    from kforge.engine import propose
    from kforge.task import capture

    deadline = time.perf_counter() + options.row_seconds
    expected = row.reference(*row.call.args, **row.call.kwargs)
    try:
        proposals = propose(row.task, capture(row.task, row.variant, DEVICE), arch="sm_90a", device=DEVICE)
        for number, candidate in enumerate(proposals):
            if number and (number >= options.candidates or time.perf_counter() > deadline):
                break
            model = model_of(candidate, row.reference, row.task, folder / f"own{row.variant}_{number}")
            attempt(row, timer, candidate, model, {}, expected)
    except NoCandidate as error:
        row.why = error.message
    tried: set[str] = set()
    better = True
    while row.tries and better:
        best = min(row.tries, key=lambda t: t.ms)
        for overrides in configurations(best):
            if time.perf_counter() > deadline or len(row.tries) >= options.evaluations:
                return
            if (key := f"{best.candidate.digest} {sorted(overrides.items())}") not in tried:
                tried.add(key)
                attempt(row, timer, best.candidate, best.model, overrides, expected)
        better = min(row.tries, key=lambda t: t.ms) is not best


def judged(row: Row, best: Try, zygote: Zygote) -> str:
    """The environment's status of the best candidate on the first variant."""
    from kforge.environment import evaluate, prepare

    prepared = prepare(row.task, DEVICE)
    report = evaluate(
        row.task,
        best.candidate,
        "quick",
        device=DEVICE,
        reference=prepared,
        zygote=zygote,
        timing=False,
        overrides=best.overrides or None,
        repro=None,
    )
    if report.status.value != "verified":
        print(f"{row.task.name}: {report.status.value}: {report.failure[:400]}", file=sys.stderr)
    return str(report.status.value)


def record(row: Row, timer: GpuTimer) -> dict[str, Any]:
    """The row's JSON: times, share of the floor, and the interval of the speed-up over the fastest baseline."""
    shapes = [[list(t.shape), str(t.dtype).removeprefix("torch.")] for t in tensors((row.call.args, row.call.kwargs))]
    found: dict[str, Any] = {"workload": row.task.name, "variant": row.variant, "inputs": shapes}
    found |= {"floor_ms": row.limit.ms, "bound": str(row.limit.bound.value), "baseline": row.fastest}
    found |= {f"{name}_ms": ms for name, ms in row.times.items()}
    found |= {"no_room": row.no_room_s is not None, "no_room_s": row.no_room_s}
    if not row.tries:
        return found | {"status": "no_candidate", "why": row.why or "no candidate gave eager's values"}
    best = min(row.tries, key=lambda t: t.ms)
    ours, theirs = run_of(best, row.call), row.baselines[row.fastest]
    rounds = [(samples_of(timer, theirs, 9), samples_of(timer, ours, 9)) for _ in range(3)]
    ratio = statistics.ratio_of_rounds([r[0] for r in rounds], [r[1] for r in rounds])
    ms = statistics.median(statistics.pooled([r[1] for r in rounds]))
    times = [t.ms for t in row.tries]
    found |= {"ms": ms, "share": row.limit.ms / ms, "speedup": ratio.ratio, "interval": ratio.ci95}
    found |= {"kernels": best.kernels, "idea": best.candidate.idea, "constants": best.overrides, "error": best.error}
    found |= {"tries": len(times), "best": {str(n): min(times[:n]) for n in COUNTS if n == 1 or n <= len(times)}}
    others = [[t.ms, row.limit.ms / t.ms, ",".join(t.kernels), t.overrides] for t in row.tries]
    return found | {"samples": [r[1] for r in rounds], "baseline_samples": [r[0] for r in rounds], "all": others}


def run_of(best: Try, call: Call) -> Callable[[], Any]:
    """A call of the best configuration."""
    from kforge.kernel import hooks

    def run() -> Any:
        with hooks.overrides(best.overrides):
            return best.model(*call.args, **call.kwargs)

    return run if best.overrides else partial(best.model, *call.args, **call.kwargs)


def measure(
    task: Task, variant: int, zygote: Zygote, timer: GpuTimer, folder: Path, options: argparse.Namespace
) -> dict[str, Any]:
    """All of one row."""
    from kforge.profiling import ceilings
    from kforge.task import capture, count

    begin = time.perf_counter()
    call = task.make_call(variant, 1, DEVICE)
    reference = task.make_reference(0, DEVICE)
    with task.conditions(reference, call):
        limit = roofline.floor(count(capture(task, variant, DEVICE)), ceilings.for_device(DEVICE))
        row = Row(task, variant, call, reference, limit, begin)
        baselines(row, timer, options)
        search(row, timer, folder, options)
        found = record(row, timer)
    if row.tries and not options.no_judge:
        found["status"] = judged(row, min(row.tries, key=lambda t: t.ms), zygote)
    return found | {"seconds": time.perf_counter() - begin}


def environment() -> dict[str, str]:
    """Machine, versions and commit."""
    import torch

    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "python": platform.python_version(),
        "commit": git.stdout.strip() if git.returncode == 0 else "not a checkout",
    }


def wanted(options: argparse.Namespace) -> list[str]:
    """The workloads of this run, in order."""
    lines = options.list.read_text().split() if not options.names else options.names
    names = list(dict.fromkeys(lines))
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


def table(rows: list[dict[str, Any]]) -> None:
    """A line for each row, then the geometric means."""
    for row in sorted(rows, key=lambda r: (r["workload"], r["variant"])):
        shape = "x".join(map(str, row["inputs"][0][0])) if row.get("inputs") else ""
        head = f"{row['workload'][:26]:26} {shape[:20]:20}"
        if "ms" not in row:
            print(f"{head} {row.get('status', 'failed')}: {row.get('why', '')[:90]}")
            continue
        low, high = row["interval"]
        text = f"{head} {row['ms']:8.4f} ms share {row['share']:.3f} {row['speedup']:6.2f}x [{low:.2f} {high:.2f}]"
        text += f" of {row['baseline']:7} {row.get('status', ''):8}"
        if row["no_room"]:
            text += f" no room ({row['no_room_s']:.1f} s)"
        print(f"{text} {','.join(row['kernels'])[:60]}")
    shares = [r["share"] for r in rows if "ms" in r]
    open_rows = [r["speedup"] for r in rows if "ms" in r and not r["no_room"]]
    if shares:
        low = sum(s < 0.85 for s in shares)
        middle, mean = statistics.median(shares), statistics.geometric_mean(shares)
        print(f"{len(rows)} rows, {len(shares)} with a kernel; share: geomean {mean:.3f} median {middle:.3f}", end="")
        print(f"; {low} under 0.85")
    if open_rows:
        middle, mean = statistics.median(open_rows), statistics.geometric_mean(open_rows)
        print(f"{len(open_rows)} rows with room: over the fastest baseline geomean {mean:.2f} median {middle:.2f}")


def run(options: argparse.Namespace) -> None:
    import torch

    from kforge.profiling import ceilings
    from kforge.task import load_task
    from kforge.worker import Zygote
    from kforge.worker.timer import GpuTimer

    start = time.perf_counter()
    done = {(r["workload"], r["variant"]) for r in rows_in(options.out)}
    timer = GpuTimer(DEVICE)
    folder = tempfile.TemporaryDirectory()
    with folder as scratch, Zygote() as zygote, options.out.open("a") as out:
        head = {"environment": environment(), "ceilings": ceilings.for_device(DEVICE).bandwidth}
        out.write(json.dumps(head) + "\n")
        for name in wanted(options):
            task = load_task(WORKLOADS / f"{name}.py")
            variants = options.variants or list(range(1 if task.n_variants > 1 else 0, task.n_variants))
            for variant in variants:
                if (name, variant) in done or variant >= task.n_variants:
                    continue
                if time.perf_counter() - start > options.seconds:
                    return
                try:
                    row = measure(task, variant, zygote, timer, Path(scratch) / name, options)
                except (KforgeError, RuntimeError, ValueError, TypeError, AssertionError) as error:
                    row = {"workload": name, "variant": variant, "status": "failed", "why": str(error)[:500]}
                    print(f"{name}/{variant}: {type(error).__name__}: {str(error)[:500]}", file=sys.stderr)
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(f"{name}/{variant}: {row.get('seconds', 0):.1f} s", file=sys.stderr, flush=True)
                torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", type=Path, default=WORKLOADS / "memory_bound.txt", help="names, one a line")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "memory_rows.jsonl")
    parser.add_argument("--part", default="1/1", metavar="K/N", help="the Kth of N shards of the names")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no row after this long")
    parser.add_argument("--row-seconds", type=float, default=20.0, help="a row's search ends after this long")
    parser.add_argument("--candidates", type=int, default=5, help="how many of the engine's are tried")
    parser.add_argument("--evaluations", type=int, default=5, help="tries a row, those of tuning values included")
    parser.add_argument("--variants", type=int, action="append", help="these input variants alone")
    parser.add_argument("--compile", action="store_true", help="time torch.compile as well")
    parser.add_argument("--no-judge", action="store_true", help="compare with eager only")
    parser.add_argument("--table", action="store_true", help="print the table of --out and stop")
    options = parser.parse_args()
    if not options.table:
        run(options)
    table(rows_in(options.out))


if __name__ == "__main__":
    main()
