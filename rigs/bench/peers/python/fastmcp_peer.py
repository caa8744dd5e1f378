"""A server of FastMCP with `fastmcp-tasks`, its worker in the same process: `fastmcp_peer.py PORT [FOLDER]`.

Its tasks are in memory or, with a folder, in a Redis of its own that keeps its data there and writes each change to
the disk at once. All else is FastMCP's default, but that nothing is printed for each request.
"""

import asyncio
import os
import sys

import own_redis
from fastmcp import Context, FastMCP
from fastmcp_tasks import TasksExtension


mcp = FastMCP("peer-fastmcp")
mcp.add_extension(TasksExtension(url=own_redis.start(sys.argv[2]) if len(sys.argv) > 2 else "memory://"))


@mcp.tool
async def echo(text: str) -> str:
    return text


@mcp.tool(task=True)
async def nap(ms: int) -> str:
    await asyncio.sleep(ms / 1000)
    return "slept"


@mcp.tool(task=True)
async def child(seconds: float, mark: str) -> str:
    process = await asyncio.create_subprocess_exec("sleep", str(seconds), env={**os.environ, "MARK": mark})
    await process.wait()
    return "done"


@mcp.tool
async def chatter(messages: int, bytes: int, context: Context) -> str:
    """For the attacks: sends the messages of a log while it is called."""
    for _ in range(messages):
        await context.info("x" * bytes)
    return "said"


if __name__ == "__main__":
    mcp.run(
        transport="http",
        host="127.0.0.1",
        port=int(sys.argv[1]),
        path="/mcp",
        show_banner=False,
        log_level="warning",
        uvicorn_config={"access_log": False},
    )
