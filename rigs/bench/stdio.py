#!/usr/bin/env python3
"""How long `tasks/get` takes over `longhaul stdio`: idle, and while one tool writes 1 GB and eight burn the processor.

Usage: stdio.py LONGHAUL [POLLS]

Prints the two medians, the two 99th percentiles and their ratio, as one line of JSON. Fails when a poll gets no
reply, or when the ratio is over 20.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

RATIO_MAX = 20
BURNERS = 8
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
}
CONFIG = """
[server]
bind = "127.0.0.1:0"
[limits]
output_max = "64MiB"
[tools.waits]
description = "Waits for its end."
command = ["sleep", "3600"]
promote_after = "0s"
[tools.writes]
description = "Writes 1 GB."
command = ["sh", "-c", "while :; do head -c 1000000000 /dev/zero | tr '\\\\0' x; done"]
promote_after = "0s"
[tools.burns]
description = "Burns a processor."
command = ["sh", "-c", "while :; do :; done"]
promote_after = "0s"
concurrency = 8
"""


class Client:
    def __init__(self, longhaul, home):
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        self.process = subprocess.Popen(
            [longhaul, "stdio", "--state", str(home / "state"), "--config", str(home / "longhaul.toml")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self.next = 0

    def call(self, method, params):
        self.next += 1
        frame = {"jsonrpc": "2.0", "id": self.next, "method": method, "params": {**params, "_meta": META}}
        self.process.stdin.write(json.dumps(frame).encode() + b"\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        assert reply["id"] == self.next and "result" in reply, reply
        return reply["result"]

    def begin(self, tool):
        return self.call("tools/call", {"name": tool, "arguments": {}})["taskId"]

    def poll(self, task, polls):
        """The times of so many polls, in milliseconds; a pause of 5 ms between two."""
        times = []
        for _ in range(polls):
            begun = time.perf_counter()
            status = self.call("tasks/get", {"taskId": task})["status"]
            times.append((time.perf_counter() - begun) * 1000)
            assert status == "working", status
            time.sleep(0.005)
        return sorted(times)


def share(times, part):
    return times[min(len(times) - 1, math.ceil(part * len(times)) - 1)]


def main():
    longhaul, polls = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    with tempfile.TemporaryDirectory(prefix="lhb") as home:
        home = pathlib.Path(home)
        (home / "longhaul.toml").write_text(CONFIG)
        client = Client(longhaul, home)
        try:
            task = client.begin("waits")
            client.poll(task, 50)
            idle = client.poll(task, polls)
            tasks = [client.begin(tool) for tool in ["writes", *["burns"] * BURNERS]]
            while any(client.call("tasks/get", {"taskId": each})["status"] != "working" for each in tasks):
                pass
            busy = client.poll(task, polls)
            for each in [task, *tasks]:
                client.call("tasks/cancel", {"taskId": each})
        finally:
            client.process.stdin.close()
            client.process.wait()
            end(longhaul, home)
    report = {
        "polls": polls,
        "idle_ms": {"p50": round(share(idle, 0.5), 3), "p99": round(share(idle, 0.99), 3)},
        "busy_ms": {"p50": round(share(busy, 0.5), 3), "p99": round(share(busy, 0.99), 3), "max": round(busy[-1], 3)},
    }
    report["ratio_p99"] = round(report["busy_ms"]["p99"] / report["idle_ms"]["p99"], 1)
    print(json.dumps(report))
    return 0 if report["ratio_p99"] <= RATIO_MAX else 1


def end(longhaul, home):
    """Ends the background server, which runs under the temporary state directory only."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    said = subprocess.run(
        [longhaul, "doctor", "--json", "--state", str(home / "state"), "--config", str(home / "longhaul.toml")],
        capture_output=True, text=True, env=environment,
    )
    for check in json.loads(said.stdout)["checks"]:
        if check["check"] == "server" and "pid " in check["found"]:
            os.kill(int(check["found"].split("pid ")[1].split(",")[0]), 15)


if __name__ == "__main__":
    sys.exit(main())
