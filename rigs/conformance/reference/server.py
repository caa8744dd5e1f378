"""The fixture tools on the Python SDK and its experimental tasks: `python server.py PORT`.

The 2025 scenarios run against it to show that they judge fairly. It uses the SDK as its documentation shows; where
the SDK leaves a choice to the server, it chooses what the specification says. What then still fails is a fault of the SDK
or a promise that only Longhaul makes: both stand in `../reference-exceptions.json`.
"""

import sys
import warnings
from contextlib import asynccontextmanager, nullcontext

import anyio
import uvicorn
from jsonschema import Draft202012Validator
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import McpError
from mcp.shared.experimental.tasks.helpers import RELATED_TASK_METADATA_KEY, is_terminal
from mcp.shared.experimental.tasks.in_memory_task_store import InMemoryTaskStore
from starlette.applications import Starlette
from starlette.routing import Mount

warnings.filterwarnings("ignore", category=DeprecationWarning)

HOUR_MS = 3_600_000
MAY_ASK = types.ClientCapabilities(elicitation=types.ElicitationCapability())
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class Tasks(InMemoryTaskStore):
    """The SDK's store. Its own version raises when work ends after a cancel, and so ends every other task too."""

    async def update_task(self, task_id, status=None, status_message=None):
        task = await self.get_task(task_id)
        if task is not None and is_terminal(task.status):
            return task
        return await super().update_task(task_id, status, status_message)


class Events(EventStore):
    """Every event of every stream, to replay after a broken connection."""

    def __init__(self):
        self._events = []

    async def store_event(self, stream_id, message):
        self._events.append((stream_id, message))
        return str(len(self._events) - 1)

    async def replay_events_after(self, last_event_id, send_callback):
        if not last_event_id.isdigit() or int(last_event_id) >= len(self._events):
            return None
        stream, _ = self._events[int(last_event_id)]
        for number in range(int(last_event_id) + 1, len(self._events)):
            of, message = self._events[number]
            if of == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


server = Server("reference", instructions="The fixture tools, on the Python SDK.")
support = server.experimental.enable_tasks(store=Tasks())


def text(words, is_error=False):
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)], isError=is_error)


def form(properties, required):
    return {"type": "object", "properties": properties, "required": required}


class Call:
    """One call of a tool, plain or as a task: how it asks and how it reports."""

    def __init__(self, context, task=None):
        self._session = context.session
        self._request = context.request_id
        self._token = context.meta.progressToken if context.meta else None
        self.task = task

    async def ask(self, message, schema):
        """Asks whom it may, and takes an answer that does not fit its form as declined."""
        if self.task:
            answer = await self.task.elicit(message, schema)
        else:
            if not self._session.check_client_capability(MAY_ASK):
                raise McpError(types.ErrorData(code=types.INVALID_REQUEST, message="The client cannot be asked"))
            answer = await self._session.elicit_form(message, schema, related_request_id=self._request)
        fits = Draft202012Validator(schema).is_valid(answer.content)
        return answer if answer.action != "accept" or fits else types.ElicitResult(action="decline")

    async def sample(self, words):
        messages = [types.SamplingMessage(role="user", content=types.TextContent(type="text", text=words))]
        if self.task:
            return await self.task.create_message(messages, max_tokens=100)
        return await self._session.create_message(messages, max_tokens=100, related_request_id=self._request)

    async def log(self, level, words):
        least = LEVELS.index(self._session.least_level) if hasattr(self._session, "least_level") else 0
        if LEVELS.index(level) >= least:
            await self._session.send_log_message(level, words, "fixture", related_request_id=self._request)

    async def progress(self, done, total):
        if self._token is None:
            return
        params = {"progressToken": self._token, "progress": done, "total": total}
        if self.task:
            params["_meta"] = {RELATED_TASK_METADATA_KEY: {"taskId": self.task.task_id}}
        note = types.ProgressNotification(params=types.ProgressNotificationParams.model_validate(params))
        stream = None if self.task else self._request
        await self._session.send_notification(types.ServerNotification(note), stream)


async def greet(call, name="nobody"):
    return text(f"Hello, {name}!")


async def slow_compute(call, seconds=0, label="none"):
    for step in range(4):
        await call.progress(step + 1, 4)
        await anyio.sleep(float(seconds) / 4)
    return text(f"{label}: computed for {seconds} s")


async def failing_job(call):
    await anyio.sleep(1)
    return text("this job always fails", is_error=True)


async def protocol_error_job(call):
    raise McpError(types.ErrorData(code=-32603, message="this job always ends in a protocol error"))


async def confirm_delete(call, filename="nothing"):
    answer = await call.ask(f"Delete {filename}?", form({"confirm": {"type": "boolean"}}, ["confirm"]))
    done = answer.action == "accept" and (answer.content or {}).get("confirm")
    return text(f"{filename} is {'deleted' if done else 'kept'}")


async def multi_input(call):
    both = form({"name": {"type": "string"}, "confirm": {"type": "boolean"}}, [])
    names = {}

    async def one(which):
        answer = await call.ask(f"The {which} name?", both)
        accepted = answer.content if answer.action == "accept" and answer.content else {}
        names[which] = str(accepted.get("name", "nobody"))

    async with anyio.create_task_group() as group:
        group.start_soon(one, "first")
        group.start_soon(one, "second")
    return text(f"{names['first']} and {names['second']}")


async def test_sampling(call, prompt="nothing"):
    answer = await call.sample(prompt)
    return text(f"LLM response: {answer.content.text}")


async def test_tool_with_logging(call):
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await call.log("info", words)
    return text("logged")


TOOLS = {
    "greet": (greet, "forbidden", {"name": {"type": "string"}}),
    "slow_compute": (slow_compute, "optional", {"seconds": {"type": "number"}, "label": {"type": "string"}}),
    "failing_job": (failing_job, "required", {}),
    "protocol_error_job": (protocol_error_job, "optional", {}),
    "confirm_delete": (confirm_delete, "optional", {"filename": {"type": "string"}}),
    "multi_input": (multi_input, "optional", {}),
    "test_sampling": (test_sampling, "optional", {"prompt": {"type": "string"}}),
    "test_tool_with_logging": (test_tool_with_logging, "forbidden", {}),
}


@server.list_tools()
async def list_tools():
    return [
        types.Tool(
            name=name,
            description=f"The fixture tool {name}",
            inputSchema={"type": "object", "properties": arguments},
            execution=types.ToolExecution(taskSupport=support),
        )
        for name, (_, support, arguments) in TOOLS.items()
    ]


@server.set_logging_level()
async def set_logging_level(level):
    server.request_context.session.least_level = level


async def call_tool(request):
    """Registered as it is: the SDK's own decorator makes an isError result of the -32601 that a wrong call must get."""
    context = server.request_context
    known = TOOLS.get(request.params.name)
    if known is None:
        raise McpError(types.ErrorData(code=types.INVALID_PARAMS, message="Unknown tool"))
    work, mode, _ = known
    arguments = request.params.arguments or {}
    context.experimental.validate_task_mode(mode)
    if not context.experimental.is_task:
        return types.ServerResult(await work(Call(context), **arguments))
    # Without a ttl the SDK leaves the member out, which the schema requires: so there is always one.
    context.experimental.task_metadata.ttl = context.experimental.task_metadata.ttl or HOUR_MS

    async def run(task):
        result = await work(Call(context, task), **arguments)
        if result.isError:
            await support.store.store_result(task.task_id, result)
            await task.fail(result.content[0].text)
        return result

    return types.ServerResult(await context.experimental.run_task(run))


server.request_handlers[types.CallToolRequest] = call_tool


def main():
    sessions = StreamableHTTPSessionManager(server, event_store=Events(), retry_interval=500)

    @asynccontextmanager
    async def life(_):
        # One group for the process: the SDK's ends with each session, and the tasks of other sessions end with it.
        async with anyio.create_task_group() as group:
            support._task_group = group
            support.run = nullcontext
            async with sessions.run():
                yield
            group.cancel_scope.cancel()

    async def endpoint(scope, receive, send):
        await sessions.handle_request(scope, receive, send)

    async def alive(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"alive"})

    application = Starlette(routes=[Mount("/mcp", endpoint), Mount("/livez", alive)], lifespan=life)

    async def without_slash(scope, receive, send):
        if scope["type"] == "http" and scope["path"] == "/mcp":
            scope = {**scope, "path": "/mcp/", "raw_path": b"/mcp/"}
        await application(scope, receive, send)

    uvicorn.run(without_slash, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
