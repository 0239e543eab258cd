"""The one reason that warps wait for most."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, issues, sampled_places
from kforge.profiling.evidence import Evidence, KernelEvidence

SHARE, CRITICAL = 0.4, 0.6  # published triggers (KernelPro)
DRAM = 80.0
_REASONS = {
    "long_scoreboard": ("data from global or local memory", (
        "have more loads under way: issue several before the first is used, or copy ahead with cp.async",
        "keep what is read again in shared memory or registers",
        "raise occupancy")),
    "short_scoreboard": ("shared memory or special functions", (
        "read shared memory in wider pieces, free of bank conflicts",
        "replace divisions and exponentials by cheaper forms where precision allows")),
    "mio_throttle": ("the queue of shared memory and special functions", (
        "issue fewer, wider shared-memory instructions", "keep operands in registers (a larger tile a thread)")),
    "lg_throttle": ("the queue of global memory instructions", (
        "use fewer, wider loads and stores (16 bytes a thread)",)),
    "math_pipe_throttle": ("a busy arithmetic unit", (
        "use the matrix units or packed half operations", "do less arithmetic: factor out what is loop-invariant")),
    "wait": ("the fixed latency of the previous instruction", (
        "give each thread several independent results to work on",)),
    "no_instruction": ("instructions: the code does not fit the cache", (
        "unroll less, so that the loop's code is shorter",)),
    "drain": ("stores to leave the chip at its end", (
        "write whole sectors, and let each thread write 16 bytes",)),
    "membar": ("a memory fence", ("use fewer fences, or of narrower scope (__threadfence_block)",)),
    "branch_resolving": ("branches", ("replace short branches by selection", "unroll the loop")),
    "imc_miss": ("constants that miss their cache", ("read tables through global or shared memory",)),
    "gmma": ("matrix instructions under way", ("overlap: start the next product before the last one is awaited",)),
}  # fmt: skip


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    shares = {name: kernel.stall(name) or 0.0 for name in _REASONS}
    reason = max(shares, key=lambda name: shares[name])
    share = shares[reason]
    saturated = reason == "long_scoreboard" and (kernel.counter("dram_percent") or 0.0) >= DRAM
    if share <= SHARE or saturated or issues(kernel):
        return None
    what, advice = _REASONS[reason]
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.CRITICAL if share > CRITICAL else Severity.MAJOR,
        title=f"warps wait for {what}",
        evidence=(f"{share:.0%} of the waiting is {reason}",),
        cause=f"{what} arrives later than there is other work to do meanwhile",
        advice=advice,
        gain=(1.05, 1 / (1 - 0.6 * share)),
        affinity=TOOL.affinity,
        sources=("ncu",),
        places=sampled_places(kernel, reason),
        values={"share": share},
    )


TOOL = Tool(
    "warp_stall", Affinity.ALL, f"one reason has over {SHARE:.0%} of the waiting, schedulers idle", ("ncu",), analyse
)
