"""Is a candidate right, and is it faster? `evaluate(task, candidate, plan) -> Report`.

This room owns the input plans, the acceptance rule, the gates, the verdict and the report. It never renders and never
proposes. Names are resolved lazily: importing the package imports neither torch nor a worker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.environment.evaluation import evaluate
    from kforge.environment.json import dumps, from_json, loads, summary, to_json
    from kforge.environment.preparation import Prepared, prepare
    from kforge.environment.report import Report, Status, Verdict
    from kforge.environment.tuning import tune

_HOME = {
    "evaluate": "evaluation",
    "dumps": "json",
    "from_json": "json",
    "loads": "json",
    "summary": "json",
    "to_json": "json",
    "Prepared": "preparation",
    "prepare": "preparation",
    "Report": "report",
    "Status": "report",
    "Verdict": "report",
    "tune": "tuning",
}

__all__ = [
    "Prepared",
    "Report",
    "Status",
    "Verdict",
    "dumps",
    "evaluate",
    "from_json",
    "loads",
    "prepare",
    "summary",
    "to_json",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"kforge.environment.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
