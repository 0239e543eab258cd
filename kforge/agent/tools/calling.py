"""One call of a tool: arguments checked, the tool run, whatever it meets turned into a text, the call recorded."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kforge.agent.budget import BudgetSpent
from kforge.agent.tools.arguments import parse
from kforge.agent.tools.registry import TOOLS
from kforge.agent.tools.toolbox import Toolbox, ToolError, ToolResult, clip
from kforge.errors import BuildError, Interrupted, KforgeError, StoreError

_MOST_TEXT = 60_000  # of any result, pages of files included


def schemas(toolbox: Toolbox) -> list[dict[str, Any]]:
    """The tools that this toolbox has, in the form of OpenAI's `tools`."""
    return [tool.schema() for tool in TOOLS.values() if tool.available(toolbox)]


def call(
    name: str, arguments: str | Mapping[str, Any], toolbox: Toolbox, *, model_call: int | str | None = None
) -> ToolResult:
    """Run one tool and record it as an event `tool_call`; model_call: the number of the model's call that asked.

    Whatever a model can do wrong comes back as a text with is_error. Raised are only Interrupted, BudgetSpent and
    StoreError: they end the conversation.
    """
    toolbox.bench.control.check()
    begin = time.monotonic()
    result = _run(name, arguments, toolbox)
    if result.is_error:
        toolbox.bench.control.check()  # what fails after a stop failed because of it
    toolbox.bench.event(
        "tool_call",
        call=model_call,
        tool=str(name)[:100],
        arguments=dict(arguments) if isinstance(arguments, Mapping) else arguments,
        result=result.text,
        error=result.is_error,
        seconds=round(time.monotonic() - begin, 3),
    )
    return result


def _run(name: str, arguments: str | Mapping[str, Any], toolbox: Toolbox) -> ToolResult:
    available = [tool.name for tool in TOOLS.values() if tool.available(toolbox)]
    try:
        if name not in available:
            raise ToolError(f"there is no tool {str(name)[:100]!r}", "tools: " + ", ".join(available))
        tool = TOOLS[name]
        answer = tool.run(toolbox, **parse(arguments, tool.parameters))
    except (Interrupted, BudgetSpent, StoreError):
        raise
    except KforgeError as error:
        return ToolResult(clip(told(error), toolbox.limits.result), is_error=True)
    result = answer if isinstance(answer, ToolResult) else ToolResult(answer)
    plain = result.text.encode("utf-8", "replace").decode()  # names of files may be no Unicode
    return replace(result, text=clip(plain, _MOST_TEXT))


def told(error: KforgeError) -> str:
    """An error as a text for a model: what is wrong, what to do, the compiler's lines."""
    text = f"error: {error.message}" + (f"\n{error.hint}" if error.hint else "")
    log = error.log if isinstance(error, BuildError) else ""
    return f"{text}\n{log.strip()}" if log.strip() else text
