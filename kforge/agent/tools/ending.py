"""The two tools that end a conversation: submit a verified candidate, or give up with a reason."""

from __future__ import annotations

from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import Toolbox, ToolError, ToolResult, clip, short
from kforge.agent.tools.words import attempt_text, headline


@tool
def submit(
    box: Toolbox, idea: str, module: str = "", expected_gain: float | None = None, direction: str = ""
) -> ToolResult:
    """Hand in your candidate and end. Only one that is verified under the rules in force now is taken; it is judged
    here if it was not yet.

    idea: what it does differently and why that is faster, in one or two sentences.
    module: another module of your folder in the place of the usual one.
    expected_gain: the speed-up over its parent that you expect, for example 1.3.
    direction: the kind of change in one or two words.
    """
    if not idea.strip():
        raise ToolError("idea is empty", "say in a sentence what the candidate does differently")
    candidate = box.candidate(module, idea.strip(), expected_gain)
    attempt = box.bench.evaluate(candidate, "quick", box.parent.id, short(direction))
    if not attempt.verified:
        text = "refused: only a verified candidate can be handed in. Mend it, or give up.\n" + attempt_text(attempt)
        return ToolResult(clip(text, box.limits.result), is_error=True)
    return ToolResult(f"taken: {headline(attempt)}", ends="submit", candidate=candidate)


@tool
def give_up(box: Toolbox, reason: str) -> ToolResult:
    """End without a candidate, where nothing better than what exists can be had.

    reason: why, in a sentence or two; it is remembered, so that it is not tried again.
    """
    if not reason.strip():
        raise ToolError("reason is empty", "say in a sentence why nothing better can be had")
    return ToolResult(f"given up: {reason.strip()[:1000]}", ends="give_up")
