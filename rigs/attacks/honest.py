#!/usr/bin/env python3
"""The honest client: at a steady pace it calls, begins tasks, polls them no faster than it is told, and cancels.

`honest.py PORT PLAN`, a process of its own, so that an attack takes no time from it. PLAN is `mixed`, or `reserved`:
polls, cancels and answers only, of tasks that it began before. A line on standard input names the phase that begins;
at its end the times are printed as one line of JSON. A time counts from the moment the request was due, so what waits
behind a slow one counts too.
"""

import http.client
import itertools
import json
import math
import select
import sys
import time

import wire

PACE, LIMIT = 0.05, 10
POOL = 50
RESERVED_ANSWERS, RESERVED_CANCELS = 40, 120
PLANS = {
    "mixed": ["get", "get", "echo", "get", "create", "get", "cancel", "get"],
    "reserved": ["get", "cancel", "get", "answer", "get", "get", "cancel", "get"],
}


class Failed(Exception):
    pass


class Client:
    def __init__(self, port):
        self.port, self.numbers = port, itertools.count(1)
        self.kept = None

    def request(self, method, params, name, fresh=False):
        body = json.dumps(wire.frame(next(self.numbers), method, {**params, "_meta": wire.META}))
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            **dict(wire.modern_headers(method, name)),
        }
        kept, self.kept = (None, self.kept) if fresh else (self.kept, None)
        try:
            reply = self.send(kept or self.connection(), body, headers, keep=not fresh)
        except (OSError, http.client.HTTPException) as error:
            # A server may close a connection that waits. What can be sent twice is sent again, as any client does.
            stale = kept is not None and isinstance(error, ConnectionError) and method.startswith("tasks/")
            if not stale:
                raise Failed(type(error).__name__) from error
            try:
                reply = self.send(self.connection(), body, headers, keep=True)
            except (OSError, http.client.HTTPException) as again:
                raise Failed(type(again).__name__) from again
        try:
            return reply.result
        except ValueError as error:
            raise Failed(str(error)) from error

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)

    def send(self, connection, body, headers, keep):
        keeps = False
        try:
            connection.request("POST", wire.PATH, body, headers)
            response = connection.getresponse()
            reply = wire.Reply(response.status, {k.lower(): v for k, v in response.headers.items()}, response.read())
            keeps = keep and not response.will_close
        finally:
            if not keeps:
                connection.close()
        self.kept = connection if keeps else self.kept
        return reply

    def call(self, tool, fresh=False, **arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments}, tool, fresh)

    def task(self, method, task, **more):
        return self.request(method, {"taskId": task, **more}, task)


class Honest:
    def __init__(self, client, plan):
        self.client, self.plan = client, plan
        self.pool = [client.call("nap", ms=3_600_000)["taskId"] for _ in range(POOL)]
        self.next_polled = itertools.cycle(self.pool)
        self.marks = itertools.count(1)
        self.asking, self.owned = [], []
        if plan == "reserved":
            self.asking = [client.call("asks", what="one")["taskId"] for _ in range(RESERVED_ANSWERS)]
            self.owned = [client.call("nap", ms=3_600_000)["taskId"] for _ in range(RESERVED_CANCELS)]

    def get(self):
        self.client.task("tasks/get", next(self.next_polled))

    def echo(self):
        # On a new connection, as a newcomer has it.
        self.client.call("echo", fresh=True, text="hello")

    def create(self):
        self.owned.append(self.client.call("child", seconds=3600, mark=f"honest-{next(self.marks)}")["taskId"])

    def cancel(self):
        if self.owned:
            self.client.task("tasks/cancel", self.owned.pop())

    def answer(self):
        if self.asking:
            task = self.asking.pop()
            keys = self.client.task("tasks/get", task).get("inputRequests", {})
            answers = {key: {"action": "accept", "content": {"word": "yes"}} for key in keys}
            self.client.task("tasks/update", task, inputResponses=answers)

    def run(self):
        phase, phases = "idle", {}
        due = time.monotonic()
        for step in itertools.cycle(PLANS[self.plan]):
            due += PACE
            while (left := due - time.monotonic()) > 0 or select.select([sys.stdin], [], [], 0)[0]:
                if select.select([sys.stdin], [], [], max(0, left))[0]:
                    line = sys.stdin.readline()
                    if not line:
                        return phases
                    phase = line.strip()
            times = phases.setdefault(phase, {"times": {}, "failures": []})
            try:
                getattr(self, step)()
                times["times"].setdefault(step, []).append((time.monotonic() - due) * 1000)
            except Failed as error:
                times["failures"].append(f"{step}: {error}")
                due = max(due, time.monotonic() - PACE)


def share(times, part):
    return sorted(times)[max(0, math.ceil(part * len(times)) - 1)]


def summed(phase):
    every = [time for times in phase["times"].values() for time in times]
    figures = lambda times: {
        "n": len(times), "p50": round(share(times, 0.5), 2), "p99": round(share(times, 0.99), 2), "max": round(max(times), 2)
    }
    return {
        **(figures(every) if every else {"n": 0}),
        "by_step": {step: figures(times) for step, times in phase["times"].items()},
        "failures": len(phase["failures"]),
        "first_failures": phase["failures"][:3],
    }


def main():
    honest = Honest(Client(int(sys.argv[1])), sys.argv[2])
    print("ready", flush=True)
    phases = honest.run()
    print(json.dumps({name: summed(phase) for name, phase in phases.items()}), flush=True)


if __name__ == "__main__":
    main()
