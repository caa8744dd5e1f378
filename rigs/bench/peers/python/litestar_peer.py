"""A server of litestar-mcp, its tasks in Litestar's file store: `litestar_peer.py PORT FOLDER`."""

import asyncio
import os
import pathlib
import sys

import uvicorn
from litestar import Litestar, post
from litestar.stores.file import FileStore
from litestar_mcp import LitestarMCP, MCPConfig, mcp_tool
from litestar_mcp.mcp.config import MCPTaskConfig

# As long as the longest nap of a bench.
TTL_MS = 7_200_000


@post("/tools/echo")
@mcp_tool("echo")
async def echo(text: str) -> str:
    return text


@post("/tools/nap")
@mcp_tool("nap", task_support="optional")
async def nap(ms: int) -> str:
    await asyncio.sleep(ms / 1000)
    return "slept"


@post("/tools/child")
@mcp_tool("child", task_support="optional")
async def child(seconds: float, mark: str) -> str:
    process = await asyncio.create_subprocess_exec("sleep", str(seconds), env={**os.environ, "MARK": mark})
    await process.wait()
    return "done"


def main():
    store = FileStore(pathlib.Path(sys.argv[2]), create_directories=True)
    tasks = MCPTaskConfig(store=store, default_ttl_ms=TTL_MS, max_ttl_ms=TTL_MS)
    app = Litestar([echo, nap, child], plugins=[LitestarMCP(MCPConfig(tasks=tasks))])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
