"""What the judge asks of a child beside calls: launches again under instruments, device time by kernel.

The instruments are programs of their own, started in phase *build*; they inherit the sandbox.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kforge
from kforge.errors import KforgeError
from kforge.kernel.emulator.recording import Recording, as_launched, recording

if TYPE_CHECKING:
    from kforge.worker.child import Server

SLOWER = {"checked": 8.0, "traced": 60.0}  # than the plain run, of processor time, by a wide margin; traced twice
LIMIT_S = 180.0  # of one mode on the clock, however busy the machine is
MOST_EVENTS = 4096  # pieces of the device's work in one answer
CHECKED_ORDERS = (0,)  # what depends on the order shows in the correctness gate


def record(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """One call whose emulated launches are kept; with `only` they do not run."""
    importable()
    args, kwargs, _ = server.inputs(request)
    server.kept = kept = server.kept or Recording()
    kept.most_s, kept.only, kept.left_out = request["most_s"], bool(request.get("only")), []
    with server.around(), recording(kept):
        server.model(*args, **kwargs)
    return {"launches": len(kept.launches), "seconds": kept.seconds, "left_out": sorted(set(kept.left_out))}


def examine(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """The kept launches once more in each mode, side by side.

    A row a mode: mode, seconds, findings (emulator/findings.py lists their fields), skipped (why it did not run, or
    the empty string).
    """
    kept, modes, budget_s = server.kept, request["modes"], request["budget_s"]
    if kept is None:
        raise KforgeError("examine comes after record")
    with ThreadPoolExecutor(len(modes)) as pool:
        return {"inspected": list(pool.map(lambda mode: _run(kept, mode, budget_s), modes))}


def sanitize(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """One call in a process of its own under each tool of compute-sanitizer, side by side."""
    from kforge.worker import sanitizer

    args, kwargs, _ = server.inputs(request)
    importable()
    job = sanitizer.Job.of(server, args, kwargs)
    tools = request["tools"]
    with ThreadPoolExecutor(len(tools)) as pool:
        return {"inspected": list(pool.map(lambda tool: sanitizer.run(job, tool, request["limit_s"]), tools))}


def kernel_times(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """Device time by kernel over one call, from the profiler of this process."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    args, kwargs, _ = server.inputs(request)
    with server.around():
        server.model(*args, **kwargs)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            server.model(*args, **kwargs)
            torch.cuda.synchronize()
    totals: dict[str, list[float]] = {}
    events: list[dict[str, Any]] = []
    for event in seen.events():
        if event.device_type.name == "CUDA":
            us = event.time_range.elapsed_us()
            total = totals.setdefault(event.name, [0.0, 0])
            total[0] += us
            total[1] += 1
            events.append({"name": event.name[:300], "start": event.time_range.start, "us": us})
    events = sorted(events, key=lambda event: event["start"])[:MOST_EVENTS]
    kernels = [{"name": name, "us": us, "count": count} for name, (us, count) in totals.items()]
    return {"kernels": kernels, "events": events}


def prime_profiler(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """Start the profiler of this process once, which takes seconds, before the candidate is there."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    begin = time.perf_counter()
    with profile(activities=[ProfilerActivity.CUDA]):
        torch.zeros(1, device=server.device)
        torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - begin}


def nsys_events(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """What the device does in one call of a process of its own, by Nsight Systems."""
    from kforge.worker import nsys, sanitizer

    args, kwargs, _ = server.inputs(request)
    importable()
    found = nsys.run(sanitizer.Job.of(server, args, kwargs), request["limit_s"])
    return {**found, "events": found["events"][:MOST_EVENTS]}


def importable() -> None:
    """Programs started from here can import kforge, though the folder of a checkout is closed to them."""
    place = Path(os.environ["TMPDIR"]) / "packages"
    place.mkdir(exist_ok=True)
    link = place / "kforge"
    if not link.is_symlink():
        link.symlink_to(Path(kforge.__file__).resolve().parent, target_is_directory=True)
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(place) not in path:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(place), *path])


def _run(kept: Recording, mode: str, budget_s: float) -> dict[str, Any]:
    from kforge.kernel.emulator.checked import run_checked
    from kforge.kernel.emulator.traced import run_traced

    begin = time.perf_counter()
    findings: list[dict[str, Any]] = []
    skipped = ""
    needed = kept.seconds * SLOWER[mode]
    if needed > budget_s:
        skipped = f"would take about {needed:.0f} s on these inputs, the plan has {budget_s:g} s"
    else:
        try:
            if mode == "checked":
                found = run_checked(kept.launches, kept.buffers, CHECKED_ORDERS, timeout=LIMIT_S).findings
            else:
                found = run_traced(kept.launches, kept.buffers, timeout=LIMIT_S).findings
        except KforgeError as error:  # no libasan, a compiler that lacks the flag
            found, skipped = (), " ".join(filter(None, (error.message, error.hint)))
        for finding in found:
            if finding.message.startswith("no end after") or "tracing needs over" in finding.message:
                skipped = finding.message
            else:
                findings.append(as_launched(finding, kept))
    return {"mode": mode, "seconds": time.perf_counter() - begin, "findings": findings, "skipped": skipped}
