"""Tools that judge: evaluate one candidate, several variants side by side, and compare two that are known."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import UNREADABLE, Toolbox, ToolError, clip, short, unreadable
from kforge.agent.tools.words import attempt_text, side_by_side, time_lines

if TYPE_CHECKING:
    from kforge.agent.attempts import Attempt
    from kforge.agent.workbench import Workbench
    from kforge.kernel.candidate import Candidate

_MOST_LINES = 3000  # of a file in a comparison, whose time may grow with the square


@tool
def evaluate(
    box: Toolbox,
    plan: Literal["quick", "standard"] = "quick",
    module: str = "",
    idea: str = "",
    direction: str = "",
    expected_gain: float | None = None,
) -> str:
    """Judge your candidate: build, correctness on hostile inputs, honesty, and on a GPU its speed. The first failing
    gate ends it and is told in full: compiler lines, the failing input, both errors. Judging equal files again is free.

    plan: quick while searching; standard tries more inputs, for a candidate that is about to be submitted.
    module: another module of your folder to judge in the place of the usual one.
    idea: what you changed and why, in a sentence; it is remembered with the result.
    direction: the kind of change in one or two words, for example "vectorise" or "tiling".
    expected_gain: the speed-up over its parent that you expect, for example 1.3.
    """
    attempt = box.bench.evaluate(box.candidate(module, idea, expected_gain), plan, box.parent.id, short(direction))
    return clip(attempt_text(attempt), box.limits.result)


@tool
def time_variants(
    box: Toolbox,
    modules: list[str] = [],  # noqa: B006 - read into the schema, never changed
    kernel: str = "",
    constants: list[dict[str, int | float | str]] = [],  # noqa: B006
    direction: str = "",
) -> str:
    """Judge several variants on plan quick and show them side by side: modules of your folder, or one kernel with
    several settings of its constants. Each variant is a candidate of its own.

    modules: files that define ModelNew, for example ["softmax_kforge.py", "softmax_b.py"].
    kernel: the name of the Kernel whose constants are set; may be left out where there is only one.
    constants: settings, for example [{"BLOCK": 128}, {"BLOCK": 256, "VEC": 4}].
    direction: the kind of change in one or two words.
    """
    if bool(modules) == bool(constants):
        raise ToolError("give modules or constants, one of the two")
    count = max(len(modules), len(constants))
    if count > box.limits.variants:
        raise ToolError(f"{count} variants at once; the limit is {box.limits.variants}", "sweep tries many")
    named: list[tuple[str, Candidate]] = [(name, box.candidate(name)) for name in modules]
    for setting in constants:
        label = ", ".join(f"{name}={value}" for name, value in setting.items())[:60]
        named.append((label, _with_constants(box, kernel, setting)))
    attempts: list[tuple[str, Attempt]] = []
    for name, candidate in named:  # all of them exist before the first is judged
        box.on_text(f"judging {name}")
        attempts.append((name, box.bench.evaluate(candidate, "quick", box.parent.id, short(direction))))
    text = side_by_side(attempts)
    if not any(attempt.report.times_ms for _, attempt in attempts):
        text += "\nuntimed: only a GPU can tell which is faster"
    return clip(text, box.limits.result)


def _with_constants(box: Toolbox, kernel: str, setting: dict[str, int | float | str]) -> Candidate:
    """The folder's candidate with constants of one kernel set in its source."""
    from kforge.environment.tuning import declared_constants, write_constants

    candidate = box.candidate(idea="constants: " + ", ".join(f"{n}={v}" for n, v in setting.items()))
    text = candidate.files[candidate.module]
    try:
        declared = declared_constants(text)
    except UNREADABLE as error:
        raise unreadable(candidate.module, error) from error
    if not declared:
        raise ToolError(f"{candidate.module} declares no Kernel with literal constants")
    if not kernel and len(declared) > 1:
        raise ToolError("there are several kernels: name one", "kernels: " + ", ".join(declared))
    name = kernel or next(iter(declared))
    if name not in declared:
        raise ToolError(f"there is no kernel {name[:80]!r} with constants", "kernels: " + ", ".join(declared))
    unknown = sorted(set(setting) - set(declared[name]))
    if unknown or not setting:
        said = f"has no constant {', '.join(unknown)}" if unknown else "was given no constants"
        raise ToolError(f"{name} {said}", "constants: " + ", ".join(declared[name]))
    merged = {**declared[name], **setting}
    if merged == declared[name] and "tuned" not in text:
        return candidate
    changed = write_constants(text, name, merged)
    return replace(candidate, files={**candidate.files, candidate.module: changed})


@tool
def compare(box: Toolbox, a: str, b: str = "current") -> str:
    """Show what two candidates differ in, and both measurements. A candidate is named by "current" (your folder),
    "parent", "best", the number of an attempt, or a digest.

    a: one candidate.
    b: the other one.
    """
    return clip(compared(box.bench, (a, find(box, a)), (b, find(box, b))), box.limits.result)


def compared(bench: Workbench, a: tuple[str, Candidate], b: tuple[str, Candidate]) -> str:
    """Both measurements and the diff of two named candidates."""
    return "\n".join([_measured(bench, *a), _measured(bench, *b), diff(a[1], b[1], a[0], b[0])])


def find(box: Toolbox, name: str) -> Candidate:
    """The candidate that a name means. ToolError where there is none."""
    bench = box.bench
    if name in ("current", ""):
        return box.candidate()
    if name == "best":
        if bench.best is None:
            raise ToolError("there is no verified candidate yet")
        return bench.best.candidate
    node = box.parent if name == "parent" else None
    number = name.removeprefix("#")
    if number.isascii() and number.isdecimal() and len(number) < 8:
        node = bench.tree.nodes.get(int(number))
        if node is None:
            raise ToolError(f"there is no attempt {number}", f"attempts: 1 to {len(bench.tree.nodes) - 1}")
    if node is not None:
        if not node.candidate:
            raise ToolError(
                f"{name} is the reference itself and has no files", "baseline_source shows what it compiles to"
            )
        return bench.candidate(node.candidate)
    if not (number.isascii() and number.isalnum() and 6 <= len(number) <= 16):
        raise ToolError(f"{name[:80]!r} names no candidate", 'use "current", "parent", "best", a number or a digest')
    return bench.candidate(number)


def latest(bench: Workbench, digest: str) -> Attempt | None:
    """The last evaluation of a candidate."""
    return next((a for a in reversed(bench.attempts) if a.candidate.digest == digest), None)


def _measured(bench: Workbench, name: str, candidate: Candidate) -> str:
    attempt = latest(bench, candidate.digest)
    if attempt is None:
        return f"{name}: {candidate.digest}, not evaluated in this run"
    row = side_by_side([(name, attempt)]).partition("\n")[2].strip()
    return "\n  ".join([f"{name}: {row}", *time_lines(attempt.report)])


def diff(a: Candidate, b: Candidate, name_a: str, name_b: str) -> str:
    """A unified diff of all files, of each at most its first lines."""
    parts = []
    for name in sorted({*a.files, *b.files}):
        old, new = a.files.get(name, "").splitlines(), b.files.get(name, "").splitlines()
        titles = f"{name_a}/{name}", f"{name_b}/{name}"
        parts += list(difflib.unified_diff(old[:_MOST_LINES], new[:_MOST_LINES], *titles, lineterm="", n=2))
        if max(len(old), len(new)) > _MOST_LINES:
            parts.append(f"[only the first {_MOST_LINES} lines of {name} were compared]")
    return "\n".join(parts) if parts else "their files are the same"
