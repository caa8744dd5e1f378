"""What the tools of the rig do for a long time, and what the rig sees of it: how often it began, and whether it goes on.

The servers in Python import it. As a program it is a command tool (`work.py waits LABEL`) and the child that a plain
server leaves behind (`work.py child LABEL`).
"""

import asyncio
import os
import pathlib
import subprocess
import sys
import time

FOLDER = pathlib.Path(os.environ["LONGHAUL_PAIRINGS"])
BEAT_S = 0.2
CHILD_MAX_S = 900


def begin(label):
    """One more line: a call that runs twice is seen."""
    with open(FOLDER / f"{label}.starts", "a") as starts:
        starts.write("begins\n")


def beat(label):
    (FOLDER / f"{label}.beat").touch()


def may_end(label):
    """The rig makes this file when the work is to end."""
    return (FOLDER / f"{label}.open").exists()


async def waits(label, cancelled=None):
    """Works until the rig lets it end; `cancelled` is asked where nothing else ends the work."""
    begin(label)
    while not may_end(label):
        beat(label)
        if cancelled is not None and await cancelled():
            return f"{label}: cancelled"
        await asyncio.sleep(BEAT_S)
    return f"{label}: let go"


def leave_a_child(label):
    """A program that outlives the call, as some tools start one."""
    command = [sys.executable, "-S", __file__, "child", label]
    quiet = subprocess.DEVNULL
    subprocess.Popen(command, stdin=quiet, stdout=quiet, stderr=quiet)


def child(label):
    end = time.monotonic() + CHILD_MAX_S
    while not (FOLDER / "over").exists() and time.monotonic() < end:
        beat(f"{label}.child")
        time.sleep(BEAT_S)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["waits", label]:
            print(asyncio.run(waits(label)))
        case ["child", label]:
            child(label)
