"""Time `kforge --help` from a cold process: 20 starts, by the clock and in processor time (a busy machine waits, too).

python benchmarks/help_time.py [--out FILE]; writes benchmarks/results/help-time.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import kforge

RESULT = Path(__file__).resolve().parent / "results" / "help-time.json"
LIMIT_S = 0.15


def start() -> tuple[float, float]:
    """(seconds by the clock, seconds of processor time) of one start."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "kforge", "--help"], stdout=subprocess.DEVNULL, check=True)
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended - began, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    found = [start() for _ in range(20)]
    clock, processor = ([round(pair[i], 4) for pair in found] for i in (0, 1))
    result = {
        "benchmark": "help_time",
        "machine": {"host": platform.machine(), "system": platform.system(), "cpus": os.cpu_count(), "load": load},
        "versions": {"kforge": kforge.__version__, "python": platform.python_version()},
        "limit_s": LIMIT_S,
        "clock_s": {"median": statistics.median(clock), "least": min(clock), "all": clock},
        "processor_s": {"median": statistics.median(processor), "all": processor},
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for name in ("clock_s", "processor_s"):
        print(f"kforge --help: {name} median {result[name]['median']:.3f} (limit {LIMIT_S})")  # type: ignore[index]


if __name__ == "__main__":
    main()
