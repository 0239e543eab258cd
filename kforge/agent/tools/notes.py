"""The tool that keeps a remark for later attempts and runs on ops of the same family."""

from __future__ import annotations

from dataclasses import asdict

from kforge.agent.tools.registry import tool
from kforge.agent.tools.toolbox import Toolbox, ToolError, short

MOST = 600


@tool
def note(box: Toolbox, text: str, direction: str = "") -> str:
    """Keep a remark in the memory: what you learned that helps with ops of this family, on this chip. Measurements of
    your candidates are kept without it.

    text: one or two sentences.
    direction: the kind of change that it is about, in one or two words; may be left out.
    """
    from kforge.agent.memory import Lesson, Outcome

    words = " ".join(text.split())
    if not words or len(words) > MOST:
        raise ToolError(f"a note has 1 to {MOST} characters, this one {len(words)}")
    memory = box.bench.memory
    if memory is None:
        raise ToolError("this run has no memory: nothing was kept")
    key = box.bench.key
    lesson = Lesson(
        key.family, key.shape_class, key.chip, short(direction), Outcome.NOTE, words, run=box.bench.session.log.id
    )
    memory.remember(lesson)
    kept = {name: asdict(lesson)[name] for name in ("family", "shape_class", "chip", "direction", "gain", "text")}
    box.bench.event("lesson", **kept, outcome=str(lesson.outcome))
    return f"kept for {key.family} ({key.shape_class}) on {key.chip}"
