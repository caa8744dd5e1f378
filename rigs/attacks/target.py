"""The server under attack, on a free port with a fresh state, and what of it is seen from outside.

Called by `run.py`. Longhaul is started with the rig's own configuration; a peer by `rigs/bench/peers/start`.
"""

import os
import pathlib
import signal
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
PEERS = HERE.parent / "bench/peers"
START_MAX, END_MAX = 30, 15


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


class Server:
    """A running server; ended, with what it started, by `end`."""

    def __init__(self, command, port, log, cwd=None, environment=None):
        self.port = port
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self.log = log

    @classmethod
    def longhaul(cls, binary, folder, settings):
        port = free_port()
        environment = {f"LONGHAUL_{name}": value for name, value in settings.items()}
        command = [binary, "serve", "--config", "longhaul.toml", "--state", folder / "state", "--bind", f"127.0.0.1:{port}"]
        return cls(command, port, folder / "server.log", HERE, environment).ready()

    @classmethod
    def peer(cls, name, installed, folder):
        port = free_port()
        return cls([PEERS / "start", name, installed, str(port), folder / "data"], port, folder / "server.log").ready()

    def ready(self):
        deadline = time.monotonic() + START_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}; see {self.log}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return self
            except OSError:
                time.sleep(0.05)
        self.end()
        raise RuntimeError(f"the server does not answer; see {self.log}")

    def alive(self):
        return self.process.poll() is None

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=END_MAX)
        except subprocess.TimeoutExpired:
            pass
        # Also what a peer leaves behind; all of it is in the session that was begun for it.
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def _proc(self, name):
        return pathlib.Path(f"/proc/{self.process.pid}/{name}")

    def _status(self, key):
        for line in self._proc("status").read_text().splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
        return 0

    def rss(self):
        """Resident bytes."""
        return self._status("VmRSS:")

    def peak(self):
        """The most resident bytes since `forget_peak`."""
        return self._status("VmHWM:")

    def forget_peak(self):
        self._proc("clear_refs").write_text("5")

    def descriptors(self):
        return len(list(self._proc("fd").iterdir()))

    def processor(self):
        """Seconds of processor time that the server itself has used."""
        fields = self._proc("stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def held(self, ports):
        """Which of the connections from these local ports the server still holds."""
        mine, found = f":{self.port:04X}", set()
        ports = {f":{port:04X}" for port in ports}
        for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            # A socket that no process holds any more has no inode.
            if fields[1].endswith(mine) and fields[2][-5:] in ports and fields[9] != "0":
                found.add(int(fields[2][-4:], 16))
        return found
