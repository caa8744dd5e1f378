#!/usr/bin/env python3
"""Makes the pictures of the docs from the real thing: the local page in Chromium, and `longhaul top` on a terminal.

    python3 rigs/pictures/pictures.py target/debug/longhaul

Needs /usr/bin/chromium and nothing besides Python. It starts a server of its own in a temporary folder, plays a scene, and
writes docs/images/page-*.png and docs/images/top.svg. Nothing of it leaves the machine. Look at each picture before it is
committed.
"""

import base64
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from html import escape

IMAGES = pathlib.Path(__file__).resolve().parents[2] / "docs" / "images"

CONFIG = """
[server]
bind = "127.0.0.1:0"
[servers.notes]
command = ["python3", "server.py", "Notes", "1.4.0"]
[servers.search]
command = ["sh", "-c", "echo 'SEARCH_TOKEN is not set' >&2; exit 1"]
[tools.run_tests]
title = "Tests of the project"
description = "Run the tests of the project"
command = ["sh", "run_tests.sh"]
[tools.crawl]
title = "Crawl a site"
description = "Fetch every page of a site"
command = ["sh", "crawl.sh"]
[tools.deploy]
title = "Deploy"
description = "Deploy the newest build, after asking where"
command = ["sh", "-c", "longhaul progress 1 3 built; longhaul ask --text 'Build 418 passed. Where shall it go, and when?' --form form.json"]
[tools.lint]
description = "Check the style of the code"
command = ["sh", "-c", "echo 'no complaints in 214 files'"]
[tools.make_release]
description = "Make a release"
command = ["sh", "-c", "echo 'error: the tag v0.4.2 exists already' >&2; exit 3"]
"""

FILES = {
    "run_tests.sh": """
longhaul progress 214 350 "store::two_writers_of_one_row"
for crate in core mcp store engine gateway; do echo "   Compiling longhaul-$crate v0.1.0" >&2; done
echo "    Finished in 41.20s" >&2
for name in a_lost_commit_is_found a_full_disk_refuses_and_recovers an_answer_counts_once; do echo "test store::$name ... ok"; done
exec sleep 600
""",
    # Four browsers end when they are told to, two take their time, and one takes no notice.
    "crawl.sh": """
longhaul progress 1210 5000 "example.com/archive/2024"
for one in 1 2 3 4; do sh -c 'exec sleep 600' & done
python3 worker.py 2 &
python3 worker.py 4 &
sh -c 'trap "" TERM; exec sleep 600' &
wait
""",
    "worker.py": """
import signal, sys, time
def end(*_):
    time.sleep(float(sys.argv[1]))
    sys.exit()
signal.signal(signal.SIGTERM, end)
time.sleep(600)
""",
    "form.json": json.dumps({
        "type": "object",
        "required": ["region"],
        "properties": {
            "region": {"type": "string", "title": "Region", "oneOf": [
                {"const": "eu", "title": "Europe"}, {"const": "us", "title": "United States"}]},
            "at": {"type": "string", "title": "When", "description": "A time of today, or now", "default": "now"},
            "tell": {"type": "boolean", "title": "Tell the channel #releases", "default": True},
        },
    }),
    "server.py": """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    replies = {
        "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                       "serverInfo": {"name": sys.argv[1], "version": sys.argv[2]}},
        "tools/list": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("find_note", "write_note")]},
    }
    if "id" in asked:
        reply = {"result": replies[asked["method"]]} if asked["method"] in replies else {
            "error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **reply}), flush=True)
""",
}


class Scene:
    """A server with tasks of several clients."""

    def __init__(self, longhaul, home):
        self.longhaul, self.home = longhaul, home
        (home / "longhaul.toml").write_text(CONFIG)
        for name, text in FILES.items():
            (home / name).write_text(text)
        self.env = {**os.environ, "HOME": str(home), "XDG_RUNTIME_DIR": str(home), "TERM": "xterm-256color"}
        self.server = subprocess.Popen(
            self.command("serve", "--json"), env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = json.loads(self.server.stdout.readline())["address"]

    def command(self, *words):
        return [self.longhaul, "--state", str(self.home / "state"), "--config", str(self.home / "longhaul.toml"), *words]

    def run(self, *words):
        return subprocess.run(self.command(*words), env=self.env, capture_output=True, text=True, check=True).stdout.strip()

    def call(self, client, tool):
        """A call of a client of this name that becomes a task: its short name."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": client, "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {
                "extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {"form": {}}},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": {}, "_meta": meta}}
        request = urllib.request.Request(f"http://{self.address}/mcp", json.dumps(body).encode(), {
            "Content-Type": "application/json", "Accept": "application/json", "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call", "Mcp-Name": tool})
        urllib.request.urlopen(request, timeout=30).read()
        return json.loads(self.run("--json", "tasks", "--limit", "1"))["tasks"][0]["name"]

    def until(self, name, done):
        deadline = time.monotonic() + 30
        while not done(task := json.loads(self.run("--json", "tasks", name))):
            assert time.monotonic() < deadline, task
            time.sleep(0.1)


class Chrome:
    """A browser that is told what to do over a pipe, in the words of its DevTools protocol."""

    def __init__(self, home):
        theirs, self.orders = os.pipe()
        self.replies, ours = os.pipe()
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
                 "--disable-background-networking", f"--user-data-dir={home / 'browser'}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec chromium "$@" 3<&{theirs} 4>&{ours}', "sh", *flags],
            pass_fds=(theirs, ours), stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(ours)
        self.held, self.count, self.session, self.events = b"", 0, None, []
        target = self.tell("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.tell("Page.enable")

    def hear(self):
        while b"\0" not in self.held:
            self.held += os.read(self.replies, 1 << 20)
        message, self.held = self.held.split(b"\0", 1)
        return json.loads(message)

    def tell(self, method, **parameters):
        self.count += 1
        order = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            order["sessionId"] = self.session
        os.write(self.orders, json.dumps(order).encode() + b"\0")
        while (message := self.hear()).get("id") != order["id"]:
            self.events.append(message)
        assert "error" not in message, message
        return message["result"]

    def open(self, url):
        self.events = []
        self.tell("Page.navigate", url=url)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.hear())

    def look(self, width, height, dark=False):
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1.5, mobile=False)
        scheme = "dark" if dark else "light"
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, name):
        taken = self.tell("Page.captureScreenshot", format="png")
        (IMAGES / name).write_bytes(base64.b64decode(taken["data"]))


def screen(scene, keys, columns, rows):
    """What `top` shows last after these keys, as its lines."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(scene.longhaul, scene.command("top"), scene.env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    written = b""

    def read(seconds):
        nonlocal written
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([terminal], [], [], 0.1)[0]:
                written += os.read(terminal, 65536)

    read(2)
    for key in keys:
        os.write(terminal, key.encode())
        read(0.6)
    shown = written.decode().rsplit("\x1b[H", 1)[1].split("\x1b[J")[0]
    os.write(terminal, b"q")
    os.waitpid(pid, 0)
    return [line.strip("\r").replace("\x1b[K", "") for line in shown.split("\n")]


def drawn(lines, columns):
    """The lines of a terminal as a picture that grows and shrinks."""
    colours = {"31": "#ff8f85", "32": "#6fd394", "33": "#f2b35c", "36": "#7db3ff"}
    step, across = 20, 9
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * across + 40} {len(lines) * step + 40}" '
           'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="15">',
           '<rect width="100%" height="100%" rx="10" fill="#14171c"/>']
    for row, line in enumerate(lines):
        column, style = 0, ""
        for piece in re.split(r"(\x1b\[\d+m)", line):
            if code := re.fullmatch(r"\x1b\[(\d+)m", piece):
                style = code[1].replace("0", "", 1) if code[1] == "0" else code[1]
                continue
            if piece.strip():
                look = {"": "", "1": ' font-weight="700"', "2": ' opacity=".6"'}.get(style, "")
                fill = colours.get(style, "#e8eaee")
                shown = piece.rstrip()
                x = 20 + column * across
                out.append(f'<text x="{x}" y="{row * step + 35}" textLength="{len(shown) * across}" '
                           f'xml:space="preserve" fill="{fill}"{look}>{escape(shown)}</text>')
            column += len(piece)
    return "\n".join([*out, "</svg>", ""])


def main():
    longhaul = str(pathlib.Path(sys.argv[1]).resolve())
    with tempfile.TemporaryDirectory(prefix="lh") as home:
        scene = Scene(longhaul, pathlib.Path(home))
        try:
            play(scene)
        finally:
            scene.server.terminate()
            scene.server.wait()


def play(scene):
    for client, tool, state in [("Cursor", "make_release", "failed"), ("Claude Desktop", "lint", "done")]:
        scene.until(scene.call(client, tool), lambda task: task["state"] == state)
    tests = scene.call("Claude Desktop", "run_tests")
    crawl = scene.call("VS Code", "crawl")
    deploy = scene.call("Cursor", "deploy")
    scene.until(tests, lambda task: "Finished" in task.get("stderr", "") and "counts_once" in task.get("stdout", ""))
    scene.until(crawl, lambda task: "progress" in task)
    scene.until(deploy, lambda task: task["state"] == "asking")
    columns, rows = 104, 14
    lines = screen(scene, ["j"], columns, rows)
    (IMAGES / "top.svg").write_text(drawn(lines, columns))
    chrome = Chrome(scene.home)
    page = f"http://{scene.address}"
    try:
        chrome.look(1000, 1080)
        chrome.open(scene.run("page"))
        chrome.picture("page-overview.png")
        chrome.look(1000, 720, dark=True)
        chrome.open(f"{page}/tasks/{tests}?still=1")
        chrome.picture("page-task.png")
        chrome.look(390, 780)
        chrome.open(f"{page}/?still=1")
        chrome.picture("page-narrow.png")
        chrome.look(1000, 720)
        chrome.open(f"{page}/ask/{deploy}")
        chrome.picture("page-ask.png")
        chrome.look(1000, 430)
        chrome.open(f"{page}/tasks/{crawl}?still=1")
        scene.until(crawl, lambda task: task["state"] == "running")
        cancelling = subprocess.Popen(scene.command("cancel", crawl), env=scene.env, stdout=subprocess.DEVNULL)
        scene.until(crawl, lambda task: task.get("left", {}).get("alive", 9) <= 3)
        chrome.open(f"{page}/tasks/{crawl}?still=1")
        chrome.picture("page-cancel.png")
        cancelling.wait()
    finally:
        chrome.process.kill()


if __name__ == "__main__":
    main()
