"""Python `mcp` 1.30.0 with its experimental tasks. It asks for a result only at the end of a task."""

import asyncio
from contextlib import asynccontextmanager

import mcp.types as types
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamablehttp_client
from mcp.shared.exceptions import McpError
from mcp.types import CallToolResult
from pair import drive
from steps import holds, refused, same

UNKNOWN = "lh1.1.bm90aGluZyBvZiB0aGUga2luZCBleGlzdHMgaGVyZQ"


@asynccontextmanager
async def connection(rig, heard=None):
    if rig.url:
        transport = streamablehttp_client(rig.url)
    else:
        transport = stdio_client(StdioServerParameters(command=rig.command[0], args=rig.command[1:]))

    async def answer(_context, _params):
        return types.ElicitResult(action="accept", content=await rig.answered())

    async def hear(message):
        if heard is not None and isinstance(message, types.ServerNotification):
            heard.append(message.root)

    async with transport as (read, write, *_):
        async with ClientSession(read, write, elicitation_callback=answer, message_handler=hear) as session:
            await session.initialize()
            yield session


async def start(session, tool, **arguments):
    created = await session.experimental.call_tool_as_task(tool, arguments, ttl=600_000)
    same(created.task.status, "working")
    return created.task.taskId


async def ended(session, task_id):
    async for status in session.experimental.poll_task(task_id):
        last = status
    return last


async def result(session, task_id):
    return await session.experimental.get_task_result(task_id, CallToolResult)


def text(found):
    return found.content[0].text


async def first(rig):
    heard = []
    async with connection(rig, heard) as session:

        async def call():
            same(text(await session.call_tool("echo", {"words": "hello"})), "hello")
            shaped = await session.call_tool("shaped", {})
            same(shaped.structuredContent, {"files": 900, "problems": 0})

        async def poll():
            seen = [status.status async for status in session.experimental.poll_task(await start(session, "slow", seconds=2))]
            holds(seen[0] == "working" and seen[-1] == "completed", f"saw {seen}")

        async def results():
            task_id = await start(session, "slow", seconds=0.1)
            same((await ended(session, task_id)).status, "completed")
            same(text(await result(session, task_id)), "worked for 0.1 s")
            failed = await start(session, "fails")
            end = await ended(session, failed)
            same(end.status, "failed")
            holds("no such crate" in (end.statusMessage or ""), f"the status message is {end.statusMessage!r}")
            same((await result(session, failed)).isError, True)
            erred = await start(session, "errs")
            same((await ended(session, erred)).status, "failed")
            await refused(result(session, erred), -32050)

        async def waiting():
            task_id = await start(session, "slow", seconds=1)
            same(text(await result(session, task_id)), "worked for 1 s")

        async def question():
            task_id = await start(session, "asks")
            while (await session.experimental.get_task(task_id)).status == "working":
                await asyncio.sleep(0.2)
            same(text(await result(session, task_id)), "Hello, Ada!")

        async def question_while_polling():
            task_id = await start(session, "asks")
            same((await ended(session, task_id)).status, "completed")
            same(text(await result(session, task_id)), "Hello, Ada!")

        async def listed():
            task_id = await start(session, "slow", seconds=0.1)
            page = await session.experimental.list_tasks()
            found = [task.taskId for task in page.tasks]
            while page.nextCursor:
                page = await session.experimental.list_tasks(page.nextCursor)
                found += [task.taskId for task in page.tasks]
            holds(task_id in found, f"not among {len(found)} tasks")

        async def cancel():
            task_id = await start(session, "endless")
            same((await session.experimental.cancel_task(task_id)).status, "cancelled")
            same((await session.experimental.get_task(task_id)).status, "cancelled")
            await refused(session.experimental.cancel_task(task_id), -32602)

        async def unknown():
            await refused(session.experimental.get_task(UNKNOWN), -32602)
            await refused(result(session, UNKNOWN), -32602)
            await refused(session.experimental.cancel_task(UNKNOWN), -32602)

        async def notified():
            task_id = await start(session, "slow", seconds=0.5)
            await ended(session, task_id)
            await asyncio.sleep(0.5)
            told = [note.params.status for note in heard if getattr(note.params, "taskId", None) == task_id]
            holds(told[-1:] == ["completed"], f"told {told}")

        async def another():
            task_id = await start(session, "slow", seconds=1)
            async with connection(rig) as other:
                await ended(other, task_id)
                same(text(await result(other, task_id)), "worked for 1 s")

        for name, work in {
            "call": call,
            "poll": poll,
            "result": results,
            "result waits": waiting,
            "question": question,
            "question polled": question_while_polling,
            "list": listed,
            "cancel": cancel,
            "unknown id": unknown,
            "notified": notified,
            "new connection": another,
        }.items():
            await rig.step(name, work)
        finished = await start(session, "slow", seconds=0.1)
        await ended(session, finished)
        await rig.leave(finished=finished, running=await start(session, "outlives"))


async def later(rig):
    async with connection(rig) as session:

        async def restart():
            same(text(await result(session, rig.given["finished"])), "worked for 0.1 s")
            same((await ended(session, rig.given["running"])).status, "completed")
            same(text(await result(session, rig.given["running"])), "done at attempt 2")

        await rig.step("restart", restart)


class Peer:
    """What a pairing does with this client."""

    def __init__(self, session):
        self.session = session

    async def call(self, tool, arguments):
        return text(await self.session.call_tool(tool, arguments))

    async def start(self, tool, arguments):
        return await start(self.session, tool, **arguments)

    async def status(self, task):
        return (await self.session.experimental.get_task(task)).status

    async def ended(self, task, _tool):
        try:
            said = text(await result(self.session, task))
        except McpError as error:
            said = str(error)
        end = await self.session.experimental.get_task(task)
        return end.status, f"{said} {end.statusMessage or ''}"

    async def cancel(self, task, _tool):
        await self.session.experimental.cancel_task(task)


@asynccontextmanager
async def peer(rig):
    async with connection(rig) as session:
        yield Peer(session)


drive(peer, first=first, later=later)
