"""Sessions, streams, and connections that are left open: D4 to D7."""

import asyncio
import json
import socket
import time

import wire
from attack import MIB, counted, mib, ms, told, wait_until

# 30 s, and what a look every half second and a busy machine add.
SLOW_READER_MAX = 35


# D4


async def many_sessions(attack):
    """100,000 `initialize` (2,000 against a peer), and never a DELETE."""
    count = 2000 if attack.peer else 100_000
    begun = time.monotonic()
    seen = await initialize_often(attack, count)
    seconds = time.monotonic() - begun
    each = (attack.server.rss() - attack.before) / max(1, seen.get(200, 0))
    attack.goal("1 KiB for each at most", f"{each / 1024:.2f} KiB; {told(seen)} in {seconds:.0f} s", each <= 1024)
    growth = attack.growth()
    attack.goal("memory grows by 64 MiB at most", mib(growth), growth <= 64 * MIB)


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
    served = [reader for reader in readers if reader.begun and not reader.whole]
    refused = [reader for reader in readers if reader.whole]
    grown = attack.server.peak() - before
    # 64 MiB of replies that wait, whoever waits, and on top what makes them: four tools at a time, each with its output,
    # the result, and what of it is sealed and written, at most three or four of them at once.
    attack.goal(
        "32 readers of large results: 120 MiB at most",
        f"{mib(grown)}, {len(served)} of them served with 3 MB each, {len(refused)} told to ask again",
        grown <= 120 * MIB,
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
        # All of a small reply is there: nothing waits for this reader, and its connection is an idle one.
        self.whole = False

    def look(self, held):
        now = time.monotonic()
        if not self.whole:
            try:
                begins = self.socket.recv(4096, socket.MSG_PEEK | socket.MSG_DONTWAIT)
                self.begun = self.begun or (now if begins else None)
                self.whole = is_whole(begins)
            except OSError:
                pass
        if self.cut is None and self.port not in held:
            self.cut = now


def is_whole(reply):
    head, _, body = reply.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return bool(lengths) and len(body) >= int(lengths[0])


async def watch(attack, readers, seconds):
    begun = time.monotonic()
    while time.monotonic() - begun < seconds and any(not reader.cut and not reader.whole for reader in readers):
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
