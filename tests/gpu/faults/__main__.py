"""`python -m tests.gpu.faults [--keep=FOLDER] [NAME ...]`: the table of tools, on the GPU or the emulator."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.gpu.faults.cases import CASES, FAULT, GOOD
from tests.gpu.faults.running import Runner, fires


def main(names: list[str], keep: Path | None) -> int:
    """Exit code 1 where a tool is silent on its fault or fires on the twin."""
    bad, begin = 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Runner(Path(folder)) as runner:
        found = runner.everything(names or list(CASES))
        for name in dict.fromkeys(name for name, _ in found):
            twins = {twin: fires(name, found[name, twin]) for twin in (FAULT, GOOD)}
            if keep is not None:
                for twin in twins:
                    runner.keep(found[name, twin], keep / f"{name}_{twin}.json")
            right = bool(twins[FAULT]) and not twins[GOOD]
            bad += not right
            words = ["fires" if finding else "silent" for finding in twins.values()]
            finding = twins[FAULT] or twins[GOOD]
            detail = f"[{', '.join(finding.sources)}] {finding.evidence[0][:70]}" if finding else ""
            print(f"{name:<20} {words[0]:<7} {words[1]:<7} {'ok' if right else 'WRONG':<6} {detail}", flush=True)
        print(f"{bad} wrong, {time.perf_counter() - begin:.0f} s")
        if runner.denied:
            print(f"no counters: {runner.denied}")
    return int(bad > 0)


if __name__ == "__main__":
    words = sys.argv[1:]
    target = Path(words.pop(0).removeprefix("--keep=")) if words and words[0].startswith("--keep=") else None
    sys.exit(main(words, target))
