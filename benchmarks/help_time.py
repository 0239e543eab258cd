"""Time `kforge --help` from a cold process: the median and the slowest of 20 starts.

python benchmarks/help_time.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time


def main() -> None:
    seconds = []
    for _ in range(20):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "kforge", "--help"], stdout=subprocess.DEVNULL, check=True)
        seconds.append(time.perf_counter() - started)
    print(f"kforge --help: median {statistics.median(seconds):.3f} s, slowest {max(seconds):.3f} s (limit 0.15 s)")


if __name__ == "__main__":
    main()
