"""A plain server of the Python SDK, without tasks: `python plain.py [PORT]`, on its standard streams without a port.

It sleeps, asks in the way of the generation that it is spoken to in, and leaves a child behind.
"""

import sys

import anyio
import work
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from pydantic import BaseModel, Field

QUESTION = "Whom shall I greet?"
FORM = {"type": "object", "properties": {"name": {"type": "string", "title": "Name"}}, "required": ["name"]}
ALONE = "2026-07-28"

server = MCPServer(name="plain")


class Person(BaseModel):
    name: str = Field(title="Name")


@server.tool()
def hello(name: str) -> str:
    """Greets somebody by name"""
    return f"Hello, {name}!"


@server.tool()
async def works(seconds: float, ctx: Context) -> str:
    """Works for some seconds and reports its progress"""
    for step in range(1, 5):
        await ctx.report_progress(step, 4, f"part {step} of 4")
        await anyio.sleep(seconds / 4)
    return f"worked for {seconds:g} s"


@server.tool()
async def asks(ctx: Context) -> str | InputRequiredResult:
    """Asks for a name"""
    if ctx.protocol_version != ALONE:
        answer = await ctx.elicit(QUESTION, Person)
        return f"Hello, {answer.data.name if answer.action == 'accept' else answer.action}!"
    answer = (ctx.input_responses or {}).get("person")
    if answer is None:
        asked = ElicitRequest(params=ElicitRequestFormParams(message=QUESTION, requested_schema=FORM))
        return InputRequiredResult(input_requests={"person": asked})
    return f"Hello, {(answer.content or {}).get('name', answer.action)}!"


@server.tool()
async def waits(label: str) -> str:
    """Works until it is let go, and leaves a child behind"""
    work.leave_a_child(label)
    return await work.waits(label)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="streamable-http", port=int(sys.argv[1]))
    else:
        server.run(transport="stdio")
