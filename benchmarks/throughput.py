"""Complete `quick` evaluations a minute in one worker: NVRTC builds, nvcc builds, and load_inline builds.

Every candidate is a new one (another hash), so each is checked, built, judged and, on a GPU, timed. NVRTC and nvcc are
measured over a window that begins with the second report; of load_inline one build is measured, in a process of its
own, and its rate is extrapolated: the build's seconds plus what an evaluation takes beside its build.

    python benchmarks/throughput.py [--device auto] [--seconds 60] [--nvcc 30] [--load-inline] [--out FILE]
"""

from __future__ import annotations

import argparse
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

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

GOAL = 60.0  # evaluations a minute on one GPU
SHAPES = {"cuda": (4096, 4096), "cpu": (64, 1024)}

OP = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x) * 1.5


def get_inputs():
    return [torch.randn({rows}, {columns})]
"""

KERNEL = """
extern "C" __global__ void silu(const float* x, float* y, int n) {{
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = 1.5f * x[i] / (1.0f + expf(-x[i]));
}}
// candidate {number}
"""

MODULE = """
import torch
from torch import nn
from kforge.kernel import Module

source = Module("silu_kforge.cu", compiler="{compiler}")
silu = source.kernel("silu", grid="(ceil_div(n, 256), 1, 1)", block="(256, 1, 1)")


class ModelNew(nn.Module):
    def forward(self, x):
        given, x = x, x.contiguous()
        y = torch.empty_like(x)
        silu(x, y, x.numel())
        return y if given.is_contiguous() else torch.empty_like(given).copy_(y)
"""

INLINE = """
import time
from torch.utils.cpp_extension import load_inline

begin = time.perf_counter()
load_inline(
    "silu", cpp_sources="torch::Tensor silu(torch::Tensor x);", functions=["silu"],
    cuda_sources='''
__global__ void silu_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i < n) y[i] = 1.5f * x[i] / (1.0f + expf(-x[i]));
}
torch::Tensor silu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    silu_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}''',
)
print(time.perf_counter() - begin)
"""


def jobs(folder: Path, compiler: str, device: str, count: int) -> list[Any]:
    """`count` different candidates of one task."""
    from kforge.environment.batch import make_job
    from kforge.worker.parcel import pack_task

    rows, columns = SHAPES[device.split(":")[0]]
    op = folder / "silu.py"
    op.write_text(OP.format(rows=rows, columns=columns))
    parcel = pack_task(op)
    made = []
    for number in range(count):
        (folder / "silu_kforge.cu").write_text(KERNEL.format(number=f"{compiler} {number}"))
        (folder / "silu_kforge.py").write_text(MODULE.format(compiler=compiler))
        made.append(make_job(f"{compiler} {number}", parcel, folder / "silu_kforge.py", plan="quick"))
    return made


def measure(fleet: Any, work: list[Any], seconds: float, label: str) -> dict[str, Any]:
    """Evaluations a minute over `seconds` after the first report of this kind of build."""
    begin = time.monotonic()
    first, times, reports = None, [], []
    for outcome in fleet.run(work):
        now = time.monotonic()
        if outcome.report is None or outcome.report["status"] != "verified":
            raise SystemExit(f"{label}: {outcome.error or outcome.report}")
        if first is None:
            first = now
        else:
            times.append(now - first)
            reports.append(outcome.report)
        if now - first >= seconds:
            break
    fleet.cancel()
    assert first is not None
    if not times:
        raise SystemExit(f"{label}: no second evaluation within {seconds} s")
    gates: dict[str, list[float]] = {}
    stages: dict[str, list[float]] = {}
    for report in reports:
        for gate in report["gates"]:
            gates.setdefault(gate["name"], []).append(gate["seconds"])
        for name, took in report["stages"].items():
            stages.setdefault(name, []).append(took)
    whole = [report["seconds"] for report in reports]
    return {
        "builds": label,
        "measured": True,
        "evaluations": len(times),
        "window_s": round(times[-1], 2),
        "per_minute": round(60 * len(times) / times[-1], 2),
        "first_report_s": round(first - begin, 2),
        "evaluation_median_s": round(statistics.median(whole), 3),
        "gates_median_s": {name: round(statistics.median(values), 3) for name, values in gates.items()},
        "stages_median_s": {name: round(statistics.median(values), 4) for name, values in stages.items()},
        "report_times_s": [round(t, 3) for t in times],
    }


def start_inline(folder: Path) -> subprocess.Popen[str]:
    """One load_inline build, beside the measurement, on cores of its own."""
    env = os.environ | {"TORCH_EXTENSIONS_DIR": str(folder / "extensions"), "MAX_JOBS": "2"}
    return subprocess.Popen(
        [sys.executable, "-c", INLINE], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def inline_result(process: subprocess.Popen[str], nvrtc: dict[str, Any], builders: int) -> dict[str, Any]:
    """The extrapolated rate, or why there is none."""
    out, err = process.communicate(timeout=300)
    if process.returncode:
        return {"builds": "load_inline", "measured": False, "reason": (err.strip().splitlines() or ["failed"])[-1]}
    build = float(out.split()[-1])
    checks = nvrtc["evaluation_median_s"] - nvrtc["gates_median_s"]["build"]
    return {
        "builds": "load_inline",
        "measured": False,
        "extrapolated_from": "one measured build; the checks of the NVRTC evaluations without their build gate",
        "build_s": round(build, 2),
        "checks_s": round(checks, 3),
        "per_minute": round(60 / (build + checks), 3),
        "per_minute_with_builds_ahead": round(60 / max(build / builders, checks), 3),
        "builders": builders,
    }


def show(result: dict[str, Any]) -> None:
    """The table of a result."""
    print(
        f"{'builds':12} a minute  evaluation  its build  ({result['target']}{'' if result['timed'] else ', untimed'})"
    )
    for row in result["results"]:
        if "per_minute" not in row:
            print(f"{row['builds']:12} {row['reason']}")
        elif row["measured"]:
            build = row["gates_median_s"]["build"]
            print(f"{row['builds']:12} {row['per_minute']:8.2f}  {row['evaluation_median_s']:8.3f} s  {build:7.3f} s")
        else:
            whole, ahead = row["build_s"] + row["checks_s"], row["per_minute_with_builds_ahead"]
            note = f"extrapolated; {ahead} with {row['builders']} builds at once"
            print(f"{row['builds']:12} {row['per_minute']:8.2f}  {whole:8.3f} s  {row['build_s']:7.3f} s  {note}")


def main() -> int:
    """0 when the goal is met, or there is none (emulator)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--nvcc", type=float, default=30.0, help="seconds of nvcc builds, 0 for none")
    parser.add_argument("--load-inline", action="store_true", help="build one extension for comparison")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "throughput.json")
    options = parser.parse_args()

    from kforge.worker.fleet import Fleet
    from kforge.worker.remote import RemoteWorker
    from kforge.worker.service import BUILDERS

    load = os.getloadavg()[0]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(prefix="kforge-throughput-") as name:
        folder = Path(name)
        os.environ["KFORGE_CACHE"] = str(folder / "cache")  # nothing of an earlier run is reused
        inline = start_inline(folder) if options.load_inline else None
        with Fleet([RemoteWorker.local(options.device, "worker")], on_note=print) as fleet:
            (description,) = fleet.start().values()
            device, timed = description["device"], bool(description["timed"])
            result: dict[str, Any] = {
                "benchmark": "throughput",
                "plan": "quick",
                "target": description["target"],
                "timed": timed,
                "goal_per_minute": GOAL if timed else None,
                "shape": SHAPES[device.split(":")[0]],
                "results": [],
                "versions": description["manifest"],
                "machine": {
                    "system": platform.platform(),
                    "processor": platform.machine(),
                    "cpus": os.cpu_count(),
                    "load": load,
                },
                "date": time.strftime("%Y-%m-%d"),
            }
            for label, seconds in (("nvrtc", options.seconds), ("nvcc", options.nvcc)):
                if seconds:
                    work = jobs(folder, label, device, int(seconds * 6) + 20)
                    keep(result, measure(fleet, work, seconds, label), options.out)
        if inline is not None:
            keep(result, inline_result(inline, result["results"][0], BUILDERS), options.out)
    show(result)
    return 1 if timed and result["results"][0]["per_minute"] < GOAL else 0


def keep(result: dict[str, Any], row: dict[str, Any], out: Path) -> None:
    """Write what is known so far."""
    result["results"].append(row)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
