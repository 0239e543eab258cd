"""Seconds of one evaluation (build, plan quick, time) of a small kernel in a warm worker, by stage. Needs a GPU."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kforge.engine import propose
from kforge.environment import evaluate, prepare
from kforge.environment.report import Report
from kforge.kernel.candidate import Candidate
from kforge.task import load_task
from kforge.worker import Zygote


def stages(report: Report) -> dict[str, float]:
    """Seconds by stage: the gates, the build and performance gates by what they do, and what none accounts for.

    "context: ..." is what a process took to be there, mostly in the evaluation before its own.
    """
    gates = {gate.name: gate.seconds for gate in report.gates}
    timing = {name if ":" in name else f"time: {name}": seconds for name, seconds in report.stages.items()}
    own = {f"wait: {name}" for name in ("ended processes", "spare processes", "timed")}
    inside = {name: s for name, s in timing.items() if name in own or name.startswith("time: ")}
    timing["time: rest"] = gates.get("performance", 0.0) - sum(inside.values())
    return gates | dict(sorted(timing.items())) | {"rest": report.seconds - sum(gates.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--task", type=Path, default=Path("examples/softmax.py"))
    parser.add_argument("--evaluations", type=int, default=6)
    parser.add_argument("--plan", default="quick")
    options = parser.parse_args()
    device = "cuda:0"
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)

    task = load_task(options.task)
    prepared = prepare(task, device)
    say("prepared")
    first = next(propose(task, prepared.capture(), arch="sm_90a", device=device, facts=prepared.facts))
    say("proposed")
    rows: list[dict[str, Any]] = []
    with Zygote() as zygote:
        for number in range(options.evaluations + 1):
            text = first.files[first.module] + f"\n# {number}\n"  # another hash: nothing of the one before is reused
            source = {name: t + f"\n// {number}\n" for name, t in first.files.items() if name != first.module}
            candidate = Candidate(first.module, {**source, first.module: text})
            report = evaluate(
                task,
                candidate,
                options.plan,
                device=device,
                reference=prepared,
                zygote=zygote,
                on_event=lambda kind, data: say(data["text"]) if kind == "message" else None,
            )
            say(f"evaluation {number}: {report.status.value}, {report.verdict.value}, {report.seconds:.2f} s")
            rows.append({"seconds": report.seconds, "status": report.status.value, "stages": stages(report)})
            rows[-1] |= {"verdict": report.verdict.value, "warnings": report.warnings}
            if report.speedup is not None:
                rows[-1]["speedup"] = {**asdict(report.speedup), "basis": report.variants[0].basis}
    warm = rows[1:]
    names = dict.fromkeys(name for row in warm for name in row["stages"])
    middle = {name: statistics.median(row["stages"].get(name, 0.0) for row in warm) for name in names}
    for name, seconds in middle.items():
        each = " ".join(f"{row['stages'].get(name, 0.0) * 1e3:6.0f}" for row in warm)
        print(f"{name:24} {seconds * 1e3:8.1f} ms  {each}", file=sys.stderr)
    print(
        json.dumps(
            {
                "benchmark": "evaluation",
                "task": task.name,
                "plan": options.plan,
                "first_s": rows[0]["seconds"],
                "median_s": statistics.median(row["seconds"] for row in warm),
                "stages_s": {name: round(seconds, 4) for name, seconds in middle.items()},
                "evaluations": rows,
                "gpu": torch.cuda.get_device_name(0),
                "torch": torch.__version__,
                "python": platform.python_version(),
            }
        )
    )


if __name__ == "__main__":
    main()
