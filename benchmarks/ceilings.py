"""Measure and print the ceilings of the GPU that is present, beside its data sheet.

python benchmarks/ceilings.py [--out benchmarks/results/ceilings-<gpu>.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from pathlib import Path

import torch

from kforge.errors import MissingError
from kforge.profiling.calibrate import calibrate
from kforge.profiling.ceilings import data_sheet, driver_release


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("needs a CUDA GPU")
    started = time.perf_counter()
    measured = calibrate(arguments.device, driver_release())
    seconds = time.perf_counter() - started
    try:
        sheet = data_sheet(measured.gpu)
    except MissingError:
        sheet = None
    print(f"{measured.gpu}, driver {measured.driver}, L2 {measured.l2_bytes / 2**20:.0f} MiB, {seconds:.1f} s")
    for name, value in measured.bandwidth.items():
        share = f"{value / sheet.bandwidth[name]:.2f} of the data sheet" if sheet else ""
        print(f"  {name:<12} {value / 1e12:7.3f} TB/s      {share}  ({measured.methods[name]})")
    for name, value in measured.rates.items():
        share = f"{value / sheet.rates[name]:.2f} of the data sheet" if sheet and name in sheet.rates else ""
        print(f"  {name:<12} {value / 1e12:7.1f} Tera-op/s {share}")
    for name, value in (("l2 read", measured.l2), ("shared read", measured.shared)):
        print(f"  {name:<12} {value / 1e12:7.3f} TB/s")
    print(f"  {measured.processors} multiprocessors at {dict(measured.clocks)}")
    print(f"  launch       {measured.launch_s * 1e6:7.2f} us")
    if arguments.out:
        git = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        record = {
            "benchmark": "ceilings",
            "commit": git.stdout.strip(),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "seconds": seconds,
            "ceilings": measured.as_dict(),
        }
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
