"""`kforge mcp`: the tools of a desk for any client of the Model Context Protocol, on stdin and stdout.

The protocol's loop runs in the main thread, all work in one other thread, in order: a workbench belongs to one thread.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TextIO

from kforge import __version__
from kforge.agent.desk import READ_ONLY, TOOLS, Desk
from kforge.errors import MissingError

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server
    from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

MAJOR = 2  # of the SDK: the first whose Server takes its handlers as arguments
INSTRUCTIONS = (
    "kforge judges CUDA kernels that replace a PyTorch op. A task is op.py (class Model, get_inputs, get_init_inputs);"
    " a candidate is <op>_kforge.py with class ModelNew, usually made of kforge.kernel.Kernel, and .cu files beside it."
    " Read a skill first, write the candidate's files into the workspace, then evaluate; a report names the first gate"
    " that failed. Without a GPU kernels run in an emulator: right or wrong is told, speed is untimed."
)


def check_sdk() -> None:
    """MissingError where the official SDK is absent or of another major version."""
    hint = "pip install 'kforge-cuda[mcp]'"
    try:
        version = importlib.metadata.version("mcp")
    except importlib.metadata.PackageNotFoundError as error:
        raise MissingError("kforge mcp needs the package mcp, which the extra mcp brings", hint) from error
    if version.partition(".")[0] != str(MAJOR):
        raise MissingError(f"kforge mcp needs version {MAJOR} of the package mcp; {version} is installed", hint)


def serve(desk: Desk, stdin: TextIO, stdout: TextIO) -> None:
    """Answer one client until stdin ends. Both carry the protocol alone: nothing else may read or write them."""
    check_sdk()
    asyncio.run(_serve(desk, stdin, stdout))


async def _serve(desk: Desk, stdin: TextIO, stdout: TextIO) -> None:
    import anyio
    from mcp.server.stdio import stdio_server

    with ThreadPoolExecutor(1, "kforge-desk") as worker:
        server = build(desk, worker)
        try:
            async with stdio_server(_Lines(stdin), anyio.wrap_file(stdout)) as (read, write):  # type: ignore[arg-type]
                await server.run(read, write, server.create_initialization_options())
        finally:
            worker.submit(desk.close).result()


class _Lines:
    """A stream by line. Unlike anyio's own file, one that waits for input does not hold up the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        from anyio import to_thread

        line = await to_thread.run_sync(self._stream.readline, abandon_on_cancel=True)
        if not line:
            raise StopAsyncIteration
        return line


def build(desk: Desk, worker: ThreadPoolExecutor) -> Server[Any]:
    """The server of a desk. worker: one thread, which all work is done in."""
    import mcp_types as types
    from mcp.server.lowlevel.server import Server

    async def list_tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        tools = [
            types.Tool(
                name=tool.name,
                description=tool.description,
                input_schema=dict(tool.parameters),
                annotations=types.ToolAnnotations(read_only_hint=tool.name in READ_ONLY, open_world_hint=False),
            )
            for tool in TOOLS.values()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[str] = asyncio.Queue()
        ticket = object()

        def tell(text: str) -> None:
            loop.call_soon_threadsafe(lines.put_nowait, text)

        async def report() -> None:
            number = 0
            while True:
                text = await lines.get()
                number += 1
                await context.session.report_progress(number, None, text)

        reporter = asyncio.create_task(report())
        try:
            result = await loop.run_in_executor(worker, desk.call, params.name, params.arguments or {}, tell, ticket)
        finally:  # a cancelled call too: what it began ends at once
            desk.stop(ticket)
            reporter.cancel()
        return types.CallToolResult(content=[types.TextContent(text=result.text)], is_error=result.is_error)

    return Server(
        "kforge",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
