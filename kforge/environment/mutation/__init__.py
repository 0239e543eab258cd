"""How strict is the judge? Plants known mistakes in verified candidates and counts which of them a plan catches.

`mutants(candidate)` makes precise text edits from a registry of operators; `score(task, candidate, plan)` judges each
mutant and says per operator what was caught and what survived. Nothing here decides whether a candidate is right.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kforge.environment.mutation.generation import Mutant, mutants
    from kforge.environment.mutation.operators import OPERATORS, Operator
    from kforge.environment.mutation.results import MutationReport, Outcome, Trial, table
    from kforge.environment.mutation.scoring import score

_HOME = {
    "Mutant": "generation",
    "mutants": "generation",
    "OPERATORS": "operators",
    "Operator": "operators",
    "MutationReport": "results",
    "Outcome": "results",
    "Trial": "results",
    "table": "results",
    "score": "scoring",
}

__all__ = [
    "OPERATORS",
    "Mutant",
    "MutationReport",
    "Operator",
    "Outcome",
    "Trial",
    "mutants",
    "score",
    "table",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"kforge.environment.mutation.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
