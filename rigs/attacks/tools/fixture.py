"""The tools of the attacks that speak with Longhaul. Each is one function; the first argument names it."""

import json
import os
import socket
import sys

ONE = {"word": {"type": "string"}}
# Each takes a backtracking engine exponential time, or a compiler gigabytes.
PATTERNS = ["^(a+)+$", "^(a|a)*$", "^(([a-z])+.)+[A-Z]([a-z])+$", "(.*a){25}", "((x{1000}){1000}){1000}"]


def line():
    return socket.socket(fileno=os.dup(int(os.environ["LONGHAUL_FD"]))).makefile("rw", encoding="utf-8", newline="\n")


def question(number, properties):
    form = {"type": "object", "properties": properties, "required": []}
    return {"ask": {"id": number, "label": f"q{number}", "message": "Which word?", "form": form}}


def ask(*questions):
    """Sends them all, then reads until each was answered or the line is closed."""
    lines, open_ones = line(), len(questions)
    for each in questions:
        lines.write(json.dumps(each) + "\n")
    lines.flush()
    while open_ones:
        text = lines.readline()
        if not text:
            break
        open_ones -= 1
    print(f"{len(questions) - open_ones} of {len(questions)} were settled")


def asks(what):
    forms = {
        "one": [ONE],
        "many": [ONE] * 10_000,
        "large": [{f"field_{n}": {"type": "string", "description": "x" * 1000} for n in range(1000)}],
        "long": [{"word": {"type": "string", "description": "x" * 1_000_000}}],
        "pattern": [{"word": {"type": "string", "pattern": pattern}} for pattern in PATTERNS],
    }
    ask(*(question(number, form) for number, form in enumerate(forms[what])))


def chatter(messages, size):
    lines = line()
    for number in range(int(messages)):
        lines.write(json.dumps({"log": {"level": "info", "data": f"{number} " + "x" * int(size)}}) + "\n")
        lines.flush()
    print("said")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
