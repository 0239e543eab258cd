"""Seconds of kforge's own work in a profile, and of the static analysis of one cubin. Needs no GPU.

    python -m benchmarks.profiling [--task examples/softmax.py] [--times 5] [--result FILE]

The cubin is of the engine's first candidate, built for --arch. Own work is what stands between the sources and the
reader: counters put on lines, the tools, the lines, the object of --json, the file that is kept. It is measured over
every recorded profile of an H200 (tests/profiling/fixtures/h200); counting bytes and operations of the graph is a row
of its own. Waiting for compilers, ncu and the GPU is not in it.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests" / "profiling" / "fixtures" / "h200"


def timed(work: Callable[[], Any], times: int) -> dict[str, float]:
    """Least, median and most seconds."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    rows = {"least_s": min(found), "median_s": statistics.median(found), "most_s": max(found)}
    return {name: round(seconds, 4) for name, seconds in rows.items()}


def cubin_rows(path: Path, arch: str, times: int) -> dict[str, Any]:
    """Static analysis of the first candidate's largest cubin, in parts and as a whole."""
    from kforge.engine import propose
    from kforge.kernel import static_report
    from kforge.profiling.builds import from_report
    from kforge.profiling.evidence import Evidence
    from kforge.profiling.feedback import Mode, feedback
    from kforge.profiling.sources import sass
    from kforge.task import capture, count, load_task

    task = load_task(path)
    graph = capture(task)
    candidate = next(iter(propose(task, graph, arch=arch, device="cpu")))
    with tempfile.TemporaryDirectory() as folder:
        candidate.write(Path(folder))
        rows = static_report(Path(folder) / candidate.module, arch)
        row = max(rows, key=lambda r: Path(str(r["cubin"])).stat().st_size)
        cubin, files = Path(str(row["cubin"])), tuple(candidate.files)
        kernel = from_report(row, cubin)
        listing = sass.disassemble(cubin, files)[kernel.symbol]
        summary = sass.summarise(listing)

        def whole() -> None:
            found = replace(kernel, sass=sass.summarise(sass.disassemble(cubin, files)[kernel.symbol]))
            feedback(Evidence(task.name, candidate.digest, "", arch, 0, kernels=(found,)), Mode.TOOLS)

        return {
            "task": task.name,
            "counted from the graph": timed(lambda: count(graph), times),
            "cubin_bytes": cubin.stat().st_size,
            "instructions": len(listing),
            "lines": len(summary.lines),
            "disassembled and parsed": timed(lambda: sass.disassemble(cubin, files), times),
            "summarised": timed(lambda: sass.summarise(listing), times),
            "whole, tools included": timed(whole, times),
        }


def own_work(times: int) -> dict[str, Any]:
    """Own work over each recorded profile: the median of all, and the longest one."""
    from kforge.agent.profile import Profiled, save, summary
    from kforge.profiling.builds import attributed
    from kforge.profiling.evidence import Evidence, from_json
    from kforge.profiling.feedback import Mode, feedback

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(RECORDED.glob("*.json")):
            evidence: Evidence = from_json(Evidence, json.loads(path.read_text()))

            def work(evidence: Evidence = evidence) -> None:
                for kernel in evidence.kernels:
                    attributed(kernel)
                said = feedback(evidence, Mode.TOOLS, [])
                json.dumps(summary(evidence.task, Profiled(evidence, said, None)))
                save(evidence, Path(folder))

            found[path.stem] = timed(work, times)
    slowest = max(found, key=lambda name: found[name]["median_s"])
    middle = statistics.median(row["median_s"] for row in found.values())
    return {"profiles": len(found), "median_s": round(middle, 4), "slowest": slowest, "of the slowest": found[slowest]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", type=Path, default=ROOT / "examples" / "softmax.py")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--result", type=Path)
    options = parser.parse_args()
    result = {
        "cubin": cubin_rows(options.task, options.arch, options.times),
        "own work": own_work(options.times),
        "machine": f"{platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if options.result:
        options.result.write_text(text + "\n")


if __name__ == "__main__":
    main()
