"""Products, convolutions and attention against the library: python benchmarks/compute_rows.py [--out FILE] [names].

A row is a workload of --list (default benchmarks/workloads/compute_bound.txt) at its large input variant and its own
precision (PRECISION in the file; strict single precision for products and TF32 for convolutions where it says nothing,
as torch does). Timed in this process, single calls after an L2 flush: eager, with --compile torch.compile, both in
channels-last where there is a convolution, and the engine's candidates. Beside each time stands the error of that way
against float64: the root mean square over eager's, and whether acceptance (CONTRACTS 4: twice eager's RMS, 1.25 for 16
bits; four times its largest error) would let it pass, on the workload's own data and on data of one sign; and the
memory that a call takes, over eager's. What does not pass is no result of the search. Weights that a candidate derives
ahead of time are derived again in each timed call; the figure without that stands beside it (`amortised`).

The tables are by kind: `plain` (a product and nothing else), `epilogue`, `rewritten` (no product is computed as one)
and `degenerate`; then a line for each goal with the median and the geometric mean of its rows (row_goals.py). With
--why the best of a row under its goal is profiled. Loop, search and options: benchmarks/rows.py. Needs a GPU, except
with --dry.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

try:
    from benchmarks import row_goals, rows
except ImportError:  # run as a file
    import row_goals  # type: ignore[no-redef]
    import rows  # type: ignore[no-redef]

if TYPE_CHECKING:
    import torch

    from kforge.task import Call, Capture, Task

Way = Callable[..., Any]


def errors(got: Any, wanted: Any, exact: Any) -> tuple[float, float]:
    """Root mean square and largest error over those of `wanted`, the worse of all outputs; 1e-3 of a unit is free."""
    import torch

    rms, most = 0.0, 0.0
    for mine, base, truth in zip(rows.tensors(got), rows.tensors(wanted), rows.tensors(exact), strict=True):
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

    given = rows.tensors(tree)
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


def theirs(bench: rows.Bench, task: Task, reference: torch.nn.Module) -> dict[str, Way]:
    """Eager and the compiled ways by name."""
    import torch

    found: dict[str, Way] = {"eager": reference}
    turned = in_their_format(reference) if "conv" in task.name else None
    if turned is not None:
        found["eager_channels_last"] = partial(in_channels_last, turned)
    if bench.options.compile:
        torch._dynamo.reset()
        found["compile"] = torch.compile(reference, dynamic=False)
        if turned is not None:
            found["compile_channels_last"] = partial(in_channels_last, torch.compile(turned, dynamic=False))
    return found


def format_of(t: torch.Tensor) -> torch.memory_format:
    """Channels-last where a tensor has such a format."""
    import torch

    return {4: torch.channels_last, 5: torch.channels_last_3d}.get(t.dim(), torch.contiguous_format)


def in_their_format(reference: torch.nn.Module) -> torch.nn.Module:
    """A copy with its filters in channels-last, as a user would convert a model once."""
    turned = copy.deepcopy(reference)
    for parameter in turned.parameters():
        parameter.data = parameter.data.contiguous(memory_format=format_of(parameter))
    return turned


def in_channels_last(function: Way, *args: Any, **kwargs: Any) -> Any:
    """The inputs are converted and so is the output, inside the timing: that is what a user would pay."""
    import torch

    def convert(t: Any) -> Any:
        return t.contiguous(memory_format=format_of(t)) if isinstance(t, torch.Tensor) else t

    return function(*map(convert, args), **kwargs).contiguous()


class Truth:
    """What the row's results are compared with: eager's and float64's, on the workload's own data and of one sign."""

    def __init__(self, task: Task, call: Call, reference: torch.nn.Module, captured: Capture, device: str) -> None:
        from kforge.task import promote

        # float64 convolutions take seconds; statistics over the batch need all of it
        self.few = 2 if task.name.startswith("conv") and "batch_norm" not in task.name else 1 << 30
        self.half = any("float16" in dtype for _, dtype in rows.shapes_of(call))
        self.data = {"own": call, "positive": positive(call)}
        wide = task.make_reference(0, device).double()

        def exact(data: Call) -> Any:
            """Casts of the reference's own would narrow it: where all of it is computed, the graph is promoted."""
            small = self.few < 1 << 30
            return wide(*first_of(double(data).args, self.few)) if small else promote(captured)(reference, data)

        self.values = {name: (self.first(reference, data), exact(data)) for name, data in self.data.items()}

    def first(self, way: Way, data: Call) -> Any:
        return first_of(way(*data.args, **data.kwargs), self.few)

    def of(self, way: Way) -> dict[str, Any]:
        """[RMS, largest] error over eager's by kind of data, and the memory of a call."""
        import torch

        found: dict[str, Any] = {n: errors(self.first(way, d), *self.values[n]) for n, d in self.data.items()}
        call = self.data["own"]
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        way(*call.args, **call.kwargs)
        return found | {"peak_mb": (torch.cuda.max_memory_allocated() - before) / 1e6}

    def check(self, way: Way) -> dict[str, Any]:
        """The same; ValueError where acceptance would refuse it."""
        found = self.of(way)
        if not within(found, self.half):
            raise ValueError(f"errors {found['own']} and, of one sign, {found['positive']} times eager's")
        return found


def measure(bench: rows.Bench, task: Task, variant: int) -> dict[str, Any]:
    """All of one row."""
    from kforge.task import inspect_task

    begin = time.perf_counter()
    call, reference, captured, found = rows.begun(bench, task, variant)
    precision = task.precision.value
    found |= {"precision": precision, "class": row_goals.class_of(captured, precision), "ways": {}}
    with task.conditions(reference, call):
        truth = Truth(task, call, reference, captured, bench.device)
        for name, way in theirs(bench, task, reference).items():
            entry = truth.of(way)
            samples = bench.samples(partial(way, *call.args, **call.kwargs), 11)
            found["ways"][name] = entry | {"ms": statistics.median(samples), "samples": samples}
        search = rows.Search(bench, task, variant, call, reference, captured, truth.check)
        search.run()
    for number, one in enumerate(t for t in search.tries if not t.overrides):
        name = f"ours{number}: {one.candidate.idea}"
        mine = [t for t in search.right if t.candidate.digest == one.candidate.digest]
        best = min(mine, key=lambda t: t.ms or 0.0, default=None)
        found["ways"][name] = {"failed": one.refused} if best is None else best.found | {"ms": best.ms}
        if best is not None and best.overrides:
            found["ways"][name]["constants"] = best.overrides
        if best is not None and "prepared(" in best.candidate.files[best.candidate.module]:
            once = bench.samples(partial(best.model, *call.args, **call.kwargs), 9)
            found["ways"][name] |= {"amortised": statistics.median(once)}
    fastest = search.best
    candidate = fastest.candidate if fastest is not None else None
    found["kind"] = row_goals.kind_of(captured, candidate, inspect_task(task, bench.device).degenerate)
    found |= search.figures()
    if fastest is None:
        found["why"] = search.why or "no candidate passed"
        return found | {"seconds": time.perf_counter() - begin}
    if bench.judged < bench.options.judge:
        found["judged"] = rows.judged(bench, task, fastest)
    goals = [g for g in row_goals.GOALS if g.of == found["class"] and found["kind"] in g.kinds]
    if any((gain_of(found, g.over) or 0.0) < g.gain for g in goals):
        found |= rows.profiled(bench, task, variant, captured, fastest, fastest.ms)
    return found | {"seconds": time.perf_counter() - begin}


def within(way: dict[str, Any], half: bool) -> bool:
    """Whether the acceptance rule's ratios hold on both kinds of data."""
    return all(way[d][0] <= (1.25 if half else 2.0) and way[d][1] <= 4.0 for d in ("own", "positive"))


def passes(row: dict[str, Any], way: dict[str, Any]) -> bool:
    return within(way, any("float16" in dtype for _, dtype in row["inputs"]))


def best_of(row: dict[str, Any]) -> tuple[str, str]:
    """The fastest way of torch's and the fastest of ours that passes; '' where there is none."""
    timed = {name: way for name, way in row["ways"].items() if "ms" in way}
    theirs = [n for n in timed if not n.startswith("ours")]
    mine = [n for n in timed if n.startswith("ours") and passes(row, timed[n])]
    return min(theirs, key=lambda n: timed[n]["ms"]), min(mine, key=lambda n: timed[n]["ms"], default="")


def gain_of(row: dict[str, Any], over: tuple[str, ...] = ()) -> float | None:
    """The fastest of torch's ways (of those in `over`, if there are any) over the fastest of ours that passes."""
    if "ways" not in row:
        return None
    base, own = best_of(row)
    if not own:
        return None
    theirs = [w["ms"] for n, w in row["ways"].items() if n in over and "ms" in w]
    return float(min(theirs, default=row["ways"][base]["ms"]) / row["ways"][own]["ms"])


def memory_of(row: dict[str, Any], way: dict[str, Any]) -> str:
    """What a call takes beside inputs and parameters, over eager's."""
    base = row["ways"].get("eager", {}).get("peak_mb")
    return f"memory {way['peak_mb'] / max(base, 1e-3):.2f}" if base is not None and "peak_mb" in way else ""


def table(found: list[dict[str, Any]]) -> None:
    """A line for each row, then the geometric mean and the median of the speed-up."""
    gains = []
    for row in found:
        if "ways" not in row:
            print(f"{row['workload']:24} failed: {row.get('why', '')[:90]}")
            continue
        _, own = best_of(row)
        times = " ".join(f"{n} {w['ms']:.4f}" for n, w in row["ways"].items() if "ms" in w and not n.startswith("ours"))
        text = f"{row['workload']:24} {row['precision']:7} {times}"
        gain = gain_of(row)
        if gain is not None:
            way = row["ways"][own]
            gains.append(gain)
            text += f" | ours {way['ms']:.4f} {gain:.2f}x rms {way['own'][0]:.2f}/{way['positive'][0]:.2f}"
            text += f" max {max(way['own'][1], way['positive'][1]):.2f} {memory_of(row, way)}"
            text += f" amortised {way['amortised']:.4f}" if "amortised" in way else ""
            text += f" {row.get('judged', '')} {own[4:52]}"
        print(f"{text} {rows.best_columns(row)} {'' if own else row.get('why', '')[:80]}")
        for name, way in row["ways"].items():
            if name.startswith("ours") and name != own:
                times = f"{way['ms']:.4f} ms, rms {way['own'][0]:.2f}/{way['positive'][0]:.2f}" if "ms" in way else ""
                why = way.get("failed") or times
                print(f"{'':24}   {name[4:60]}: {why[:100]}")
        rows.print_profile(row)
    if gains:
        mean, middle = statistics.geometric_mean(gains), statistics.median(gains)
        print(f"{len(gains)} rows: geomean {mean:.2f} median {middle:.2f}")


def large_variant(task: Task) -> list[int]:
    """The second, or the only one."""
    return [1 if task.n_variants > 1 else 0]


def main(arguments: list[str] | None = None) -> None:
    parser = rows.parser_of(__doc__, "compute")
    parser.add_argument("--why", action="store_true", help="profile the best of rows under their goal")
    options = parser.parse_args(arguments)
    rows.main(options, measure, large_variant, table)
    row_goals.summary([r for r in rows.rows_in(options.out) if not r.get("dry")], gain_of)


if __name__ == "__main__":
    main()
