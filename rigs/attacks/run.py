#!/usr/bin/env python3
"""Attacks on the listener, each against a fresh server, with an honest client beside it: `run.py [ROW..]`.

A row prints the attack's goals, what was seen, and `ok` or `failed`. The run fails when Longhaul misses a goal; with
`--peers DIR`, where `rigs/bench/peers/install DIR` has installed them, the same attacks run on two other servers, for
the table. What was seen is written as JSON; `--write` also writes the page in `docs/reference`, and `--render` only
prints that page, from the numbers that are there.
"""

import argparse
import asyncio
import datetime
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import page
from attack import Attack, mib
from rows import ROWS, raise_descriptors
from target import HERE, Server

ROOT = HERE.parents[1]
PEERS = ["rmcp", "fastmcp-memory"]
IDLE, SETTLE = 5, 10
# What an attack may last, whatever happens to it.
ROW_MAX = 240
# Half a dozen descriptors come and go with the honest client.
DESCRIPTORS_SLACK = 8
NICE = 10


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.environ.get("LONGHAUL_BINARY", ROOT / "target/debug/longhaul"))
    parser.add_argument("--peers", metavar="DIR", help="where the peers of the bench are installed")
    parser.add_argument("--only-peers", action="store_true", help="leave Longhaul out")
    parser.add_argument("--results", default=ROOT / "target/attacks", help="for logs and the numbers")
    parser.add_argument("--write", action="store_true", help="write the page of the reference, too")
    parser.add_argument("--render", action="store_true", help="print the page, from the numbers that are there")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    chosen = parser.parse_args()
    names = [row.name for row in ROWS]
    strangers = [name for name in chosen.rows if name not in names]
    if strangers:
        parser.error(f"no such row: {', '.join(strangers)}; there are {', '.join(names)}")
    if chosen.write and (chosen.rows or chosen.only_peers or not chosen.peers):
        parser.error("--write takes all rows and --peers")
    return chosen


class Honest:
    """The honest client, in a process of its own."""

    def __init__(self, port, plan, log):
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-B", HERE / "honest.py", str(port), plan],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True,
            )
        if self.process.stdout.readline().strip() != "ready":
            self.process.wait()
            raise RuntimeError(f"the honest client did not begin; see {log}")

    def phase(self, name):
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()

    def end(self):
        said, _ = self.process.communicate(timeout=60)
        return json.loads(said)


def run_row(row, start, peer, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    server = start(row, folder)
    honest = None
    try:
        honest = Honest(server.port, row.plan if not peer else "mixed", folder / "honest.log")
        time.sleep(IDLE)
        server.forget_peak()
        before = {"rss": server.rss(), "descriptors": server.descriptors()}
        honest.phase("attack")
        attack = Attack(server.port, server, peer, before["rss"])
        begun = time.monotonic()
        broke = in_thread(row, attack)
        seconds = time.monotonic() - begun
        peak = server.peak() if server.alive() else None
        honest.phase("after")
        time.sleep(SETTLE)
        if not server.alive():
            attack.goal("alive", f"ended with {server.process.returncode}", False)
            after = before
        else:
            after = {"rss": server.rss(), "descriptors": server.descriptors()}
        phases = honest.end()
        judge(row, attack, before, after, phases, broke, server.alive())
        return {
            "row": row.name, "title": row.title, "what": row.run.__doc__, "seconds": round(seconds, 1),
            "settings": row.settings, "goals": attack.goals, "rss_before": before["rss"], "rss_peak": peak,
            "rss_after": after["rss"], "descriptors": [before["descriptors"], after["descriptors"]], "honest": phases,
        }
    finally:
        if honest and honest.process.poll() is None:
            honest.process.kill()
        server.end()


def in_thread(row, attack):
    """Runs the attack in a thread that gives way to the server and the honest client; why it broke, if it did."""
    broke = []

    def work():
        # On Linux this is the thread's own.
        os.nice(NICE)
        try:
            asyncio.run(asyncio.wait_for(row.run(attack), ROW_MAX))
        except Exception as error:
            broke.append(f"{type(error).__name__}: {error}")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return broke[0] if broke else None


def judge(row, attack, before, after, phases, broke, alive):
    """The goals that every row has."""
    if broke:
        attack.goal("the attack runs to its end", broke, False)
    if alive:
        grown = after["rss"] / before["rss"] - 1
        attack.goal(
            f"memory 10 s after: +{row.after_max:.0%} at most",
            f"{grown:+.1%} ({mib(before['rss'])} to {mib(after['rss'])})",
            grown <= row.after_max,
        )
        more = after["descriptors"] - before["descriptors"]
        attack.goal("descriptors 10 s after: as before", f"{more:+d}", more <= DESCRIPTORS_SLACK)
    idle, during = phases.get("idle", {"n": 0}), phases.get("attack", {"n": 0})
    failures = sum(phase["failures"] for phase in phases.values())
    first = [each for phase in phases.values() for each in phase["first_failures"]]
    attack.goal("the honest client: no failure", f"{failures} of {count(phases)}" + (f": {first[0]}" if first else ""), not failures)
    if row.p99_max is not None and during["n"] and idle["n"]:
        most = max(row.p99_max, (row.ratio_max or 0) * idle["p99"])
        text = f"the honest client: p99 {row.p99_max} ms at most" + (f", or {row.ratio_max} × idle" if row.ratio_max else "")
        attack.goal(text, f"{during['p99']} ms, {idle['p99']} ms when idle", during["p99"] <= most)


def count(phases):
    return sum(phase["n"] + phase["failures"] for phase in phases.values())


def show(name, result):
    met = all(goal["met"] for goal in result["goals"])
    print(f"\n{result['row']} {result['title']} – {name}: {'ok' if met else 'failed'} ({result['seconds']} s)")
    for goal in result["goals"]:
        print(f"  {'ok    ' if goal['met'] else 'MISSED'} {goal['goal']}: {goal['seen']}", flush=True)
    during = result["honest"].get("attack", {"n": 0})
    if during["n"]:
        print(f"         honest client during the attack: p50 {during['p50']} ms, p99 {during['p99']} ms, longest {during['max']} ms")
    return met


def facts(chosen):
    version = subprocess.run([chosen.binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    memory = next(line for line in pathlib.Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "longhaul": version, "commit": commit.stdout.strip(), "cores": os.cpu_count(),
        "memory_gib": round(int(memory.split()[1]) / 2**20), "kernel": platform.release().split("-")[0],
        "load": round(os.getloadavg()[0], 1),
    }


def main():
    chosen = options()
    if chosen.render:
        print(page.render(json.loads(page.numbers(ROOT).read_text(encoding="utf-8"))), end="")
        return 0
    raise_descriptors()
    rows = [row for row in ROWS if not chosen.rows or row.name in chosen.rows]
    results, all_met = pathlib.Path(chosen.results).resolve(), True
    numbers = {"facts": facts(chosen), "servers": {}}
    with tempfile.TemporaryDirectory(prefix="attacks-") as scratch:
        if not chosen.only_peers:
            binary = str(pathlib.Path(chosen.binary).resolve())
            start = lambda row, folder: Server.longhaul(binary, folder, row.settings)
            ours = numbers["servers"]["longhaul"] = []
            for row in rows:
                ours.append(run_row(row, start, False, pathlib.Path(scratch, "longhaul", row.name)))
                all_met &= show("longhaul", ours[-1])
        for peer in PEERS if chosen.peers else []:
            start = lambda row, folder, peer=peer: Server.peer(peer, pathlib.Path(chosen.peers).resolve(), folder)
            theirs = numbers["servers"][peer] = []
            for row in rows:
                if row.on_peers:
                    theirs.append(run_row(row, start, True, pathlib.Path(scratch, peer, row.name)))
                    show(peer, theirs[-1])
    results.mkdir(parents=True, exist_ok=True)
    (results / "attacks.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    print(f"\nnumbers: {results / 'attacks.json'}")
    if chosen.write:
        page.numbers(ROOT).write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
        page.write(ROOT)
    return 0 if all_met else 1


if __name__ == "__main__":
    sys.exit(main())
