"""`python -m tests.gpu.faults [--keep=FOLDER] [NAME ...]`: the table of tools, on the GPU or the emulator.

--keep: the profiles as fixtures, ncu's log, and table.jsonl with every tool that fires on either twin of each case.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from kforge.profiling.analysis import tools
from tests.gpu.faults.cases import CASES, FAULT, GOOD
from tests.gpu.faults.running import Runner, fires


def main(names: list[str], keep: Path | None) -> int:
    """Exit code 1 where a tool is silent on its fault or fires on the twin."""
    bad, begin = 0, time.perf_counter()
    counted: set[str] = set()

    def say(words: str) -> None:
        print(f"{time.perf_counter() - begin:6.1f} s  {words}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder, Runner(Path(folder), say=say) as runner:
        for name, found in runner.each(names or list(CASES)):
            twins = {twin: fires(name, found[twin]) for twin in (FAULT, GOOD)}
            if keep is not None:
                for twin in twins:
                    runner.keep(found[twin], keep / f"{name}_{twin}.json")
            right = bool(twins[FAULT]) and not twins[GOOD]
            bad += not right
            counted |= {name for k in found[FAULT].kernels if k.counters}
            words = ["fires" if finding else "silent" for finding in twins.values()]
            finding = twins[FAULT] or twins[GOOD]
            detail = f"[{', '.join(finding.sources)}] {finding.evidence[0][:70]}" if finding else ""
            if keep is not None:
                row = {"case": name, "right": right, "evidence": detail} | {
                    twin: [tool.name for tool in tools() if fires(tool.name, found[twin])] for twin in (FAULT, GOOD)
                }
                with (keep / "table.jsonl").open("a") as file:
                    file.write(json.dumps(row) + "\n")
            print(f"{name:<20} {words[0]:<7} {words[1]:<7} {'ok' if right else 'WRONG':<6} {detail}", flush=True)
        print(f"{bad} wrong, {len(counted)} with counters, {time.perf_counter() - begin:.0f} s")
        if keep is not None:
            (keep / "ncu.log").write_text("\n".join(runner.logs))
        if runner.denied:
            print(f"no counters: {runner.denied}")
    return int(bad > 0)


if __name__ == "__main__":
    words = sys.argv[1:]
    target = Path(words.pop(0).removeprefix("--keep=")) if words and words[0].startswith("--keep=") else None
    sys.exit(main(words, target))
