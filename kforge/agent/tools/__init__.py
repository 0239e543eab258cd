"""What a model can do: tools on its candidate's files, the judge, the profile, skills, code, a sandboxed probe.

`call(name, arguments, toolbox)` runs one and records it; `schemas(toolbox)` lists them in the form of OpenAI's tools.
The model's text reaches its own folder and the sandbox, and nothing else.
"""

from __future__ import annotations

from kforge.agent.tools import (  # noqa: F401 - each registers its tools
    code,
    device,
    ending,
    files,
    judging,
    notes,
    probing,
    profiling,
    skills,
    sweeping,
)
from kforge.agent.tools.calling import call, schemas
from kforge.agent.tools.registry import TOOLS, Tool, tool
from kforge.agent.tools.toolbox import Limits, Toolbox, ToolError, ToolResult, clip

__all__ = ["TOOLS", "Limits", "Tool", "ToolError", "ToolResult", "Toolbox", "call", "clip", "schemas", "tool"]
