"""More work on indices than on values."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, sass_places
from kforge.profiling.evidence import Evidence, KernelEvidence

SHARE = 0.5  # of the instructions, loops weighted
AN_ACCESS = 20  # integer instructions for each access of global memory: plain addresses take a handful
BUSY = 50.0  # per cent of issue slots from which it costs time


def analyse(_: Evidence, kernel: KernelEvidence) -> Finding | None:
    sass = kernel.sass
    if sass is None or sass.matrix or sum(sass.weighted.values()) < 40:
        return None
    share = sass.share("integer", "conversion")
    accesses = sass.weighted.get("global load", 0) + sass.weighted.get("global store", 0)
    each = (sass.weighted.get("integer", 0) + sass.weighted.get("conversion", 0)) / max(1, accesses)
    issue = kernel.counter("issue_percent")
    if share <= SHARE or each < AN_ACCESS or (issue is not None and issue < BUSY):
        return None
    divides = bool(sass.weighted.get("conversion", 0) and sass.weighted.get("special", 0))
    facts = [f"{share:.0%} of the instructions are integer work, {each:.0f} for each access of global memory"]
    facts += ["among them divisions by a value that is no constant"] if divides else []
    facts += [f"{issue:.0f} % of the issue slots are taken"] if issue is not None else []
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MAJOR if issue is not None else Severity.MINOR,
        title="index arithmetic outweighs the work",
        evidence=tuple(facts),
        cause="addresses are worked out anew for each element; a division by a variable takes some 20 instructions",
        advice=(
            "work out the coordinates once a thread, then step by adding strides",
            "let the grid's and the block's dimensions be the coordinates, instead of / and %",
            "make sizes constants where they are known, and use 32-bit indices where they suffice",
        ),
        gain=(1.05, 1.6),
        affinity=TOOL.affinity,
        sources=("sass", "ncu") if issue is not None else ("sass",),
        places=sass_places(kernel, ("integer", "conversion")),
        values={"share": share, "an_access": each},
    )


TOOL = Tool(
    "integer_index",
    Affinity.ALL,
    f"integer work over {SHARE:.0%} of the instructions and {AN_ACCESS} an access",
    ("sass",),
    analyse,
)
