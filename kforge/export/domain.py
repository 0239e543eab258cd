"""The domain of a verdict: which sizes were judged, what of op.py was left out, and how to widen it. Data and words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.export.package import Export

# Lines of the report's not_tested about whole variants.
_LEFT = re.compile(r"variant \d+: |more than one case of input variants? ")


def box(sizes: Iterable[Sequence[int]]) -> str:
    """`0..129 x 1024`: the least and the largest size of each dimension; "a number" where there is none."""
    return " x ".join(str(low) if low == high else f"{low}..{high}" for low, high in sizes) or "a number"


def judged_domain(report: Mapping[str, Any] | None, task: str, judge: str) -> dict[str, Any]:
    """What a report speaks of: sizes (least and largest of each dimension, by input), left_out and widen in words.

    task: as a person names op.py; judge: how to have it judged by plan full. Empty sizes: an older report.
    """
    sizes = {name: [list(pair) for pair in pairs] for name, pairs in ((report or {}).get("sizes") or {}).items()}
    return {"sizes": sizes, "left_out": left_out(report), "widen": widen(task, judge)}


def left_out(report: Mapping[str, Any] | None) -> list[str]:
    """The input variants that were not judged, or by one case alone, with the reason."""
    return [text for text in (report or {}).get("not_tested") or () if _LEFT.match(text)]


def command(task: str, candidate: str) -> str:
    """How to have a candidate judged by plan full from a command line."""
    return shlex.join(["kforge", "verify", task, candidate, "--plan", "full"])


def widen(task: str, judge: str, then: str = "") -> str:
    """How to have more sizes judged."""
    return (
        f"for other sizes add them to get_input_variants() of {task} and judge again ({judge}; large ones need a GPU)"
        + (f", then {then}" if then else "")
    )


def said(domain: Mapping[str, Any]) -> list[str]:
    """A domain as lines of text: sizes, what was left out, how to widen it. Nothing where no sizes are known."""
    if not domain["sizes"]:
        return []
    sizes = ", ".join(f"{name} {box(pairs)}" for name, pairs in domain["sizes"].items())
    left = [f"not judged: {'; '.join(domain['left_out'])}"] if domain["left_out"] else []
    return [f"judged on sizes {sizes}", *left, domain["widen"]]


def exported_domain(export: Export) -> dict[str, Any]:
    """As judged_domain, for what leaves: its sizes are those of domain.json, with the dtypes of its inputs."""
    tensors = [a for a in export.interface.inputs if a.schema == "Tensor"]
    return {
        "sizes": {a.name: [list(pair) for pair in a.sizes] for a in tensors},
        "dtypes": [list(combination) for combination in export.dtypes],
        "left_out": left_out(export.evidence.report),
        "widen": widen(export.task.path.name, command(export.task.path.name, export.code.module), "export again"),
        "outside": export.options.outside,
    }


def exported_words(export: Export) -> list[str]:
    """As `said`, with what becomes of other calls."""
    outside = "are computed by the reference" if export.options.outside == "reference" else "raise"
    first, *more = said(exported_domain(export)) or [""]
    return [f"{first}: other calls {outside}", *more] if first else []
