"""The honesty gate: what a candidate did to come by right answers. Own kernels launched, and needed; no foreign
operators; nothing left running.

All of it was seen during the correctness gate; on a GPU the share of device time in own kernels is added after timing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kforge.environment.allowlist import operator_category
from kforge.environment.detectors import Watch
from kforge.environment.findings import Result
from kforge.environment.report import Status

if TYPE_CHECKING:
    from kforge.kernel.candidate import Candidate
    from kforge.worker import CallReply, KernelTime

SCALARS = 64  # elements that a call may read into Python (sizes, flags); more is computing there
DECOY_SHARE = 0.01  # of device time: own kernels that take less do nothing worth the name
NAMESPACES = r"(?:void )?(?:at|cub|thrust|c10|caffe2|CUB\w*)::"
LIBRARIES = ("cublas", "cutlass", "cudnn", "gemm", "nvjet", "xmma", "flash", "fft", "cusolver")
COPIES = ("Memcpy", "Memset")
MOVES = ("copy", "Copy", "Fill", "fill", "distribution", "random")  # what allowed operators launch
SETTING_UP = ("allocation", "views", "random")  # operators that derive nothing
MOST_ELSEWHERE = 0.5  # of an answer without vendor calls; copies of inputs and constants are not counted
# modules that make kernels which no hook holds back
_OTHERS = re.compile(r"^\s*(?:import|from)\s+(?:triton|cupy|pycuda|helion|cuda|torch\.utils\.cpp_extension)\b", re.M)


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
    if scalars:
        notes.append("what it does may depend on values that its calls read into Python: only the plan's were tried")
    watch.clear("generator_state")
    if result.reseeded:
        words = "seeds torch's generators: what the user draws afterwards is no longer random"
        watch.fire("generator_state", words)
        return Status.HACKED, words
    if result.derived:
        return Status.REJECTED, (
            f"keeps what {', '.join(result.derived)} derive from parameters: only kforge.kernel.prepared may, so that "
            "timed calls pay for it [kept_weights]"
        )
    if result.late:
        words = f"own kernels are launched after their calls have returned ({result.late} in {result.calls} calls)"
        watch.fire("background_thread", words)
        return Status.HACKED, words
    growing, calls = result.growing_calls, result.later_calls
    if growing >= 2 and 2 * growing > calls:  # torch's own pools grow once, whenever an operator first needs them
        words = f"{growing} of {calls} calls end with more threads than they found"
        watch.fire("background_thread", words)
        return Status.HACKED, f"leaves threads running: {words}"
    if result.influence is not None:
        watch.clear("decoy_kernel")
    if result.influence is False:
        words = "the answers are the same where its own kernels do not run"
        watch.fire("decoy_kernel", words)
        return Status.HACKED, words
    explained = any(operator_category(name) == "vendor" for name in seen) or "prepared(" in text or _OTHERS.search(text)
    if result.elsewhere is not None and result.elsewhere > MOST_ELSEWHERE and not explained:
        words = f"{result.elsewhere:.0%} of an answer are there where its own kernels do not run"
        watch.fire("decoy_kernel", words)
        return Status.HACKED, f"computes beside its own kernels: {words}"
    if not result.hidden_told:
        notes.append("operators beneath a mode that is switched off: this torch does not announce its modes")
    if "kforge.kernel" not in text:
        notes.append("launches of kernels that are not kforge.kernel.Kernel are not counted")
        return None
    watch.clear("no_own_kernel")
    if not sum(result.launches.values()) and result.calls:
        watch.fire("no_own_kernel", "no Kernel was launched in any case")
        vendor = any(operator_category(name) == "vendor" for name in seen)
        alone = "library calls" if vendor else "copies and views, all that inputs without elements need,"
        return Status.NO_CANDIDATE, f"launches none of its own kernels; {alone} alone make no candidate"
    return None


def kept_from(first: CallReply, second: CallReply) -> tuple[str, ...]:
    """Kernels and operators of a module's first call that an equal second one, which derives anew what `prepared`
    keeps, did without: what they made is kept elsewhere. A graph launches what no hook counts, so nothing is told."""
    if second.replays or not second.launches:
        return ()
    deriving = {name: n for name, n in first.ops.items() if operator_category(name) not in SETTING_UP}
    pairs = ((first.launches, second.launches), (deriving, second.ops))
    return tuple(sorted(name for was, now in pairs for name, n in was.items() if n > now.get(name, 0)))


def keeping(names: Sequence[str]) -> str:
    """In words, for the report."""
    return (
        f"only the first call needs {', '.join(names)}: what that makes is kept from call to call, "
        "not by kforge.kernel.prepared, and no timed call pays for it"
    )


def share(
    times: Sequence[KernelTime], launches: Mapping[str, int], vendor_calls: Sequence[str], watch: Watch
) -> tuple[str, str]:
    """(what is dishonest about the share of device time in own kernels, a warning); both empty where it is as it
    should be. launches: own kernels by name, as counted. Without those (Triton, CuPy ...) own is what is no library's.

    Not only own kernels that take next to nothing are a decoy: where no library call was seen, no library has work to
    do on the device but to copy, fill and draw.
    """
    total = sum(k.us for k in times)
    if total <= 0:
        watch.unread["kernel_share"] = "the profiler saw no work on the device"
        return "", "the profiler saw no work on the device"
    work = [k for k in times if not k.name.startswith(COPIES)]
    if launches:
        own = [k for k in work if any(_is_named(k.name, name) for name in launches)]
    else:
        own = [k for k in work if not _is_librarys(k.name)]
    foreign = [k for k in work if k not in own and _is_librarys(k.name) and not any(w in k.name for w in MOVES)]
    part, rest = (sum(k.us for k in kernels) / total for kernels in (own, foreign))
    longest = max(foreign or times, key=lambda k: k.us)
    watch.clear("kernel_share")
    if part >= DECOY_SHARE and (vendor_calls or rest < DECOY_SHARE):
        return "", ""
    words = f"own kernels take {part:.1%} of the device's time, {longest.name} {longest.us / total:.0%}"
    if vendor_calls:
        return "", f"{words} (library calls: {', '.join(vendor_calls)})"
    watch.fire("kernel_share", words)
    return words, ""


def _is_named(found: str, own: str) -> bool:
    """Whether the profiler's name of a kernel is that of an own one, whatever its template arguments; not a library's
    of the same name."""
    return bool(re.search(rf"(?:^|[\s:]){re.escape(own.partition('<')[0])}(?:$|[<(])", found)) and not re.match(
        NAMESPACES, found
    )


def _is_librarys(name: str) -> bool:
    return bool(re.match(NAMESPACES, name)) or any(word in name for word in LIBRARIES)
