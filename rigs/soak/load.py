"""The clients of the soak: each actor connects, does a few random things, and leaves in one way or another.

`run.py` starts the actors. Their choices come from the seed; what they are told goes to the history, which judges it.
"""

import pathlib
import random
import subprocess
import sys
import threading
import time
import uuid

from wire import Gone, Http, Late, Pipe, Refused

HERE = pathlib.Path(__file__).resolve().parent
# How often each thing is done, against the others.
WITH_TASKS = {
    "quick": 3, "sleeps": 4, "answered": 3, "declined": 1, "ignored": 1, "big": 2, "family": 2, "stubborn": 2,
    "fails": 2, "rerun": 2, "cancelled": 5, "queued": 1, "left": 2, "same_key": 1,
}
WITHOUT_TASKS = {"plain": 3, "held": 2, "given_up": 2}
OVER_HTTP = {"withdrawn": 1, "stare": 1, "dropped": 1, "victim": 1, "session_left": 2, "resumed": 1}
TIMED = ("sleeps", "narrow", "rerun", "family", "stubborn")
# The longest that a client waits for the end of a task, or for a held call with all its turns.
PATIENCE_S = 90


class Actor(threading.Thread):
    """One client after the other, over one transport, at one server."""

    def __init__(self, soak, server, transport, number):
        super().__init__(daemon=True, name=f"{server.name}-{transport}-{number}")
        self.soak, self.server, self.transport = soak, server, transport
        self.history = soak.history
        self.random = random.Random(f"{soak.seed} {self.name}")
        self.plans = {}
        plan = WITH_TASKS | WITHOUT_TASKS | (OVER_HTTP if transport == "http" else {})
        self.names, self.weights = list(plan), list(plan.values())

    def run(self):
        while not self.soak.stopping.is_set():
            began, doing = time.time(), "connect"
            client = None
            try:
                client = self.connect()
                for _ in range(self.random.randint(2, 6)):
                    if self.soak.stopping.wait(self.random.uniform(0.2, self.soak.pause)):
                        break
                    began, doing = time.time(), self.random.choices(self.names, self.weights)[0]
                    getattr(self, doing)(client)
                    self.history.count(f"did {doing}")
            except Gone as gone:
                self.history.count("requests cut by a kill")
                if not self.history.excused(self.server, began) and not self.soak.stopping.is_set():
                    self.history.fault("a server that was not killed answers", actor=self.name, doing=doing, why=str(gone))
                self.soak.stopping.wait(0.5)
            except (Late, Refused) as error:
                if isinstance(error, Refused) and error.reason == "interrupted" and self.history.excused(self.server, began):
                    self.history.count("clients told that work was interrupted")
                elif not self.soak.stopping.is_set():
                    self.history.fault("a request gets its reply", actor=self.name, doing=doing, why=f"{type(error).__name__} {error}")
            except Exception as error:  # A mistake of the rig must show, and not end the actor.
                self.history.fault("the rig itself works", actor=self.name, doing=doing, why=f"{type(error).__name__}: {error}")
                self.soak.stopping.wait(1)
            finally:
                if client:
                    self.leave(client)

    def connect(self):
        modern = self.random.random() < 0.5
        self.history.count(f"clients {self.transport} {'2026' if modern else '2025'}")
        if self.transport == "http":
            client = Http(self.server.port, modern)
        else:
            client = Pipe(self.server.pipe(), self.server.environment, self.server.folder / "pipes.log", modern)
        client.on_question = self.on_question
        client.label = f"{self.transport} {'2026' if modern else '2025'}"
        if self.transport == "http" and not modern and self.random.random() < 0.7:
            client.open_shared()
        return client

    def leave(self, client):
        """Ends the session, or goes without a word, or dies."""
        how = self.random.random()
        try:
            if isinstance(client, Pipe):
                if how < 0.3:
                    client.kill()
                    self.history.count("pipes killed")
                else:
                    client.close()
            else:
                if not client.modern and client.session and how < 0.4:
                    client.end_session()
                client.close()
        except Gone:
            pass

    def on_question(self, question):
        message = question.get("params", {}).get("message", "")
        for token, said in list(self.plans.items()):
            if token in message and said is not None:
                return reply_of(said)
        return None

    # Parts of what follows.

    def token(self):
        return uuid.UUID(int=self.random.getrandbits(128)).hex[:16]

    def arguments(self, tool, token, seconds):
        return {"token": token, **({"seconds": seconds} if tool in TIMED else {})}

    def begin(self, client, tool, seconds=0, token=None):
        """Begins a task, under a key, as often as it takes; None when the call ended before it was a task."""
        token = token or self.token()
        began = time.time()
        while True:
            try:
                kind, got = client.begin(tool, self.arguments(tool, token, seconds), round(self.server.ttl_s * 1000), token)
                break
            except Gone:
                if not self.history.excused(self.server, began) or time.time() > began + 30 or isinstance(client, Pipe) and client.process.poll() is not None:
                    raise
                self.history.count("calls sent again under their key")
                time.sleep(0.3)
        self.history.judge_keyed(self.server, token)
        if kind == "result":
            self.history.count(f"plain results {client.label}")
            self.history.judge_text(self.server.name, token, tool, got)
            return None
        return self.history.told(self.server, client.label, tool, token, got, self.server.ttl_s)

    def finish(self, client, record):
        """Waits for the end of a task as its generation does."""
        if record is None:
            return
        way = self.random.random()
        if not client.modern and way < 0.6:
            try:
                self.history.session_result(record, client.request("tasks/result", {"taskId": record.id}, timeout=PATIENCE_S))
            except Refused as refused:
                self.ended_badly(record, refused)
        elif client.modern and isinstance(client, Http) and way < 0.5:
            client.listen(record.id, lambda told: told["status"] in ("completed", "failed", "cancelled"), PATIENCE_S)
        else:
            self.poll(client, record, lambda task: task["status"] in ("completed", "failed", "cancelled"))

    def ended_badly(self, record, refused):
        excused = refused.reason == "interrupted" and self.history.excused(self.server, record.told_at, record.token)
        if not excused and not record.cancel_tried:
            self.history.fault("`tasks/result` gives the result", server=self.server.name, token=record.token, said=str(refused))

    def poll(self, client, record, enough):
        until = time.time() + PATIENCE_S
        while time.time() < until:
            try:
                task = client.request("tasks/get", {"taskId": record.id})
            except Refused as refused:
                # The follower asks for the same task, so that together they may be too fast.
                if refused.reason != "poll_limit":
                    raise
                self.soak.stopping.wait(1)
                continue
            if enough(task):
                return task
            hint = task.get("pollIntervalMs") or task.get("pollInterval") or 1000
            if self.soak.stopping.wait(hint / 1000):
                return task
        raise Late("the task does not get on")

    def cancel(self, client, record):
        self.history.cancelling(record)
        try:
            task = client.request("tasks/cancel", {"taskId": record.id})
            self.history.cancelled(record, not client.modern and task.get("status") == "cancelled")
        except Refused as refused:
            if client.modern or refused.code != -32602:
                raise
            self.history.count("cancels of an ended task refused")

    # What is done with tasks.

    def quick(self, client):
        self.finish(client, self.begin(client, "quick"))

    def sleeps(self, client):
        self.finish(client, self.begin(client, "sleeps", round(self.random.uniform(0.5, 8), 1)))

    def big(self, client):
        self.finish(client, self.begin(client, "big"))

    def family(self, client):
        self.finish(client, self.begin(client, "family", round(self.random.uniform(0.5, 2), 1)))

    def fails(self, client):
        self.finish(client, self.begin(client, "fails"))

    def rerun(self, client):
        self.finish(client, self.begin(client, "rerun", round(self.random.uniform(1, 8), 1)))

    def answered(self, client):
        self.ask(client, "asks", self.random.choice(("accept:east", "accept:west")))

    def declined(self, client):
        self.ask(client, "asks", self.random.choice(("decline:", "cancel:")))

    def ignored(self, client):
        self.ask(client, "ignored", None)

    def ask(self, client, tool, said):
        token = self.token()
        self.plans[token] = said if not client.modern else None
        try:
            record = self.begin(client, tool, token=token)
            if client.modern and said:
                task = self.poll(client, record, lambda task: task["status"] != "working")
                keys = list(task.get("inputRequests") or {})
                if keys:
                    client.request("tasks/update", {"taskId": record.id, "inputResponses": {keys[0]: reply_of(said)}})
                    self.history.answered(record, said)
                self.finish(client, record)
            elif said and record:
                # In a session the question comes on the stream of `tasks/result`.
                result = client.request("tasks/result", {"taskId": record.id}, timeout=PATIENCE_S)
                self.history.answered(record, said)
                self.history.session_result(record, result)
            else:
                self.finish(client, record)
        except Refused as refused:
            if refused.reason != "interrupted" or not self.history.excused(self.server, record.told_at, token):
                raise
        finally:
            self.plans.pop(token, None)

    def stubborn(self, client):
        record = self.begin(client, "stubborn", 40)
        self.soak.stopping.wait(self.random.uniform(0.3, 3))
        self.cancel(client, record)

    def cancelled(self, client):
        """A cancel at any phase: before it runs, while it runs or asks, and after its end; sometimes twice."""
        tool = self.random.choice(("sleeps", "asks", "narrow", "family", "rerun", "quick"))
        record = self.begin(client, tool, 4)
        if record is None:
            return
        self.soak.stopping.wait(self.random.choice((0, 0.02, 0.1, 0.5, 1.5, 5.5)))
        self.cancel(client, record)
        if self.random.random() < 0.3:
            self.cancel(client, record)

    def queued(self, client):
        records = [self.begin(client, "narrow", 1.5) for _ in range(3)]
        self.cancel(client, records[-1])
        self.finish(client, records[0])

    def left(self, client):
        """Begun, and never asked for again by this client."""
        self.begin(client, self.random.choice(("sleeps", "rerun", "big", "family")), 3)

    def same_key(self, client):
        token = self.token()
        first = self.begin(client, "sleeps", 3, token=token)
        second = self.begin(client, "sleeps", 3, token=token)
        if first and second and first.id != second.id:
            self.history.fault("calls with one key run once", server=self.server.name, token=token)
        self.finish(client, second)

    # What is done without tasks.

    def plain(self, client):
        tool = self.random.choice(("quick", "big", "fails"))
        began, token = time.time(), self.token()
        result = client.call(tool, self.arguments(tool, token, 0))
        self.history.plain_result(self.server, client.label, token, tool, self.wait(client, result, tool, token, 0), began, 1)

    def held(self, client):
        seconds = round(self.random.uniform(3, 9), 1)
        began, token = time.time(), self.token()
        result = client.call("sleeps", self.arguments("sleeps", token, seconds))
        self.history.plain_result(self.server, client.label, token, "sleeps", self.wait(client, result, "sleeps", token, seconds), began, 2)

    def wait(self, client, result, tool, token, seconds):
        """Follows STILL RUNNING to the result, by `longhaul_wait` or by the same call again."""
        until = time.time() + PATIENCE_S
        while (told := result.get("structuredContent") or {}).get("task") and time.time() < until:
            self.history.count("told STILL RUNNING")
            if self.random.random() < 0.5:
                result = client.call("longhaul_wait", {"task": told["task"], "since": told["since"]}, timeout=40)
            else:
                result = client.call(tool, self.arguments(tool, token, seconds), timeout=40)
        return result

    def given_up(self, client):
        """The client's own time-out ends its call; an equal one gets the result of the same work."""
        began, token, seconds = time.time(), self.token(), round(self.random.uniform(2.5, 5), 1)
        try:
            client.call("sleeps", self.arguments("sleeps", token, seconds), timeout=self.random.uniform(0.8, 2))
        except Late:
            pass
        self.come_back(client, token, seconds, began)

    def come_back(self, client, token, seconds, began):
        self.soak.stopping.wait(1)
        result = client.call("sleeps", self.arguments("sleeps", token, seconds))
        result = self.wait(client, result, "sleeps", token, seconds)
        self.history.plain_result(self.server, client.label, token, "sleeps", result, began, 2)

    def dropped(self, client):
        """The connection is reset in the middle of a call."""
        began, token, seconds = time.time(), self.token(), round(self.random.uniform(2, 5), 1)
        client.drop(client.call_frame("sleeps", self.arguments("sleeps", token, seconds)), self.random.uniform(0.4, 1.5))
        self.come_back(client, token, seconds, began)

    def withdrawn(self, client):
        """A person cancels a plain call, which ends the work."""
        if client.modern:
            return
        token = self.token()
        frame = client.call_frame("stubborn", self.arguments("stubborn", token, 30))

        def call():
            try:
                client.exchange(frame, 10)
            except (Gone, Late):
                pass

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        time.sleep(self.random.uniform(0.5, 2))
        client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": frame["id"], "reason": "the person stopped it"}})
        self.history.plain_over[token] = time.time()
        self.history.count("plain calls withdrawn")
        calling.join(10)

    # What is done over HTTP only.

    def stare(self, client):
        """A slow reader: it asks for six times 1 MB on one connection, more than its buffers hold, and stops reading."""
        frames = [client.call_frame("big", self.arguments("big", self.token(), 0)) for _ in range(6)]
        cut = client.stare(frames, self.random.uniform(4, 20))
        if cut is None:
            self.history.fault("a slow reader is cut, or gets everything", actor=self.name)
        self.history.count("slow readers cut" if cut else "slow readers that got everything in the end")

    def session_left(self, client):
        """Sessions opened, with a stream or without, and left as they are."""
        for _ in range(3):
            other = Http(self.server.port, modern=False)
            if self.random.random() < 0.7:
                other.open_shared()
                time.sleep(self.random.uniform(0, 0.3))
            other.close()
            self.history.count("sessions opened and left")

    def resumed(self, client):
        """A session's stream is cut in the middle of `tasks/result`, and read on from its last event."""
        other = Http(self.server.port, modern=False)
        other.on_question = self.on_question
        record = self.begin(self.labelled(other), "sleeps", 3)
        if record is None:
            return
        try:
            other.request("tasks/result", {"taskId": record.id}, timeout=1)
        except Late:
            pass
        if other.last_event:
            other.open_shared(other.last_event)
            self.history.count("streams resumed")
        self.finish(other, record)
        other.close()

    def labelled(self, client):
        client.label = "http 2025"
        return client

    def victim(self, client):
        """A client in a process of its own, killed with -9 in the middle of its call."""
        mode, token = self.random.choice(("task", "plain")), self.token()
        began = time.time()
        command = [sys.executable, "-S", "-E", str(HERE / "wire.py"), str(self.server.port), mode, "sleeps", token, str(round(self.server.ttl_s * 1000))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            told = process.stdout.readline().decode().strip()
            if not told:
                raise Gone("the client could not connect")
            if mode == "task":
                self.history.told(self.server, "http 2025", "sleeps", token, told, self.server.ttl_s)
            self.soak.stopping.wait(self.random.uniform(0.5, 4))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        self.history.count("clients killed")
        if mode == "plain":
            self.soak.stopping.wait(1)
            result = self.wait(client, client.call("sleeps", {"token": token, "seconds": 6}), "sleeps", token, 6)
            self.history.plain_result(self.server, client.label, token, "sleeps", result, began, 3)


def reply_of(said):
    action, _, value = said.partition(":")
    return {"action": action, **({"content": {"answer": value}} if value else {})}


class Visitor(Actor):
    """A client that starts `serve --stdio` for itself, and finds at its next visit what it left at the last."""

    def __init__(self, soak, server, follower):
        super().__init__(soak, server, "stdio", 0)
        self.follower = follower

    def connect(self):
        modern = self.random.random() < 0.5
        client = Pipe(self.server.serve("--stdio"), self.server.environment, self.server.folder / "server.log", modern)
        client.label = f"stdio {'2026' if modern else '2025'}"
        return client

    def run(self):
        while not self.soak.stopping.is_set():
            client = None
            try:
                client = self.connect()
                self.visit(client)
                self.go(client)
                client = None
            except (Gone, Late, Refused) as error:
                if not self.soak.stopping.is_set():
                    self.history.fault("`serve --stdio` answers", actor=self.name, why=f"{type(error).__name__} {error}")
            except Exception as error:  # A mistake of the rig must show, and not end the actor.
                self.history.fault("the rig itself works", actor=self.name, why=f"{type(error).__name__}: {error}")
            finally:
                if client:
                    self.server.kills.append(time.time())
                    client.kill()
            self.soak.stopping.wait(self.random.uniform(1, 5))

    def visit(self, client):
        self.history.count("visits of serve --stdio")
        self.read_all(client)
        for _ in range(self.random.randint(2, 5)):
            tool = self.random.choice(("quick", "sleeps", "sleeps", "rerun", "family", "big"))
            record = self.begin(client, tool, round(self.random.uniform(0.5, 12), 1))
            if record and self.random.random() < 0.3:
                self.finish(client, record)
        self.soak.stopping.wait(self.random.uniform(1, 15))
        self.read_all(client)

    def read_all(self, client):
        """Looks at all tasks of earlier visits; the follower speaks 2026-07-28."""
        if client.modern:
            self.follower.turn(client, all_now=True)

    def go(self, client):
        if self.random.random() < 0.5:
            self.server.kills.append(time.time())
            client.kill()
            self.history.count("serve --stdio killed")
            return
        self.server.drains.append(time.time())
        took = client.close(within=30)
        self.server.drains.append(time.time())
        if took is None:
            self.history.fault("`serve --stdio` ends with its input", actor=self.name)
        self.history.count("serve --stdio ended with its input")
