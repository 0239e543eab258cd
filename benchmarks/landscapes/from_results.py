"""Landscapes from figures that benchmarks/results holds: python benchmarks/landscapes/from_results.py.

A landscape is a table family x schedule -> ms of one workload on one GPU. What the names of kernels mean stands in
meta.json beside the figures; nothing is measured, filled in or left out here. Rewrites its own files in this folder.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parent / "results"
HAND = "2026-11-29-h200-row-schedules"
ENGINE = "2026-11-29-h200-2/memory_rows_393216.jsonl"
CHIP = "NVIDIA H200"
SCHEDULES = "2026-11-30-h200-schedules/engine.jsonl"
AT_LEAST = 3  # candidates

# file -> kernel -> what its template's arguments are, and what holds for the whole file.
ROW_KERNELS: dict[str, dict[str, tuple[tuple[str, ...], dict[str, int]]]] = {
    "rows": {
        "warp_row": (("BLOCK", "VECTORS"), {}),
        "block_row": (("BLOCK", "VECTORS", "HINTS"), {}),
        "cluster_row": (("BLOCK", "VECTORS", "CLUSTER", "STAGED"), {"HINTS": 1}),
        "stream_row": (("BLOCK", "VECTORS"), {"HINTS": 1}),
        "": (("BLOCK", "VECTORS", "HINTS"), {}),  # gelu and gelu_gs
    },
    "clusters": {
        "cluster_row": (("BLOCK", "VECTORS", "CLUSTER", "STAGED"), {"HINTS": 0}),
        "stream_row": (("BLOCK", "VECTORS"), {"HINTS": 0}),
    },
    "pipeline": {"pipe_row": (("BLOCK", "BUFFERS", "RESIDENT"), {"EXPONENTIALS": 2})},
    "split_registers": {
        "split_row": (("BLOCK", "VECTORS", "RESIDENT"), {}),
        "pipe_row": (("BLOCK", "BUFFERS", "RESIDENT"), {"EXPONENTIALS": 1}),
    },
    "split_registers_shared": {"split_row": (("BLOCK", "VECTORS", "SHARED", "RESIDENT", "EXCHANGE"), {})},
}


def point(file: str, kernel: str) -> tuple[str, dict[str, int]]:
    """Family and schedule: "split_row<256, 8, 4> K=48" is ("split_row", {"BLOCK": 256, ..., "K": 48})."""
    match = re.fullmatch(r"(?:(\w+)<)?([\d, ]+)>?((?: \w+=\d+)*)", kernel)
    assert match is not None, kernel
    family, values, more = match[1] or "", [int(n) for n in match[2].split(",")], match[3].split()
    names, constants = ROW_KERNELS[file][family]
    schedule = dict(zip(names, values, strict=True)) | constants
    return family, schedule | {name: int(value) for name, value in (item.split("=") for item in more)}


def by_hand() -> Iterator[dict[str, Any]]:
    """Softmax at twelve row lengths, and gelu: schedules written by hand while the engine's were designed."""
    points: dict[str, list[dict[str, Any]]] = defaultdict(list)
    sources: dict[str, list[str]] = defaultdict(list)
    for file in ROW_KERNELS:
        source = f"results/{HAND}/{file}.jsonl"
        for line in (RESULTS / HAND / f"{file}.jsonl").read_text().splitlines():
            row = json.loads(line)
            name = "gelu" if str(row["cols"]).startswith("gelu") else f"softmax {row['cols']}"
            family, schedule = point(file, row["kernel"])
            if name == "gelu":
                family = "grid_stride" if row["cols"] == "gelu_gs" else "one_shot"
            result = {"ms": row["ms"]} if "ms" in row else {"failure": row["error"]}
            points[name].append({"family": family, "schedule": schedule} | result)
            if source not in sources[name]:
                sources[name].append(source)
    for name, found in points.items():
        yield {"workload": name, "kernels": "by hand", "sources": sources[name], "points": found}


def by_engine() -> Iterator[dict[str, Any]]:
    """Rows of 393216 elements: the engine's kernel, with its own constants and with others."""
    for line in (RESULTS / ENGINE).read_text().splitlines():
        row = json.loads(line)
        if "workload" not in row:
            continue
        points = []
        for idea, ms, _, _ in row["others"]:
            family, _, constants = idea.partition(":") if "=" in idea else ("split", "", "")
            schedule = {name: int(value) for name, value in (part.split("=") for part in constants.split(",") if part)}
            points.append({"family": family, "schedule": schedule, "ms": ms})
        yield {
            "workload": f"{row['workload']} {row['shape'][-1]}",
            "kernels": "engine",
            "sources": [f"results/{ENGINE}"],
            "baselines_ms": {"eager": row["eager_ms"]},
            "points": points,
        }


def by_engine_schedules() -> Iterator[dict[str, Any]]:
    """Pooling, convolution, resampling, scans and selections: the engine's kernels over their tuning spaces."""
    points: dict[str, list[dict[str, Any]]] = defaultdict(list)
    eager: dict[str, float] = {}
    for line in (RESULTS / SCHEDULES).read_text().splitlines():
        row = json.loads(line)
        eager[row["workload"]] = row["eager_ms"]
        points[row["workload"]].append({name: row[name] for name in ("family", "schedule", "ms")})
    for name, found in points.items():
        yield {
            "workload": name,
            "kernels": "engine",
            "sources": [f"results/{SCHEDULES}"],
            "baselines_ms": {"eager": eager[name]},
            "points": found,
        }


def main() -> None:
    for old in HERE.glob("recorded-*.json"):
        old.unlink()
    for table in (*by_hand(), *by_engine(), *by_engine_schedules()):
        if len(table["points"]) < AT_LEAST:
            print(f"{table['workload']}: {len(table['points'])} candidates, left out")
            continue
        words = [table["workload"].replace(" ", "-"), table["kernels"].replace(" ", "-")]
        path = HERE / f"recorded-{'-'.join(words)}.json"
        points = table.pop("points")
        lines = ",\n  ".join(json.dumps(point) for point in points)
        head = json.dumps({"chip": CHIP, "dtype": "float32"} | table, indent=1)[:-2]
        path.write_text(f'{head},\n "points": [\n  {lines}\n ]\n}}\n')
        print(f"{path.name}: {len(points)} candidates")


if __name__ == "__main__":
    main()
