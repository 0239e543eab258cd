"""Digests of the engine's candidates, to prove that a change of its code changes no candidate.

    python benchmarks/engine_digests.py before.json [--texts FOLDER]
    python benchmarks/engine_digests.py after.json --like before.json

Every task of examples and benchmarks/workloads is captured on the CPU and the engine asked for its candidates; no
kernel is built. With --like, names whose candidates differ are printed and the exit code is 1; names that the earlier
file lacks are only counted. --texts writes the candidates themselves, for a diff.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import islice
from pathlib import Path

from kforge.engine import propose
from kforge.errors import KforgeError
from kforge.task import capture, load_task

HERE = Path(__file__).resolve().parent
MOST = 40  # candidates of a task


def digests_of(path: Path, texts: Path | None = None) -> list[str] | str:
    """The digests in the engine's order; why there are none where that is so."""
    found = []
    try:
        task = load_task(path)
        proposals = propose(task, capture(task, 0, device="cpu"), arch="sm_90a", device="cpu")
        for number, candidate in enumerate(islice(proposals, MOST)):
            found.append(candidate.digest)
            if texts is not None:
                candidate.write(texts / f"{path.stem}.{number}")
    except KforgeError as error:
        return error.message
    return found


def differing(before: dict[str, list[str] | str], after: dict[str, list[str] | str]) -> list[str]:
    """A line for each name of both whose candidates are no longer the same."""
    lines = []
    for name in sorted(before.keys() & after.keys()):
        old, new = before[name], after[name]
        if old == new:
            continue
        if isinstance(old, str) or isinstance(new, str):
            lines.append(
                f"{name}: {old if isinstance(old, str) else len(old)} -> {new if isinstance(new, str) else len(new)}"
            )
            continue
        first = next((k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        lines.append(f"{name}: {len(old)} candidates -> {len(new)}, the first that differs is number {first}")
    return lines


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--like", type=Path, help="an earlier file to compare with")
    parser.add_argument("--texts", type=Path, help="a folder for the candidates themselves")
    parser.add_argument("--only", nargs="*", default=[], help="these names alone")
    options = parser.parse_args(arguments)
    paths = sorted([*(HERE.parent / "examples").glob("*.py"), *(HERE / "workloads").glob("*.py")])
    chosen = [path for path in paths if not options.only or path.stem in options.only]
    found = {path.stem: digests_of(path, options.texts) for path in chosen}
    options.out.write_text(json.dumps(found, indent=1))
    have = [v for v in found.values() if not isinstance(v, str)]
    print(f"{len(found)} tasks, {len(have)} with {sum(map(len, have))} candidates")
    if options.like is None:
        return 0
    before = json.loads(options.like.read_text())
    lines = differing(before, found)
    print("\n".join(lines) or f"the same; {len(found.keys() - before.keys())} names are new")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
