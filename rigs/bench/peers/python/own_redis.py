"""A Redis of a server's own, for the peers of the bench and the servers of the pairings."""

import socket
import subprocess
import sys
import time


def start(folder):
    """Starts a Redis on a free port, which gets TERM when this process ends, however it ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "bind": "127.0.0.1",
        "port": port,
        "dir": folder,
        "appendonly": "yes",
        "appendfsync": "always",
        "save": "",
        "logfile": f"{folder}/redis.log",
    }
    flags = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    subprocess.Popen(["setpriv", "--pdeathsig", "TERM", "redis-server", *flags], stdin=subprocess.DEVNULL)
    for _ in range(100):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return f"redis://127.0.0.1:{port}/0"
        except OSError:
            time.sleep(0.1)
    sys.exit("redis-server does not answer")
