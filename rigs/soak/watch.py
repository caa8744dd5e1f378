"""What `/proc` and the file system say: the size of the servers, and processes that should be gone.

`run.py` calls it twice a second for the processes, and every ten seconds for a sample. It ends nothing.
"""

import os
import sqlite3
import statistics
import time

MIB = 1024 * 1024
PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")
COLUMNS = ("at_s", "life", "rss_mib", "rss_low_mib", "anon_mib", "descriptors", "database_descriptors", "threads", "children", "zombies", "wal_mib", "database_mib", "rows", "open_tasks", "cpu_s")


def stat(pid):
    """The state, the parent, the start and the processor time of a process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[19]), (int(fields[11]) + int(fields[12])) / TICK


def environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return dict(item.split(b"=", 1) for item in file.read().split(b"\0") if b"=" in item)


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().decode(errors="replace").split("\0")
    except OSError:
        return []


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def server_pid(state):
    """The server that keeps its tasks in this folder, if one runs."""
    for pid in pids():
        line = command(pid)
        if "serve" in line and str(state) in line and "__shim" not in line:
            return pid
    return None


class Marked:
    """The processes of tools, and until when each may live."""

    def __init__(self, history, grace_s):
        self.history = history
        self.allowed_s = grace_s + 1
        self.first_late = {}
        self.orphans = 0
        self.latest_s = 0.0

    def processes(self):
        """(server, pid, start, mark, attempt, is shim) of every process that a server of ours started for a task."""
        runners = {runner: server for server in self.history.servers.values() for runner in server.ledger.runners}
        found = []
        for pid in pids():
            try:
                marks = environment(pid)
                runner = marks.get(b"LONGHAUL_RUNNER", b"").decode()
                if runner in runners:
                    state, _, start, _ = stat(pid)
                    if state != "Z":
                        attempt = int(marks.get(b"LONGHAUL_ATTEMPT", b"1"))
                        found.append((runners[runner], pid, start, marks[b"LONGHAUL_TASK"].decode(), attempt, marks.get(b"LONGHAUL_SHIM") == b"1"))
            except (OSError, ValueError, IndexError, KeyError):
                continue
        return found

    def look(self):
        """Notes each process that lives longer than its task and the grace allow."""
        for server in self.history.servers.values():
            server.ledger.read()
        now = time.time()
        boot = now - time.clock_gettime(time.CLOCK_BOOTTIME)
        seen = set()
        for server, pid, start, mark, attempt, shim in self.processes():
            over = self.over_at(server, mark, attempt, boot + start / TICK)
            if over is None:
                continue
            late = now - over - self.allowed_s
            seen.add((pid, start))
            if late <= 0:
                continue
            self.latest_s = max(self.latest_s, late)
            if (pid, start) not in self.first_late:
                self.first_late[pid, start] = now
            elif late > 0.5 and self.first_late[pid, start] > 0:
                self.first_late[pid, start] = 0
                self.orphans += 1
                token = server.ledger.token_of.get(mark, "?")
                self.history.fault("no process outlives its task", server=server.name, token=token, pid=pid, shim=shim, late_s=round(late, 1), command=" ".join(command(pid))[:160])
        self.first_late = {key: at for key, at in self.first_late.items() if key in seen}

    def over_at(self, server, mark, attempt, began):
        """The earliest moment from which the process had to end; None while it may work."""
        moments = [at for at in server.kills if at > began]
        if mark in self.history.shims_killed and self.history.shims_killed[mark] > began:
            moments.append(self.history.shims_killed[mark])
        if (mark, attempt) in server.ledger.ended_at:
            moments.append(server.ledger.ended_at[mark, attempt])
        token = server.ledger.token_of.get(mark)
        record = self.history.by_token.get(token)
        if record:
            moments += [at for at in (record.over_at if record.status else None, record.cancelled_at) if at]
        elif token in self.history.plain_over:
            moments.append(self.history.plain_over[token])
        return min(moments, default=None)


class Resident:
    """The resident size of a server, looked at often: its mean and its lowest since the last sample."""

    def __init__(self):
        self.pid, self.seen = None, []

    def look(self, server):
        pid = server.pid
        if pid != self.pid:
            self.pid, self.seen = pid, []
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                self.seen.append(int(file.read().split()[1]) * PAGE / MIB)
        except (OSError, IndexError, ValueError):
            self.pid, self.seen = None, []

    def take(self):
        seen, self.seen = self.seen, []
        return round(statistics.fmean(seen), 2), round(min(seen), 2)


def sample(server, resident, begun):
    """One line of `COLUMNS`; None while the server does not run."""
    resident.look(server)
    pid = resident.pid
    if pid is None:
        return None
    try:
        status = {}
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            for line in file:
                name, _, value = line.partition(":")
                status[name] = value.split()
        cpu = stat(pid)[3]
        descriptors, files = held(pid)
        anon, threads = int(status["RssAnon"][0]) / 1024, int(status["Threads"][0])
    except (OSError, KeyError, IndexError, ValueError):
        return None
    children, zombies = offspring(pid)
    rows, open_tasks = tasks(server.state / "longhaul.db")
    return [round(time.time() - begun, 1), len(server.kills), *resident.take(), round(anon, 2), descriptors, files, threads, children, zombies,
            size(server.state / "longhaul.db-wal"), size(server.state / "longhaul.db"), rows, open_tasks, round(cpu, 2)]


def held(pid):
    """The descriptors of a process, and how many of them are files of its database."""
    names = os.listdir(f"/proc/{pid}/fd")
    files = 0
    for name in names:
        try:
            files += "/longhaul.db" in os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
    return len(names), files


def offspring(parent):
    """How many children a process has, and how many of them are dead and not collected."""
    children = zombies = 0
    for pid in pids():
        try:
            state, of, _, _ = stat(pid)
        except (OSError, ValueError, IndexError):
            continue
        if of == parent:
            children += 1
            zombies += state == "Z"
    return children, zombies


def size(path):
    try:
        return round(path.stat().st_size / MIB, 2)
    except OSError:
        return 0


def tasks(database):
    """The rows of tasks, and those that are open."""
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=2)
        try:
            return connection.execute("SELECT count(*), coalesce(sum(open), 0) FROM tasks").fetchone()
        finally:
            connection.close()
    except sqlite3.Error:
        return None, None
