"""A plain server of the Python SDK, without tasks: `python plain.py PORT`.

It has the tools that the official `tasks-*` scenarios call, and knows nothing of tasks: those are Longhaul's.
"""

import sys

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp.types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

server = MCPServer(name="plain")


def form(message, fields, required):
    schema = {"type": "object", "properties": fields, "required": required}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def said(ctx, key, field, otherwise):
    answer = (ctx.input_responses or {}).get(key)
    content = answer.content if isinstance(answer, ElicitResult) else None
    return (content or {}).get(field, otherwise)


@server.tool()
def greet(name: str) -> str:
    """Greets somebody by name"""
    return f"Hello, {name}!"


@server.tool()
async def slow_compute(seconds: float, label: str = "") -> str:
    """Computes for some seconds"""
    await anyio.sleep(seconds)
    return f"{label}: computed for {seconds} s"


@server.tool()
async def failing_job() -> str:
    """Fails after a second"""
    await anyio.sleep(1)
    raise ToolError("this job always fails")


@server.tool()
async def protocol_error_job() -> str:
    """Ends in a protocol error"""
    raise MCPError(code=-32603, message="this job always ends in a protocol error")


@server.tool()
async def confirm_delete(filename: str, ctx: Context) -> str | InputRequiredResult:
    """Asks before it deletes"""
    if not ctx.input_responses:
        confirm = form(f"Delete {filename}?", {"confirm": {"type": "boolean"}}, ["confirm"])
        return InputRequiredResult(input_requests={"confirm": confirm})
    return f"{filename} is {'deleted' if said(ctx, 'confirm', 'confirm', False) else 'kept'}"


@server.tool()
async def multi_input(ctx: Context) -> str | InputRequiredResult:
    """Asks two questions at once"""
    if not ctx.input_responses:
        fields = {"name": {"type": "string"}, "confirm": {"type": "boolean"}}
        asked = {"first": form("The first name?", fields, []), "second": form("The second name?", fields, [])}
        return InputRequiredResult(input_requests=asked)
    return " and ".join(said(ctx, key, "name", "nobody") for key in ("first", "second"))


@server.tool()
async def test_tool_with_task(ctx: Context) -> str | InputRequiredResult:
    """Asks for a name, then works"""
    if not ctx.input_responses:
        asked = form("What is your name?", {"name": {"type": "string"}}, ["name"])
        return InputRequiredResult(input_requests={"user_name": asked})
    await anyio.sleep(0.5)
    return f"Hello, {said(ctx, 'user_name', 'name', 'stranger')}!"


if __name__ == "__main__":
    server.run(transport="streamable-http", port=int(sys.argv[1]))
