"""The fault test at length: N evaluations of which a third misbehave, then what was lost, false or left behind.

Run: python benchmarks/fault_storm.py [--device cuda:0] [--count 2000] [--seed N] [--out FILE]. On a GPU (default 200,
about 80 s with its start) contexts are poisoned, kernels never end and memory is kept besides; every child has the
allocator with guard bands, and free memory is compared at the end. The result is written anew after every tenth
evaluation.
"""

from __future__ import annotations

import argparse
import json
import platform
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SLACK = 256 << 20  # bytes of device memory that the judge may keep for the next children
EVERY = 10
SETTLE_S = 5.0


def free_bytes(device: str, at_least: int = 0) -> int | None:
    """Free memory of the GPU, once it has come to `at_least` or some seconds have passed; None on the CPU."""
    if device == "cpu":
        return None
    import torch

    deadline = time.monotonic() + SETTLE_S
    while (free := torch.cuda.mem_get_info(device)[0]) < at_least and time.monotonic() < deadline:
        time.sleep(0.05)
    return int(free)


def main() -> int:
    """0 when nothing was lost, no outcome was false and no trace was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = options.device
    count = options.count or (2000 if device == "cpu" else 200)
    name = "fault_storm.json" if device == "cpu" else "fault_storm_gpu.json"
    out = options.out or ROOT / "benchmarks" / "results" / name
    out.parent.mkdir(parents=True, exist_ok=True)

    from kforge.environment.target import target_name, versions
    from kforge.worker import Zygote
    from tests.worker.faults import Tally, Traces, storm

    head: dict[str, Any] = {
        "benchmark": "fault_storm", "target": target_name(device), "machine": platform.platform(),
        "processor": platform.machine(), "versions": versions(), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip

    def write(tally: Tally, **more: Any) -> dict[str, Any]:
        outcomes = {f"{fault}: {outcome}": n for (fault, outcome), n in sorted(tally.outcomes.items())}
        result = head | {
            "seed": tally.seed, "asked": count, "evaluations": tally.count, "seconds": round(tally.seconds, 1),
            "false": tally.wrong, **more, "outcomes": outcomes,
        }  # fmt: skip
        out.write_text(json.dumps(result, indent=1) + "\n")
        return result

    def tell(tally: Tally) -> None:
        if tally.count % EVERY == 0:
            write(tally)
            print(f"{tally.count} of {count} in {tally.seconds:.1f} s, {len(tally.wrong)} false", flush=True)

    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="kforge-storm-") as folder, Zygote() as zygote:
        storm(zygote, 6, options.seed, Path(folder), device)  # what is imported and opened once
        before, free = Traces.of(zygote), free_bytes(device)
        tally = storm(zygote, count, options.seed, Path(folder), device, tell)
        after, left = Traces.of(zygote), free_bytes(device, (free or 0) - SLACK)
        restarts = zygote.restarts
    leaked = after.since(before)
    if free is not None and left is not None and left < free - SLACK:
        leaked.append(f"device memory: {free} bytes free before, {left} after")
    result = write(tally, lost=count - tally.count, leaked=leaked, parent_restarts=restarts, device_free=[free, left])
    print(json.dumps(result, indent=1))
    return 1 if result["lost"] or tally.wrong or leaked else 0


if __name__ == "__main__":
    sys.exit(main())
