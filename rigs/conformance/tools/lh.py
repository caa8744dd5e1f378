"""How a fixture speaks with Longhaul: JSON lines on the socket named in LONGHAUL_FD."""

import json
import os
import socket


class Line:
    """The socket, opened at the first use."""

    def __init__(self):
        self._lines = None

    def _open(self):
        if self._lines is None:
            line = socket.socket(fileno=os.dup(int(os.environ["LONGHAUL_FD"])))
            self._lines = line.makefile("rw", encoding="utf-8", newline="\n")
        return self._lines

    def send(self, messages):
        lines = self._open()
        lines.write("".join(json.dumps(message) + "\n" for message in messages))
        lines.flush()

    def receive(self):
        text = self._open().readline()
        if not text:
            raise SystemExit("Longhaul closed the line")
        return json.loads(text)


LINE = Line()


def ask(**questions):
    """Asks all of these in one go and waits for every answer. The name of each is its id and its label."""
    LINE.send([{"ask": [{"id": name, "label": name, **question} for name, question in questions.items()]}])
    answers = {}
    while len(answers) < len(questions):
        answer = LINE.receive().get("answer", {})
        if answer.get("id") in questions:
            answers[answer["id"]] = answer
    return answers


def form(message, properties, required):
    """A form to fill in."""
    schema = {"type": "object", "properties": properties, "required": required}
    return {"message": message, "form": schema}


def other(method, params):
    """A request to the client that is no form."""
    return {"method": method, "params": params}


def progress(done, total, message):
    LINE.send([{"progress": {"n": done, "total": total, "message": message}}])


def log(level, data):
    LINE.send([{"log": {"level": level, "logger": "fixture", "data": data}}])


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
