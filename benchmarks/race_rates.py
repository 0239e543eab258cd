"""Rates of the race detector over its evidence suite, and its slow-down; prints JSON.

Run: python benchmarks/race_rates.py [--write]. found: planted races reported with the right pair of lines; false:
correct kernels with any finding (each in two thread orders); skills: launches of the skills' kernels on all small
inputs of their tasks, and those skills with any finding; removed: correct kernels with one barrier, fence or wait
taken out, of which some are no data race (named). --write keeps the result in benchmarks/results/race-checker.json.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.emulator_softmax import COLS, ROWS, SOURCE  # noqa: E402
from kforge.errors import EmulatorError  # noqa: E402
from kforge.kernel.emulator import build, load  # noqa: E402
from kforge.kernel.emulator.findings import Region  # noqa: E402
from kforge.kernel.emulator.traced import run_traced  # noqa: E402
from tests.kernel.emulator.races import cases as suite  # noqa: E402
from tests.skills import kernels as skills  # noqa: E402

_SYNCHRONISES = re.compile(
    r"__syncthreads\(\);|__syncwarp\([^;]*\);|__threadfence(?:_block)?\(\);|\b(?:c|block|tile|cg::this_grid\(\))\.sync\(\);"
    r"|asm volatile\(\"bar[^;]*;[^;]*;|\b(?:c|block)\.barrier_wait[^;]*;|__pipeline_wait_prior\(\d\);"
)
# What may go without a data race that the model knows: an acquire side where an atomic or an uncached load stands in,
# the order of two volatile stores, the life time of another block's shared memory, a copy that nobody reads.
NO_RACE = {
    "mutex": "an atomic acquires by itself",
    "global_variables": "an atomic acquires by itself",
    "split_row": "__ldcg passes by the L1 cache",
    "look_back": "volatile data: no data race; in which order volatile stores arrive is not checked",
    "cluster_split_barrier": "a block may end while others read its shared memory",
    "pipeline": "the last copy is never read",
}


def of_skills() -> dict[str, object]:
    """The worked kernels of skills/, correct by the judge: any finding is a false one."""
    launches, wrong = 0, []
    for name in skills.NAMES:
        kept = skills.record(name, skills.load_module(skills.SKILLS / name))
        launches += len(kept.launches)
        if run_traced(kept.launches, kept.buffers).findings:
            wrong.append(name)
    return {"skills": len(skills.NAMES), "launches": launches, "false": len(wrong), "false_reports": wrong}


def removed() -> dict[str, object]:
    """Takes each synchronisation out of each correct kernel, one at a time."""
    lines = (suite.HERE / "clean.cu").read_text().splitlines()
    cases = suite.cases("clean.cu")
    starts = [i for i, line in enumerate(lines) if line.startswith("KERNEL(")]
    text, variants = list(lines), []
    for case, start in zip(cases, starts, strict=True):
        body = lines[start : lines.index("}", start) + 1]
        for i, line in enumerate(body):
            for m in _SYNCHRONISES.finditer(line):
                name = f"{case.kernel}_without_{len(variants)}"
                changed = [*body[:i], f"{line[: m.start()]};{line[m.end() :]}", *body[i + 1 :]]
                changed[0] = changed[0].replace(f"KERNEL({case.kernel})", f"KERNEL({name})")
                text += changed
                variants.append((replace(case, kernel=name), f"{case.kernel}:{start + 1 + i} {m.group()}"))
    program = load("\n".join(text), "removed.cu", [v.kernel for v, _ in variants], mode="traced")
    silent = []
    for variant, what in variants:
        try:
            reported = suite.findings(variant, built=program)
        except EmulatorError:
            continue
        if not reported:
            silent.append(what)
    return {
        "variants": len(variants),
        "reported": len(variants) - len(silent),
        "silent": {w: NO_RACE.get(w.split(":")[0], "missed") for w in silent},
    }


def slow_down() -> dict[str, float]:
    """Softmax of 1024 x 4096 floats: median of five launches in mode fast (one and all OS threads) and traced."""
    room = np.empty(2 * ROWS * COLS + 128, np.float32)
    start = (-room.ctypes.data % 256) // 4
    x, y = room[start : start + ROWS * COLS], room[start + ROWS * COLS : start + 2 * ROWS * COLS]
    x[:] = np.random.default_rng(0).standard_normal(x.size).astype(np.float32)
    regions = [Region("x", x.ctypes.data, x.nbytes), Region("y", y.ctypes.data, y.nbytes)]
    args = [ctypes.c_void_p(r.address) for r in regions]
    out = {}
    for name, mode, threads in (("fast", "fast", ""), ("fast_one_thread", "fast", "1"), ("traced", "traced", "")):
        os.environ["KFORGE_EMULATOR_THREADS"] = threads
        program = load(SOURCE, "softmax.cu", ["softmax"], mode=mode)
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            program.launch("softmax", (ROWS, 1, 1), (256, 1, 1), 0, [*args, ctypes.c_int(COLS)], buffers=regions)
            times.append(time.perf_counter() - begin)
        out[f"{name}_seconds"] = round(statistics.median(times), 4)
    out["slow_down"] = round(out["traced_seconds"] / out["fast_seconds"], 1)
    out["slow_down_one_thread"] = round(out["traced_seconds"] / out["fast_one_thread_seconds"], 1)
    return out


def main() -> None:
    """Runs the suite, prints the rates, and writes them if asked."""
    planted, clean = suite.cases("planted.cu"), suite.cases("clean.cu")
    missed = [c.kernel for c in planted if not suite.found(c, suite.findings(c))]
    wrong = [c.kernel for c in clean if suite.findings(c)]
    version = subprocess.run([build.toolchain().compiler, "--version"], capture_output=True, text=True, check=True)
    result = {
        "benchmark": "race_rates",
        "planted": len(planted), "found": len(planted) - len(missed), "missed": missed,
        "clean": len(clean), "false": len(wrong), "false_reports": wrong,
        "skills": of_skills(),
        "removed": removed(),
        "softmax_1024x4096": slow_down(),
        "machine": platform.processor() or platform.machine(), "cores": len(os.sched_getaffinity(0)),
        "compiler": version.stdout.splitlines()[0], "python": platform.python_version(),
    }  # fmt: skip
    text = json.dumps(result, indent=1)
    print(text)
    if "--write" in sys.argv:
        (ROOT / "benchmarks" / "results" / "race-checker.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
