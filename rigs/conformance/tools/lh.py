"""How a fixture speaks with Longhaul: JSON lines on the socket named in LONGHAUL_FD."""

import json
import os
import socket


class Line:
    """The socket, opened at the first use."""

    def __init__(self):
        self._lines = None
        self._socket = None

    def _open(self):
        if self._socket is None:
            self._socket = socket.socket(fileno=os.dup(int(os.environ["LONGHAUL_FD"])))
            self._lines = self._socket.makefile("rw", encoding="utf-8", newline="\n")
        return self._lines

    def send(self, message):
        lines = self._open()
        lines.write(json.dumps(message) + "\n")
        lines.flush()

    def receive(self):
        text = self._open().readline()
        if not text:
            raise SystemExit("Longhaul closed the line")
        return json.loads(text)


LINE = Line()


def ask(**requests):
    """Asks all of these at once and waits for every answer. A request is {"method", "params"}; so is its key kept."""
    LINE.send({"ask": [{"key": key, **request} for key, request in requests.items()]})
    return LINE.receive()["answers"]


def form(message, properties, required):
    """A form elicitation."""
    schema = {"type": "object", "properties": properties, "required": required}
    return {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": message, "requestedSchema": schema},
    }


def progress(done, total, message):
    LINE.send({"progress": {"progress": done, "total": total, "message": message}})


def content(answer, field, fallback):
    """One field of an accepted form; the fallback when it was not accepted."""
    if answer.get("action") != "accept":
        return fallback
    return answer.get("content", {}).get(field, fallback)


def result(*blocks, is_error=False):
    """Prints a whole tool result (`result = "mcp"`)."""
    print(json.dumps({"content": list(blocks), "isError": is_error}))


def text(words):
    return {"type": "text", "text": words}
