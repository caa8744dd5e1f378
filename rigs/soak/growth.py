#!/usr/bin/env python3
"""What each kind of operation leaves in a server's memory: `growth.py LONGHAUL [ROUNDS [KIND..]]`.

One server, and rounds of many equal operations, each followed by a pause. The first round warms up what is opened or
kept once; what grows in every later round is a leak. It prints a line for each kind and round, and judges nothing.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from wire import Gone, Http, Late, Pipe

HERE = pathlib.Path(__file__).resolve().parent
TTL_S, PAUSE_S, CALLERS = 60, 14, 8


class Rig:
    def __init__(self, binary, folder):
        self.folder, self.count, self.lock = folder, 0, threading.Lock()
        shutil.copy(HERE / "work.py", folder)
        times = f'[tasks]\nttl = "{TTL_S}s"\nexpired_kept = "1s"\nkept_for_join = "10s"'
        config = (HERE / "longhaul.toml").read_text(encoding="utf-8").replace("[tasks]", times)
        (folder / "longhaul.toml").write_text(config, encoding="utf-8")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.places = ["--config", str(folder / "longhaul.toml"), "--state", str(folder / "state")]
        self.binary = binary
        command = [binary, "serve", *self.places, "--bind", f"127.0.0.1:{self.port}"]
        self.server = subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while True:
            try:
                Http(self.port, modern=False)
                return
            except Gone:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def resident_kib(self):
        with open(f"/proc/{self.server.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))

    def token(self):
        with self.lock:
            self.count += 1
            return f"t{self.count:08d}"

    # One operation each.

    def session(self):
        client = Http(self.port, modern=False)
        client.open_shared()
        client.close()

    def plain(self):
        Http(self.port, modern=True).call("quick", {"token": self.token()})

    def large(self):
        Http(self.port, modern=True).call("big", {"token": self.token()})

    def begin(self, client, tool, seconds):
        token = self.token()
        arguments = {"token": token, **({"seconds": seconds} if seconds is not None else {})}
        return client.begin(tool, arguments, TTL_S * 1000, token)[1]

    def task(self):
        client = Http(self.port, modern=True)
        client.listen(self.begin(client, "rerun", 0.1), lambda told: told["status"] == "completed", 30)

    def session_task(self):
        client = Http(self.port, modern=False)
        client.request("tasks/result", {"taskId": self.begin(client, "rerun", 0.1)}, timeout=30)

    def cancel(self):
        client = Http(self.port, modern=True)
        client.request("tasks/cancel", {"taskId": self.begin(client, "rerun", 5)})

    def question(self):
        client = Http(self.port, modern=True)
        task = self.begin(client, "asks", None)
        while (told := client.request("tasks/get", {"taskId": task}))["status"] == "working":
            time.sleep(0.5)
        answers = {key: {"action": "accept", "content": {"answer": "east"}} for key in told["inputRequests"]}
        client.request("tasks/update", {"taskId": task, "inputResponses": answers})

    def abandoned(self):
        try:
            Http(self.port, modern=True).call("sleeps", {"token": self.token(), "seconds": 1}, timeout=0.5)
        except Late:
            pass

    def reset(self):
        client = Http(self.port, modern=True)
        client.drop(client.call_frame("sleeps", {"token": self.token(), "seconds": 0.5}), 0.3)

    def pipe(self):
        command = [self.binary, "stdio", *self.places]
        client = Pipe(command, self.environment, self.folder / "pipes.log", modern=True)
        client.call("quick", {"token": self.token()})
        client.kill()


KINDS = {
    "session": 2000, "plain": 240, "large": 80, "task": 240, "session_task": 240, "cancel": 240, "question": 160,
    "abandoned": 240, "reset": 400, "pipe": 200,
}


def times(operation, count):
    def some():
        for _ in range(count // CALLERS):
            operation()

    threads = [threading.Thread(target=some) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    binary, rounds = str(pathlib.Path(sys.argv[1]).resolve()), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    kinds = {kind: KINDS[kind] for kind in sys.argv[3:] or KINDS}
    with tempfile.TemporaryDirectory(prefix="lhg") as folder:
        rig = Rig(binary, pathlib.Path(folder))
        try:
            for number in range(rounds):
                for kind, count in kinds.items():
                    before = rig.resident_kib()
                    times(getattr(rig, kind), count)
                    time.sleep(PAUSE_S)
                    after = rig.resident_kib()
                    print(f"{number + 1} {kind:<13} {count:>5}  {before:>7} -> {after:>7} KiB  {1024 * (after - before) / count:>8.0f} bytes each", flush=True)
        finally:
            rig.server.send_signal(signal.SIGTERM)
            rig.server.wait()


if __name__ == "__main__":
    main()
