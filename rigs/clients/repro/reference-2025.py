"""The tools of this rig on Python `mcp` 1.30's own server with its experimental tasks, over HTTP or stdio.

Run: `python reference-2025.py PORT`, or `python reference-2025.py stdio`, in the environment of `python-mcp-1`.
A client that fails here as it fails against Longhaul does not fail because of Longhaul.
"""

import asyncio
import contextlib
import sys

import mcp.types as types
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import McpError
from starlette.applications import Starlette
from starlette.routing import Mount

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COUNTS = {
    "type": "object",
    "properties": {"files": {"type": "integer"}, "problems": {"type": "integer"}},
    "required": ["files", "problems"],
}
SUPPORT = {"echo": "forbidden", "outlives": "required"}
ARGUMENTS = {"echo": {"words": {"type": "string"}}, "slow": {"seconds": {"type": "number"}}}

server = Server("reference-2025")
server.experimental.enable_tasks()


def text(words, is_error=False):
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)], isError=is_error)


async def echo(arguments, _task):
    return text(arguments["words"])


async def slow(arguments, task):
    for step in range(1, 5):
        if task:
            await task.update_status(f"part {step} of 4")
        await asyncio.sleep(arguments["seconds"] / 4)
    return text(f"worked for {arguments['seconds']} s")


async def asks(_arguments, task):
    answer = await task.elicit(message="Whom shall I greet?", requestedSchema=NAME)
    return text(f"Hello, {answer.content['name'] if answer.content else answer.action}!")


async def fails(_arguments, _task):
    return text("no such crate: it was looked for everywhere", is_error=True)


async def errs(_arguments, _task):
    raise McpError(types.ErrorData(code=-32050, message="the index is locked"))


async def shaped(_arguments, _task):
    counts = {"files": 900, "problems": 0}
    content = [types.TextContent(type="text", text='{"files": 900, "problems": 0}')]
    return types.CallToolResult(content=content, structuredContent=counts)


async def endless(_arguments, _task):
    await asyncio.sleep(600)
    return text("nobody cancelled")


async def outlives(_arguments, _task):
    await asyncio.sleep(600)
    return text("done at attempt 1")


TOOLS = {work.__name__: work for work in (echo, slow, asks, fails, errs, shaped, endless, outlives)}


@server.list_tools()
async def list_tools():
    return [
        types.Tool(
            name=name,
            inputSchema={"type": "object", "properties": ARGUMENTS.get(name, {})},
            outputSchema=COUNTS if name == "shaped" else None,
            execution=types.ToolExecution(taskSupport=SUPPORT.get(name, "optional")),
        )
        for name in TOOLS
    ]


@server.call_tool(validate_input=False)
async def call_tool(name, arguments):
    context = server.request_context
    if context.experimental.is_task:
        return await context.experimental.run_task(lambda task: TOOLS[name](arguments, task))
    return await TOOLS[name](arguments, None)


async def over_stdio():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http(port):
    manager = StreamableHTTPSessionManager(app=server)

    @contextlib.asynccontextmanager
    async def lifespan(_app):
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/mcp", app=manager.handle_request)], lifespan=lifespan)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        asyncio.run(over_stdio())
    else:
        over_http(int(sys.argv[1]))
