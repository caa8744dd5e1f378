#!/usr/bin/env python3
"""The soak: servers under a mixed load for a long time, some of them killed again and again.

`run.py [--minutes 45] [--seed N]`, or `cargo xtask soak`. Four servers run side by side, each with its own state:

- `lives` runs from start to end under the same load: what grows shows there. Shims of its tools are killed.
- `killed` is killed with -9 about every three minutes and started again by the rig. Its clients use HTTP.
- `pipes` is reached over `longhaul stdio` only and killed as often; the pipes start it again.
- `visits` is a `serve --stdio` that a client starts, and kills or ends, again and again.

The history of the run is `history.jsonl` in the results folder. A run of 30 minutes or more writes
`docs/reference/soak.json`, its page and its picture; a shorter one writes them to the results folder.
`run.py --render` makes page and picture from the JSON again.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import page
import watch
from history import Follower, History, Ledger
from load import Actor, Visitor
from wire import Gone, Http, Late, Pipe, Refused

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GRACE_S, DRAIN_S = 2, 10
BACK_MAX_S = 5
# How long `lives` is left alone at the end, before its size is taken once more.
IDLE_S = 12
SAMPLE_S, LOOK_S = 10, 0.5
# A run that is judged, and written to the documentation, takes so many minutes at least.
JUDGED_MINUTES = 30


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=45, help="how long the load lasts (45)")
    parser.add_argument("--seed", type=int, help="of every choice; printed")
    parser.add_argument("--binary", default=os.environ.get("LONGHAUL_BINARY", ROOT / "target/debug/longhaul"))
    parser.add_argument("--results", default=ROOT / "target/soak", help="for state, logs and the history")
    parser.add_argument("--render", action="store_true", help="make the page from docs/reference/soak.json again")
    return parser.parse_args()


class Server:
    """One state folder, and whatever serves it."""

    def __init__(self, name, soak, ttl_s, kept_s):
        self.name, self.ttl_s = name, ttl_s
        self.binary = soak.binary
        self.folder = soak.results / name
        self.state = self.folder / "state"
        self.folder.mkdir(parents=True)
        shutil.copy(HERE / "work.py", self.folder)
        times = f'[tasks]\nttl = "{ttl_s}s"\nexpired_kept = "{kept_s}s"\nkept_for_join = "30s"'
        config = (HERE / "longhaul.toml").read_text(encoding="utf-8").replace("[tasks]", times)
        (self.folder / "longhaul.toml").write_text(config, encoding="utf-8")
        runtime = soak.runtime / name
        runtime.mkdir(mode=0o700)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "XDG_RUNTIME_DIR": str(runtime)}
        self.ledger = Ledger(self.folder / "ledger.jsonl")
        self.kills, self.drains, self.back_s, self.back_at = [], [], [], []
        self.away = False
        self.process, self.found = None, None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]

    def _command(self, verb, *flags):
        return [self.binary, verb, "--config", str(self.folder / "longhaul.toml"), "--state", str(self.state), *flags]

    def serve(self, *flags):
        return self._command("serve", *flags)

    def pipe(self):
        return self._command("stdio")

    @property
    def pid(self):
        if self.process:
            return self.process.pid if self.process.poll() is None else None
        if self.found is None or str(self.state) not in watch.command(self.found):
            self.found = watch.server_pid(self.state)
        return self.found

    def start(self):
        """Starts `serve` and waits until it answers; the seconds that took."""
        begun = time.monotonic()
        with open(self.folder / "server.log", "ab") as log:
            self.process = subprocess.Popen(self.serve("--bind", f"127.0.0.1:{self.port}"), env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        while time.monotonic() < begun + 60:
            try:
                Http(self.port, modern=False)
                return time.monotonic() - begun
            except Gone:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the server {self.name} ended with {self.process.returncode}") from None
                time.sleep(0.02)
        raise RuntimeError(f"the server {self.name} does not answer")

    def kill(self):
        pid = self.pid
        if pid is None:
            return False
        self.kills.append(time.time())
        os.kill(pid, signal.SIGKILL)
        if self.process:
            self.process.wait()
        return True

    def stop(self):
        """TERM, and KILL where that is not enough; true when TERM was."""
        pid = self.pid
        if pid is None:
            return True
        self.drains.append(time.time())
        os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + DRAIN_S + GRACE_S + 5
        while time.monotonic() < until:
            if (self.process.poll() is not None) if self.process else not pathlib.Path(f"/proc/{pid}").exists():
                return True
            time.sleep(0.1)
        os.kill(pid, signal.SIGKILL)
        return False


class Soak:
    def __init__(self, chosen, runtime):
        self.chosen = chosen
        self.seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(1_000_000)
        self.random = random.Random(self.seed)
        self.binary = str(pathlib.Path(chosen.binary).resolve())
        self.runtime = runtime
        self.results = pathlib.Path(chosen.results).resolve()
        shutil.rmtree(self.results, ignore_errors=True)
        self.results.mkdir(parents=True)
        self.seconds = chosen.minutes * 60
        self.period = min(180, self.seconds / 5)
        self.pause = 2.5
        long = chosen.minutes >= JUDGED_MINUTES
        ttl_s, kept_s = (240, 30) if long else (90, 10)
        self.servers = {name: Server(name, self, ttl_s, kept_s) for name in ("lives", "killed", "pipes")}
        self.servers["visits"] = Server("visits", self, 7200, 60)
        self.history = History(self.servers, self.results / "history.jsonl")
        self.marked = watch.Marked(self.history, GRACE_S)
        self.samples = {name: [] for name in ("lives", "killed", "pipes")}
        # The load is over; nobody follows tasks any more; all is over.
        self.idle = []
        self.resident = {name: watch.Resident() for name in self.samples}
        self.stopping, self.settled, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.followers = {name: Follower(self.history, server) for name, server in self.servers.items()}
        self.probe = None

    def run(self):
        self.begun = time.time()
        version = subprocess.run([self.binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        print(f"{version}, seed {self.seed}, {self.chosen.minutes:g} minutes", flush=True)
        lives, killed, pipes, visits = self.servers.values()
        try:
            lives.start()
            killed.start()
            self.idle = [watch.sample(lives, watch.Resident(), self.begun)]
            self.probe = self.pipe_client(pipes)
            self.probe.request("tools/list")
            loops = [self.watching, self.following_http(lives), self.following_http(killed), self.following_pipes]
            loops += [self.killing(killed, self.start_again), self.killing(pipes, self.probe_again), self.killing_shims]
            threads = [threading.Thread(target=loop, daemon=True) for loop in loops]
            actors = [Actor(self, lives, "http", number) for number in range(10)]
            actors += [Actor(self, lives, "pipe", number) for number in range(3)]
            actors += [Actor(self, killed, "http", number) for number in range(4)]
            actors += [Actor(self, pipes, "pipe", number) for number in range(3)]
            actors.append(Visitor(self, visits, self.followers["visits"]))
            for thread in threads + actors:
                thread.start()
            self.stopping.wait(self.seconds)
            self.stopping.set()
            for actor in actors:
                actor.join(40)
            self.settle()
        finally:
            self.stopping.set()
            self.end()
        return self.report(version)

    # What runs beside the actors.

    def watching(self):
        next_sample = time.time()
        while not self.ended.is_set():
            self.marked.look()
            for name, resident in self.resident.items():
                resident.look(self.servers[name])
            for server in self.servers.values():
                self.history.judge_runs(server)
            if time.time() >= next_sample:
                next_sample += SAMPLE_S
                for name, samples in self.samples.items():
                    line = watch.sample(self.servers[name], self.resident[name], self.begun)
                    if line and not self.stopping.is_set():
                        samples.append(line)
            self.ended.wait(LOOK_S)

    def following_http(self, server):
        def follow():
            client = Http(server.port, modern=True)
            while not self.settled.is_set():
                self.followers[server.name].turn(client)
                self.settled.wait(0.5)

        return follow

    def pipe_client(self, server):
        return Pipe(server.pipe(), server.environment, server.folder / "pipes.log", modern=True)

    def following_pipes(self):
        server = self.servers["pipes"]
        client = self.pipe_client(server)
        while not self.settled.is_set():
            self.followers["pipes"].turn(client)
            if client.process.poll() is not None and not self.settled.is_set():
                self.history.fault("a pipe outlives its server", server="pipes", code=client.process.returncode)
                client = self.pipe_client(server)
            self.settled.wait(0.5)

    def killing(self, server, begin_again):
        choices = random.Random(f"{self.seed} kills {server.name}")

        def kill():
            while not self.stopping.wait(choices.uniform(0.5, 1.5) * self.period):
                server.away = True
                if not server.kill():
                    server.away = False
                    continue
                self.history.write("killed", server=server.name)
                try:
                    took = begin_again(server)
                except (Gone, Late, Refused, RuntimeError) as error:
                    self.history.fault("a killed server is back", server=server.name, why=str(error))
                    continue
                finally:
                    server.back_at.append(time.time())
                    server.away = False
                server.back_s.append(round(took, 2))
                if took > BACK_MAX_S:
                    self.history.fault("a killed server is back within 5 s", server=server.name, took_s=round(took, 2))

        return kill

    def start_again(self, server):
        return server.start()

    def probe_again(self, _server):
        """How long a pipe takes from the kill to the first reply of the next server."""
        begun = time.monotonic()
        self.probe.request("tools/list", timeout=30)
        return time.monotonic() - begun

    def killing_shims(self):
        choices = random.Random(f"{self.seed} shims")
        while not self.stopping.wait(choices.uniform(0.3, 0.9) * self.period):
            shims = []
            for server, pid, _, mark, _, shim in self.marked.processes():
                token = server.ledger.token_of.get(mark)
                record = self.history.by_token.get(token)
                if shim and server.name == "lives" and record and not record.status and not record.cancel_tried:
                    shims.append((pid, mark, token))
            if not shims:
                continue
            pid, mark, token = choices.choice(shims)
            self.history.shims_killed[mark] = time.time()
            self.history.count("shims killed")
            self.history.write("shim killed", token=token)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    # The end.

    def settle(self):
        """Waits until every task that a client was told of has ended."""
        until = time.monotonic() + 100
        waits = [self.servers[name] for name in ("lives", "killed", "pipes")]
        while any(self.history.open(server) for server in waits) and time.monotonic() < until:
            time.sleep(0.5)
        visits = self.servers["visits"]
        last = Pipe(visits.serve("--stdio"), visits.environment, visits.folder / "server.log", modern=True)
        while True:
            self.followers["visits"].turn(last, all_now=True)
            if not self.history.open(visits) or time.monotonic() > until:
                break
            time.sleep(0.5)
        visits.drains.append(time.time())
        last.close(30)
        for server in self.servers.values():
            for record in self.history.open(server):
                self.history.fault("every task ends", server=server.name, token=record.token, tool=record.tool, age_s=round(time.time() - record.told_at))

    def end(self):
        self.settled.set()
        # A pipe that lives would start its server again.
        for pipe in list(Pipe.living):
            pipe.kill()
        time.sleep(IDLE_S)
        self.idle.append(watch.sample(self.servers["lives"], watch.Resident(), self.begun))
        for name in ("lives", "killed", "pipes"):
            if not self.servers[name].stop():
                self.history.fault("a server ends at TERM", server=name)
        time.sleep(GRACE_S + 1)
        self.ended.set()
        self.left = len(self.marked.processes())
        if self.left:
            self.history.fault("no process is left at the end", processes=self.left)
        for server in self.servers.values():
            self.history.judge_runs(server)

    def report(self, version):
        history = self.history
        history.file.close()
        report = {
            "version": version,
            "date": time.strftime("%Y-%m-%d", time.gmtime(self.begun)),
            "minutes": self.chosen.minutes,
            "judged": self.chosen.minutes >= JUDGED_MINUTES,
            "seed": self.seed,
            "cores": os.cpu_count(),
            "settings": {"grace_s": GRACE_S, "ttl_s": self.servers["lives"].ttl_s, "kill_period_s": self.period},
            "counts": dict(sorted(history.counts.items())),
            "servers": {
                name: {
                    "kills": len(server.kills),
                    "back_s": server.back_s,
                    "killed_at_s": [round(at - self.begun, 1) for at in server.kills],
                    "starts": sum(len(runs) for runs in server.ledger.runs.values()),
                    "columns": watch.COLUMNS,
                    "samples": self.samples.get(name, []),
                }
                for name, server in self.servers.items()
            },
            "idle": {"columns": watch.COLUMNS, "samples": self.idle},
            "orphans": self.marked.orphans,
            "orphan_latest_s": round(self.marked.latest_s, 2),
            "left_at_end": self.left,
            "faults": history.faults,
        }
        report["verdicts"] = page.verdicts(report)
        return report


def main():
    chosen = options()
    documented = ROOT / "docs"
    if chosen.render:
        report = json.loads((documented / "reference/soak.json").read_text(encoding="utf-8"))
        page.write(report, documented / "reference", documented / "images")
        return 0
    # Ended from outside it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="lhs") as runtime:
        soak = Soak(chosen, pathlib.Path(runtime))
        report = soak.run()
    if report["judged"]:
        page.write(report, documented / "reference", documented / "images")
    page.write(report, soak.results, soak.results)
    for verdict in report["verdicts"]:
        print(f"{'ok' if verdict['holds'] else '-' if verdict['holds'] is None else 'FAILED':<7} {verdict['rule']}: {verdict['found']} (goal: {verdict['goal']})")
    print(f"\n{soak.results}/soak.md")
    return int(any(verdict["holds"] is False for verdict in report["verdicts"]))


if __name__ == "__main__":
    sys.exit(main())
