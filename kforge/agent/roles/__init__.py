"""Who does what in an attempt: profiler, strategist, planner, executor, summariser (KernelOPT, KernelPro).

The strategist is rules; the profiler is the program's own tools unless a model is named for it; the executor is the
tool-using conversation. Each prompt is a template of templates/prompts that a user's folder overrides.
"""

from __future__ import annotations

from collections.abc import Mapping

from kforge.errors import UsageError

PROFILER, PLANNER, EXECUTOR, SUMMARISER = "profiler", "planner", "executor", "summariser"
ROLES = (PROFILER, PLANNER, EXECUTOR, SUMMARISER)  # those that a model can play
SAME = "same"  # as a role's model: the run's own


def cast(model: str, chosen: Mapping[str, str]) -> dict[str, str]:
    """The model's name for each role that is played. chosen: `[roles]` of kforge.toml; the executor is always there.

    UsageError for a role that does not exist, or the strategist's, which no model plays.
    """
    for role in chosen:
        if role not in ROLES:
            hint = "the strategist is rules, no model" if role == "strategist" else "roles: " + ", ".join(ROLES)
            raise UsageError(f"kforge.toml: [roles]: no model can be the {role!r}", hint)
    return {role: (model if name == SAME else name) for role, name in {EXECUTOR: SAME, **chosen}.items()}
