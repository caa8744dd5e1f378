"""What the Python clients share: where to connect, one line of JSON for each step, and what they leave behind.

A client is started as `CLIENT first TARGET` and, after the server was killed and started again, as
`CLIENT later TARGET LEFT`. TARGET is a URL, or a command as a JSON array; LEFT is what the first run left.
What `pair` and `find` are, `pair.py` says.
"""

import asyncio
import json
import sys
import threading
import traceback

STEP_MAX_S = 40


class Client:
    """The client that runs: its phase, its target, and the lines it prints."""

    def __init__(self, arguments):
        self.phase, target = arguments[:2]
        self.url = target if target.startswith("http") else None
        self.command = None if self.url else json.loads(target)
        self.given = json.loads(arguments[2]) if len(arguments) > 2 else {}
        # What every question is answered with; without it, no question is answered.
        self.answer = {"name": "Ada"}
        # Set by a question that is not answered: some clients read nothing more until it is.
        self.asked = asyncio.Event()

    async def step(self, name, work):
        """Runs one step by itself; whatever it raises is why it failed."""
        why = ""
        try:
            await asyncio.wait_for(work(), STEP_MAX_S)
        except TimeoutError:
            why = f"not done after {STEP_MAX_S} s"
        except Exception as error:
            why = reason(error)
        say(step=name, ok=not why, why=why)

    async def answered(self):
        if self.answer is None:
            self.asked.set()
            await asyncio.get_running_loop().create_future()
        return self.answer

    async def turn(self):
        """Waits until it is its turn to go on."""
        say(ready=True)
        await asyncio.to_thread(sys.stdin.readline)

    async def leave(self, **tasks):
        """Says what is left, and keeps the connection open until standard input ends."""
        say(left=tasks)
        done = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def wait():
            sys.stdin.read()
            loop.call_soon_threadsafe(lambda: done.done() or done.set_result(None))

        threading.Thread(target=wait, daemon=True).start()
        await done


def say(**line):
    print(json.dumps(line), flush=True)


def reason(error):
    """The innermost error of a group, with the place where it was raised."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"


def same(found, expected):
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def holds(condition, otherwise):
    if not condition:
        raise AssertionError(otherwise)


async def refused(work, code):
    """Waits for a call that the server must refuse with this code."""
    try:
        await work
    except Exception as error:
        found = getattr(error, "code", None) or getattr(getattr(error, "error", None), "code", None)
        if found == code:
            return error
        raise
    raise AssertionError(f"expected the error {code}, found none")


def main(run):
    """Runs a client's `run(client)`; a failure outside every step is a step of its own."""
    client = Client(sys.argv[1:])
    try:
        asyncio.run(run(client))
    except Exception as error:
        say(step="connect", ok=False, why=reason(error))
        sys.exit(1)
