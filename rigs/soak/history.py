"""What clients were told and what tools did, and the rules that must hold between the two.

Actors report each task they were told of, each cancel and each answer. Tools write a ledger. A `Follower` reads every
task of a server until it has ended, once more later, and some after their time to live. Every line of the history
goes to a file as it happens. A broken rule is a fault, kept with the time; nothing here stops the run.
"""

import collections
import dataclasses
import hashlib
import json
import threading
import time

from wire import Gone, Late, Refused

TERMINAL = ("completed", "failed", "cancelled")
# The longest that a task of these tools may take, the queue included; and what a kill may add.
END_S, KILL_S = 75, 20
# The owner is told of an ended task's expiry at its time to live; this long after it the rig looks.
EXPIRED_S = 3
# One task of so many is looked at after its time to live.
EXPIRED_EVERY = 10


@dataclasses.dataclass
class Record:
    server: str
    token: str
    tool: str
    id: str
    told_at: float
    ttl_s: float
    look_at: float = 0
    answer: str | None = None
    cancel_tried: bool = False
    cancelled_at: float | None = None
    cancel_certain: bool = False
    over_at: float | None = None
    status: str | None = None
    digest: str | None = None
    again_at: float | None = None


class Ledger:
    """What the tools of one server wrote, read as far as it goes."""

    def __init__(self, path):
        self.path, self.offset = path, 0
        self.lock = threading.Lock()
        self.starts = collections.defaultdict(list)
        self.ends = collections.defaultdict(list)
        self.token_of, self.tool_of = {}, {}
        self.runs = collections.defaultdict(list)
        self.ended_at = {}
        self.runners = set()

    def read(self):
        with self.lock:
            try:
                with open(self.path, "rb") as file:
                    file.seek(self.offset)
                    text = file.read()
            except FileNotFoundError:
                return
            for line in text[: text.rfind(b"\n") + 1].splitlines(keepends=True):
                try:
                    said = json.loads(line)
                except ValueError:
                    # Seen while it was being written: it is read again.
                    return
                self.offset += len(line)
                self.take(said)

    def take(self, line):
        mark = line["task"]
        if "start" in line:
            self.starts[line["start"]].append(line)
            self.runs[mark].append(line["attempt"])
            self.token_of[mark], self.tool_of[mark] = line["start"], line["tool"]
            self.runners.add(line["runner"])
        else:
            self.ends[line["end"]].append(line)
            self.ended_at[mark, line["attempt"]] = line["at"]

    def marks(self, token):
        return {line["task"] for line in self.starts[token]}


class History:
    def __init__(self, servers, file):
        self.servers = servers
        self.lock = threading.RLock()
        self.file = open(file, "w", encoding="utf-8")
        self.counts = collections.Counter()
        self.faults = []
        self.records = {}
        self.by_token = {}
        self.plain_over = {}
        self.shims_killed = {}
        self.judged_marks = set()
        self.latest = {}

    def write(self, op, **what):
        with self.lock:
            self.file.write(json.dumps({"at": round(time.time(), 3), "op": op, **what}) + "\n")

    def count(self, name, more=1):
        with self.lock:
            self.counts[name] += more

    def fault(self, rule, **what):
        with self.lock:
            self.faults.append({"at": round(time.time(), 3), "rule": rule, **what})
            self.file.write(json.dumps(self.faults[-1] | {"op": "FAULT"}) + "\n")
            self.file.flush()
            print(f"FAULT {time.strftime('%H:%M:%S')} {rule} {json.dumps(what)[:400]}", flush=True)

    def told(self, server, client, tool, token, task, ttl_s):
        """A client was told of a task."""
        with self.lock:
            self.count(f"told {client}")
            self.count(f"tool {tool}")
            if task in self.records:
                return self.records[task]
            now = time.time()
            record = Record(server.name, token, tool, task, now, ttl_s, look_at=now + 1)
            self.records[task] = record
            self.by_token[token] = record
            self.write("told", server=server.name, client=client, tool=tool, token=token, id=task)
            return record

    def cancelling(self, record):
        record.cancel_tried = True

    def cancelled(self, record, certain):
        """The cancel was acknowledged; `certain` when the reply showed the task cancelled."""
        record.cancelled_at = record.cancelled_at or time.time()
        record.cancel_certain = record.cancel_certain or certain
        self.count("cancels acknowledged")
        self.write("cancelled", token=record.token, certain=certain)

    def answered(self, record, said):
        record.answer = said
        self.count("questions answered")
        self.write("answered", token=record.token, said=said)

    def excused(self, server, since, token=None):
        """The server was killed, drained, or not yet back since then; or a shim of this call was killed."""
        name = server if isinstance(server, str) else server.name
        server = self.servers[name]
        if server.away or any(at >= since - 1 for at in server.kills + server.drains + server.back_at):
            return True
        return token is not None and any(mark in self.shims_killed for mark in server.ledger.marks(token))

    def judge_text(self, server, token, tool, result, answer=None):
        """A result against what the tool wrote."""
        ledger = self.servers[server].ledger
        ledger.read()
        text = "".join(block.get("text", "") for block in result.get("content", []))
        if tool == "fails":
            if not result.get("isError") or token not in text:
                self.fault("a failed program's result says so", server=server, token=token, text=text[:200])
            return None
        digest = hashlib.sha256(text.encode()).hexdigest()
        if result.get("isError") or digest not in {line["digest"] for line in ledger.ends[token]}:
            self.fault("a result is what the tool wrote", server=server, token=token, tool=tool, text=text[:200], size=len(text))
        if answer and not text.endswith(answer):
            self.fault("an answer reaches the tool", server=server, token=token, said=answer, text=text[:200])
        self.count("results compared")
        return digest

    def session_result(self, record, result):
        """What `tasks/result` returned."""
        self.judge_text(record.server, record.token, record.tool, result, record.answer)

    def plain_result(self, server, client, token, tool, result, since, calls):
        """The result of a call that is no task, after so many equal calls."""
        self.count(f"plain results {client}")
        self.judge_text(server.name, token, tool, result)
        runs = len(server.ledger.marks(token))
        excused = self.excused(server, since, token)
        if runs > (calls if excused else 1):
            self.fault("equal calls run once", server=server.name, token=token, tool=tool, runs=runs, calls=calls)
        self.write("result", server=server.name, token=token, tool=tool, runs=runs, calls=calls)

    def ended(self, record, task):
        """A follower saw the task ended, for the first time or again."""
        status, digest = task["status"], None
        interrupted = None
        if status == "completed":
            digest = self.judge_text(record.server, record.token, record.tool, task["result"], record.answer)
        elif status == "failed":
            interrupted = (task["error"].get("data") or {}).get("reason")
            if interrupted not in ("interrupted", "shutdown") or not self.excused(record.server, record.told_at, record.token):
                self.fault("a task fails only where its server or shim was killed", server=record.server, token=record.token, tool=record.tool, error=task["error"])
        elif not record.cancel_tried:
            self.fault("a task is cancelled by its client only", server=record.server, token=record.token)
        if record.status is None:
            record.status, record.digest, record.over_at = status, digest, record.cancelled_at or time.time()
            record.again_at = time.time() + 15 + len(record.token) % 20
            self.count(f"ended {interrupted or status}")
            self.write("ended", token=record.token, status=status, reason=interrupted)
            self.judge_cancel(record)
        elif (record.status, record.digest) != (status, digest):
            self.fault("an ended task never changes", server=record.server, token=record.token, was=record.status, now=status)
        else:
            self.count("ended tasks seen unchanged later")

    def judge_cancel(self, record):
        if record.cancelled_at is None or record.status == "cancelled":
            return
        ends = [line["at"] for line in self.servers[record.server].ledger.ends[record.token]]
        wrote = any(at <= record.cancelled_at for at in ends)
        crashed = record.status == "failed" and not record.cancel_certain
        if record.cancel_certain or not (wrote or crashed):
            self.fault("an acknowledged cancel holds", server=record.server, token=record.token, status=record.status)

    def judge_runs(self, server):
        """No work ran twice unless its tool says `rerun`."""
        server.ledger.read()
        with self.lock:
            for mark, attempts in list(server.ledger.runs.items()):
                if len(attempts) < 2 or (mark, len(attempts)) in self.judged_marks:
                    continue
                self.judged_marks.add((mark, len(attempts)))
                tool = server.ledger.tool_of[mark]
                if tool != "rerun" or len(set(attempts)) < len(attempts):
                    self.fault("no work runs twice", server=server.name, token=server.ledger.token_of[mark], tool=tool, attempts=attempts)
                else:
                    self.count("runs again after a crash")

    def judge_keyed(self, server, token):
        """A call with a key, sent as often as it took, became one task."""
        server.ledger.read()
        if len(server.ledger.marks(token)) > 1:
            self.fault("calls with one key run once", server=server.name, token=token)

    def open(self, server):
        with self.lock:
            return [record for record in self.records.values() if record.server == server.name and record.status is None]


class Follower:
    """Reads the tasks of one server through a client of its own."""

    def __init__(self, history, server):
        self.history, self.server = history, server
        self.looked = 0

    def turn(self, client, all_now=False):
        now = time.time()
        with self.history.lock:
            due = [record for record in self.history.records.values() if record.server == self.server.name and (all_now or record.look_at <= now)]
        for record in due:
            self.look(client, record)

    def look(self, client, record):
        now = time.time()
        over = now - record.told_at > record.ttl_s
        try:
            task = client.request("tasks/get", {"taskId": record.id}, timeout=15)
        except Gone:
            record.look_at = time.time() + 1
            return
        except Late:
            self.history.fault("`tasks/get` is answered within 15 s", server=self.server.name, token=record.token)
            record.look_at = time.time() + 5
            return
        except Refused as refused:
            self.refused(record, refused, over)
            return
        if record.told_at + record.ttl_s + EXPIRED_S < now:
            self.history.fault("a task past its time to live reads so", server=self.server.name, token=record.token, status=task["status"])
            self.drop(record)
        elif task["status"] in TERMINAL:
            first = record.status is None
            self.history.ended(record, task)
            self.after(record, first)
        elif record.status is not None:
            self.history.fault("an ended task never changes", server=self.server.name, token=record.token, was=record.status, now=task["status"])
            self.drop(record)
        else:
            self.still_open(record)

    def still_open(self, record):
        kills = sum(at > record.told_at for at in self.server.kills)
        if time.time() > record.told_at + END_S + kills * KILL_S and not record.over_at:
            self.history.fault("every task ends", server=self.server.name, token=record.token, tool=record.tool, age_s=round(time.time() - record.told_at))
            record.over_at = time.time()
        record.look_at = time.time() + 2

    def after(self, record, first):
        """When to look next at an ended task."""
        end = record.told_at + record.ttl_s
        if first and record.again_at < end - 2:
            record.look_at = record.again_at
            return
        self.looked += 1
        if self.looked % EXPIRED_EVERY == 0:
            record.look_at = end + EXPIRED_S
        else:
            self.drop(record)

    def refused(self, record, refused, over):
        if refused.reason in ("request_limit", "poll_limit"):
            record.look_at = time.time() + 5
        elif over and "expired" in refused.message:
            self.history.count("expired tasks read so")
            self.drop(record)
        else:
            self.history.fault("a task that a client was told of is there", server=self.server.name, token=record.token, tool=record.tool, said=str(refused))
            self.drop(record)

    def drop(self, record):
        with self.history.lock:
            self.history.records.pop(record.id, None)
            if record.over_at is None:
                record.over_at = time.time()
