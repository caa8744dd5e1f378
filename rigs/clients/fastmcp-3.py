"""FastMCP 3.4.11: it polls, hears of changes by callback, and takes questions from the session's own stream."""

import asyncio
from contextlib import asynccontextmanager

from fastmcp import Client
from fastmcp.client.tasks import ToolTask
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from mcp import McpError
from pair import drive
from steps import holds, refused, same

UNKNOWN = "lh1.1.bm90aGluZyBvZiB0aGUga2luZCBleGlzdHMgaGVyZQ"


def connection(rig):
    to = rig.url or StdioTransport(command=rig.command[0], args=rig.command[1:], keep_alive=False)

    async def answer(message, response_type, params, context):
        return await rig.answered()

    return Client(to, elicitation_handler=answer)


async def start(client, tool, **arguments):
    task = await client.call_tool(tool, arguments, task=True, ttl=600_000)
    holds(not task.returned_immediately, f"{tool} did not become a task")
    return task


def text(result):
    return result.content[0].text


async def first(rig):
    async with connection(rig) as client:

        async def call():
            same(text(await client.call_tool("echo", {"words": "hello"})), "hello")
            same((await client.call_tool("shaped", {})).structured_content, {"files": 900, "problems": 0})

        async def poll():
            task = await start(client, "slow", seconds=2)
            same((await client.get_task_status(task.task_id)).status, "working")
            same((await task.wait()).status, "completed")

        async def result():
            same(text(await (await start(client, "slow", seconds=0.1)).result()), "worked for 0.1 s")
            failing = await start(client, "fails")
            try:
                await failing.result()
            except ToolError as error:
                holds("no such crate" in str(error), f"it says {error}")
            else:
                raise AssertionError("it did not fail")
            same((await failing.status()).status, "failed")
            await refused((await start(client, "errs")).result(), -32050)

        async def question():
            same(text(await (await start(client, "asks")).result()), "Hello, Ada!")

        async def listed():
            task = await start(client, "slow", seconds=0.1)
            page = await client.list_tasks()
            found = [known["taskId"] for known in page["tasks"]]
            while page["nextCursor"]:
                page = await client.list_tasks(page["nextCursor"])
                found += [known["taskId"] for known in page["tasks"]]
            holds(task.task_id in found, f"not among {len(found)} tasks")

        async def cancel():
            task = await start(client, "endless")
            await task.cancel()
            same((await task.status()).status, "cancelled")

        async def unknown():
            await refused(client.get_task_status(UNKNOWN), -32602)
            await refused(client.get_task_result(UNKNOWN), -32602)
            await refused(client.cancel_task(UNKNOWN), -32602)

        async def notified():
            told = []
            task = await start(client, "slow", seconds=0.5)
            task.on_status_change(lambda status: told.append(status.status))
            await task.result()
            await asyncio.sleep(0.5)
            holds(told[-1:] == ["completed"], f"told {told}")

        async def another():
            task = await start(client, "slow", seconds=1)
            async with connection(rig) as other:
                same(text(await ToolTask(other, task.task_id, "slow").result()), "worked for 1 s")

        for name, work in {
            "call": call,
            "poll": poll,
            "result": result,
            "question": question,
            "list": listed,
            "cancel": cancel,
            "unknown id": unknown,
            "notified": notified,
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
            same(text(await ToolTask(client, rig.given["finished"], "slow").result()), "worked for 0.1 s")
            same(text(await ToolTask(client, rig.given["running"], "outlives").result()), "done at attempt 2")

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
        return (await self.client.get_task_status(task)).status

    async def ended(self, task, tool):
        try:
            said = text(await ToolTask(self.client, task, tool).result())
        except (ToolError, McpError) as error:
            said = str(error)
        end = await self.client.get_task_status(task)
        return end.status, f"{said} {end.statusMessage or ''}"

    async def cancel(self, task, _tool):
        await self.client.cancel_task(task)


@asynccontextmanager
async def peer(rig):
    async with connection(rig) as client:
        yield Peer(client)


drive(peer, first=first, later=later)
