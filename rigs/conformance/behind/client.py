"""A client that the official suite judges: Longhaul in front of the suite's server, used by the Python SDK's own client.

`client.py URL`, as the suite starts it; the environment names `LONGHAUL_BINARY` and the SDK's `CLIENT`.
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def main(url):
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "longhaul.toml")
        config.write_text(f'[server]\npage = false\n\n[servers.behind]\nurl = "{url}"\nrequired = true\n')
        port = free_port()
        command = [os.environ["LONGHAUL_BINARY"], "serve", "--config", config, "--state", folder, "--bind", f"127.0.0.1:{port}"]
        with subprocess.Popen(command, stdout=sys.stderr) as longhaul:
            try:
                while longhaul.poll() is None and not answers(port):
                    time.sleep(0.05)
                client = [sys.executable, os.environ["CLIENT"], f"http://127.0.0.1:{port}/mcp"]
                return subprocess.run(client, timeout=25).returncode
            finally:
                longhaul.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
