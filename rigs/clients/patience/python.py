"""Python `mcp` 1.30.0 as an agent without tasks: `python python.py JOB`. JOB is described in `run.py`, which starts
this. It prints each turn as its model would read it, and leaves what it saw in the job's `report`.

Progress does not begin this client's time-out anew, so the modes `reset` and `fixed` are the same here. When it
gives up it says nothing: neither a cancel nor the end of its stream tells the server.
"""

import asyncio
import json
import os
import pathlib
import re
import sys
import time
from contextlib import asynccontextmanager
from datetime import timedelta

import jsonschema
from mcp import ClientSession, McpError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamablehttp_client

JOB = json.loads(sys.argv[1])
SCHEMA = json.loads(pathlib.Path(JOB["schema"]).read_text(encoding="utf-8"))
WAIT = re.compile(r"^Wait for it: (longhaul_wait) (\{.*?\})", re.MULTILINE)


async def heard(_progress, _total, _message):
    pass


def options():
    return {
        "read_timeout_seconds": timedelta(seconds=JOB["timeout"]),
        "progress_callback": None if JOB["mode"] == "none" else heard,
    }


@asynccontextmanager
async def connection():
    if "url" in JOB:
        transport = streamablehttp_client(JOB["url"])
    else:
        command, *arguments = JOB["command"]
        transport = stdio_client(StdioServerParameters(command=command, args=arguments, env=dict(os.environ)))
    async with transport as (read, write, *_):
        async with ClientSession(read, write) as session:
            await session.initialize()
            yield session


async def agent(session, tool, arguments):
    """Calls the tool until its result is there, as a model does that reads nothing but the text."""
    began = time.monotonic()
    wanted = (tool, arguments)
    following, turns = wanted, []
    while time.monotonic() - began < JOB["patience"]:
        turn = {"call": f"{following[0]} {json.dumps(following[1])}", "gaveUp": False, "isError": False}
        try:
            result = await session.call_tool(*following, **options())
            turn["text"] = "\n".join(block.text for block in result.content)
            turn["isError"] = result.isError
            turn["structured"] = result.structuredContent
        except (McpError, RuntimeError) as error:
            turn["text"], turn["gaveUp"] = str(error), True
        turn["at"] = time.monotonic() - began
        turn["goesOn"] = turn["text"].startswith("STILL RUNNING")
        turns.append(turn)
        show(len(turns), turn)
        if not turn["gaveUp"] and not turn["goesOn"]:
            break
        await asyncio.sleep(JOB["think"])
        wait = WAIT.search(turn["text"]) if JOB["follow"] == "wait" else None
        following = (wait[1], json.loads(wait[2])) if wait else wanted
    return turns


def show(number, turn):
    print(f"      calls {turn['call']}")
    told = ("[the client gave up] " if turn["gaveUp"] else "") + turn["text"]
    mark = " [isError]" if turn["isError"] else ""
    print(f"turn {number} ({turn['at']:.0f} s){mark}: " + told.replace("\n", "\n      "))
    if turn.get("structured") is not None:
        print(f"      structured {json.dumps(turn['structured'])}")
    sys.stdout.flush()


def fits(value):
    try:
        jsonschema.validate(value, SCHEMA)
    except jsonschema.ValidationError:
        return False
    return True


async def main():
    async with connection() as session:
        tools = (await session.list_tools()).tools
        listed = next(tool for tool in tools if tool.name == JOB["tool"])
        report = {"seesSchema": listed.outputSchema is not None, "calls": []}
        for seconds in JOB["seconds"]:
            turns = await agent(session, JOB["tool"], {"seconds": seconds})
            report["calls"].append({"seconds": seconds, "turns": turns, "fits": fits(turns[-1].get("structured"))})
            if turns[-1]["gaveUp"] or turns[-1]["goesOn"]:
                break
        pathlib.Path(JOB["report"]).write_text(json.dumps(report), encoding="utf-8")


asyncio.run(main())
