"""Record landscapes on a GPU: python benchmarks/record_landscapes.py [--seconds 500] [--points 24] [names].

For each workload under benchmarks/workloads every candidate of the engine, and then configurations of their tuning
spaces, pass the environment's quick plan on the small first variant and are timed in this process on the large ones:
median of single calls after an L2 flush. Each workload and shape becomes one table in benchmarks/landscapes, family x
schedule -> ms or failure, with the machine, versions and commit. What a table holds already is not measured again, so a
run that was cut short, or a later engine, appends; tables of another GPU model get files of their own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DEVICE = "cuda:0"
EXHAUSTIVE = 24  # configurations of a kernel up to which all are tried; beyond, one constant at a time

Overrides = dict[str, dict[str, Any]]


def configurations(spaces: list[Any], seed: int) -> Iterator[Overrides]:
    """Overrides beside the declared constants, in random order: which ones a limit cuts off is no one's choice."""
    found: list[Overrides] = []
    for space in spaces:
        names = list(space.tune)
        declared = {name: space.declared.get(name) for name in names}
        if space.size <= EXHAUSTIVE:
            tried = [dict(zip(names, values, strict=True)) for values in itertools.product(*space.tune.values())]
        else:
            tried = [declared | {name: value} for name in names for value in space.tune[name]]
        found += [{bare(space.kernel): constants} for constants in tried if constants != declared]
    random.Random(seed).shuffle(found)
    return iter(found)


def bare(kernel: str) -> str:
    """softmax_warp<T, BLOCK> is the kernel softmax_warp."""
    return kernel.partition("<")[0]


def place(folder: Path, chip: str, workload: str, shape: list[int]) -> Path:
    """The file of a table."""
    words = [chip.replace("NVIDIA ", ""), workload, "x".join(map(str, shape))]
    return folder / ("-".join(words).lower().replace(" ", "-") + ".json")


def append(path: Path, head: Mapping[str, Any], point: Mapping[str, Any]) -> None:
    """One more candidate of a table; the file is replaced whole."""
    table = json.loads(path.read_text()) if path.is_file() else dict(head) | {"points": []}
    table["points"].append(point)
    points = ",\n  ".join(json.dumps(p) for p in table["points"])
    text = json.dumps({k: v for k, v in table.items() if k != "points"}, indent=1)[:-2]
    fresh = path.with_suffix(".new")
    fresh.write_text(f'{text},\n "points": [\n  {points}\n ]\n}}\n')
    fresh.replace(path)


def known(path: Path) -> set[str]:
    """Names of what a table holds."""
    return {name(p) for p in json.loads(path.read_text())["points"]} if path.is_file() else set()


def name(point: Mapping[str, Any]) -> str:
    """One word for family and schedule."""
    return json.dumps([point["family"], point["schedule"]], sort_keys=True)


class Recorder:
    """Everything that the workloads share."""

    def __init__(self, options: argparse.Namespace, zygote: Any, head: Mapping[str, Any]) -> None:
        from kforge.worker.timer import GpuTimer

        self.options, self.zygote, self.head = options, zygote, head
        self.timer = GpuTimer(DEVICE)
        self.end = time.monotonic() + options.seconds
        self.served: dict[tuple[str, int], list[str]] = {}  # candidate and shape -> the kernels that run

    def workload(self, path: Path) -> int:
        """Record one workload; the number of configurations tried."""
        from kforge.engine import propose
        from kforge.environment import prepare
        from kforge.environment.tuning import tuning_spaces
        from kforge.task import load_task

        task = load_task(path)
        prepared = prepare(task, DEVICE)
        made = list(propose(task, prepared.capture(), arch="sm_90a", device=DEVICE, facts=prepared.facts))
        fitting = [v for v in range(1, task.n_variants) if self.fits(task, v)]
        spaces = tuning_spaces(made[0].files[made[0].module])
        tuned = ((made[0], overrides) for overrides in configurations(spaces, self.options.seed))
        number = 0
        for candidate, overrides in itertools.chain(((candidate, {}) for candidate in made), tuned):
            if number == self.options.points or time.monotonic() > self.end:
                break
            served = [self.served.get((candidate.digest, variant), list(overrides)) for variant in fitting]
            if any(set(overrides) <= set(kernels) for kernels in served):
                self.configuration(task, prepared, candidate, overrides, fitting)
                number += 1
        return number

    def fits(self, task: Any, variant: int) -> bool:
        """Whether the inputs of a variant are small enough to be timed often."""
        call = self.call(task, variant)
        return sum(x.numel() * x.element_size() for x in call.args) <= self.options.largest_gb * 1e9

    def call(self, task: Any, variant: int) -> Any:
        import torch

        torch.cuda.empty_cache()
        return task.make_call(variant, 1, DEVICE)

    def configuration(
        self, task: Any, prepared: Any, candidate: Any, overrides: Overrides, variants: list[int]
    ) -> None:
        """One candidate with these constants on every shape."""
        from rows import model_of

        from kforge.environment import evaluate
        from kforge.environment.tuning import declared_constants

        report = evaluate(
            task,
            candidate,
            "quick",
            device=DEVICE,
            reference=prepared,
            zygote=self.zygote,
            timing=False,
            overrides=overrides or None,
            repro=None,
        )
        declared = {bare(k): v for k, v in declared_constants(candidate.files[candidate.module]).items()}
        if report.status.value != "verified":
            print(f"{task.name} {candidate.idea} {overrides}: {report.failure[:200]}", file=sys.stderr)
        model = None
        if report.status.value == "verified":
            reference = task.make_reference(0, DEVICE)
            model = model_of(candidate, reference, task, prepared.folder / "own", DEVICE)
        for variant in variants:
            key = candidate.digest, variant
            if model is not None:
                self.timed(task, variant, model, overrides, key)
            elif set(overrides) <= set(self.served.get(key, overrides)):
                asked = {kernel: {**declared.get(kernel, {}), **overrides[kernel]} for kernel in overrides}
                point = point_of(task, asked or {candidate.idea: {}})
                self.enter(task, self.call(task, variant), point, report.failure)

    def timed(self, task: Any, variant: int, model: Any, overrides: Overrides, key: tuple[str, int]) -> None:
        """Time a right configuration on one shape, unless another kernel of the candidate serves it.

        The schedule that is entered is the one that ran: `require` may have changed what was asked for.
        """
        from rows import difference

        from kforge.kernel import hooks

        call = self.call(task, variant)
        ran: dict[str, dict[str, Any]] = {}

        def note(kernel: Any, plan: Any, args: Any, values: Any) -> None:
            ran[kernel.name] = dict(plan.constants)

        with hooks.overrides(overrides):
            with hooks.recording(note):
                error = difference(model(*call.args), task.make_reference(0, DEVICE)(*call.args))
            if not overrides:
                self.served[key] = sorted(ran)
            point = point_of(task, ran)
            if set(overrides) <= set(ran) and name(point) not in known(self.table(task, call)):
                ms, samples = _median(self.timer, partial(model, *call.args))
                self.enter(task, call, point | {"ms": ms, "error": error, "samples": samples})

    def table(self, task: Any, call: Any) -> Path:
        """The file of the table for this shape."""
        return place(self.options.folder, self.head["chip"], task.name, list(call.args[0].shape))

    def enter(self, task: Any, call: Any, point: dict[str, Any], failure: str = "") -> None:
        """Into the table of this shape, which begins with eager's time."""
        path = self.table(task, call)
        if name(point) in known(path):
            return
        head = dict(self.head) | {"workload": f"{task.name} {list(call.args[0].shape)}", "kernels": "engine"}
        if not path.is_file():
            eager, _ = _median(self.timer, partial(task.make_reference(0, DEVICE), *call.args), 7)
            head["baselines_ms"] = {"eager": eager}
        append(path, head, point | ({"failure": failure[:200]} if failure else {}))


def _median(timer: Any, fn: Callable[[], Any], iterations: int = 15) -> tuple[float, list[float]]:
    """Median and samples in ms of single calls after a flush."""
    for _ in range(2):
        fn()
    samples = timer.batch(fn, iterations)
    return sorted(samples)[len(samples) // 2], samples


def point_of(task: Any, ran: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Family: the kernels that ran, without the task's name; schedule: their constants."""
    kernels = sorted(ran)
    several = len(kernels) > 1
    schedule = {f"{k}.{n}" if several else n: v for k in kernels for n, v in ran[k].items()}
    return {"family": ", ".join(kernel.removeprefix(f"{task.name}_") for kernel in kernels), "schedule": schedule}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=500.0, help="no new configuration is begun after that")
    parser.add_argument("--points", type=int, default=24, help="configurations of a workload, at most")
    parser.add_argument("--largest-gb", type=float, default=2.0, help="inputs of a shape that is timed, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the order of configurations")
    parser.add_argument("--folder", type=Path, default=HERE / "landscapes")
    options = parser.parse_args()
    import torch
    from rows import environment

    from kforge.worker import Zygote

    options.folder.mkdir(parents=True, exist_ok=True)
    found = environment(DEVICE)
    head = {
        "chip": found["gpu"],
        "dtype": "float32",
        "sources": ["benchmarks/record_landscapes.py"],
        "environment": found,
    }
    with Zygote() as zygote, torch.no_grad():
        recorder = Recorder(options, zygote, head)
        for path in sorted((HERE / "workloads").glob("*.py")):
            if options.names and path.stem not in options.names:
                continue
            if time.monotonic() > recorder.end:
                print(f"{path.stem}: no time left", file=sys.stderr)
                continue
            begin = time.monotonic()
            count = recorder.workload(path)
            print(f"{path.stem}: {count} configurations, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    for path in sorted(options.folder.glob("*.json")):
        points = json.loads(path.read_text())["points"]
        times = [point["ms"] for point in points if "ms" in point]
        print(f"{path.stem:48} {len(points):4} candidates, {len(times):4} right, {min(times, default=math.nan):.4f} ms")


if __name__ == "__main__":
    main()
