"""The rows of the table: each attack, and under what settings of Longhaul it runs. Called by `run.py`."""

import asyncio
import resource
from dataclasses import dataclass, field

import bodies
import connections
import work


async def nothing(attack):
    """No attack for 10 s: what the honest client alone does to the figures."""
    await asyncio.sleep(10)


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
    # How much more memory may be in use 10 s after.
    after_max: float = 0.1


ROWS = [
    Row("D0", "Nothing", nothing),
    Row("D1", "A body of 100 MB", bodies.large_body),
    Row("D2", "Deep JSON", bodies.deep_json),
    Row("D3", "2,000,000 values, 20 times at once", bodies.many_values),
    Row("D4", "Sessions that are never ended", connections.many_sessions),
    Row("D5", "1,000 idle streams", connections.idle_streams, {"SERVER__STREAMS_MAX": "2000", "SERVER__CONNECTIONS_MAX": "4096"}),
    Row("D6", "A reader that stops", connections.stopped_reader, p99_max=100),
    Row("D7", "Half requests", connections.half_requests),
    # 20,000 tasks are still open after it.
    Row("D8", "Polls and lists", work.fast_polls, {"TASKS__OPEN_MAX": "100000"}, after_max=0.2),
    Row("D9", "Questions", work.many_questions, on_peers=False),
    Row(
        "S21", "A flood of creates", work.flood_of_creates, {"TASKS__OPEN_MAX": "100000"}, "reserved", p99_max=20, ratio_max=2,
        on_peers=False,
    ),
]


def raise_descriptors():
    """An attack has thousands of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard > 0 else 65536, hard))
