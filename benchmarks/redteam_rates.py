"""Both rates of the red team: cheats that get their outcome, honest candidates that pass.

Run: python benchmarks/redteam_rates.py [--device cuda:0] [--out benchmarks/results/redteam.json]. Prints the table and
writes it with machine and versions. On a GPU the fixtures of tests/redteam/gpu are judged besides.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def words(failure: str) -> str:
    """The line of a failure that says most: the last one of a traceback, else the first."""
    lines = failure.splitlines() or [""]
    return (lines[-1] if 'File "' in failure else lines[0])[:200]


def main() -> int:
    """Judges every fixture once; 0 when all are as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "redteam.json")
    options = parser.parse_args()

    from kforge.environment.target import target_name, versions
    from tests.redteam.support import CHEATS, HONEST, ON_GPU, Bench, read

    paths = [*CHEATS, *HONEST, *(ON_GPU if options.device != "cpu" else ())]
    rows = []
    begin = time.monotonic()
    with Bench(options.device) as bench:
        for path in paths:
            fixture = read(path)
            report = bench.judge(fixture)
            complaint = fixture.complaint(report)
            fired = sorted(d.name for d in report.detectors if d.fired)
            honest = path.parent.name == "honest" or fixture.about.startswith("Honest")
            rows.append({
                "fixture": f"{path.parent.name}/{path.stem}", "about": fixture.about, "honest": honest,
                "plan": report.plan, "static_gate": fixture.gated, "status": report.status.value, "detectors": fired,
                "verdict": report.verdict.value, "as_expected": not complaint, "complaint": complaint,
                "words": words(report.failure),
                "seconds": round(report.seconds, 2),
            })  # fmt: skip
            mark, name = "NOT" if complaint else "ok ", rows[-1]["fixture"]
            print(f"{mark} {name:44} {report.status.value:13} {', '.join(fired):18} {complaint}")
    cheats, honest_ones = ([r for r in rows if r["honest"] is kind] for kind in (False, True))
    result = {
        "benchmark": "redteam", "target": target_name(options.device), "machine": platform.platform(),
        "processor": platform.machine(), "versions": versions(),
        "date": time.strftime("%Y-%m-%d"), "seconds": round(time.monotonic() - begin, 1),
        "cheats": len(cheats), "cheats_as_expected": sum(bool(r["as_expected"]) for r in cheats),
        "honest": len(honest_ones), "honest_passed": sum(bool(r["as_expected"]) for r in honest_ones),
        "fixtures": rows,
    }  # fmt: skip
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"cheats with their outcome: {result['cheats_as_expected']} of {result['cheats']}")
    print(f"honest candidates passed:  {result['honest_passed']} of {result['honest']}")
    print(f"{result['seconds']} s on {result['target']}; written to {options.out}")
    return 0 if all(r["as_expected"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
