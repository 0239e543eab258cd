"""Products, convolutions and attention against the library: python benchmarks/compute_rows.py [--out FILE] [names].

A row is a workload of benchmarks/workloads at its large input variant and its own precision (PRECISION in the file;
strict single precision for products and TF32 for convolutions where it says nothing, as torch does). Timed in this
process, single calls after an L2 flush: eager, torch.compile, torch.compile in channels-last where there is a
convolution, and the engine's first candidates. Beside each time stands the error of that way against float64: the root
mean square over eager's, and whether acceptance (CONTRACTS 4: twice eager's RMS, 1.25 for 16 bits; four times its
largest error) would let it pass, on the workload's own data and on data of one sign. Needs a GPU.

--out is appended to, one JSON line a row, rows that it holds are skipped; after --seconds no new row is begun;
`--table` prints the table of --out and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory_rows import DEVICE, WORKLOADS, environment, model_of, rows_in, samples_of, tensors

from kforge.errors import KforgeError, NoCandidate

if TYPE_CHECKING:
    import torch

    from kforge.kernel.candidate import Candidate
    from kforge.task import Call, Task
    from kforge.worker import Zygote
    from kforge.worker.timer import GpuTimer

Way = Callable[..., Any]


def errors(got: Any, wanted: Any, exact: Any) -> tuple[float, float]:
    """Root mean square and largest error over those of `wanted`, the worse of all outputs; 1e-3 of a unit is free."""
    import torch

    rms, most = 0.0, 0.0
    for mine, base, truth in zip(tensors(got), tensors(wanted), tensors(exact), strict=True):
        if not base.is_floating_point():
            continue
        if mine.shape != base.shape or bool((mine.isnan() != base.isnan()).any()):
            return float("inf"), float("inf")
        a, b = (mine.double() - truth).nan_to_num(0, 0, 0), (base.double() - truth).nan_to_num(0, 0, 0)
        unit = 1e-3 * torch.finfo(base.dtype).eps * truth.nan_to_num(0, 0, 0).abs().max() + 1e-300
        rms = max(rms, float((a.square().mean().sqrt() + unit) / (b.square().mean().sqrt() + unit)))
        most = max(most, float((a.abs().max() + unit) / (b.abs().max() + unit)))
    return rms, most


def double(call: Call) -> Call:
    """The same inputs in float64."""
    import torch

    from kforge.task import Call

    def promote(t: Any) -> Any:
        return t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t

    return Call(*torch.utils._pytree.tree_map(promote, (call.args, call.kwargs)))


def first_of(tree: Any, count: int) -> Any:
    """The first few of a batch, of results and of the inputs that have that batch (the first input's dimension 0)."""
    import torch

    given = tensors(tree)
    size = given[0].shape[0] if given and given[0].dim() else 0

    def part(t: Any) -> Any:
        return t[:count] if isinstance(t, torch.Tensor) and t.dim() and t.shape[0] == size else t

    return torch.utils._pytree.tree_map(part, tree)


def positive(call: Call) -> Call:
    """The same inputs without their signs: sums of one sign, on which tensor cores lose most."""
    import torch

    from kforge.task import Call

    return Call(
        *torch.utils._pytree.tree_map(lambda t: t.abs() if isinstance(t, torch.Tensor) else t, (call.args, call.kwargs))
    )


def ways(
    task: Task, variant: int, reference: torch.nn.Module, folder: Path, options: argparse.Namespace
) -> tuple[dict[str, Way], dict[str, Candidate]]:
    """Eager, compiled, and the engine's candidates by name; why there is no candidate goes to stderr."""
    import torch

    from kforge.engine import propose
    from kforge.task import capture

    found: dict[str, Way] = {"eager": reference}
    kept: dict[str, Candidate] = {}
    if options.compile:
        torch._dynamo.reset()
        found["compile"] = torch.compile(reference, dynamic=False)
        if "conv" in task.name:
            found["compile_channels_last"] = partial(in_channels_last, torch.compile(reference, dynamic=False))
    try:
        for number, candidate in enumerate(propose(task, capture(task, variant, DEVICE), arch="sm_90a", device=DEVICE)):
            if number >= options.candidates:
                break
            model = model_of(candidate, reference, task, folder / f"own{number}")
            found[f"ours{number}: {candidate.idea}"] = model
            kept[f"ours{number}: {candidate.idea}"] = candidate
    except NoCandidate as error:
        print(f"{task.name}: {error.message}", file=sys.stderr)
    return found, kept


def in_channels_last(function: Way, *args: Any, **kwargs: Any) -> Any:
    """The inputs are converted and so is the output, inside the timing: that is what a user would pay."""
    import torch

    def convert(t: Any) -> Any:
        return t.to(memory_format=torch.channels_last) if isinstance(t, torch.Tensor) and t.dim() == 4 else t

    return function(*map(convert, args), **kwargs).contiguous()


def measure(
    task: Task, variant: int, timer: GpuTimer, folder: Path, options: argparse.Namespace, zygote: Zygote | None = None
) -> dict[str, Any]:
    """All of one row."""
    import torch

    begin = time.perf_counter()
    call = task.make_call(variant, 1, DEVICE)
    reference = task.make_reference(0, DEVICE)
    shapes = [[list(t.shape), str(t.dtype).removeprefix("torch.")] for t in tensors((call.args, call.kwargs))]
    found: dict[str, Any] = {
        "workload": task.name,
        "variant": variant,
        "inputs": shapes,
        "precision": task.precision.value,
    }
    found["ways"] = {}
    with task.conditions(reference, call):
        made, kept = ways(task, variant, reference, folder, options)
        datas = {"own": call, "positive": positive(call)}
        truths = {}
        few = 2 if task.name.startswith("conv") else 1 << 30  # float64 convolutions take seconds
        for name, data in datas.items():
            exact = task.make_reference(0, DEVICE).double()
            wanted = first_of(reference(*data.args, **data.kwargs), few)
            truths[name] = (wanted, exact(*first_of(double(data).args, few)))
        for name, way in made.items():
            entry: dict[str, Any] = {}
            try:
                for data_name, data in datas.items():
                    entry[data_name] = errors(first_of(way(*data.args, **data.kwargs), few), *truths[data_name])
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                way(*call.args, **call.kwargs)
                entry["peak_mb"] = (torch.cuda.max_memory_allocated() - before) / 1e6
                samples = samples_of(timer, partial(way, *call.args, **call.kwargs), options.iterations)
                entry |= {"ms": statistics.median(samples), "samples": samples}
            except (KforgeError, RuntimeError, ValueError, TypeError) as error:
                entry["failed"] = f"{type(error).__name__}: {str(error)[:300]}"
                print(f"{task.name} {name}: {entry['failed']}", file=sys.stderr)
            found["ways"][name] = entry
    best = best_of(found)[1]
    if best and zygote is not None:
        found["judged"] = {best: judged(task, kept[best], zygote)}
    return found | {"seconds": time.perf_counter() - begin}


def judged(task: Task, candidate: Candidate, zygote: Zygote) -> str:
    """The environment's status on plan quick, on the first variant."""
    from kforge.environment import evaluate, prepare

    prepared = prepare(task, DEVICE)
    report = evaluate(
        task, candidate, "quick", device=DEVICE, reference=prepared, zygote=zygote, timing=False, repro=None
    )
    if report.status.value != "verified":
        print(f"{task.name}: {report.status.value}: {report.failure[:400]}", file=sys.stderr)
    return str(report.status.value)


def passes(row: dict[str, Any], way: dict[str, Any]) -> bool:
    """Whether the acceptance rule's ratios hold on both kinds of data."""
    half = any("float16" in dtype for _, dtype in row["inputs"])
    return all(way[d][0] <= (1.25 if half else 2.0) and way[d][1] <= 4.0 for d in ("own", "positive"))


def best_of(row: dict[str, Any]) -> tuple[str, str]:
    """The fastest way of torch's and the fastest of ours that passes; '' where there is none."""
    timed = {name: way for name, way in row["ways"].items() if "ms" in way}
    theirs = [n for n in timed if not n.startswith("ours")]
    mine = [n for n in timed if n.startswith("ours") and passes(row, timed[n])]
    return min(theirs, key=lambda n: timed[n]["ms"]), min(mine, key=lambda n: timed[n]["ms"], default="")


def table(rows: list[dict[str, Any]]) -> None:
    """A line for each row, then the geometric mean and the median of the speed-up."""
    gains = []
    for row in sorted(rows, key=lambda r: str(r["workload"])):
        if "ways" not in row:
            print(f"{row['workload']:24} failed: {row.get('why', '')[:90]}")
            continue
        base, own = best_of(row)
        times = " ".join(f"{n} {w['ms']:.4f}" for n, w in row["ways"].items() if "ms" in w and not n.startswith("ours"))
        text = f"{row['workload']:24} {row['precision']:7} {times}"
        if own:
            way = row["ways"][own]
            gains.append(row["ways"][base]["ms"] / way["ms"])
            text += f" | ours {way['ms']:.4f} {gains[-1]:.2f}x rms {way['own'][0]:.2f}/{way['positive'][0]:.2f}"
            text += (
                f" max {max(way['own'][1], way['positive'][1]):.2f} {row.get('judged', {}).get(own, '')} {own[4:52]}"
            )
        print(text)
        for name, way in row["ways"].items():
            if name.startswith("ours") and name != own:
                times = f"{way['ms']:.4f} ms, rms {way['own'][0]:.2f}/{way['positive'][0]:.2f}" if "ms" in way else ""
                why = way.get("failed") or times
                print(f"{'':24}   {name[4:60]}: {why[:100]}")
    if gains:
        print(
            f"{len(gains)} rows: geomean {statistics.geometric_mean(gains):.2f} median {statistics.median(gains):.2f}"
        )


def run(options: argparse.Namespace) -> None:
    import torch

    from kforge.task import load_task
    from kforge.worker import Zygote
    from kforge.worker.timer import GpuTimer

    start = time.perf_counter()
    done = {r["workload"] for r in rows_in(options.out)}
    timer = GpuTimer(DEVICE)
    folder = tempfile.TemporaryDirectory()
    with folder as scratch, Zygote() as zygote, options.out.open("a") as out, torch.no_grad():
        out.write(json.dumps({"environment": environment()}) + "\n")
        for number, name in enumerate(options.names or options.list.read_text().split()):
            if name in done or time.perf_counter() - start > options.seconds:
                continue
            task = load_task(WORKLOADS / f"{name}.py")
            variant = 1 if task.n_variants > 1 else 0
            try:
                judge = zygote if number < options.judge else None
                row = measure(task, variant, timer, Path(scratch) / name, options, judge)
            except (KforgeError, RuntimeError, ValueError, TypeError, AssertionError) as error:
                row = {"workload": name, "variant": variant, "why": f"{type(error).__name__}: {str(error)[:500]}"}
                print(f"{name}: {row['why']}", file=sys.stderr)
            out.write(json.dumps(row) + "\n")
            out.flush()
            print(f"{name}: {row.get('seconds', 0):.1f} s", file=sys.stderr, flush=True)
            torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--list", type=Path, default=WORKLOADS / "compute_bound.txt", help="names, one a line")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "compute_rows.jsonl")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no row after this long")
    parser.add_argument("--candidates", type=int, default=3, help="how many of the engine's are tried")
    parser.add_argument("--iterations", type=int, default=11, help="calls that are timed")
    parser.add_argument("--compile", action="store_true", help="time torch.compile as well")
    parser.add_argument(
        "--judge", type=int, default=0, metavar="N", help="judge the best candidate of the first N rows"
    )
    parser.add_argument("--table", action="store_true", help="print the table of --out and stop")
    options = parser.parse_args()
    if not options.table:
        run(options)
    table(rows_in(options.out))


if __name__ == "__main__":
    main()
