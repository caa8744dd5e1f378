"""Bodies that are too large, too deep, or too full: D1 to D3."""

import asyncio
import json
import time

import wire
from attack import MIB, counted, median, mib, ms

BODY_MAX = 4 * MIB


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
    # To know that a body without a length is too large, the limit of it must be held. When the next one comes, the
    # allocator may be about to give that memory back to the system, and takes other memory for this one. 1 MiB is for
    # all else.
    attack.goal("memory grows by two bodies of 4 MiB and 1 MiB at most", mib(attack.growth()), attack.growth() <= 9 * MIB)


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
