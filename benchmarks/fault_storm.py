"""The fault test at length: N evaluations of which a third misbehave, then what was lost, false or left behind.

Run: python benchmarks/fault_storm.py [--count 2000] [--seed N] [--out benchmarks/results/fault_storm.json].
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def main() -> int:
    """0 when nothing was lost, no outcome was false and no trace was left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "fault_storm.json")
    options = parser.parse_args()

    from kforge.environment.target import versions
    from kforge.worker import Zygote
    from tests.worker.faults import Traces, storm

    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="kforge-storm-") as folder, Zygote() as zygote:
        storm(zygote, 6, options.seed, Path(folder))  # what is imported and opened once
        before = Traces.of(zygote)
        tally = storm(zygote, options.count, options.seed, Path(folder))
        after = Traces.of(zygote)
        restarts = zygote.restarts
    result = {
        "benchmark": "fault_storm", "machine": platform.platform(), "processor": platform.machine(),
        "versions": versions(), "date": time.strftime("%Y-%m-%d"), "seed": tally.seed, "evaluations": tally.count,
        "seconds": round(tally.seconds, 1), "lost": options.count - tally.count, "false": tally.wrong,
        "leaked": [] if before == after else [str(before), str(after)], "parent_restarts": restarts,
        "outcomes": {f"{name}: {outcome}": n for (name, outcome), n in sorted(tally.outcomes.items())},
    }  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 1 if result["lost"] or tally.wrong or result["leaked"] else 0


if __name__ == "__main__":
    sys.exit(main())
