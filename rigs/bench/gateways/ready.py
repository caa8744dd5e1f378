#!/usr/bin/env python3
"""Waits until a gateway relays, and says so in a file: `ready.py NAME PORT DATA_DIR [URL]`; `ready.py free-port` prints one.

ContextForge is told of the server at URL first, as its administrator. A gateway relays once its reply to a call of
`who` is the id of a process of the server behind. Then DATA_DIR/ready is written, with a header a line. `check` uses
the client and finds its ports with this.
"""

import base64
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import socket
import sys
import time
import uuid

START_MAX = 60
ACCOUNT = "admin@example.com"


class Client:
    """A client of 2025-11-25 with a session of its own."""

    def __init__(self, port, headers):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.headers, self.next = {**headers, "MCP-Protocol-Version": "2025-11-25"}, 0
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "ready", "version": "0"}}
        self.request("initialize", about)
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, frame):
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **self.headers,
        }
        self.connection.request("POST", "/mcp", json.dumps(frame), headers)
        response = self.connection.getresponse()
        session = response.headers.get("Mcp-Session-Id")
        if session:
            self.headers["Mcp-Session-Id"] = session
        return response.status, response.read().decode()

    def request(self, method, params):
        self.next += 1
        status, body = self.post({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
        for line in reversed(body.splitlines()):
            line = line.removeprefix("data:").strip()
            if line.startswith("{"):
                reply = json.loads(line)
                if reply.get("id") == self.next and "result" in reply:
                    return reply["result"]
        raise RuntimeError(f"{method}: HTTP {status}, {body[:300]}")

    def tool(self, gateway, tool, **arguments):
        """The text that a tool of the server behind gave, by the gateway's own way to call it."""
        name = tool
        if gateway == "hangar":
            name, arguments = "hangar_call", {"calls": [{"mcp_server": "behind", "tool": tool, "arguments": arguments}]}
        elif gateway == "contextforge":
            name = f"behind-{tool}"
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        if gateway == "hangar":
            result = json.loads(result["content"][0]["text"])["results"][0]["result"] or {}
        return result["content"][0]["text"]


def token():
    """A token of the administrator, signed with the secret that the gateway was started with."""
    now = int(time.time())
    claims = {
        "username": ACCOUNT,
        "sub": ACCOUNT,
        "iss": "mcpgateway",
        "aud": "mcpgateway-api",
        "env": "development",
        "jti": str(uuid.uuid4()),
        "iat": now,
        "exp": now + 86400,
        "teams": None,
        "user": {"email": ACCOUNT, "full_name": "Rig", "is_admin": True, "auth_provider": "cli"},
    }
    parts = [{"alg": "HS256", "typ": "JWT"}, claims]
    text = ".".join(encoded(json.dumps(part).encode()) for part in parts)
    secret = os.environ["JWT_SECRET_KEY"].encode()
    return f"{text}.{encoded(hmac.new(secret, text.encode(), hashlib.sha256).digest())}"


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def register(port, url, headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    about = {"name": "behind", "url": url, "transport": "STREAMABLEHTTP"}
    connection.request("POST", "/gateways", json.dumps(about), {**headers, "Content-Type": "application/json"})
    response = connection.getresponse()
    said = response.read().decode()
    if response.status not in (200, 201, 409):
        raise RuntimeError(f"HTTP {response.status}: {said[:300]}")


def relays(gateway, port, headers):
    said = Client(port, headers).tool(gateway, "who")
    if not re.fullmatch(r"\d+", said):
        raise RuntimeError(f"`who` gave {said[:200]}")
    return pathlib.Path(f"/proc/{said}/comm").read_text(encoding="utf-8").strip() == "peer-behind"


def wait(gateway, port, data, url):
    headers = {"Authorization": f"Bearer {token()}"} if url else {}
    deadline, seen = time.monotonic() + START_MAX, None
    while time.monotonic() < deadline:
        try:
            if url:
                register(port, url, headers)
            if relays(gateway, port, headers):
                lines = "".join(f"{name}: {value}\n" for name, value in headers.items())
                (data / "ready.new").write_text(lines, encoding="utf-8")
                (data / "ready.new").rename(data / "ready")
                return
        except (OSError, RuntimeError, ValueError, LookupError, TypeError, http.client.HTTPException) as error:
            seen = error
        time.sleep(0.2)
    sys.exit(f"{gateway} does not relay: {seen}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def main():
    if sys.argv[1:] == ["free-port"]:
        print(free_port())
    elif len(sys.argv) in (4, 5):
        wait(sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4] if len(sys.argv) == 5 else None)
    else:
        sys.exit("say: ready.py NAME PORT DATA_DIR [URL]")


if __name__ == "__main__":
    main()
