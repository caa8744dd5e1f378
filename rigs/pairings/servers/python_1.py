"""A server of Python `mcp` 1.30 with its experimental tasks: `python python_1.py PORT`.

It is the reference of the conformance rig with other tools: one group of tasks for the whole process, and a store that
takes work that ends after its cancel.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "conformance/reference"))

import anyio
import server as reference
import work
from server import form, text


async def hello(_call, name):
    return text(f"Hello, {name}!")


async def works(call, seconds=1):
    for step in range(1, 5):
        await call.progress(step, 4)
        await anyio.sleep(seconds / 4)
    return text(f"worked for {seconds} s")


async def asks(call):
    answer = await call.ask("Whom shall I greet?", form({"name": {"type": "string", "title": "Name"}}, ["name"]))
    return text(f"Hello, {(answer.content or {}).get('name', answer.action)}!")


async def waits(call, label):
    async def cancelled():
        # The SDK marks a cancelled task, and leaves its work alone.
        return call.task is not None and (await reference.support.store.get_task(call.task.task_id)).status == "cancelled"

    return text(await work.waits(label, cancelled))


reference.TOOLS = {
    "hello": (hello, "forbidden", {"name": {"type": "string"}}),
    "works": (works, "optional", {"seconds": {"type": "number"}}),
    "asks": (asks, "optional", {}),
    "waits": (waits, "optional", {"label": {"type": "string"}}),
}

if __name__ == "__main__":
    reference.main()
