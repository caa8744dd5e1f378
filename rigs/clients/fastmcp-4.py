"""FastMCP 4.1.4 with its own tasks, both as a plain `call_tool` and as a handle."""

import fastmcp_tasks.client as tasks
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.exceptions import ToolError
from steps import holds, main, refused, same

UNKNOWN = "lh1.1.bm90aGluZyBvZiB0aGUga2luZCBleGlzdHMgaGVyZQ"


async def answer(message, response_type, params, context):
    return {"name": "Ada"}


def connection(rig):
    to = rig.url or StdioTransport(command=rig.command[0], args=rig.command[1:], keep_alive=False)
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
            same(text(await handle(client, "slow", rig.left["finished"]).result()), "worked for 0.1 s")
            same(text(await handle(client, "outlives", rig.left["running"]).result()), "done at attempt 2")

        await rig.step("restart", restart)


main(lambda rig: first(rig) if rig.phase == "first" else later(rig))
