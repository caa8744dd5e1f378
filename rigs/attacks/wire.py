"""What goes over the wire: frames of both generations, and HTTP/1.1 on bare sockets.

Used by the attacks, which send what no HTTP library sends, and by the honest client.
"""

import asyncio
import json
import socket

TASKS = "io.modelcontextprotocol/tasks"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "attacks", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}, "extensions": {TASKS: {}}},
}
PATH = "/mcp"


def frame(number, method, params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def head(port, length, extra=(), verb="POST", path=PATH):
    """The head of a request; `length` is None where no length is told."""
    lines = [
        f"{verb} {path} HTTP/1.1",
        f"Host: 127.0.0.1:{port}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        *(f"{name}: {value}" for name, value in extra),
    ]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def modern(port, number, method, params, name=None):
    """A whole request of 2026-07-28."""
    body = json.dumps(frame(number, method, {**params, "_meta": META})).encode()
    return head(port, len(body), modern_headers(method, name)) + body


def modern_headers(method, name=None):
    headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", method)]
    return [*headers, ("Mcp-Name", name)] if name else headers


def call(port, number, tool, **arguments):
    return modern(port, number, "tools/call", {"name": tool, "arguments": arguments}, tool)


def on_task(port, number, method, task, **more):
    return modern(port, number, method, {"taskId": task, **more}, task)


def legacy(port, body, session=None):
    """A whole POST of 2025-11-25."""
    body = json.dumps(body).encode()
    return head(port, len(body), legacy_headers(session)) + body


def legacy_headers(session):
    return [("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")] if session else []


def initialize():
    client = {"name": "attacks", "version": "1"}
    return frame(0, "initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})


class Reply:
    """A status, headers by lower-case name, and a body, of which `json` is the object or the stream's last event."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            events = [line[5:] for line in self.body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
            return json.loads(events[-1]) if events else {}
        return json.loads(self.body) if self.body.strip() else {}

    @property
    def code(self):
        """The code of the JSON-RPC error, if it is one."""
        try:
            return self.json.get("error", {}).get("code")
        except ValueError:
            return None

    @property
    def result(self):
        reply = self.json
        if "result" not in reply:
            raise ValueError(f"HTTP {self.status}, {json.dumps(reply)[:300]}")
        return reply["result"]


class Connection:
    """One connection on asyncio, used for one request after the other."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port, receive_buffer=None):
        sock = socket.socket()
        if receive_buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            # A small limit: where nobody reads, asyncio stops reading too, and the kernel's buffer fills.
            reader, writer = await asyncio.open_connection(sock=sock, limit=receive_buffer or 2**20)
        except OSError:
            sock.close()
            raise
        return cls(reader, writer)

    @property
    def local_port(self):
        return self.writer.get_extra_info("sockname")[1]

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def ask(self, data, limit=30):
        """Sends a request and reads the whole reply."""
        async with asyncio.timeout(limit):
            await self.send(data)
            return await self.reply()

    async def reply(self):
        status, headers = await self.reply_head()
        return Reply(status, headers, await self.body(headers))

    async def reply_head(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {}
        for line in head[1:]:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(head[0].split()[1]), headers

    async def body(self, headers):
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = bytearray()
            while length := int((await self.reader.readline()).split(b";")[0] or b"0", 16):
                body += await self.reader.readexactly(length)
                await self.reader.readexactly(2)
            await self.reader.readline()
            return bytes(body)
        if "content-length" in headers:
            return await self.reader.readexactly(int(headers["content-length"]))
        return b""

    def close(self):
        self.writer.close()

    def abort(self):
        self.writer.transport.abort()


async def once(port, data, limit=30):
    """A request on a connection of its own."""
    connection = await Connection.open(port)
    try:
        return await connection.ask(data, limit)
    finally:
        connection.abort()
