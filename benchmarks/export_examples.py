"""Exports every example on the emulator: suggest, accept, export; built by nvcc, imported from its wheel and tested.

    python benchmarks/export_examples.py                    # what the table lacks yet; one at a time
    python benchmarks/export_examples.py --only softmax     # one example; --again makes its rows anew
    python benchmarks/export_examples.py --table            # prints the table of the last run

Every example that the engine answers leaves in format `extension`, two also in `hf`, `kernelbench` and `aot`.
A row is written to benchmarks/results/export-examples.json when it is done: a run that was cut goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "export-examples.json"
MORE = {"softmax": ("aot", "hf", "kernelbench"), "layer_norm_residual": ("aot", "hf", "kernelbench")}
SECONDS = 900


def kforge(work: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """(exit code, the object that a command ends with under --json)."""
    command = [sys.executable, "-m", "kforge", *arguments, "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    try:
        done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return 124, {"error": {"message": f"kforge {arguments[0]} took more than {SECONDS} s"}}
    lines = done.stdout.strip().splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else {"error": {"message": done.stderr.strip()[-300:]}}


def failed(found: dict[str, Any]) -> str:
    """In a few words why a command gave nothing."""
    error = found.get("error") or {}
    return str(error.get("message") or found.get("failure") or found.get("status") or "no message")


def export_one(name: str, formats: list[str], plan: str, done: Any) -> None:
    """The rows of one example; `done(format, row)` after each."""
    with tempfile.TemporaryDirectory(prefix="export-examples-") as folder:
        work = Path(folder)
        task = work / f"{name}.py"
        task.write_text((ROOT / "examples" / f"{name}.py").read_text())
        started = time.monotonic()
        code, found = kforge(work, "suggest", task.name)
        if found.get("status") == "no_candidate":  # Triton and Helion examples: a chat model may answer
            done(formats[0], {"passed": True, "without": "the engine has no candidate"})
            return
        if code:
            done(formats[0], {"passed": False, "at": "suggest", "why": failed(found)})
            return
        suggest_s = time.monotonic() - started
        code, found = kforge(work, "accept", task.name)
        if code:
            done(formats[0], {"passed": False, "at": "accept", "why": failed(found)})
            return
        for layout in formats:
            started = time.monotonic()
            arguments = ["--to", f"packages/{layout}", "--plan", plan, "--format", layout]
            code, found = kforge(work, "export", f"{name}_kforge.py", *arguments)
            if code:
                done(layout, {"passed": False, "at": "export", "why": failed(found)})
                continue
            tried = found["tried"]
            done(
                layout,
                {
                    "passed": tried["failed"] == 0 and tried["passed"] > 0,
                    "package": f"{found['package']} {found['version']}",
                    "wheel": tried["wheel"],
                    "tests": tried["passed"],
                    "not_run": tried["skipped"],
                    "build_s": tried["build_s"],
                    "test_s": tried["test_s"],
                    "suggest_s": round(suggest_s, 1),
                    "export_s": round(time.monotonic() - started, 1),
                    "translation": found["translation"],
                },
            )


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = ["| example | format | wheel | tests | not run | build |", "|---|---|---|---|---|---|"]
    for key, row in sorted(rows.items()):
        name, layout = key.split("/")
        if "without" in row:
            cells = [row["without"], "", "", ""]
        elif row["passed"]:
            cells = [row["wheel"], f"{row['tests']} passed", str(row["not_run"]), f"{row['build_s']:.0f} s"]
        else:
            cells = [f"FAILED at {row.get('at', 'its tests')}: {row.get('why', '')}", "", "", ""]
        lines.append("| " + " | ".join([name, layout, *cells]) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="an example's name; repeatable")
    parser.add_argument("--formats", default="", help="instead of the usual ones, with commas between")
    parser.add_argument(
        "--plan", default="quick", help="of the translated forward's judgement, as kforge export --plan"
    )
    parser.add_argument("--again", action="store_true", help="also what the table has already")
    parser.add_argument("--table", action="store_true", help="print the table and do nothing")
    asked = parser.parse_args()
    rows: dict[str, dict[str, Any]] = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else {}
    if asked.table:
        print(table(rows))
        return 0
    for path in sorted((ROOT / "examples").glob("*.py")):
        if asked.only and path.stem not in asked.only:
            continue
        formats = asked.formats.split(",") if asked.formats else ["extension", *MORE.get(path.stem, ())]
        formats = [f for f in formats if asked.again or not rows.get(f"{path.stem}/{f}", {}).get("passed")]
        if not formats:
            continue

        def done(layout: str, row: dict[str, Any], name: str = path.stem) -> None:
            rows[f"{name}/{layout}"] = row
            print(table({f"{name}/{layout}": row}).splitlines()[-1], flush=True)
            fresh = RESULTS.with_suffix(".new")
            fresh.write_text(json.dumps({"rows": rows}, indent=1, sort_keys=True) + "\n")
            os.replace(fresh, RESULTS)

        export_one(path.stem, formats, asked.plan, done)
    return 0 if all(row["passed"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
