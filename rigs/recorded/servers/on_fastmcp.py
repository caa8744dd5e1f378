"""A server on FastMCP with a little of everything, and tools that can run as tasks: `on_fastmcp.py PORT`.

For FastMCP 3.4, and for 4.1 with `fastmcp-tasks`.
"""

import asyncio
import sys
from typing import Annotated

from fastmcp import Context, FastMCP
from fastmcp.utilities.types import Image
from pydantic import BaseModel, Field

try:
    from fastmcp_tasks import TasksExtension
except ImportError:
    TasksExtension = None

server = FastMCP("tasks", instructions="Add numbers.")
if TasksExtension:
    server.add_extension(TasksExtension(url="memory://"))


class Sum(BaseModel):
    """What came of it."""

    total: float
    terms: list[float]


@server.tool(annotations={"readOnlyHint": True, "title": "Add two numbers"}, tags={"numbers"})
def add(a: Annotated[float, Field(description="The first", ge=-1e300)], b: float = 0.0) -> Sum:
    """Adds."""
    return Sum(total=a + b, terms=[a, b])


@server.tool
async def report(steps: int, ctx: Context) -> str:
    """Reports as it goes."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await ctx.info(f"at step {step}")
    return "reported"


@server.tool(task=True)
async def slow(seconds: float) -> dict:
    """Takes its time, as a task if that is wanted."""
    await asyncio.sleep(seconds)
    return {"slept": seconds, "é": None}


@server.tool
def dot() -> Image:
    """An image of one dot."""
    return Image(data=bytes.fromhex("474946383961010001000000002c00000000010001000002024401003b"), format="gif")


@server.tool
def fails():
    """Fails."""
    raise ValueError("no")


@server.resource("note://one", mime_type="text/plain")
def one() -> str:
    """A note."""
    return "one"


@server.resource("note://{name}/parts")
def parts(name: str) -> str:
    """The parts of a note."""
    return f"parts of {name}"


@server.prompt
def summary(topic: str) -> str:
    """Asks for a summary."""
    return f"Summarise {topic}."


if __name__ == "__main__":
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
