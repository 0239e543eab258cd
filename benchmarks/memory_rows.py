"""How close the engine's kernels come to the floor: python benchmarks/memory_rows.py [--out FILE] [names].

`--columns 393216` times rows of that length alone; `--constants split:ITEMS=6,STAGED=12` (again and again) times the
first candidate's kernel of that schedule with these constants too, and `--all` prints every candidate.

For each workload under benchmarks/workloads the engine's candidates are verified by the environment on the small first
variant, then timed in this process on the large ones: median of single calls after an L2 flush, beside eager and, with
--compile, torch.compile. `share` is the floor of CONTRACTS 5 over the candidate's time. Needs a GPU. One JSON line per
workload and variant; a table at the end.
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
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kforge.engine import propose
from kforge.environment import evaluate, prepare
from kforge.kernel import hooks
from kforge.kernel.candidate import Candidate
from kforge.profiling import ceilings, roofline
from kforge.task import Task, capture, count, load_task
from kforge.worker import Zygote
from kforge.worker.timer import GpuTimer

WORKLOADS = Path(__file__).with_name("workloads")
DEVICE = "cuda:0"


def median(timer: GpuTimer, fn: Callable[[], Any], iterations: int = 15) -> tuple[float, list[float]]:
    """Median and samples in ms of single calls after a flush."""
    for _ in range(2):
        fn()
    samples = timer.batch(fn, iterations)
    return sorted(samples)[len(samples) // 2], samples


def model_of(candidate: Candidate, folder: Path) -> torch.nn.Module:
    """ModelNew of a candidate of our own engine, imported into this process."""
    candidate.write(folder)
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{candidate.digest}", folder / candidate.module)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew().to(DEVICE)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Largest difference over the largest value, on the first and last rows."""
    scale = float(theirs[:8].abs().max())
    return max(float((a - b).abs().max()) for a, b in ((ours[:8], theirs[:8]), (ours[-8:], theirs[-8:]))) / scale


Constants = dict[str, int]


def configuration(text: str) -> tuple[str, Constants]:
    """A schedule and constants: split:ITEMS=6,STAGED=12 is ("split", {"ITEMS": 6, "STAGED": 12})."""
    schedule, _, rest = text.partition(":")
    return schedule, {name: int(value) for name, value in (part.split("=") for part in rest.split(","))}


def measure(task: Task, zygote: Zygote, timer: GpuTimer, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the table for one workload; the candidate shown is the fastest of the verified ones, per variant."""
    prepared = prepare(task, DEVICE)
    models: list[tuple[Candidate, torch.nn.Module]] = []
    for candidate in propose(task, prepared.capture(), arch="sm_90a", device=DEVICE, facts=prepared.facts):
        report = evaluate(task, candidate, "quick", device=DEVICE, reference=prepared, zygote=zygote, timing=False)
        if report.status.value == "verified":
            models.append((candidate, model_of(candidate, prepared.folder / f"own{len(models)}")))
        else:
            print(f"{task.name} {candidate.idea}: {report.status.value}: {report.failure[:300]}", file=sys.stderr)
        if len(models) == options.candidates:
            break
    rows = []
    reference = task.make_reference(0, DEVICE)
    for variant in range(1, task.n_variants):
        call = task.make_call(variant, 1, DEVICE)
        x = call.args[0]
        if options.columns and x.shape[-1] not in options.columns:
            continue
        limit = roofline.floor(count(capture(task, variant, DEVICE)), ceilings.for_device(DEVICE))
        expected = reference(*call.args)
        eager, _ = median(timer, partial(reference, *call.args), 7)
        found = []
        tried: list[tuple[torch.nn.Module, str, dict[str, Constants]]] = [(m, c.idea, {}) for c, m in models]
        for text in options.constants:
            schedule, constants = configuration(text)
            tried += [(model, text, {f"{task.name}_{schedule}": constants}) for _, model in models[:1]]
        for model, idea, overrides in tried:
            with hooks.overrides(overrides):
                hooks.launched.reset()
                error = same(model(*call.args), expected)
                if not set(overrides) <= set(hooks.launched):
                    continue  # another schedule serves this length
                ms, samples = median(timer, partial(model, *call.args))
            found.append((ms, idea, error, samples, sorted(hooks.launched)))
        ms, idea, error, samples, kernels = min(found)
        row = {"workload": task.name, "shape": list(x.shape), "dtype": str(x.dtype), "ms": ms, "floor_ms": limit.ms}
        row |= {"share": limit.ms / ms, "eager_ms": eager, "kernels": kernels, "idea": idea, "error": error}
        if options.compile:
            fn = torch.compile(reference, dynamic=False)
            row["compile_ms"], _ = median(timer, partial(fn, *call.args), 7)
        row |= {"samples": samples, "others": [(f[1], f[0], limit.ms / f[0], f[2]) for f in found]}
        rows.append(row)
        call = x = expected = None  # 13 GB of the largest variants
        torch.cuda.empty_cache()
    return rows


def environment() -> dict[str, str]:
    """Machine, versions and commit."""
    git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "gpu": torch.cuda.get_device_name(0),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": git.stdout.strip() if git.returncode == 0 else "not a checkout",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "memory_rows.jsonl")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--candidates", type=int, default=2, help="how many of the engine's are tried")
    parser.add_argument("--columns", type=int, action="append", help="time these row lengths alone")
    parser.add_argument("--constants", action="append", default=[], help="schedule:NAME=value,... to time as well")
    parser.add_argument("--all", action="store_true", help="print every candidate and every set of constants")
    options = parser.parse_args()
    timer = GpuTimer(DEVICE)
    rows = []
    with Zygote() as zygote, torch.no_grad(), options.out.open("w") as out:
        out.write(json.dumps({"environment": environment(), "ceilings": ceilings.for_device(DEVICE).bandwidth}) + "\n")
        for path in sorted(WORKLOADS.glob("*.py")):
            if options.names and path.stem not in options.names:
                continue
            begin = time.perf_counter()
            for row in measure(load_task(path), zygote, timer, options):
                rows.append(row)
                out.write(json.dumps(row) + "\n")
                out.flush()
            print(f"{path.stem}: {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    for row in rows:
        compile_ms = f" compile {row['compile_ms']:8.4f}" if "compile_ms" in row else ""
        print(
            f"{row['workload']:13} {row['shape']!s:17} {row['ms']:8.4f} ms  share {row['share']:.3f}  eager"
            f" {row['eager_ms']:8.4f}{compile_ms}  error {row['error']:.1e}  {','.join(row['kernels'])}"
        )
        for idea, ms, share, error in row["others"] if options.all else ():
            print(f"{'':32}{ms:8.4f} ms  share {share:.3f}  error {error:.1e}  {idea[:60]}")


if __name__ == "__main__":
    main()
