"""More bytes than the task must move: intermediate results, rows read again."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, size
from kforge.profiling.evidence import Evidence

DRAM = 1.3  # DRAM traffic over the counted bytes
ASKED = 1.5  # bytes the threads ask for over the counted ones, where DRAM was not measured


def analyse(evidence: Evidence) -> Finding | None:
    least = evidence.counted.get("read_bytes", 0.0) + evidence.counted.get("write_bytes", 0.0)
    if not least or evidence.products or not evidence.launched:
        return None
    measured = all("dram_read_bytes" in k.counters for k in evidence.launched)
    if measured:
        each = [(k, k.counters["dram_read_bytes"] + k.counters.get("dram_write_bytes", 0.0)) for k in evidence.launched]
    elif all(k.traced_bytes for k in evidence.launched):
        each = [(k, float(sum(k.traced_bytes or ()))) for k in evidence.launched]
    else:
        return None
    total = sum(k.launches * moved for k, moved in each)
    ratio = total / least
    if ratio < (DRAM if measured else ASKED):
        return None
    verb = "come from and go to DRAM" if measured else "are asked for by the threads"
    return Finding(
        tool=TOOL.name,
        kernel="",
        severity=Severity.CRITICAL if ratio > 2 else Severity.MAJOR,
        title="more bytes move than the task needs",
        evidence=(
            f"{size(total)} {verb}; inputs and outputs are {size(least)} ({ratio:.2g} times)",
            f"{sum(k.launches for k in evidence.launched)} launches",
        ),
        cause="intermediate results travel through memory, or rows are read once a pass",
        advice=(
            "fuse the kernels, so that intermediate values stay in registers or shared memory",
            "make one pass: an online softmax or Welford's mean and variance need each element once",
            "keep a row in registers or shared memory between its passes",
        ),
        gain=(1 + 0.4 * (min(ratio, 4) - 1), min(ratio, 4)) if measured else (1.0, min(ratio, 3)),
        affinity=TOOL.affinity,
        sources=("ncu" if measured else "trace", "graph"),
        values={"ratio": ratio},
    )


TOOL = Tool(
    "redundant_traffic", Affinity.MEMORY, f"DRAM traffic over {DRAM} times the counted bytes", ("ncu", "trace"),
    whole=analyse,
)  # fmt: skip
