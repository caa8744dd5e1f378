"""What an attack works with: the server, the goals it was seen to meet or miss, and connections to it.

Used by every attack, each of which is a function that gets an `Attack`, does its worst within bounds, and says what it
saw. An attack never sends to another address than the loopback, and ends by itself.
"""

import asyncio
import time
from dataclasses import dataclass, field

import wire

MIB = 2**20


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


def told(statuses):
    return ", ".join(f"{count:,} × {status}" for status, count in sorted(statuses.items(), key=str))
