#!/usr/bin/env python3
"""A user's first day with clients that have servers already.

`install` before three published servers, real clients started from the written file, one of them killed with -9 in the
middle of a slow call, another one with a file of its own that makes the same call and gets its result, once; and
`uninstall`, byte for byte.
Called by `cargo xtask desktop`, which names what it needs. Prints a transcript, and fails where it is not so.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

SECONDS = 24
PATIENCE = 60
SLOW = "trigger-long-running-operation"

# As somebody might have written it: tabs, columns, a key that is nobody's, no line end at the end.
CONFIG = """{
\t"mcpServers": {
\t\t"everything": { "command": "mcp-server-everything",   "args": [] },
\t\t"filesystem": {
\t\t\t"command": "mcp-server-filesystem",
\t\t\t"args": ["%(home)s/documents"],
\t\t\t"x-note": "mine"
\t\t},
\t\t"git": { "command": "mcp-server-git", "args": ["--repository", "%(home)s/repository"], "env": { "X_TOKEN": "canary-of-a-token-1" } }
\t},
\t"globalShortcut": "Ctrl+Space" }"""

SECOND = """
import asyncio, json, sys, time
from fastmcp import Client

async def main():
    config = json.load(open(sys.argv[1]))
    async with Client(config) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert "git_git_status" in names and "filesystem_read_text_file" in names, names
        result = await client.call_tool("everything_%s", {"duration": %d, "steps": 4})
        print(result.content[0].text)

asyncio.run(main())
"""


class Day:
    def __init__(self, flags):
        self.flags = flags
        self.home = Path(flags.work)
        self.state = self.home / "state"
        self.config = self.home / ".config/Claude/claude_desktop_config.json"
        self.other = self.home / ".cursor/mcp.json"
        # What a program started from the desktop has: no more of a PATH than this.
        self.env = {
            "HOME": str(self.home),
            "PATH": "/usr/bin:/bin",
            "SHELL": "/bin/bash",
            "USER": "somebody",
            "XDG_RUNTIME_DIR": str(self.home),
        }

    def prepare(self):
        for folder in [".config/Claude", ".cursor", "documents", "repository", "programs"]:
            (self.home / folder).mkdir(parents=True)
        # Only a login shell finds the servers, and the Node that runs two of them.
        programs = self.home / "programs"
        for name in ["mcp-server-everything", "mcp-server-filesystem"]:
            (programs / name).symlink_to(Path(self.flags.servers) / "node_modules/.bin" / name)
        (programs / "mcp-server-git").symlink_to(Path(self.flags.python).parent / "mcp-server-git")
        (programs / "node").symlink_to(self.flags.node)
        (programs / "longhaul").symlink_to(self.flags.binary)
        (self.home / ".bash_profile").write_text('export PATH="$HOME/programs:$PATH"\n')
        subprocess.run(["git", "init", "--quiet", self.home / "repository"], check=True)
        self.original = (CONFIG % {"home": self.home}).encode()
        self.config.write_bytes(self.original)
        # The other client has the same servers, in a file of another layout.
        self.others = json.dumps(json.loads(self.original), separators=(",", ":")).encode()
        self.other.write_bytes(self.others)

    def longhaul(self, *words):
        print("$ longhaul", *words)
        ran = subprocess.run(
            [self.flags.binary, *words, "--state", self.state], env=self.env, cwd=self.home, capture_output=True, text=True
        )
        print(ran.stdout + ran.stderr, end="")
        assert ran.returncode == 0, ran
        return ran.stdout

    def tasks(self):
        ran = subprocess.run(
            [self.flags.binary, "--json", "tasks", "list", "--state", self.state], env=self.env, capture_output=True, text=True
        )
        return json.loads(ran.stdout)["tasks"] if ran.returncode == 0 else []

    def inspector(self, *words):
        module = Path(self.flags.clients) / "node_modules/.bin/mcp-inspector"
        return [self.flags.node, module, "--cli", "--config", self.config, *words]

    def run(self):
        shown = self.longhaul("install", "claude-desktop", "cursor", "--yes")
        assert "canary" not in shown, "a secret was shown"
        for server, tool in [("everything", SLOW), ("filesystem", "read_text_file"), ("git", "git_status")]:
            words = self.inspector("--server", server, "--method", "tools/list")
            print("$ mcp-inspector --cli --server", server, "--method tools/list")
            listed = subprocess.run(words, env=self.env, cwd=self.home, capture_output=True, text=True, timeout=PATIENCE)
            tools = [tool["name"] for tool in json.loads(listed.stdout)["tools"]]
            assert tool in tools, (tools, listed.stderr)
            print(f"{len(tools)} tools")
        self.killed_in_the_middle()
        self.another_comes_back()
        self.longhaul("uninstall", "all")
        assert self.config.read_bytes() == self.original, "not the same bytes"
        assert self.other.read_bytes() == self.others, "not the same bytes"
        print("both files are as they were, byte for byte")

    def killed_in_the_middle(self):
        words = self.inspector(
            "--server", "everything", "--method", "tools/call", "--tool-name", SLOW,
            "--tool-arg", f"duration={SECONDS}", "--tool-arg", "steps=4",
        )
        print(f"$ mcp-inspector --cli --server everything --method tools/call --tool-name {SLOW} &")
        client = subprocess.Popen(
            words, env=self.env, cwd=self.home, start_new_session=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        self.until(lambda: [task for task in self.tasks() if task["state"] == "running"])
        # A quarter of the work is done.
        time.sleep(SECONDS / 4)
        # The client, and the pipe that it started.
        os.killpg(client.pid, signal.SIGKILL)
        client.wait()
        print("$ kill -9 …")
        arguments = subprocess.run(["ps", "axo", "args"], capture_output=True, text=True).stdout
        assert "canary" not in arguments, "a secret stands in arguments"
        self.longhaul("tasks")

    def another_comes_back(self):
        print("$ python second.py   # FastMCP, with the file of Cursor: the same call")
        began = time.monotonic()
        ran = subprocess.run(
            [self.flags.fastmcp, "-c", SECOND % (SLOW, SECONDS), self.other],
            env=self.env, cwd=self.home, capture_output=True, text=True, timeout=PATIENCE + SECONDS,
        )
        took = time.monotonic() - began
        assert "operation completed" in ran.stdout, ran
        print(f"after {took:.0f} s: {ran.stdout.strip()}")
        assert took < SECONDS - 2, "it waited as if the work had begun anew"
        of_tool = [task for task in self.tasks() if re.search(SLOW, task["tool"])]
        assert len(of_tool) == 1, of_tool
        self.longhaul("tasks")

    def until(self, done):
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, "it never came so far"
            time.sleep(0.2)

    def end(self):
        """Ends the server in the background."""
        ran = subprocess.run(
            [self.flags.binary, "--json", "doctor", "--state", self.state], env=self.env, capture_output=True, text=True
        )
        for pid in re.findall(r"pid (\d+),", ran.stdout):
            os.kill(int(pid), signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser()
    for name in ["binary", "node", "servers", "python", "clients", "fastmcp", "work"]:
        parser.add_argument(f"--{name}", required=True)
    day = Day(parser.parse_args())
    day.prepare()
    try:
        day.run()
    finally:
        day.end()


if __name__ == "__main__":
    sys.exit(main())
