"""How often is a right kernel called wrong? Judges correct kernels again and again with fresh seeds.

Run: python benchmarks/false_rejections.py [--count 1000] [--plan standard] [--minutes 60] [--device cpu] [--out FILE].
The kernels are those of mutation_score.py: written by hand, and the engine's first proposals for examples/*. Every
evaluation has entropy of its own. Each row is appended to the .jsonl beside the result, so a run that was cut short
goes on; a result without such a log is counted on from. The result names every rejection with its seed.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
NONE: dict[str, Any] = {"evaluations": 0, "rejected": [], "by_kernel": {}, "cases": 0}


def main() -> int:
    """0 when no right kernel was rejected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--plan", default="standard")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "false-rejections.json")
    options = parser.parse_args()

    from mutation_score import kernels

    from kforge.engine import propose
    from kforge.environment import evaluate, prepare
    from kforge.environment.target import target_name, versions
    from kforge.errors import NoCandidate
    from kforge.kernel import target_arch
    from kforge.task import capture, load_task
    from kforge.worker import Zygote

    arch = target_arch(None if options.device == "cpu" else options.device)
    chosen = []
    for name, path, candidate in kernels():
        task = load_task(path)
        try:
            found = candidate or next(
                iter(propose(task, capture(task, 0, options.device), arch=arch, device=options.device))
            )
        except NoCandidate:
            continue  # a Triton or Helion task: there is nothing of ours to judge
        chosen.append((name, task, found))
    book = options.out.with_suffix(".jsonl")
    if not book.exists() and options.out.exists():
        book.write_text(json.dumps({"earlier": json.loads(options.out.read_text())}) + "\n")
    lines = [json.loads(line) for line in book.read_text().splitlines()] if book.exists() else []
    earlier = next((line["earlier"] for line in lines if "earlier" in line), NONE)
    rows = [line for line in lines if "earlier" not in line]
    end = time.monotonic() + 60 * options.minutes
    with Zygote() as zygote, book.open("a") as log:
        while earlier["evaluations"] + len(rows) < options.count and time.monotonic() < end:
            name, task, candidate = chosen[len(rows) % len(chosen)]
            prepared = prepare(task, options.device)
            report = evaluate(
                task, candidate, options.plan, device=options.device, zygote=zygote, reference=prepared, timing=False
            )
            row: dict[str, Any] = {
                "kernel": name, "plan": options.plan, "status": report.status.value, "cases": len(report.cases),
                "seconds": round(report.seconds, 2), "entropy": str(prepared.entropy),
            }  # fmt: skip
            if report.status.value != "verified":
                row["failure"] = report.failure[:500]
            rows.append(row)
            log.write(json.dumps(row) + "\n")
            log.flush()
            print(
                f"{earlier['evaluations'] + len(rows)} of {options.count}: {name} {row['status']} {row['seconds']} s",
                flush=True,
            )
    rejected = earlier["rejected"] + [row for row in rows if row["status"] != "verified"]
    count = earlier["evaluations"] + len(rows)
    result = {
        "benchmark": "false_rejections", "plan": options.plan, "target": target_name(options.device),
        "machine": platform.platform(), "versions": versions(), "evaluations": count, "rejected": rejected,
        "by_kernel": dict(Counter(earlier["by_kernel"]) + Counter(row["kernel"] for row in rows)),
        "cases": earlier["cases"] + sum(row["cases"] for row in rows),
    }  # fmt: skip
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{len(rejected)} of {count} evaluations of right kernels were rejected; written to {options.out}")
    return 1 if rejected else 0


if __name__ == "__main__":
    sys.exit(main())
