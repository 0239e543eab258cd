"""How fast the IDE answers: first paint, keys while events stream and a core works, memory over a long session.

    python -m benchmarks.ui [--events 20000] [--keys 200]

Writes benchmarks/results/ui.json with the machine's facts. Through Textual's Pilot: a headless driver, everything else
as in a terminal. The core is the scripted one of the tests, a process of its own that streams 200 events a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from textual.events import Key

RESULT = Path(__file__).parent / "results" / "ui.json"
CORE = Path(__file__).parent.parent / "tests" / "ui" / "scripted_core.py"
EXAMPLE = Path(__file__).parent.parent / "examples" / "softmax.py"
RATE = 200  # events a second

PAINT = """
import sys, time
begin = time.perf_counter()
from pathlib import Path
from kforge.ui import settings
from kforge.ui.app import KforgeApp
from kforge.ui.core import Core
import asyncio

async def main():
    op = Path(sys.argv[1])
    silent = [sys.executable, "-c", "import time; time.sleep(9)"]
    app = KforgeApp(op, settings.load(op.parent), Core(op, command=silent))
    async with app.run_test(size=(130, 40)) as pilot:
        while not any("Softmax" in s.text for strip in app.screen._compositor.render_strips() for s in strip):
            await asyncio.sleep(0.005)
        print(time.perf_counter() - begin, time.process_time(), flush=True)
        import os
        os._exit(0)
asyncio.run(main())
"""


def first_paint(op: Path, times: int = 5) -> list[tuple[float, float]]:
    """(seconds, processor seconds) from an interpreter that has started until op.py's text is on the screen.

    Imports are in both; the interpreter's own start in the processor time only. On a busy machine they differ.
    """
    found = []
    for _ in range(times):
        done = subprocess.run([sys.executable, "-c", PAINT, str(op)], capture_output=True, text=True, check=True)
        wall, processor = map(float, done.stdout.split()[:2])
        found.append((wall, processor))
    return found


async def latency(op: Path, keys: int) -> list[float]:
    """Seconds from each key until the editor holds it and the screen was drawn, while events stream."""
    from kforge.ui.app import KforgeApp
    from kforge.ui.core import Core
    from kforge.ui.settings import Settings

    options = json.dumps({"events": 100_000})
    app = KforgeApp(op, Settings(), Core(op, command=[sys.executable, str(CORE), str(op), options]))
    taken = []
    async with app.run_test(size=(130, 40)) as pilot:
        while not app.session:
            await pilot.pause(0.05)
        await pilot.press("f2")
        await pilot.pause(1.0)
        buffer = app.desk.editor.current
        assert buffer is not None
        for n in range(keys):
            taken.append(await answered(app, buffer, "x"))
            if n % 40 == 39:
                await answered(app, buffer, "enter")
            await asyncio.sleep(0.02)
    return taken


async def answered(app: Any, buffer: Any, key: str) -> float:
    """Seconds until a key that arrives now is in the text and drawn. Pilot's own press waits for an idle process."""
    before, drawn, begin = len(buffer.text), asyncio.Event(), time.perf_counter()
    event = Key(key, key if len(key) == 1 else None)
    event.set_sender(app)
    app._driver.send_message(event)
    while len(buffer.text) == before:
        await asyncio.sleep(0.0005)
    app.screen.call_after_refresh(drawn.set)
    await drawn.wait()
    return time.perf_counter() - begin


async def memory(op: Path, events: int) -> list[tuple[int, float]]:
    """(events so far, resident MiB) of this process while a session takes in attempts, cases and model text."""
    from kforge.ui.app import KforgeApp
    from kforge.ui.core import Core
    from kforge.ui.settings import Settings

    app = KforgeApp(op, Settings(), Core(op, command=[sys.executable, str(CORE), str(op)]))
    seen = []
    async with app.run_test(size=(130, 40)) as pilot:
        while not app.session:
            await pilot.pause(0.05)
        for n in range(events):
            for kind, data in attempt(n):
                app._on_core(kind, data)
            if n % (events // 10) == 0:
                await pilot.pause(0.05)
                seen.append((n, resident()))
            elif n % 50 == 0:
                await asyncio.sleep(0)
        await pilot.pause(0.1)
        seen.append((events, resident()))
    return seen


def attempt(n: int) -> list[tuple[str, dict[str, Any]]]:
    """One event; every tenth begins another attempt."""
    digest = f"{n // 10:016x}"
    if n % 10 == 0:
        return [
            ("proposed", {"candidate": digest, "node": n // 10, "parent_node": 0, "idea": f"idea {n}", "files": []})
        ]
    if n % 10 == 9:
        report = {"status": "wrong", "verdict": "untimed", "target": "emulator", "gates": []}
        return [("evaluated", {"candidate": digest, "status": "wrong", "failure": "x" * 200, "report": report})]
    if n % 10 == 5:
        return [("model_text", {"call": n // 10, "text": "words of a model " * 4})]
    return [("case", {"candidate": digest, "label": f"variant 0, seed {n}", "passed": True})]


def resident() -> float:
    """MiB of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def facts() -> dict[str, Any]:
    """The machine, and how busy it was."""
    import textual

    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line), "")  # noqa: SIM115
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "textual": textual.__version__,
        "system": platform.platform(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=200)
    chosen = parser.parse_args()
    machine = facts()
    with tempfile.TemporaryDirectory() as name:
        op = Path(name) / "softmax.py"
        op.write_text(EXAMPLE.read_text())
        os.chdir(name)
        paints = first_paint(op)
        keys = sorted(asyncio.run(latency(op, chosen.keys)))
        sizes = asyncio.run(memory(op, chosen.events))
    grown = sizes[-1][1] - sizes[len(sizes) // 2][1]
    result = {
        "machine": machine,
        "first_paint_s": {
            "median": statistics.median(wall for wall, _ in paints),
            "processor_median": statistics.median(used for _, used in paints),
            "all": paints,
            "limit": 0.8,
        },
        "key_s": {
            "events_a_second": RATE,
            "keys": len(keys),
            "median": statistics.median(keys),
            "p95": keys[int(len(keys) * 0.95)],
            "worst": keys[-1],
            "limit_p95": 0.05,
        },
        "memory_mib": {"by_events": sizes, "second_half_growth": grown},
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    paint = result["first_paint_s"]
    print(f"first paint {paint['median']:.2f} s, {paint['processor_median']:.2f} s of processor time (limit 0.8)")
    print(f"key p95 {result['key_s']['p95'] * 1e3:.1f} ms, median {result['key_s']['median'] * 1e3:.1f} ms (limit 50)")
    print(
        f"memory {sizes[0][1]:.0f} to {sizes[-1][1]:.0f} MiB over {chosen.events} events, {grown:+.1f} in the 2nd half"
    )


if __name__ == "__main__":
    main()
