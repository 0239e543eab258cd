"""The tool that searches a candidate's tuning space."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import UNREADABLE, Toolbox, ToolError, clip, unreadable
from kforge.agent.tools.words import attempt_text, table

if TYPE_CHECKING:
    from kforge.agent.attempts import Attempt
    from kforge.agent.workbench import Workbench
    from kforge.environment.tuning import Space
    from kforge.kernel.candidate import Candidate


@tool
def sweep(box: Toolbox, seconds: float = 30.0, module: str = "") -> str:
    """Search the space that your kernels declare by `tune={...}`: each setting is judged and timed on the GPU, and the
    fastest becomes a candidate of its own, written into your folder. Better than trying tile sizes one by one.

    seconds: how long to search at most.
    module: another module of your folder in the place of the usual one.
    """
    if not 0 < seconds <= box.limits.sweep_s:
        raise ToolError(f"seconds lie above 0 and up to {box.limits.sweep_s:g}")
    text, best = searched(box.bench, box.candidate(module), seconds, box.parent.id)
    if best is not None and best.verified and not module:
        box.fill(best.candidate)
        text += f"\nit is now in {box.module}"
    return clip(text, box.limits.result)


def searched(
    bench: Workbench, candidate: Candidate, seconds: float, parent: int | None = None
) -> tuple[str, Attempt | None]:
    """(what was tried, in words; the attempt with the fastest setting where it beats the declared one)."""
    spaces = _spaces(candidate)
    sizes = [f"{space.kernel}: {space.size} settings of {', '.join(space.tune)}" for space in spaces]
    if bench.device == "cpu":
        said = "untimed: there is no GPU here, and only a GPU can tell which setting is fastest. Nothing was tried."
        return "\n".join([said, *sizes, "the space stays in the source and is searched where there is a GPU"]), None
    attempt = bench.evaluate(candidate, "quick", parent, "tuning")
    if not attempt.verified:
        return f"not searched, because the candidate is not right yet:\n{attempt_text(attempt)}", None
    best, rows = bench.tune(attempt, seconds)
    cells = [["kernel", "constants", "status", "ms"]]
    for row in sorted(rows, key=lambda row: (row.ms is None, row.ms or 0.0)):
        values = ", ".join(f"{name}={value}" for name, value in row.constants.items())
        cells.append([row.kernel, values, row.status, "" if row.ms is None else f"{row.ms:.4g}"])
    tried = "\n".join([*sizes, table(cells)])
    if best is attempt:
        return f"{tried}\nthe constants as declared stay the fastest", None
    return f"{tried}\nthe fastest setting made a candidate of its own:\n{attempt_text(best)}", best


def _spaces(candidate: Candidate) -> list[Space]:
    from kforge.environment.tuning import tuning_spaces

    try:
        spaces = tuning_spaces(candidate.files[candidate.module])
    except UNREADABLE as error:
        raise unreadable(candidate.module, error) from error
    if not spaces:
        raise ToolError(
            "no Kernel declares a space with more than one setting",
            'write it so: Kernel(..., constants={"BLOCK": 256}, tune={"BLOCK": [128, 256, 512]}), literals only',
        )
    return spaces
