"""The attacks, one function a row. Each gets an `Attack`, does its worst within bounds, and says what it saw.

Called by `run.py`. An attack never sends to another address than the loopback, and ends by itself.
"""

import asyncio
import json
import resource
import socket
import time
from dataclasses import dataclass, field

import wire

MIB = 2**20
BODY_MAX = 4 * MIB
# 30 s, and what a look every half second and a busy machine add.
SLOW_READER_MAX = 35


@dataclass
class Attack:
    """What an attack works with, and the goals it was seen to meet or miss."""

    port: int
    server: object
    peer: bool
    # Resident bytes before it began.
    before: int
    goals: list = field(default_factory=list)

    def goal(self, text, seen, met):
        self.goals.append({"goal": text, "seen": seen, "met": bool(met)})

    def growth(self):
        return self.server.peak() - self.before

    async def open(self, **options):
        return await wire.Connection.open(self.port, **options)

    async def once(self, data, limit=30):
        return await wire.once(self.port, data, limit)

    async def session(self):
        """A session of 2025-11-25: its connection and id."""
        connection = await self.open()
        reply = await connection.ask(wire.legacy(self.port, wire.initialize()))
        session = reply.headers.get("mcp-session-id")
        if not session:
            raise ValueError(f"no session: HTTP {reply.status}, {reply.body[:200]}")
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await connection.ask(wire.legacy(self.port, initialized, session))
        return connection, session


def mib(count):
    return f"{count / MIB:.1f} MiB"


def ms(seconds):
    return f"{seconds * 1000:.1f} ms"


def median(values):
    return sorted(values)[len(values) // 2]


def counted(values):
    return ", ".join(f"{values.count(value)} × {value}" for value in sorted(set(values), key=str)) or "none"


async def wait_until(holds, limit, pause=0.1):
    """The seconds until it holds, or None."""
    begun = time.monotonic()
    while time.monotonic() - begun < limit:
        if holds():
            return time.monotonic() - begun
        await asyncio.sleep(pause)
    return None


async def nothing(attack):
    """No attack for 10 s: what the honest client alone does to the figures."""
    await asyncio.sleep(10)


# D1


async def large_body(attack):
    """100 MB, with a length, without one at a pace that shows how much is read, and without one as fast as it goes."""
    total = 100_000_000
    headers = wire.modern_headers("tools/call", "echo")
    for name, chunked, pause in [
        ("with a length", False, 0.001),
        ("without a length", True, 0.001),
        ("without a length, at full speed", True, 0),
    ]:
        status, sent = await push(attack, headers, total, chunked, pause)
        attack.goal(f"{name}: 413", str(status), status == 413)
        if pause:
            most = BODY_MAX + 64 * 1024
            attack.goal(f"{name}: within the limit + 64 KiB", f"after {sent / 1024:.0f} KiB", sent <= most)
    attack.goal("memory grows by 8 MiB at most", mib(attack.growth()), attack.growth() <= 8 * MIB)


async def push(attack, headers, total, chunked, pause):
    """Sends until a reply comes; its status, and the bytes of body that were sent before it."""
    piece = b"x" * 16384
    extra = [*headers, ("Transfer-Encoding", "chunked")] if chunked else headers
    data = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
    connection = await attack.open()
    reply = asyncio.create_task(connection.reply_head())
    sent = 0
    try:
        await connection.send(wire.head(attack.port, None if chunked else total, extra))
        async with asyncio.timeout(30):
            while sent < total and not reply.done():
                await connection.send(data)
                sent += len(piece)
                await asyncio.sleep(pause)
    except (OSError, TimeoutError):
        pass
    try:
        async with asyncio.timeout(10):
            status, _ = await reply
        return status, sent
    except (OSError, asyncio.IncompleteReadError):
        return "cut without a reply", sent
    except TimeoutError:
        return "no reply", sent
    finally:
        connection.abort()


# D2


async def deep_json(attack):
    """JSON that nests 10^5 and 1.9×10^6 deep."""
    for depth in (100_000, 1_900_000):
        body = json.dumps(wire.frame(1, "tools/call", {"name": "echo", "arguments": "X", "_meta": wire.META})).encode()
        body = body.replace(b'"X"', b"[" * depth + b"]" * depth)
        times, replies = [], []
        for _ in range(5):
            connection = await attack.open()
            data = wire.head(attack.port, len(body), wire.modern_headers("tools/call", "echo")) + body
            await connection.send(data[:-1])
            # What was sent may still be on its way: only the last byte makes it a request.
            await asyncio.sleep(0.2)
            begun = time.monotonic()
            try:
                reply = await connection.ask(data[-1:])
                replies.append(f"{reply.status} {reply.code}")
            except (OSError, EOFError, TimeoutError) as error:
                replies.append(type(error).__name__)
            times.append(time.monotonic() - begun)
            connection.abort()
        attack.goal(f"depth {depth:,}: 400 and -32700", counted(replies), set(replies) == {"400 -32700"})
        attack.goal(f"depth {depth:,}: 20 ms at most", ms(median(times)), median(times) <= 0.02)
    attack.goal("alive", "yes" if attack.server.alive() else "no", attack.server.alive())


# D3


async def many_values(attack):
    """20 bodies of 4 MB at once, each an array of 2,000,000 elements."""
    values = b"[" + b",".join([b"0"] * 2_000_000) + b"]"
    body = json.dumps(wire.frame(1, "tools/call", {"name": "echo", "arguments": {"text": "X"}, "_meta": wire.META}))
    body = body.encode().replace(b'"X"', values)
    data = wire.head(attack.port, len(body), wire.modern_headers("tools/call", "echo")) + body
    begun = time.monotonic()
    replies = await asyncio.gather(*(one_reply(attack, data) for _ in range(20)))
    seconds = time.monotonic() - begun
    attack.goal("200 MiB at most", f"{mib(attack.server.peak())} at the peak", attack.server.peak() <= 200 * MIB)
    attack.goal("all are answered", f"{counted(replies)} in {seconds:.1f} s", all(str(reply)[0] in "45" for reply in replies))


async def one_reply(attack, data):
    try:
        return (await attack.once(data)).status
    except (OSError, EOFError, TimeoutError) as error:
        return type(error).__name__


# D4


async def many_sessions(attack):
    """2,000 `initialize` without DELETE, then up to 100,000 (2,000 in all against a peer)."""
    seen = await initialize_often(attack, 2000)
    growth = attack.server.rss() - attack.before
    each = growth / max(1, seen.get(200, 0))
    attack.goal("2,000 sessions: 1 KiB each at most", f"{each / 1024:.2f} KiB each; {told(seen)}", each <= 1024)
    if attack.peer:
        return
    begun = time.monotonic()
    more = await initialize_often(attack, 98_000)
    growth = attack.growth()
    attack.goal(
        "100,000 sessions: memory grows by 64 MiB at most",
        f"{mib(growth)}; {told(more)} in {time.monotonic() - begun:.0f} s",
        growth <= 64 * MIB,
    )


def told(statuses):
    return ", ".join(f"{count:,} × {status}" for status, count in sorted(statuses.items(), key=str))


async def initialize_often(attack, count, connections=32):
    """So many `initialize`, a few at a time; how often each status came."""
    left, statuses = [count], {}
    data = wire.legacy(attack.port, wire.initialize())

    async def work():
        connection = None
        while left[0] > 0:
            left[0] -= 1
            try:
                connection = connection or await attack.open()
                status = (await connection.ask(data)).status
            except (OSError, EOFError, TimeoutError) as error:
                status = type(error).__name__
                connection = connection.abort() if connection else None
            statuses[status] = statuses.get(status, 0) + 1
        if connection:
            connection.abort()

    await asyncio.gather(*(work() for _ in range(connections)))
    return statuses


# D5


async def idle_streams(attack, count=1000):
    """1,000 sessions, each with a stream that nothing comes over, held for 5 s and closed."""
    sessions, streams, refused = [], [], []

    async def begin():
        connection, session = await attack.session()
        sessions.append(connection)
        extra = wire.legacy_headers(session)
        stream = await attack.open(receive_buffer=4096)
        await stream.send(wire.head(attack.port, None, extra, verb="GET"))
        async with asyncio.timeout(15):
            status, _ = await stream.reply_head()
        if status == 200:
            streams.append(stream)
        else:
            refused.append(status)
            stream.abort()
        connection.abort()

    for start in range(0, count, 20):
        outcomes = await asyncio.gather(*(begin() for _ in range(start, start + 20)), return_exceptions=True)
        refused += [type(outcome).__name__ for outcome in outcomes if isinstance(outcome, BaseException)]
    await asyncio.sleep(5)
    each = (attack.server.rss() - attack.before) / max(1, len(streams))
    attack.goal("1,000 streams are open", f"{len(streams):,}; refused: {counted(refused)}", len(streams) >= count)
    attack.goal("40 KB each at most", f"{each / 1000:.1f} KB each, session and connection included", each <= 40_000)
    for stream in streams:
        stream.abort()


# D6


async def stopped_reader(attack):
    """Eight readers that stop within one session, whose other calls go on, and then 32 readers of results of 3 MB."""
    connection, session = await attack.session()
    level = wire.frame(1, "logging/setLevel", {"level": "debug"})
    await connection.ask(wire.legacy(attack.port, level, session))
    stopped = []
    for number in range(8):
        arguments = {"messages": 2000 + number, "bytes": 4000}
        chatter = wire.frame(10 + number, "tools/call", {"name": "chatter", "arguments": arguments})
        stopped.append(Stopped(attack.port, wire.legacy(attack.port, chatter, session)))
    await asyncio.sleep(2)
    await others_of_the_session(attack, session)
    grown = attack.growth() / len(stopped)
    attack.goal("1 MiB is kept for a reader that stops at most", f"{mib(grown)} each", grown <= 1 * MIB)
    before = attack.server.rss()
    readers = [Stopped(attack.port, large_result(attack, number)) for number in range(32)]
    await watch(attack, [*stopped, *readers], seconds=50)
    served = [reader for reader in readers if reader.begun]
    grown = (attack.server.peak() - before) / max(1, len(served))
    attack.goal(
        "readers of large results: 1 MiB each at most", f"{mib(grown)} for each of the {len(served)} that are served", grown <= MIB
    )
    cut = [reader.cut - reader.begun for reader in [*stopped, *served] if reader.cut]
    # One that was served last may have its 30 s still before it.
    due = [reader for reader in [*stopped, *served] if not reader.cut and time.monotonic() - reader.begun > SLOW_READER_MAX]
    attack.goal(
        "a reader that stops is cut after 30 s",
        f"{len(cut)} were cut" + (f", the last after {max(cut):.0f} s" if cut else "") + f"; {len(due)} are open for longer",
        cut and max(cut) <= SLOW_READER_MAX and not due,
    )
    for each in [*readers, *stopped]:
        each.socket.close()
    connection.abort()


async def others_of_the_session(attack, session):
    times, failed = [], []
    begun = time.monotonic()
    while time.monotonic() - begun < 10:
        began = time.monotonic()
        echo = wire.frame(3, "tools/call", {"name": "echo", "arguments": {"text": "still here"}})
        try:
            reply = await attack.once(wire.legacy(attack.port, echo, session), limit=10)
            assert "still here" in json.dumps(reply.result)
            times.append(time.monotonic() - began)
        except (OSError, EOFError, TimeoutError, ValueError, AssertionError) as error:
            failed.append(type(error).__name__)
        await asyncio.sleep(0.1)
    worst = sorted(times)[int(0.99 * (len(times) - 1))] if times else float("inf")
    attack.goal(
        "other calls of the session: p99 100 ms at most",
        f"{ms(worst) if times else 'none was answered'}; failures: {counted(failed)}",
        not failed and worst <= 0.1,
    )


def large_result(attack, number):
    if attack.peer:
        return wire.call(attack.port, number, "echo", text="x" * (3 * MIB))
    return wire.call(attack.port, number, "big", lines=450_000 + number)


class Stopped:
    """A connection whose request is sent and whose reply is never read."""

    def __init__(self, port, request):
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        self.socket.settimeout(10)
        self.socket.sendall(request)
        # When its first byte was there, and when the server let go of it.
        self.begun = self.cut = None

    def look(self, held):
        now = time.monotonic()
        if self.begun is None:
            try:
                if self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                    self.begun = now
            except OSError:
                pass
        if self.cut is None and self.port not in held:
            self.cut = now


async def watch(attack, readers, seconds):
    begun = time.monotonic()
    while time.monotonic() - begun < seconds and any(not reader.cut for reader in readers):
        held = attack.server.held([reader.port for reader in readers])
        for reader in readers:
            reader.look(held)
        await asyncio.sleep(0.5)


# D7


async def half_requests(attack):
    """500 half heads and 500 half bodies; every second one goes on with a byte a second."""
    half_head = wire.head(attack.port, 1000)[:-20]
    half_body = wire.head(attack.port, 1000, wire.modern_headers("tools/call", "echo")) + b'{"jsonrpc":'
    connections = []
    begun = time.monotonic()
    for number in range(1000):
        try:
            connection = await attack.open()
            await connection.send(half_head if number % 2 else half_body)
            connections.append(connection)
        except OSError:
            pass
    ports = [connection.local_port for connection in connections]
    opened = time.monotonic() - begun

    async def drip(connection):
        for _ in range(60):
            await asyncio.sleep(1)
            try:
                await connection.send(b" ")
            except OSError:
                return

    drips = [asyncio.create_task(drip(connection)) for connection in connections[::4]]
    limit = 30 if attack.peer else 20
    gone = await wait_until(lambda: not attack.server.held(ports), limit, pause=0.5)
    left = len(attack.server.held(ports))
    for task in drips:
        task.cancel()
    attack.goal(
        "all 1,000 are closed within 15 s",
        f"after {gone:.1f} s (opened in {opened:.1f} s)" if gone else f"{left:,} of {len(ports):,} are open after {limit} s",
        gone is not None and gone <= 15,
    )
    for connection in connections:
        connection.abort()


# D8


async def fast_polls(attack):
    """One task polled 1,000 times a second, and pages of a long list with forged cursors."""
    task = (await attack.once(wire.call(attack.port, 1, "nap", ms=3_600_000))).result
    hint = task.get("pollIntervalMs", 0)
    statuses, retry = await poll_at(attack, task["taskId"], rate=1000, seconds=5)
    refused = statuses.get(429, 0)
    attack.goal("polls at 1,000 a second: 429", told(statuses), refused > 0)
    attack.goal("it says when to come again", f"Retry-After: {retry}", retry is not None)
    await asyncio.sleep(2)
    after = (await attack.once(wire.on_task(attack.port, 1, "tasks/get", task["taskId"]))).json
    after = after.get("result", {}).get("pollIntervalMs", 0)
    attack.goal("the hint is raised", f"from {hint} ms to {after} ms", after > hint)
    if not attack.peer:
        await long_list(attack)


async def poll_at(attack, task, rate, seconds, connections=8):
    statuses, retry = {}, None
    begun = time.monotonic()

    async def work(first):
        nonlocal retry
        connection = await attack.open()
        for number in range(first, rate * seconds, connections):
            await asyncio.sleep(max(0, begun + number / rate - time.monotonic()))
            if time.monotonic() - begun > 2 * seconds:
                break
            try:
                connection = connection or await attack.open()
                reply = await connection.ask(wire.on_task(attack.port, number, "tasks/get", task))
                status = reply.status
                retry = reply.headers.get("retry-after", retry) if status == 429 else retry
            except (OSError, EOFError, TimeoutError) as error:
                status, connection = type(error).__name__, connection.abort() if connection else None
            statuses[status] = statuses.get(status, 0) + 1
        if connection:
            connection.abort()

    await asyncio.gather(*(work(first) for first in range(connections)))
    return statuses, retry


async def long_list(attack, count=20_000):
    """`tasks/list` over so many tasks."""
    created = await create_often(attack, count)
    connection, session = await attack.session()

    async def page(cursor=None):
        params = {"cursor": cursor} if cursor else {}
        begun = time.monotonic()
        reply = await connection.ask(wire.legacy(attack.port, wire.frame(5, "tasks/list", params), session))
        return reply, time.monotonic() - begun

    times, sizes, cursor = [], [], None
    for _ in range(20):
        reply, seconds = await page(cursor)
        times.append(seconds)
        sizes.append(len(reply.result["tasks"]))
        cursor = reply.result.get("nextCursor")
    attack.goal(
        f"a list of {created:,} tasks: pages of 50 at most", f"{max(sizes)}; {ms(median(times))} each", max(sizes) <= 50
    )
    forged = [cursor[:-1] + ("A" if cursor[-1] != "A" else "B"), cursor[: len(cursor) // 2], "A" * 4000, "0", cursor + "A"]
    codes = [(await page(each))[0].code for each in forged]
    attack.goal("forged cursors: -32602", counted(codes), set(codes) == {-32602})
    connection.abort()


async def create_often(attack, count, connections=32):
    left, created = [count], [0]

    async def work():
        connection = await attack.open()
        while left[0] > 0:
            left[0] -= 1
            reply = await connection.ask(wire.call(attack.port, 1, "nap", ms=3_600_000))
            created[0] += reply.code is None
        connection.abort()

    await asyncio.gather(*(work() for _ in range(connections)))
    return created[0]


# D9


async def many_questions(attack):
    """A tool that asks 10,000 questions, one that asks with a form of 1 MB, and one with patterns that explode."""
    most, task = 0, await begin(attack, "many")
    begun = time.monotonic()
    while time.monotonic() - begun < 8:
        most = max(most, len((await look(attack, task)).get("inputRequests", {})))
        await asyncio.sleep(0.6)
    attack.goal("10,000 questions: 16 open at most", str(most), 0 < most <= 16)
    await attack.once(wire.on_task(attack.port, 1, "tasks/cancel", task))
    for name, text in [("large", "1,000 fields"), ("long", "one description")]:
        task, shown = await begin(attack, name), 0
        begun = time.monotonic()
        while time.monotonic() - begun < 5:
            state = await look(attack, task)
            shown = max(shown, len(json.dumps(state.get("inputRequests", {}))))
            if state["status"] in ("completed", "failed"):
                break
            await asyncio.sleep(0.6)
        attack.goal(f"a form of 1 MB ({text}): 64 KiB shown at most", f"{shown:,} bytes; {state['status']}", shown <= 65536)
        await attack.once(wire.on_task(attack.port, 1, "tasks/cancel", task))
    await explosive_patterns(attack)


async def explosive_patterns(attack):
    processor = attack.server.processor()
    task, times, asked = await begin(attack, "pattern"), [], 0
    begun = time.monotonic()
    while time.monotonic() - begun < 8:
        state = await look(attack, task)
        asked = max(asked, len(state.get("inputRequests", {})))
        for key in state.get("inputRequests", {}):
            answer = {key: {"action": "accept", "content": {"word": "a" * 30_000 + "!"}}}
            began = time.monotonic()
            await attack.once(wire.on_task(attack.port, 1, "tasks/update", task, inputResponses=answer))
            times.append(time.monotonic() - began)
        if state["status"] in ("completed", "failed", "cancelled"):
            break
        await asyncio.sleep(0.6)
    used = attack.server.processor() - processor
    worst = max(times, default=0)
    attack.goal(
        "patterns that explode: never asked, or 100 ms an answer at most",
        f"{asked} of 5 asked, {len(times)} answers, the slowest {ms(worst)}; {used:.2f} s of processor in all",
        worst <= 0.1 and used <= 2,
    )


async def begin(attack, what):
    return (await attack.once(wire.call(attack.port, 1, "asks", what=what))).result["taskId"]


async def look(attack, task):
    return (await attack.once(wire.on_task(attack.port, 1, "tasks/get", task))).result


# S21


async def flood_of_creates(attack):
    """Creates at a hundred times the honest client's pace, over 32 connections, for 10 s."""
    rate, seconds, connections = 2000, 10, 32
    statuses = {}
    begun = time.monotonic()

    async def work(first):
        connection = await attack.open()
        for number in range(first, rate * seconds, connections):
            await asyncio.sleep(max(0, begun + number / rate - time.monotonic()))
            if time.monotonic() - begun > seconds:
                break
            try:
                connection = connection or await attack.open()
                status = (await connection.ask(wire.call(attack.port, 1, "nap", ms=3_600_000))).status
            except (OSError, EOFError, TimeoutError) as error:
                status, connection = type(error).__name__, connection.abort() if connection else None
            statuses[status] = statuses.get(status, 0) + 1
        if connection:
            connection.abort()

    await asyncio.gather(*(work(first) for first in range(connections)))
    rate = sum(statuses.values()) / (time.monotonic() - begun)
    attack.goal("the flood comes through", f"{rate:,.0f} creates a second; {told(statuses)}", rate >= 1000)


@dataclass(frozen=True)
class Row:
    """An attack, and under what settings of Longhaul it runs."""

    name: str
    title: str
    run: object
    settings: dict = field(default_factory=dict)
    # The honest client's plan; the most its p99 may be in ms, and the most of that of an idle server.
    plan: str = "mixed"
    p99_max: float | None = None
    ratio_max: float | None = None
    on_peers: bool = True


ROWS = [
    Row("D0", "Nothing", nothing),
    Row("D1", "A body of 100 MB", large_body),
    Row("D2", "Deep JSON", deep_json),
    Row("D3", "2,000,000 values, 20 times at once", many_values),
    Row("D4", "Sessions that are never ended", many_sessions),
    Row("D5", "1,000 idle streams", idle_streams, {"SERVER__STREAMS_MAX": "2000", "SERVER__CONNECTIONS_MAX": "4096"}),
    Row("D6", "A reader that stops", stopped_reader, p99_max=100),
    Row("D7", "Half requests", half_requests),
    Row("D8", "Polls and lists", fast_polls, {"TASKS__OPEN_MAX": "100000"}),
    Row("D9", "Questions", many_questions, on_peers=False),
    Row(
        "S21", "A flood of creates", flood_of_creates, {"TASKS__OPEN_MAX": "100000"}, "reserved", p99_max=20, ratio_max=2,
        on_peers=False,
    ),
]


def raise_descriptors():
    """An attack has thousands of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))
