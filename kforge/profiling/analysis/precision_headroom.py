"""Arithmetic in more bits than the task has."""

from __future__ import annotations

from kforge.profiling.analysis.finding import Affinity, Finding, Severity, Tool, sass_places
from kforge.profiling.evidence import Evidence, KernelEvidence


def analyse(evidence: Evidence, kernel: KernelEvidence) -> Finding | None:
    sass = kernel.sass
    if sass is None:
        return None
    doubles = sass.weighted.get("fp64", 0)
    if doubles and not evidence.counted.get("fp64"):
        return Finding(
            tool=TOOL.name,
            kernel=kernel.name,
            severity=Severity.MAJOR,
            title="double precision where the task has none",
            evidence=(f"{sass.mix['fp64']} instructions compute in double precision, the task's data does not",),
            cause="a literal without f (0.5 instead of 0.5f), or a function without f (exp instead of expf), makes the"
            " expression double",
            advice=(
                "write literals and functions with f: 0.5f, expf, sqrtf",
                "where more precision is meant, use compensated float32 sums",
            ),
            gain=(1.05, 4.0 if sass.share("fp64") > 0.1 else 1.3),
            affinity=TOOL.affinity,
            sources=("sass", "graph"),
            places=sass_places(kernel, ("fp64",)),
            values={"doubles": float(sass.mix["fp64"])},
        )
    stage = evidence.stage
    bound = stage is not None and stage.compute_us > stage.memory_us
    plain = "float32" in evidence.products and evidence.own_products and bound
    if not plain or sass.matrix or not (sass.loop and sass.mix.get("fp32")):
        return None
    return Finding(
        tool=TOOL.name,
        kernel=kernel.name,
        severity=Severity.MINOR,
        title="a float32 product on the ordinary units",
        evidence=("the product is float32 at the strictest setting, so the matrix units are not used",),
        cause="a float32 product keeps the ordinary units busy, at a tenth of the matrix units' rate",
        advice=(
            "split each operand into two half-precision parts and add three products, moving partial sums to float32"
            " registers every 128 to 512 steps (it must pass the acceptance rule on every distribution)",
            "if TF32 is good enough, say so in the task: PRECISION = 'high'",
        ),
        gain=(1.2, 3.0),
        affinity=TOOL.affinity,
        sources=("graph", "sass"),
        places=sass_places(kernel, ("fp32",)),
    )


TOOL = Tool(
    "precision_headroom", Affinity.ALL, "double precision the task lacks, or a float32 product that binds", ("sass",),
    analyse,
)  # fmt: skip
