"""Both rates of the red team: cheats that get their outcome, honest candidates that pass.

Run: python benchmarks/redteam_rates.py [--device cuda:0] [--out benchmarks/results/redteam.json] [--part 1/3]
[--limit-s 120] [--earlier FILE]. On a GPU the fixtures of tests/redteam/gpu are judged besides. Each row is appended to
the .jsonl beside the result as soon as it is there; what has a row for the same text is not judged again, so a run that
was cut short goes on where it was, and parts may run side by side. What an earlier run has judged as expected comes
last, and where time ends before it the earlier row counts. The table and the result, of all fixtures, come last.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def words(failure: str) -> str:
    """The line of a failure that says most: the last one of a traceback, else the first."""
    lines = failure.splitlines() or [""]
    return (lines[-1] if 'File "' in failure else lines[0])[:200]


def known(path: Path) -> dict[str, dict[str, Any]]:
    """Rows that are there already, by fixture; a line that was cut off is none."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        rows[row["fixture"]] = row
    return rows


def earlier_rows(path: Path | None) -> dict[str, dict[str, Any]]:
    """Rows of another run that came out as expected, from its .jsonl or its result."""
    if path is None:
        return {}
    rows = (
        known(path) if path.suffix == ".jsonl" else {r["fixture"]: r for r in json.loads(path.read_text())["fixtures"]}
    )
    return {name: row | {"earlier": True} for name, row in rows.items() if row["as_expected"]}


def main() -> int:
    """0 when every fixture has its row and all are as expected."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "redteam.json")
    parser.add_argument("--part", default="1/1", help="k/n: each n-th fixture from the k-th on")
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="no fixture is begun after so many seconds")
    parser.add_argument("--extra-s", type=float, help="seconds for the extra cases of one plan (default: the plan's)")
    parser.add_argument("--only", default="", help="judge fixtures with this in their name")
    parser.add_argument("--skip", default="", help="do not judge this fixture now")
    parser.add_argument("--earlier", type=Path, help="the .jsonl or result of an earlier run on such a device")
    options = parser.parse_args()

    from kforge.environment.target import target_name, versions
    from tests.redteam.support import CHEATS, HONEST, ON_GPU, Bench, read

    begin = time.monotonic()
    paths = [*CHEATS, *HONEST, *(ON_GPU if options.device != "cpu" else ())]
    book = options.out.with_suffix(".jsonl")
    book.parent.mkdir(parents=True, exist_ok=True)
    part, parts = map(int, options.part.split("/"))
    fixtures = {f"{path.parent.name}/{path.stem}": read(path) for path in paths}
    digests = {name: fixture.candidate.digest for name, fixture in fixtures.items()}

    def same_text(rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        return {name: row for name, row in rows.items() if digests.get(name) == row["digest"]}

    earlier = same_text(earlier_rows(options.earlier))
    order = sorted(fixtures, key=lambda name: name in earlier)
    with Bench(options.device, options.extra_s) as bench:
        for name in order[part - 1 :: parts]:
            fixture = fixtures[name]
            if options.only not in name or name == options.skip or fixture.missing or name in same_text(known(book)):
                continue
            if time.monotonic() - begin > options.limit_s:
                break
            report = bench.judge(fixture)
            complaint = fixture.complaint(report)
            fired = sorted(d.name for d in report.detectors if d.fired)
            row = {
                "fixture": name, "digest": fixture.candidate.digest, "about": fixture.about,
                "honest": fixture.home == "honest" or fixture.about.startswith("Honest"),
                "plan": report.plan, "static_gate": fixture.gated, "status": report.status.value, "detectors": fired,
                "verdict": report.verdict.value, "as_expected": not complaint, "complaint": complaint,
                "words": words(report.failure), "seconds": round(report.seconds, 2),
                "memory_gate_s": next((g.seconds for g in report.gates if g.name == "memory" and g.passed), None),
            }  # fmt: skip
            with book.open("a") as file:
                file.write(json.dumps(row) + "\n")
            mark = "NOT" if complaint else "ok "
            print(f"{mark} {name:44} {report.status.value:13} {', '.join(fired):18} {complaint}", flush=True)
    rows = earlier | same_text(known(book))
    lacking = sorted(digests.keys() - rows.keys())
    cheats, honest = ([r for r in rows.values() if r["honest"] is kind] for kind in (False, True))
    result = {
        "benchmark": "redteam", "target": target_name(options.device), "machine": platform.platform(),
        "processor": platform.machine(), "versions": versions(), "date": time.strftime("%Y-%m-%d"),
        "seconds": round(sum(r["seconds"] for r in rows.values()), 1), "extra_s": options.extra_s,
        "cheats": len(cheats), "cheats_as_expected": sum(bool(r["as_expected"]) for r in cheats),
        "honest": len(honest), "honest_passed": sum(bool(r["as_expected"]) for r in honest),
        "judged_earlier": sum("earlier" in r for r in rows.values()), "not_judged": lacking,
        "fixtures": [rows[name] for name in digests if name in rows],
    }  # fmt: skip
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"cheats with their outcome: {result['cheats_as_expected']} of {result['cheats']}")
    print(f"honest candidates passed:  {result['honest_passed']} of {result['honest']}")
    print(f"not judged: {', '.join(lacking) or 'none'}")
    print(f"{result['seconds']} s on {result['target']}; written to {options.out}")
    return 0 if not lacking and all(r["as_expected"] for r in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
