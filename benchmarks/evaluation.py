"""Seconds of one evaluation (build, plan quick, time) of a small kernel in a warm worker. Needs a GPU."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from pathlib import Path

import torch

from kforge.engine import propose
from kforge.environment import evaluate, prepare
from kforge.kernel.candidate import Candidate
from kforge.task import load_task
from kforge.worker import Zygote


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", type=Path, default=Path("examples/softmax.py"))
    parser.add_argument("--evaluations", type=int, default=6)
    options = parser.parse_args()
    device = "cuda:0"
    task = load_task(options.task)
    prepared = prepare(task, device)
    first = next(propose(task, prepared.capture(), arch="sm_90a", device=device, facts=prepared.facts))
    rows = []
    with Zygote() as zygote:
        for number in range(options.evaluations + 1):
            text = first.files[first.module] + f"\n# {number}\n"  # another hash: nothing of the one before is reused
            source = {name: t + f"\n// {number}\n" for name, t in first.files.items() if name != first.module}
            candidate = Candidate(first.module, {**source, first.module: text})
            report = evaluate(task, candidate, "quick", device=device, reference=prepared, zygote=zygote)
            gates = {gate.name: gate.seconds for gate in report.gates}
            rows.append({"seconds": report.seconds, "status": report.status.value, "gates": gates})
    warm = rows[1:]
    print(
        json.dumps(
            {
                "benchmark": "evaluation",
                "task": task.name,
                "first_s": rows[0]["seconds"],
                "median_s": statistics.median(row["seconds"] for row in warm),
                "evaluations": rows,
                "gpu": torch.cuda.get_device_name(0),
                "torch": torch.__version__,
                "python": platform.python_version(),
            }
        )
    )


if __name__ == "__main__":
    main()
