"""The tools of the soak: `work.py KIND TOKEN SECONDS`. Each notes its start, and before it prints its result what that is.

The notes are lines of JSON in `ledger.jsonl` beside it, by which the rig knows what really ran. TOKEN is of one call.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

KIND, TOKEN, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])

def note(what, **more):
    line = {
        what: TOKEN,
        "tool": KIND,
        "task": os.environ["LONGHAUL_TASK"],
        "attempt": int(os.environ["LONGHAUL_ATTEMPT"]),
        "runner": os.environ["LONGHAUL_RUNNER"],
        "at": round(time.time(), 3),
        **more,
    }
    place = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ledger.jsonl")
    file = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, json.dumps(line).encode() + b"\n")
    os.close(file)


def finish(text):
    note("end", digest=hashlib.sha256(text.encode()).hexdigest())
    sys.stdout.write(text)
    sys.stdout.flush()


def line():
    channel = socket.socket(fileno=int(os.environ["LONGHAUL_FD"]))
    return channel.makefile("rw", encoding="utf-8", newline="\n")


def wait(report=False):
    lines = line() if report else None
    until = time.monotonic() + SECONDS
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 1))
        if lines:
            done = round(SECONDS - max(until - time.monotonic(), 0), 1)
            print(json.dumps({"progress": {"n": done, "total": SECONDS, "message": TOKEN}}), file=lines, flush=True)


def ask():
    lines = line()
    print(json.dumps({"ask": {"id": 1, "message": f"Where to, {TOKEN}?", "choices": ["east", "west"]}}), file=lines, flush=True)
    answer = json.loads(lines.readline())["answer"]
    return f"{answer['action']}:{(answer.get('content') or {}).get('answer', '')}"


def family():
    """A child, and a grandchild in a session of its own whose parent is gone; both ignore TERM and outlive this."""
    stays = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-S", "-E", "-c", stays], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if os.fork() == 0:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 1)
        os.dup2(null, 2)
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-S", "-E", "-c", stays])
        os._exit(0)


def main():
    if KIND == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note("start", pid=os.getpid())
    if KIND == "big":
        block = hashlib.sha256(TOKEN.encode()).hexdigest()
        finish(f"big {TOKEN} " + "\n".join([block] * 16_000))
    elif KIND == "fails":
        note("end", digest=None)
        print(f"fails {TOKEN}: on purpose", file=sys.stderr)
        sys.exit(3)
    elif KIND in ("asks", "ignored"):
        finish(f"{KIND} {TOKEN} {ask()}")
    else:
        if KIND == "family":
            family()
        wait(report=KIND == "sleeps")
        finish(f"{KIND} {TOKEN} done")


if __name__ == "__main__":
    main()
