"""What goes with the code: README, VERIFICATION, manifest, licence, change log, benchmark and CI of an export."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kforge import __version__
from kforge.export.domain import box, exported_domain
from kforge.export.filling import facts, summary
from kforge.export.templates import plain_file, render_template
from kforge.export.tensor_maps import takes_maps
from kforge.export.usage import usage

if TYPE_CHECKING:
    from kforge.export.package import Export

_TASK_PACKAGES = ("triton", "helion", "numpy", "einops")


def context(export: Export, version: str, layout: str) -> dict[str, Any]:
    """What the project's templates are filled with."""
    report = export.evidence.report or {}
    text = export.task.source
    return {
        "title": f"{export.task.name} as CUDA kernels",
        "stamp": ", ".join(export.evidence.stamps),
        "problem": export.evidence.problem,
        "warnings": list(export.evidence.warnings),
        "summary": summary(export),
        "facts": facts(export),
        "package": export.package,
        "distribution": export.package.replace("_", "-"),
        "namespace": export.namespace,
        "op": export.op,
        "version": version,
        "license": export.options.license if export.options.license != "none" else "LicenseRef-unspecified",
        "dependencies": [
            "torch>=2.6" if export.code.triton else "torch>=2.4",
            *(p for p in _TASK_PACKAGES if _uses(export, p, text)),
        ],
        "archs": built_for(export, layout),
        "judged_for": report.get("environment", {}).get("arch", ""),
        "inputs": [a.name for a in export.interface.inputs],
        "layout": layout,
        "has_module": export.layer is not None,
        "layer": export.layer,
        "function": export.function,
        "mode": export.interface.mode,
        "backward": export.backward,
        "without": export.without,
        "mutated": list(export.interface.mutated),
        "timed_gradients": _timed_gradients(export),
        "precision": export.task.precision.value,
        "autocast": export.autocast,
        "kernels": [
            {"name": k.name, "op": k.op, "builds": len(k.builds), "types": [dict(t) for t in k.types]}
            | {"maps": takes_maps(k)}
            for k in export.kernels
        ],
        "public": [n for n in (export.layer, export.function) if n],
        "report": report,
        "gates": report.get("gates", []),
        "detectors": report.get("detectors", []),
        "not_tested": report.get("not_tested", []),
        "cases": [c["label"] for c in report.get("cases", []) if c["passed"]],
        "unjudged": list(export.unjudged),
        "candidate": export.evidence.candidate.digest,
        "run": export.evidence.run,
        "outside": export.options.outside,
        "box": box,
        "domain": exported_domain(export),
        "module": export.code.module,
        "task": export.task.path.name,
        "kforge": __version__,
        "state": [(a.path, a.sizes) for a in export.interface.state],
        "attributes": dict(export.interface.attributes),
        "slower": [dict(s) for s in export.interface.slower],
    }


def built_for(export: Export, layout: str) -> list[str]:
    """The architectures that a package of this format holds code for: cubins have none of PTX."""
    return [a for a in export.archs if layout != "aot" or a.startswith("sm_")]


def _timed_gradients(export: Export) -> list[str]:
    """Inputs and parameters whose gradients were timed with the forward, where the package computes them as then."""
    judged = (export.evidence.report or {}).get("backward") or {}
    return list(judged.get("gradients", ())) if export.backward == "kernels" else []


def _uses(export: Export, package: str, text: str) -> bool:
    own = package == "triton" and bool(export.code.triton)
    return own or f"import {package}" in text or f"from {package}" in text


def papers(export: Export, version: str, layout: str) -> dict[str, str]:
    """README.md, VERIFICATION.md, manifest.json, LICENSE, the benchmark and the CI file."""
    filled = context(export, version, layout)
    license_text = "" if export.options.license == "none" else plain_file(f"licenses/{export.options.license}.txt")
    return {
        "README.md": render_template("project/README.md.j2", filled | {"usage": usage(export)}),
        "VERIFICATION.md": render_template("project/VERIFICATION.md.j2", filled),
        "LICENSE": license_text or "No licence was chosen: all rights reserved.\n",
        "benchmarks/benchmark.py": render_template("project/benchmark.py.j2", filled),
        ".github/workflows/ci.yml": render_template("project/ci.yml.j2", filled),
        "manifest.json": json.dumps(manifest(export, version, layout), indent=1) + "\n",
    }


def _accepted(export: Export) -> list[dict[str, Any]]:
    """Verdict and speed of each variant, for the package's own benchmark; none where it computes something else."""
    report = export.evidence.report or {}
    if report.get("backward") and export.backward != "kernels":
        return []
    return [
        {k: v.get(k) for k in ("label", "verdict", "basis", "speedup")}
        | {"wrappers": sorted({s["wrapper"] for s in v.get("samples", ())} & {"plain", "graph"})}
        for v in report.get("variants", ())
    ]


def manifest(export: Export, version: str, layout: str) -> dict[str, Any]:
    """What was exported, from which content, with which verdict, on what."""
    report = export.evidence.report or {}
    environment = {k: v for k, v in report.get("environment", {}).items() if not k.startswith("sandbox")}
    return {
        "schema": 1,
        "package": export.package,
        "version": version,
        "format": layout,
        "digest": export.digest,
        "namespace": export.namespace,
        "stamps": list(export.evidence.stamps),
        "candidate": {
            "digest": export.evidence.candidate.digest,
            "files": sorted(export.evidence.candidate.files),
            "proposer": export.evidence.candidate.proposer,
            "run": export.evidence.run,
        },
        "task": {"file": export.task.path.name, "digest": export.task.digest, "form": export.task.form.value},
        "status": report.get("status"),
        "verdict": report.get("verdict"),
        "plan": report.get("plan"),
        "target": report.get("target"),
        "speedup": report.get("speedup"),
        "times_ms": report.get("times_ms") or {},
        "variants": _accepted(export),
        "precision_class": report.get("precision_class", ""),
        "architectures": built_for(export, layout),
        "backward": export.backward,
        "builds": {k.name: len(k.builds) for k in export.kernels},
        "environment": environment,
        "kforge": __version__,
    }
