"""Python `mcp` 2.3.0 with an extension of our own for tasks, as its documentation describes."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any, Literal

import mcp_types as types
from mcp.client import Client, ClientExtension, NotificationBinding, ResultClaim
from mcp.client.stdio import StdioServerParameters
from pair import drive
from pydantic import BaseModel, ConfigDict, Field
from steps import holds, refused, same

UNKNOWN = "lh1.1.bm90aGluZyBvZiB0aGUga2luZCBleGlzdHMgaGVyZQ"
ENDED = ("completed", "failed", "cancelled")


class Created(types.Result):
    model_config = ConfigDict(populate_by_name=True, extra="allow")
    result_type: Literal["task"] = Field(alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str


class Task(types.Result):
    model_config = ConfigDict(populate_by_name=True, extra="allow")
    task_id: str = Field(alias="taskId")
    status: str
    status_message: str | None = Field(default=None, alias="statusMessage")
    poll_interval_ms: int | None = Field(default=None, alias="pollIntervalMs")
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = Field(default=None, alias="inputRequests")


class Change(BaseModel):
    model_config = ConfigDict(extra="allow")
    taskId: str
    status: str


class Named(types.RequestParams):
    task_id: str = Field(serialization_alias="taskId")
    input_responses: dict[str, Any] | None = Field(default=None, serialization_alias="inputResponses")


class Ask(types.Request[Any, Any]):
    """`tasks/*`, with the header that names the task."""

    name_param = "taskId"
    method: str
    params: Any


class Tasks(ClientExtension):
    """Declares the extension, polls a task to its end, and hears of its changes."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self):
        self.changes = []

    def claims(self):
        return (ResultClaim(result_type="task", model=Created, resolve=self.resolve),)

    def notifications(self):
        return (NotificationBinding(method="notifications/tasks", params_type=Change, handler=self.hear),)

    async def hear(self, change):
        self.changes.append(change)

    async def resolve(self, created, context):
        task = await ended(context.session, created.task_id)
        return types.CallToolResult.model_validate(task.result)


async def ask(session, method, task_id, **more):
    kind = Task if method == "tasks/get" else types.Result
    return await session.send_request(Ask(method=method, params=Named(task_id=task_id, **more)), kind)


async def until(session, task_id, states):
    while True:
        task = await ask(session, "tasks/get", task_id)
        if task.status in states:
            return task
        await asyncio.sleep((task.poll_interval_ms or 500) / 1000)


async def ended(session, task_id):
    return await until(session, task_id, ENDED)


async def start(session, tool, **arguments):
    created = await session.call_tool(tool, arguments, allow_claimed=True)
    holds(isinstance(created, Created), f"no task but {created!r}")
    return created.task_id


def text(result):
    return result["content"][0]["text"]


async def decline(_context, _params):
    """Declares that questions can be answered; a task's question is answered by `tasks/update` instead."""
    return types.ElicitResult(action="decline")


def connection(rig, tasks):
    to = rig.url or StdioServerParameters(command=rig.command[0], args=rig.command[1:])
    return Client(to, extensions=[tasks], elicitation_callback=decline)


async def first(rig):
    tasks = Tasks()
    async with connection(rig, tasks) as client:
        session = client.session

        async def call():
            same(client.protocol_version, "2026-07-28")
            plain = await client.call_tool("echo", {"words": "hello"})
            same(plain.content[0].text, "hello")
            shaped = await client.call_tool("shaped")
            same(shaped.structured_content, {"files": 900, "problems": 0})

        async def poll():
            task_id = await start(session, "slow", seconds=2)
            seen = await ask(session, "tasks/get", task_id)
            same(seen.status, "working")
            await ended(session, task_id)

        async def result():
            task = await ended(session, await start(session, "slow", seconds=0.1))
            same((task.status, text(task.result)), ("completed", "worked for 0.1 s"))
            failed = await ended(session, await start(session, "fails"))
            same((failed.status, failed.result["isError"]), ("completed", True))
            erred = await ended(session, await start(session, "errs"))
            same((erred.status, erred.error["code"]), ("failed", -32050))

        async def question():
            task_id = await start(session, "asks")
            asked = await until(session, task_id, ("input_required",))
            (key, request), *_ = asked.input_requests.items()
            same(request["method"], "elicitation/create")
            answer = {key: {"action": "accept", "content": {"name": "Ada"}}}
            await ask(session, "tasks/update", task_id, input_responses=answer)
            same(text((await ended(session, task_id)).result), "Hello, Ada!")

        async def cancel():
            task_id = await start(session, "endless")
            await ask(session, "tasks/cancel", task_id)
            same((await ended(session, task_id)).status, "cancelled")

        async def unknown():
            for method in ("tasks/get", "tasks/cancel"):
                await refused(ask(session, method, UNKNOWN), -32602)

        async def listen():
            task_id = await start(session, "slow", seconds=1)
            wanted = types.SubscriptionFilter.model_validate({"taskIds": [task_id]})
            params = types.SubscriptionsListenRequestParams(notifications=wanted)
            await session.send_request(types.SubscriptionsListenRequest(params=params), types.Result)
            heard = [change.status for change in tasks.changes if change.taskId == task_id]
            holds(heard[:1] == ["working"] and heard[-1:] == ["completed"], f"heard {heard}")

        async def another():
            task_id = await start(session, "slow", seconds=1)
            async with connection(rig, Tasks()) as other:
                same(text((await ended(other.session, task_id)).result), "worked for 1 s")

        for name, work in {
            "call": call,
            "poll": poll,
            "result": result,
            "question": question,
            "cancel": cancel,
            "unknown id": unknown,
            "listen": listen,
            "new connection": another,
        }.items():
            await rig.step(name, work)
        finished = await start(session, "slow", seconds=0.1)
        await ended(session, finished)
        await rig.leave(finished=finished, running=await start(session, "outlives"))


async def later(rig):
    async with connection(rig, Tasks()) as client:

        async def restart():
            same(text((await ended(client.session, rig.given["finished"])).result), "worked for 0.1 s")
            same(text((await ended(client.session, rig.given["running"])).result), "done at attempt 2")

        await rig.step("restart", restart)


class Peer:
    """What a pairing does with this client."""

    def __init__(self, rig, client):
        self.rig = rig
        self.client = client
        self.session = client.session

    async def call(self, tool, arguments):
        return (await self.client.call_tool(tool, arguments)).content[0].text

    async def start(self, tool, arguments):
        return await start(self.session, tool, **arguments)

    async def status(self, task):
        return (await ask(self.session, "tasks/get", task)).status

    async def ended(self, task, _tool):
        while True:
            seen = await until(self.session, task, ("input_required", *ENDED))
            if seen.status in ENDED:
                said = text(seen.result) if seen.result else (seen.error or {}).get("message")
                return seen.status, said or seen.status_message
            answer = {"action": "accept", "content": await self.rig.answered()}
            answers = {key: answer for key in seen.input_requests}
            await ask(self.session, "tasks/update", task, input_responses=answers)

    async def cancel(self, task, _tool):
        await ask(self.session, "tasks/cancel", task)


@asynccontextmanager
async def peer(rig):
    async with connection(rig, Tasks()) as client:
        yield Peer(rig, client)


drive(peer, first=first, later=later)
