"""A server of FastMCP with tasks, of 3.4 or of 4.1 with `fastmcp-tasks`: `python on_fastmcp.py PORT [FOLDER]`.

Which of them depends on the environment that it runs in. Its tasks are in memory or, with a folder, in a Redis of its
own (4.1 only).
"""

import asyncio
import pathlib
import sys
from dataclasses import dataclass

import work
from fastmcp import Context, FastMCP

try:
    from fastmcp_tasks import TasksExtension
except ImportError:
    TasksExtension = None

QUESTION = "Whom shall I greet?"

mcp = FastMCP("pairings")
if TasksExtension is not None:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers/python"))
    import own_redis

    mcp.add_extension(TasksExtension(url=own_redis.start(sys.argv[2]) if len(sys.argv) > 2 else "memory://"))


@dataclass
class Person:
    name: str


@mcp.tool
async def hello(name: str) -> str:
    return f"Hello, {name}!"


@mcp.tool(task=True)
async def works(seconds: float, context: Context) -> str:
    for step in range(1, 5):
        await context.report_progress(step, 4, f"part {step} of 4")
        await asyncio.sleep(seconds / 4)
    return f"worked for {seconds:g} s"


@mcp.tool(task=True)
async def waits(label: str) -> str:
    return await work.waits(label)


if TasksExtension is None:

    @mcp.tool(task=True)
    async def asks(context: Context) -> str:
        answer = await context.elicit(QUESTION, Person)
        return f"Hello, {answer.data.name if answer.action == 'accept' else answer.action}!"

else:
    from mcp_types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

    FORM = {"type": "object", "properties": {"name": {"type": "string", "title": "Name"}}, "required": ["name"]}

    @mcp.tool(task=True)
    async def asks(context: Context) -> str | InputRequiredResult:
        answer = (context.input_responses or {}).get("person")
        if answer is None:
            asked = ElicitRequest(params=ElicitRequestFormParams(message=QUESTION, requested_schema=FORM))
            return InputRequiredResult(input_requests={"person": asked})
        return f"Hello, {(answer.content or {}).get('name', answer.action)}!"


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
