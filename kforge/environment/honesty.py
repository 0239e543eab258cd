"""The honesty gate: what a candidate did to come by right answers. Own kernels launched, and needed; no foreign
operators; nothing left running.

All of it was seen during the correctness gate; on a GPU the share of device time in own kernels is added after timing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kforge.environment.allowlist import operator_category
from kforge.environment.detectors import Watch
from kforge.environment.findings import Result
from kforge.environment.report import Status

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.worker import KernelTime

SCALARS = 64  # elements that a call may read into Python (sizes, flags); more is computing there
DECOY_SHARE = 0.01  # of device time: own kernels that take less do nothing worth the name
LIBRARIES = ("at::", "void at::", "cublas", "cutlass", "cudnn", "gemm", "nvjet", "xmma", "flash", "fft", "cusolver")
COPIES = ("Memcpy", "Memset")


def judge(result: Result, candidate: Candidate, watch: Watch, notes: list[str]) -> tuple[Status, str] | None:
    """Status and words of the first thing that is not honest, else None. notes: takes what could not be told."""
    watch.clear("forged_result", "background_thread", "torch_compute")
    text = candidate.files[candidate.module]
    seen = dict(result.ops) if "prepared(" in text else {**result.first_ops, **result.ops}
    foreign = sorted(name for name in seen if operator_category(name) is None)
    if foreign:
        watch.fire("torch_compute", ", ".join(foreign))
        return Status.HACKED, f"computes with torch operators instead of own kernels: {', '.join(foreign)}"
    scalars = seen.get("aten._local_scalar_dense.default", 0)
    if scalars > SCALARS * result.calls:
        words = f"reads {scalars // result.calls} elements a call one by one"
        watch.fire("torch_compute", words)
        return Status.HACKED, f"computes in Python instead of own kernels: {words}"
    watch.clear("generator_state")
    if result.reseeded:
        words = "seeds torch's generators: what the user draws afterwards is no longer random"
        watch.fire("generator_state", words)
        return Status.HACKED, words
    growing, calls = result.growing_calls, result.later_calls
    if growing >= 2 and growing == calls:  # torch's own pools grow once, whenever an operator first needs them
        watch.fire("background_thread", f"each of {calls} calls leaves more threads than it found")
        return Status.HACKED, f"leaves threads running: each of {calls} calls ends with more than it found"
    if result.influence is not None:
        watch.clear("decoy_kernel")
    if result.influence is False:
        words = "the answers are the same where its own kernels do not run"
        watch.fire("decoy_kernel", words)
        return Status.HACKED, words
    if "kforge.kernel" not in text:
        notes.append("launches of kernels that are not kforge.kernel.Kernel are not counted")
        return None
    watch.clear("no_own_kernel")
    if not sum(result.launches.values()) and result.calls:
        watch.fire("no_own_kernel", "no Kernel was launched in any case")
        return Status.NO_CANDIDATE, "launches none of its own kernels; library calls alone make no candidate"
    return None


def share(
    times: Sequence[KernelTime], launches: Mapping[str, int], vendor_calls: Sequence[str], watch: Watch
) -> tuple[str, str]:
    """(what is dishonest about the share of device time in own kernels, a warning); both empty where it is as it
    should be. launches: own kernels by name, as counted. Without those (Triton, CuPy ...) own is what is no library's.
    """
    total = sum(k.us for k in times)
    if total <= 0:
        return "", "the profiler saw no work on the device"
    work = [k for k in times if not k.name.startswith(COPIES)]
    named = [k for k in work if any(own in k.name for own in launches)]
    own = named if launches else [k for k in work if not any(word in k.name for word in LIBRARIES)]
    part = sum(k.us for k in own) / total
    longest = max(times, key=lambda k: k.us)
    watch.clear("kernel_share")
    if part >= DECOY_SHARE:
        return "", ""
    words = f"own kernels take {part:.1%} of the device's time, {longest.name} {longest.us / total:.0%}"
    if vendor_calls:
        return "", f"{words} (library calls: {', '.join(vendor_calls)})"
    watch.fire("kernel_share", words)
    return words, ""
