"""How close the engine's kernels come to the floor: python benchmarks/memory_rows.py [--out FILE] [names].

Without names the rows are those of --list (default benchmarks/workloads/memory_bound.txt), at the large input variants
or the only one. Each try is compared with eager and timed in this process: single calls after an L2 flush. The best is
timed again in turn with the fastest baseline, which gives the interval, and with --judge N judged by the environment
(plan quick) on the task's first, small variant. Loop, search, kinds of rows and options: benchmarks/rows.py.

`share` is the floor of CONTRACTS 5 over our time, `no_room_s` when it was known that a baseline lies within 5 % of the
floor. Under the rows: means, the best after some tries, who is under 0.85 and why, who is slower than the fastest
baseline. With --why the best of a row under 0.85 of the floor is profiled: its findings and counters stand in the row
and under it in the table (row_why.py). Needs a GPU, except with --dry.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

try:
    from benchmarks import row_why, rows
except ImportError:  # run as a file
    import row_why  # type: ignore[no-redef]
    import rows  # type: ignore[no-redef]

from kforge.profiling import roofline, statistics

if TYPE_CHECKING:
    from kforge.task import Call, Task


def baselines(bench: rows.Bench, reference: Any, call: Call) -> dict[str, Callable[[], Any]]:
    """Eager and, with --compile, torch.compile."""
    import torch

    found: dict[str, Callable[[], Any]] = {"eager": partial(reference, *call.args, **call.kwargs)}
    if bench.options.compile:
        torch._dynamo.reset()
        found["compile"] = partial(torch.compile(reference, dynamic=False), *call.args, **call.kwargs)
    return found


def measure(bench: rows.Bench, task: Task, variant: int) -> dict[str, Any]:
    """All of one row: times, share of the floor, and the interval of the speed-up over the fastest baseline."""
    from kforge.profiling import ceilings
    from kforge.task import count

    begin = time.perf_counter()
    call, reference, captured, found = rows.begun(bench, task, variant)
    with task.conditions(reference, call):
        limit = roofline.floor(count(captured), ceilings.for_device(bench.device))
        theirs, times, no_room_s = baselines(bench, reference, call), {}, None
        for name, fn in theirs.items():
            times[name] = statistics.median(bench.samples(fn, 11))
            if no_room_s is None and times[name] <= roofline.NO_ROOM * limit.ms:
                no_room_s = time.perf_counter() - begin
        fastest = min(times, key=times.__getitem__)
        found |= {"floor_ms": limit.ms, "bound": str(limit.bound.value), "baseline": fastest}
        found |= {f"{name}_ms": ms for name, ms in times.items()}
        found |= {"no_room": no_room_s is not None, "no_room_s": no_room_s}
        expected = reference(*call.args, **call.kwargs)
        search = rows.Search(bench, task, variant, call, reference, captured, rows.near(call, expected))
        search.run()
        best = search.best
        found["kind"] = rows.kind_of(task, captured, best.candidate if best else None, bench.device)
        if best is None:
            found |= {"status": "no_candidate", "why": search.why or "no candidate gave eager's values"}
            return found | search.figures() | {"seconds": time.perf_counter() - begin}
        ours = run_of(best, call)
        rounds = [(bench.samples(theirs[fastest], 9), bench.samples(ours, 9)) for _ in range(3)]
        ratio = statistics.ratio_of_rounds([r[0] for r in rounds], [r[1] for r in rounds])
        ms = statistics.median(statistics.pooled([r[1] for r in rounds]))
        found |= {"ms": ms, "share": limit.ms / ms, "speedup": ratio.ratio, "interval": ratio.ci95}
        found |= {"kernels": best.kernels, "idea": best.candidate.idea, "constants": best.overrides, **best.found}
        found |= search.figures()
        found |= {"samples": [r[1] for r in rounds], "baseline_samples": [r[0] for r in rounds]}
    if bench.judged < bench.options.judge:
        found["status"] = rows.judged(bench, task, best)
    if found["share"] < row_why.LEAST:
        found |= rows.profiled(bench, task, variant, captured, best, ms)
    return found | {"seconds": time.perf_counter() - begin}


def run_of(best: rows.Try, call: Call) -> Callable[[], Any]:
    """A call of the best configuration."""
    from kforge.kernel import hooks

    def run() -> Any:
        with hooks.overrides(best.overrides):
            return best.model(*call.args, **call.kwargs)

    return run if best.overrides else partial(best.model, *call.args, **call.kwargs)


def table(found: list[dict[str, Any]]) -> None:
    """A line for each row, then the geometric means."""
    for row in found:
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
        print(f"{text} {rows.best_columns(row)} {','.join(row['kernels'])[:60]}")
        rows.print_profile(row)
    summary(found)


SOON = 10.0  # seconds within which a row without room is to be known as one


def summary(found: list[dict[str, Any]]) -> None:
    """The goals: shares of the floor in the end and on the way there, who lies below and why, who is slower."""
    timed = [r for r in found if "ms" in r]
    if not timed:
        return
    low = [r for r in timed if r["share"] < row_why.LEAST]
    shares = [r["share"] for r in timed]
    middle, mean = statistics.median(shares), statistics.geometric_mean(shares)
    print(f"{len(found)} rows, {len(timed)} with a kernel; share: geomean {mean:.3f} median {middle:.3f}", end="")
    print(f"; {len(low)} under {row_why.LEAST}")
    on_the_way = {n: [s for r in timed if (s := share_after(r, n)) is not None] for n in rows.COUNTS}
    means = "/".join(f"{statistics.geometric_mean(v):.3f}" if v else "-" for v in on_the_way.values())
    print(f"share of the best after {'/'.join(map(str, rows.COUNTS))} tries: geomean {means}")
    for row in sorted(low, key=lambda r: r["share"]):
        print(f"  {row['workload']} {row['share']:.3f}: {reason(row)}")
    none = [r for r in timed if r["no_room"]]
    late = [r["workload"] for r in none if r["no_room_s"] > SOON]
    print(f"{len(none)} rows without room, {len(late)} known only after {SOON:.0f} s", *late)
    open_rows = [r["speedup"] for r in timed if not r["no_room"]]
    if open_rows:
        middle, mean = statistics.median(open_rows), statistics.geometric_mean(open_rows)
        print(f"{len(open_rows)} rows with room: over the fastest baseline geomean {mean:.2f} median {middle:.2f}")
    slower = [f"{r['workload']}: {r['speedup']:.2f}x" for r in timed if r["interval"][1] < 1 - statistics.MIN_NOISE]
    print(f"{len(slower)} slower than the fastest baseline", *slower)


def share_after(row: dict[str, Any], tries: int) -> float | None:
    """The share of the floor that the best of so many tries had, or of all where there were fewer; None if unknown."""
    ms = row.get("best", {}).get(str(tries))
    return row["floor_ms"] / ms if ms else None


def reason(row: dict[str, Any]) -> str:
    """Why a row is under its goal, in a line: what the profile found first, or that there is none."""
    profile = row.get("profile")
    if profile is None:
        return "not profiled (--why)"
    if "failed" in profile:
        return f"no profile: {profile['failed'][:90]}"
    for title, kernel, facts in profile["findings"]:
        return f"{title}{f' in {kernel}' if kernel else ''}: {'; '.join(facts)}"[:170]
    return row_why.lines(profile)[0][:170] if profile["kernels"] else "the profile found nothing"


def large_variants(task: Task) -> list[int]:
    """All but the first, small one; that one where it is the only one."""
    return list(range(1 if task.n_variants > 1 else 0, task.n_variants))


def main(arguments: list[str] | None = None) -> None:
    parser = rows.parser_of(__doc__, "memory")
    parser.add_argument("--why", action="store_true", help="profile the best of rows under 0.85 of the floor")
    options = parser.parse_args(arguments)
    rows.main(options, measure, large_variants, table, rows.profiled if options.why else None)


if __name__ == "__main__":
    main()
