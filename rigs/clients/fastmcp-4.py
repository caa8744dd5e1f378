"""FastMCP 4.1.4 with its own tasks, both as a plain `call_tool` and as a handle."""

from contextlib import asynccontextmanager

import fastmcp_tasks.client as tasks
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from pair import drive
from steps import holds, refused, same

UNKNOWN = "lh1.1.bm90aGluZyBvZiB0aGUga2luZCBleGlzdHMgaGVyZQ"


def connection(rig):
    to = rig.url or StdioTransport(command=rig.command[0], args=rig.command[1:], keep_alive=False)

    async def answer(message, response_type, params, context):
        return await rig.answered()

    return Client(to, elicitation_handler=answer)


def handle(client, tool, task_id):
    """The handle of a task that another connection started."""
    created = tasks.ClientCreateTaskResult.model_validate(
        {"resultType": "task", "taskId": task_id, "status": "working", "createdAt": "", "lastUpdatedAt": ""}
    )
    return tasks.ToolTask(client, tool, created)


async def start(client, tool, **arguments):
    return await tasks.call_tool_task(client, tool, arguments)


def text(result):
    return result.content[0].text


async def first(rig):
    async with connection(rig) as client:

        async def call():
            same(text(await client.call_tool("echo", {"words": "hello"})), "hello")
            same((await client.call_tool("shaped", {})).structured_content, {"files": 900, "problems": 0})
            same(text(await client.call_tool("slow", {"seconds": 0.5})), "worked for 0.5 s")

        async def poll():
            task = await start(client, "slow", seconds=2)
            same((await task.status()).status, "working")
            same((await task.wait()).status, "completed")

        async def result():
            same(text(await (await start(client, "slow", seconds=0.1)).result()), "worked for 0.1 s")
            for tool, words in {"fails": "no such crate", "errs": "the index is locked"}.items():
                try:
                    await (await start(client, tool)).result()
                except ToolError as error:
                    holds(words in str(error), f"{tool} says {error}")
                else:
                    raise AssertionError(f"{tool} did not fail")

        async def question():
            same(text(await client.call_tool("asks", {})), "Hello, Ada!")
            same(text(await (await start(client, "asks")).result()), "Hello, Ada!")

        async def cancel():
            task = await start(client, "endless")
            await task.cancel()
            same((await task.wait(timeout=20)).status, "cancelled")

        async def unknown():
            await refused(handle(client, "slow", UNKNOWN).status(), -32602)
            await refused(handle(client, "slow", UNKNOWN).cancel(), -32602)

        async def another():
            task = await start(client, "slow", seconds=1)
            async with connection(rig) as other:
                same(text(await handle(other, "slow", task.task_id).result()), "worked for 1 s")

        for name, work in {
            "call": call,
            "poll": poll,
            "result": result,
            "question": question,
            "cancel": cancel,
            "unknown id": unknown,
            "new connection": another,
        }.items():
            await rig.step(name, work)
        finished = await start(client, "slow", seconds=0.1)
        await finished.result()
        running = await start(client, "outlives")
        await rig.leave(finished=finished.task_id, running=running.task_id)


async def later(rig):
    async with connection(rig) as client:

        async def restart():
            same(text(await handle(client, "slow", rig.given["finished"]).result()), "worked for 0.1 s")
            same(text(await handle(client, "outlives", rig.given["running"]).result()), "done at attempt 2")

        await rig.step("restart", restart)


class Peer:
    """What a pairing does with this client."""

    def __init__(self, client):
        self.client = client

    async def call(self, tool, arguments):
        return text(await self.client.call_tool(tool, arguments))

    async def start(self, tool, arguments):
        return (await start(self.client, tool, **arguments)).task_id

    async def status(self, task):
        return (await handle(self.client, "", task).status()).status

    async def ended(self, task, tool):
        known = handle(self.client, tool, task)
        try:
            said = text(await known.result())
        except (ToolError, MCPError) as error:
            said = str(error)
        return (await known.status()).status, said

    async def cancel(self, task, tool):
        await handle(self.client, tool, task).cancel()


@asynccontextmanager
async def peer(rig):
    async with connection(rig) as client:
        yield Peer(client)


drive(peer, first=first, later=later)
