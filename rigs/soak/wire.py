"""Clients of both generations by hand: HTTP of 2026-07-28, sessions of 2025-11-25, and either of them over a pipe.

The actors of `load.py` use them. Each has `request`, `begin`, `close` and `on_question`. They check nothing.
Run by itself, `wire.py PORT MODE TOOL TOKEN TTL` is a client that is made to be killed: it opens a session and its
shared stream, calls the tool (MODE `task` or `plain`), prints what it was told, and waits for ever.
"""

import http.client
import itertools
import json
import queue
import socket
import struct
import subprocess
import sys
import threading
import time

MODERN = "2026-07-28"
SESSIONS = "2025-11-25"
NAMED = "io.modelcontextprotocol/"
# The longest that a plain request may take before it counts as an outage.
REQUEST_S = 20


class Gone(Exception):
    """The server went away, or was not there: whether it served the request is unknown."""


class Late(Exception):
    """This client gave up; the work may go on."""


class Refused(Exception):
    """The server said no."""

    def __init__(self, error):
        super().__init__(f"{error.get('code')} {error.get('message')} {error.get('data', '')}")
        self.code = error.get("code")
        self.message = error.get("message", "")
        self.reason = (error.get("data") or {}).get("reason")


def outcome(reply):
    """The result of a reply; its error is raised."""
    if "error" in reply:
        refused = Refused(reply["error"])
        if refused.reason in ("server_lost", "store_unavailable", "draining"):
            raise Gone(str(refused))
        raise refused
    return reply["result"]


class Generation:
    """What differs between the generations, whatever carries the frames."""

    def __init__(self, modern, takes_tasks=True, asks=True):
        self.modern = modern
        self.ids = itertools.count(1)
        self.capabilities = {"elicitation": {}} if asks else {}
        if modern and takes_tasks:
            self.capabilities["extensions"] = {f"{NAMED}tasks": {}}

    def frame(self, method, params, meta=None):
        if self.modern:
            meta = {
                f"{NAMED}protocolVersion": MODERN,
                f"{NAMED}clientInfo": {"name": "soak", "version": "1"},
                f"{NAMED}clientCapabilities": self.capabilities,
                **(meta or {}),
            }
        params = {**params, **({"_meta": meta} if meta else {})}
        return {"jsonrpc": "2.0", "id": next(self.ids), "method": method, "params": params}

    def opening(self):
        info = {"name": "soak", "version": "1"}
        return {"protocolVersion": SESSIONS, "capabilities": self.capabilities, "clientInfo": info}


class Client(Generation):
    """`exchange(frame, timeout)` is the transport's part."""

    on_question = None

    def request(self, method, params=None, timeout=REQUEST_S, meta=None):
        return outcome(self.exchange(self.frame(method, params or {}, meta), timeout))

    def begin(self, tool, arguments, ttl_ms, key):
        """Calls a tool so that it becomes a task; ("task", id), or ("result", it) where it ended before."""
        params = {"name": tool, "arguments": arguments}
        meta = {"dev.longhaul/idempotencyKey": key} if key else None
        if not self.modern:
            params["task"] = {"ttl": ttl_ms}
            return "task", self.request("tools/call", params, meta=meta)["task"]["taskId"]
        result = self.request("tools/call", params, meta=meta)
        return ("task", result["taskId"]) if result.get("resultType") == "task" else ("result", result)

    def call(self, tool, arguments, timeout=REQUEST_S):
        """Calls a tool as a client does that knows nothing of tasks."""
        return outcome(self.exchange(self.call_frame(tool, arguments), timeout))

    def call_frame(self, tool, arguments):
        frame = self.frame("tools/call", {"name": tool, "arguments": arguments})
        if self.modern:
            declared = frame["params"]["_meta"]
            declared[f"{NAMED}clientCapabilities"] = {}
        return frame

    def answer(self, question):
        """The result to a question of the server, where the actor has one."""
        said = self.on_question(question) if self.on_question else None
        return said and {"jsonrpc": "2.0", "id": question["id"], "result": said}


def events(response, deadline, raw=None):
    """The frames of an event stream, and the ids of its events as ("id", text)."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Late("the client's own time-out")
        if raw is not None:
            raw.settimeout(max(left, 0.01))
        line = response.readline()
        if not line:
            return
        text = line.decode().rstrip("\r\n")
        if text.startswith("data:") and text[5:].strip():
            yield "frame", json.loads(text[5:])
        elif text.startswith("id:"):
            yield "id", text[3:].strip()


class Http(Client):
    """Over HTTP: a connection for each request, so that an outage harms one request only."""

    def __init__(self, port, modern, **how):
        super().__init__(modern, **how)
        self.port, self.session, self.shared = port, None, None
        self.last_event = None
        if not modern:
            self.initialize()

    def initialize(self):
        frame = self.frame("initialize", self.opening())
        outcome(self.exchange(frame, REQUEST_S))
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def headers(self, frame, accept="application/json, text/event-stream"):
        headers = {"Content-Type": "application/json", "Accept": accept}
        if self.modern:
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": frame["method"]}
            name = frame["params"].get("name") or frame["params"].get("taskId")
            if name:
                headers["Mcp-Name"] = name
        elif self.session:
            headers |= {"MCP-Protocol-Version": SESSIONS, "Mcp-Session-Id": self.session}
        return headers

    def connect(self, timeout):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        connection.connect()
        return connection

    def exchange(self, frame, timeout):
        deadline = time.monotonic() + timeout
        connection = None
        try:
            connection = self.connect(timeout)
            raw = connection.sock
            connection.request("POST", "/mcp", json.dumps(frame), self.headers(frame))
            response = connection.getresponse()
            if response.getheader("Mcp-Session-Id"):
                self.session = response.getheader("Mcp-Session-Id")
            if "event-stream" not in response.getheader("Content-Type", ""):
                return json.loads(response.read())
            for kind, event in events(response, deadline, raw):
                if kind == "id":
                    self.last_event = event
                elif event.get("id") == frame["id"] and "method" not in event:
                    return event
                else:
                    self.take(event)
            raise Gone("the stream ended without a reply")
        except TimeoutError as error:
            raise Late(str(error)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Gone(f"{type(error).__name__}: {error}") from error
        finally:
            if connection:
                connection.close()

    def take(self, event):
        """A request of the server: answered where the actor wants it answered."""
        if "method" in event and "id" in event:
            reply = self.answer(event)
            if reply:
                self.post(reply)

    def post(self, message):
        """Sends what has no reply; returns the status."""
        try:
            connection = self.connect(REQUEST_S)
            try:
                connection.request("POST", "/mcp", json.dumps(message), self.headers(message))
                response = connection.getresponse()
                response.read()
                return response.status
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise Gone(f"{type(error).__name__}: {error}") from error

    def open_shared(self, last_event=None):
        """Opens the session's shared stream, or the rest of one that was cut, and reads it until it ends."""
        headers = {**self.headers({"method": "", "params": {}}), "Accept": "text/event-stream"}
        if last_event:
            headers["Last-Event-ID"] = last_event
        try:
            connection = self.connect(600)
            connection.request("GET", "/mcp", headers=headers)
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Gone(f"{type(error).__name__}: {error}") from error
        self.shared = connection

        def read():
            try:
                for kind, event in events(response, time.monotonic() + 600):
                    if kind == "frame":
                        self.take(event)
            except (OSError, ValueError, AttributeError, http.client.HTTPException, Late, Gone):
                pass

        threading.Thread(target=read, daemon=True).start()
        return response.status

    def listen(self, task, enough, timeout):
        """Follows one task by `subscriptions/listen` until `enough(params)`; the last that was told."""
        frame = self.frame("subscriptions/listen", {"notifications": {"taskIds": [task]}})
        deadline = time.monotonic() + timeout
        last = None
        try:
            connection = self.connect(timeout)
            raw = connection.sock
            try:
                connection.request("POST", "/mcp", json.dumps(frame), self.headers(frame))
                response = connection.getresponse()
                if "event-stream" not in response.getheader("Content-Type", ""):
                    outcome(json.loads(response.read()))
                    return None
                for kind, event in events(response, deadline, raw):
                    if kind == "frame" and event.get("method") == "notifications/tasks":
                        last = event["params"]
                        if enough(last):
                            break
                return last
            finally:
                connection.close()
        except TimeoutError as error:
            raise Late(str(error)) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Gone(f"{type(error).__name__}: {error}") from error

    def stare(self, frames, seconds):
        """Sends calls for 1 MB each, reads the first bytes and then nothing for so long, and then the rest.

        Whether the connection was cut meanwhile; None when neither happened, it was cut nor everything came.
        """
        requests = b""
        for frame in frames:
            body = json.dumps(frame).encode()
            head = "".join(f"{name}: {value}\r\n" for name, value in self.headers(frame).items())
            requests += f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body
        with socket.socket() as line:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.settimeout(REQUEST_S)
            try:
                line.connect(("127.0.0.1", self.port))
                line.sendall(requests)
                got = len(line.recv(64))
            except OSError as error:
                raise Gone(f"{type(error).__name__}: {error}") from error
            time.sleep(seconds)
            try:
                while got < len(frames) * 1_056_000:
                    more = len(line.recv(65536))
                    if not more:
                        return True
                    got += more
                return False
            except TimeoutError:
                return None
            except OSError:
                return True

    def drop(self, frame, after):
        """Sends a request and resets the connection after so long."""
        try:
            connection = self.connect(REQUEST_S)
            connection.request("POST", "/mcp", json.dumps(frame), self.headers(frame))
            time.sleep(after)
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise Gone(f"{type(error).__name__}: {error}") from error

    def end_session(self):
        try:
            connection = self.connect(REQUEST_S)
            connection.request("DELETE", "/mcp", headers=self.headers({"method": "", "params": {}}))
            status = connection.getresponse().status
            connection.close()
            return status
        except (OSError, http.client.HTTPException) as error:
            raise Gone(f"{type(error).__name__}: {error}") from error

    def close(self):
        """Leaves; a session stays as it is."""
        shared, self.shared = self.shared, None
        if shared and shared.sock:
            try:
                shared.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Pipe(Client):
    """Over the standard streams of `longhaul stdio` or `longhaul serve --stdio`."""

    living = set()

    def __init__(self, command, environment, log, modern, **how):
        super().__init__(modern, **how)
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        Pipe.living.add(self)
        self.pending = {}
        self.lock = threading.Lock()
        threading.Thread(target=self.read, daemon=True).start()
        if not modern:
            outcome(self.exchange(self.frame("initialize", self.opening()), REQUEST_S))
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def post(self, message):
        try:
            with self.lock:
                self.process.stdin.write(json.dumps(message).encode() + b"\n")
                self.process.stdin.flush()
        except (OSError, ValueError) as error:
            raise Gone(f"{type(error).__name__}: {error}") from error

    def exchange(self, frame, timeout):
        place = self.pending[frame["id"]] = queue.Queue()
        try:
            if self.process.poll() is not None:
                raise Gone("the pipe has ended")
            self.post(frame)
            reply = place.get(timeout=timeout)
        except queue.Empty:
            cancelled = {"requestId": frame["id"], "reason": "Request timed out"}
            self.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancelled})
            raise Late("the client's own time-out") from None
        finally:
            self.pending.pop(frame["id"], None)
        if reply is None:
            raise Gone("the pipe ended")
        return reply

    def read(self):
        for line in self.process.stdout:
            frame = json.loads(line)
            if "method" not in frame:
                place = self.pending.get(frame.get("id"))
                if place:
                    place.put(frame)
            elif "id" in frame:
                reply = self.answer(frame)
                if reply:
                    try:
                        self.post(reply)
                    except Gone:
                        break
        for place in list(self.pending.values()):
            place.put(None)

    def close(self, within=60):
        """Ends the input, as a client does that quits; the seconds until the program ended."""
        begun = time.monotonic()
        try:
            self.process.stdin.close()
        except OSError:
            pass
        try:
            self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        Pipe.living.discard(self)
        return time.monotonic() - begun

    def kill(self):
        Pipe.living.discard(self)
        self.process.kill()
        self.process.wait()


def victim(port, mode, tool, token, ttl_ms):
    client = Http(port, modern=False)
    client.open_shared()
    if mode == "task":
        task = client.begin(tool, {"token": token, "seconds": 6}, ttl_ms, token)[1]
        print(task, flush=True)
        client.request("tasks/result", {"taskId": task}, timeout=600)
    else:
        print("calls", flush=True)
        client.request("tools/call", {"name": tool, "arguments": {"token": token, "seconds": 6}}, timeout=600)
    threading.Event().wait()


if __name__ == "__main__":
    victim(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
