"""How often equal kernels are SAME and a kernel that takes 2 % longer is SLOWER. Needs a GPU.

Each pair is a process of its own against the judge, as in an evaluation: same timer, rounds, interval and noise floor.
The kernel reads and writes memory; the slower one moves as many more bytes as make it 2 % longer by a long measurement
in one process, taken as the verdict is: cold calls, or graphs of calls that find L2 warm where a call is too short.
Pairs of all lengths and both kinds come in random order. As in an evaluation, what is not believed is timed once more,
and what is not SAME is confirmed in a fresh process (--confirm unclear: only what is UNCLEAR, which halves the time).
--earlier FILE: pairs of an earlier run of the same text on the same kind of GPU are counted in.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kforge.environment.report import Verdict
from kforge.environment.verdict import confirmed
from kforge.kernel.candidate import Candidate
from kforge.profiling.gpu_state import gpu_state
from kforge.profiling.samples import TRUSTED, Bound
from kforge.profiling.statistics import median, undisturbed, verdict
from kforge.profiling.timing import CANDIDATE, STANDARD, measure_noise, time_against
from kforge.task import Call
from kforge.worker import Limits, Zygote
from kforge.worker.timer import GpuTimer, replayed, steady_overhead

DEVICE = "cuda:0"
LENGTHS_MS = (0.06, 0.2, 1.0)
SLOWER = 1.02
NEAR = 0.003  # an injected slowdown further off than this is none, and the length is left out by name
STEP = 1 << 16  # elements: sizes between these differ in time by more than in bytes
AT_ONCE = 16  # processes started together, so that none starts while another is timed
DOUBTED = "not believed"
MODULE = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x[:{elements}] * 1.5
"""


def candidate(elements: int) -> Candidate:
    return Candidate("pass_kforge.py", {"pass_kforge.py": MODULE.format(elements=elements)})


def one_pass(elements: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x[:elements] * 1.5


def length_of(
    timer: GpuTimer, x: torch.Tensor, sizes: tuple[int, ...], rounds: int = 12, replays: int = 0
) -> list[float]:
    """Undisturbed milliseconds of passes over `sizes`, interleaved in this process. replays: calls in a graph."""
    passes: list[Callable[[], Any]] = [partial(one_pass(size), x) for size in sizes]
    if replays:
        passes = [replayed([run], replays) for run in passes]
    found: list[list[float]] = [[] for _ in sizes]
    for _ in range(rounds):
        for samples, run in zip(found, passes, strict=True):
            samples += timer.batch(run, 20, flush=not replays)[2:]
    return [undisturbed(samples) / max(1, replays) for samples in found]


def find_sizes(timer: GpuTimer, x: torch.Tensor, wanted_ms: float, overhead_ms: float) -> tuple[int, int, float]:
    """Elements of a pass of `wanted_ms`, those of one SLOWER times as long, and the ratio measured."""
    elements = 1 << 20
    for _ in range(3):
        wanted = elements * wanted_ms / length_of(timer, x, (elements,), 2)[0]
        elements = min(x.numel() // 2, max(1, round(wanted / STEP)) * STEP)
    short = Bound(1.0, wanted_ms, overhead_ms, 1).kernel > TRUSTED
    replays = int(1.5 / wanted_ms) if short else 0
    more, tried = SLOWER, []
    for _ in range(4):
        larger = round(elements * more / STEP) * STEP
        base, longer = length_of(timer, x, (elements, larger), replays=replays)
        tried.append((elements, larger, longer / base))
        if abs(longer / base - SLOWER) < 0.0005:
            break
        more = min(2 * SLOWER - 1, max(1.0, more + SLOWER - longer / base))  # one disturbed look must not lead away
    return min(tried, key=lambda found: abs(found[2] - SLOWER))


def overhead_of(timer: GpuTimer) -> float:
    """Milliseconds that a cold call costs beside itself."""

    def excess(calls: int) -> float:
        begin = time.perf_counter()
        samples = timer.idle(calls)
        return (time.perf_counter() - begin) * 1e3 - sum(samples)

    return steady_overhead(excess)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100, help="of each kind, over all lengths")
    parser.add_argument("--seconds", type=float, default=600.0, help="after which no more pairs begin")
    parser.add_argument("--out", type=Path, help="raw samples as JSON")
    parser.add_argument("--confirm", choices=("all", "unclear"), default="all", help="what is timed again")
    parser.add_argument("--earlier", type=Path, nargs="*", default=(), help="results (--out) of earlier runs")
    options = parser.parse_args()
    timer = GpuTimer(DEVICE)
    x = torch.rand(1 << 30, device=DEVICE)
    length_of(timer, x, (1 << 26,))  # clocks rise
    started = time.perf_counter()
    overhead_ms = overhead_of(timer)
    sizes = {ms: find_sizes(timer, x, ms, overhead_ms) for ms in LENGTHS_MS}
    del x
    torch.cuda.empty_cache()
    left_out = [ms for ms, found in sizes.items() if abs(found[2] - SLOWER) > NEAR]
    lengths = {"same": LENGTHS_MS, "slower": tuple(ms for ms in LENGTHS_MS if ms not in left_out)}
    jobs = [(kind, group[i % len(group)]) for kind, group in lengths.items() if group for i in range(options.pairs)]
    random.SystemRandom().shuffle(jobs)
    again = ("faster", "slower", "unclear") if options.confirm == "all" else ("unclear",)
    rows: list[dict[str, Any]] = []
    result: dict[str, Any] = {}
    earlier = {path: json.loads(path.read_text())["pairs"] for path in options.earlier}
    with Zygote() as zygote, tempfile.TemporaryDirectory() as folder:
        noise = {}
        for ms in LENGTHS_MS:
            noise[ms] = measure_noise(zygote, Path(folder) / f"noise{ms}", DEVICE, call_ms=ms)
        begin = time.perf_counter()
        spent = {"setup": begin - started, "fork": 0.0, "close": 0.0}
        facts = {
            "overhead_ms": overhead_ms,
            "sizes": {str(ms): found[:2] for ms, found in sizes.items()},
            "no_slowdown_could_be_injected_at_ms": left_out,
            "injected": {str(ms): found[2] for ms, found in sizes.items()},
            "noise": {str(ms): value for ms, value in noise.items()},
            "confirmed": options.confirm,
        }
        for first in range(0, len(jobs), AT_ONCE):
            if time.perf_counter() - started > options.seconds:
                break
            forked = time.perf_counter()
            with ExitStack() as stack:
                group = jobs[first : first + AT_ONCE]
                children = [
                    stack.enter_context(
                        zygote.fork(Path(folder) / f"pair{first + i}", DEVICE, "run", Limits(call_s=60), timer=True)
                    )
                    for i in range(len(group))
                ]
                for child in children:
                    child.in_force()
                spent["fork"] += time.perf_counter() - forked
                for child, (kind, ms) in zip(children, group, strict=True):
                    rows.append(compare(child, kind, ms, sizes[ms], noise[ms]))
                    if rows[-1]["verdict"] in (*again, DOUBTED):
                        with zygote.fork(Path(folder) / "again", DEVICE, "run", Limits(call_s=60), timer=True) as fresh:
                            second = compare(fresh, kind, ms, sizes[ms], noise[ms])
                        words = [Verdict(row["verdict"].replace(DOUBTED, "unclear")) for row in (rows[-1], second)]
                        rows[-1] |= {"first": rows[-1]["verdict"], "second": second}
                        rows[-1]["verdict"] = confirmed(*words).value
                closed = time.perf_counter()
            spent["close"] += time.perf_counter() - closed
            print(f"\r{len(rows)} of {len(jobs)}", end="", file=sys.stderr, flush=True)
            spent["each"] = (time.perf_counter() - begin) / len(rows)
            result = summary(rows, earlier) | facts | {"seconds": spent}
            if options.out:  # after every group: a run that is cut short leaves what it has
                options.out.write_text(json.dumps({**result, "pairs": rows}, separators=(",", ":")))
    print(file=sys.stderr)
    print(json.dumps(result))


def summary(rows: list[dict[str, Any]], earlier: Mapping[Path, list[dict[str, Any]]]) -> dict[str, Any]:
    """The table over these pairs and those of earlier runs, and where it was measured."""
    return {
        "benchmark": "verdicts",
        "earlier": {path.name: len(pairs) for path, pairs in earlier.items()},
        "table": table([*rows, *(row for pairs in earlier.values() for row in pairs)]),
        "gpu": gpu_state(DEVICE).as_dict() | {"name": torch.cuda.get_device_name(0)},
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def compare(child: Any, kind: str, ms: float, sizes: tuple[int, int, float], noise: float) -> dict[str, Any]:
    """One verdict, with what it rests on."""
    elements, larger, _ = sizes
    begin = time.perf_counter()
    child.load(candidate(larger if kind == "slower" else elements), Call(), {}, timer=True)
    call = Call((torch.rand(larger, device=DEVICE),))
    baselines = {"pass": one_pass(elements)}
    timing = time_against(child, call, baselines, effort=STANDARD)
    again = not timing.believed
    if again:
        timing = time_against(child, call, baselines, effort=STANDARD)
    ratio = timing.ratio("pass")
    assert ratio is not None, timing.skipped
    sides = {name: timing.of(name, "replay" if timing.basis == "replay" else "plain") for name in (CANDIDATE, "pass")}
    return {
        "kind": kind,
        "ms": ms,
        "verdict": verdict(ratio, noise) if timing.believed else DOUBTED,
        "ratio": ratio.ratio,
        "ci95": ratio.ci95,
        "basis": timing.basis,
        "again": again,
        "difference": {name: bound.difference for name, bound in timing.bounds.items()},
        "calibration_ms": child.overhead_ms,
        "seconds": time.perf_counter() - begin,
        "stages": timing.stages,
        "rounds": {
            name: [[round(v, 6) for v in samples] for samples in side.rounds] for name, side in sides.items() if side
        },
    }


def table(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Counts of verdicts by kind and length, and the spread of the ratios."""
    found: dict[str, dict[str, float]] = {}
    for kind in ("same", "slower"):
        for ms in (*LENGTHS_MS, None):
            group = [row for row in rows if row["kind"] == kind and ms in (row["ms"], None)]
            if not group:
                continue
            words = [row["verdict"] for row in group]
            ratios = [row["ratio"] for row in group]
            counts: dict[str, float] = {"pairs": len(group), **{word: words.count(word) for word in sorted(set(words))}}
            middle = median(ratios)
            spread = median([abs(ratio - middle) for ratio in ratios]) * 1.4826
            counts["confirmed"] = sum("second" in row for row in group)
            widths = [row["ci95"][1] - row["ci95"][0] for row in group]
            counts |= {
                "ratio": middle,
                "spread": spread,
                "interval": median(widths),
                "again": sum(row["again"] for row in group),
                "seconds": median([r["seconds"] for r in group]),
            }
            found[f"{kind} {ms or 'all'}"] = {name: round(value, 5) for name, value in counts.items()}
    return found


if __name__ == "__main__":
    main()
