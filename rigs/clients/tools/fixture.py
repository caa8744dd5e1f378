"""The tools that the clients call. Each is one function; the first argument names it."""

import json
import os
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "conformance/tools"))

from lh import ask, content, form, progress, result, text


def echo(words):
    result(text(words))


def slow(seconds):
    for step in range(1, 5):
        progress(step, 4, f"part {step} of 4")
        time.sleep(float(seconds) / 4)
    result(text(f"worked for {seconds} s"))


def asks():
    properties = {"name": {"type": "string", "title": "Name"}}
    answer = ask(name=form("Whom shall I greet?", properties, ["name"]))["name"]
    result(text(f"Hello, {content(answer, 'name', answer['action'])}!"))


def fails():
    result(text("no such crate: it was looked for everywhere"), is_error=True)


def errs():
    print(json.dumps({"code": -32050, "message": "the index is locked", "data": {"by": "somebody"}}))


def shaped():
    print(json.dumps({"files": 900, "problems": 0}))


def endless(by="its caller"):
    progress(1, 2, f"waiting for a cancel by {by}")
    time.sleep(600)


def outlives():
    """Never ends at the first attempt; ends at once at the next one, after the server died."""
    attempt = int(os.environ["LONGHAUL_ATTEMPT"])
    if attempt == 1:
        time.sleep(600)
    result(text(f"done at attempt {attempt}"))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
